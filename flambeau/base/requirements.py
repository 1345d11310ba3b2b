"""NumPy is one that will do. pip puts an older one in place where another package asks for it, and only warns."""
import numpy

LEAST_NUMPY = 2, 2, 5             # as in pyproject.toml
held = tuple(int(part) if part.isdecimal() else 0 for part in numpy.__version__.split(".")[:3])
if held < LEAST_NUMPY:
    raise ImportError(f"Flambeau needs NumPy {'.'.join(map(str, LEAST_NUMPY))} or later, and {numpy.__version__} is "
                      f"installed. `pip check` says which package asked for it; `pip install "
                      f"\"numpy>={'.'.join(map(str, LEAST_NUMPY))}\"` puts it right")
