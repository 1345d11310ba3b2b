"""The functions of the `torch` namespace, for the layers above: `from ..tensor.functions import cat, empty`.

The package itself gathers them, but nothing inside it may import the package.
"""
from typing import Any

from . import about, create, dlpack, forms, generators, interop, random

PUBLIC_MODULES = (create, interop, dlpack, about, generators, random)       # each says in PUBLIC what it gives


def __getattr__(name: str) -> Any:
    for module in PUBLIC_MODULES:
        if name in module.PUBLIC:
            return getattr(module, name)
    if name not in forms.namespace[""]:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return forms.namespace[""][name]
