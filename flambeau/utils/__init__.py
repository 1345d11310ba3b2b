"""Helpers around the core: checkpointing and DLPack."""
from . import checkpoint, dlpack

__all__ = ["checkpoint", "dlpack"]
