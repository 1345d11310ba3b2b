"""Linear algebra, through LAPACK; each function is declared in `ops/linalg.py`."""
from .base.names import attribute_error
from .tensor.forms import namespace

globals().update(namespace["linalg"])
__all__ = list(namespace["linalg"])                 # what `help` of the module lists


def __getattr__(name):
    raise attribute_error("torch.linalg", name, globals().keys)
