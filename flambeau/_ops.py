"""PyTorch's place for what `torch.ops` is made of (compat/_library/overloads.py), PyTorch's own operators among it."""
from .compat._library import aten  # noqa: F401  (which puts them there)
from .compat._library.overloads import (  # noqa: F401  (_found: pickles name it)
    HigherOrderOperator,
    OperatorBase,
    OpOverload,
    OpOverloadPacket,
    Tag,
    _found,
    _OpNamespace,
    define,
    lookup,
    ops,
    undefine,
)

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "Tag", "define", "lookup", "ops",
           "undefine"]
