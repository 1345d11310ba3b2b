"""Functions of layers, activations and losses; each is declared in `ops/`."""
from typing import Any

from ..tensor.forms import namespace

globals().update(namespace["nn.functional"])


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
