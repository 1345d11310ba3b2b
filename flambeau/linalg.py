"""Linear algebra, through LAPACK; each function is declared in `ops/linalg.py`."""
from .tensor.forms import namespace

globals().update(namespace["linalg"])
