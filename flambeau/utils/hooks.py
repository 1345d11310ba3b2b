"""Handles of hooks, under the name that PyTorch has for them."""
from ..nn.modules.hooks import BackwardHook, RemovableHandle

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook"]


def unserializable_hook(f):
    """Mark a hook that is not meant to be saved with its tensor."""
    f.__torch_unserializable__ = True
    return f
