"""Functions of layers, activations and losses; each is declared in `ops/`."""
from typing import Any

from ..base.names import attribute_error
from ..tensor.forms import namespace

globals().update(namespace["nn.functional"])
__all__ = list(namespace["nn.functional"])                 # what `help` of the module lists


def __getattr__(name: str) -> Any:
    raise attribute_error("torch.nn.functional", name, globals().keys)
