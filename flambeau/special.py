"""Special functions; each is declared in `ops/special.py` or `ops/math.py`."""
from .tensor.forms import namespace

globals().update(namespace["special"])
