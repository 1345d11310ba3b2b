"""Handles of hooks, under the name that PyTorch has for them."""
from ..nn import modules

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook"]


BackwardHook, RemovableHandle = modules.hooks.BackwardHook, modules.hooks.RemovableHandle


def unserializable_hook(f):
    """Mark a hook that is not meant to be saved with its tensor."""
    f.__torch_unserializable__ = True
    return f
