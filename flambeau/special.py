"""Special functions; each is declared in `ops/special.py`, or under its other name in `ops/math.py` and its like."""
from .base.names import attribute_error
from .tensor.forms import namespace

globals().update(namespace["special"])
__all__ = [name for name in namespace["special"] if not name.endswith("_")]          # what `help` of the module lists


def __getattr__(name):
    raise attribute_error("torch.special", name, globals().keys)
