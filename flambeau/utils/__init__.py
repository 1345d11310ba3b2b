"""Helpers around the core: checkpointing and DLPack."""
from . import checkpoint

__all__ = ["checkpoint"]
