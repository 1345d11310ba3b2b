"""Helpers around the core: checkpointing, DLPack, and data loading (`utils.data`, imported when asked for)."""
from importlib import import_module

from ..base.names import attribute_error
from . import checkpoint, dlpack

__all__ = ["checkpoint", "data", "dlpack"]


def __getattr__(name):
    if name not in ("data", "hooks"):
        raise attribute_error("torch.utils", name, globals().keys)
    return import_module(f".{name}", __name__)
