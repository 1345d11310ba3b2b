"""Linear algebra, through LAPACK; each function is declared in `ops/linalg.py`."""
from .base.names import attribute_error
from .tensor.forms import namespace

globals().update(namespace["linalg"])


def __getattr__(name):
    raise attribute_error("torch.linalg", name, globals().keys)
