"""Helpers around the core: checkpointing, DLPack, and data loading (`utils.data`, imported when asked for)."""
from importlib import import_module

from . import checkpoint, dlpack

__all__ = ["checkpoint", "data", "dlpack"]


def __getattr__(name):
    if name not in ("data", "hooks"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)
