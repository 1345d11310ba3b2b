"""Linear algebra, through LAPACK; each function is declared in `ops/linalg.py`."""
from .base.errors import LinAlgError as LinAlgError
from .tensor.forms import namespace

globals().update(namespace["linalg"])
