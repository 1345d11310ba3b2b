"""`torch.jit.annotations`: TorchScript's words for types. torchvision and timm import them.

`BroadcastingList2[int]` is a list of numbers for which one number may stand.
"""
from typing import Any, Dict, List, Optional as Optional, Tuple, Union as Union  # noqa: UP035  (torchvision asks for these names)

from .missing import rest_of

__getattr__ = rest_of("torch.jit.annotations")
__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Tuple"]


class _Broadcasting:
    """An annotation; `[int]` says of what."""

    def __init__(self, name):
        self.__name__ = name

    def __getitem__(self, types):
        return self

    def __call__(self, *args, **kwargs):
        raise TypeError(f"{self.__name__} is an annotation, and nothing can be made of it")

    def __repr__(self):
        return f"torch.jit.annotations.{self.__name__}"


BroadcastingList1 = _Broadcasting("BroadcastingList1")
BroadcastingList2 = _Broadcasting("BroadcastingList2")
BroadcastingList3 = _Broadcasting("BroadcastingList3")
BroadcastingList4 = _Broadcasting("BroadcastingList4")
BroadcastingList5 = _Broadcasting("BroadcastingList5")
BroadcastingList6 = _Broadcasting("BroadcastingList6")
