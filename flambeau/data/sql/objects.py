"""Python's objects as columns of numbers: what drivers give that know no other way, and pandas' columns of objects."""
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np


def from_objects(values, missing):
    """(array, nulls) of Python's objects: numbers of one type as that, dates as NumPy's, everything else as it is."""
    nulls = missing if missing.any() else None
    classes = {type(value) for value, gone in zip(values, missing) if not gone}
    if classes and all(issubclass(cls, Decimal) for cls in classes):
        return np.array([0.0 if gone else float(value) for value, gone in zip(values, missing)]), nulls
    if classes and all(issubclass(cls, datetime) for cls in classes):
        naive = [np.datetime64(0, "us") if gone else np.datetime64(
            value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None), "us")
            for value, gone in zip(values, missing)]
        return np.array(naive, "M8[us]"), nulls
    if classes and all(issubclass(cls, date) for cls in classes):
        return np.array([np.datetime64(0, "D") if gone else np.datetime64(value, "D")
                         for value, gone in zip(values, missing)], "M8[D]"), nulls
    if classes and classes <= {bool}:
        return np.array([bool(value) and not gone for value, gone in zip(values, missing)], bool), nulls
    if classes and classes <= {int, bool}:
        return np.array([0 if gone else int(value) for value, gone in zip(values, missing)], np.int64), nulls
    if classes and classes <= {int, float}:
        return np.array([0 if gone else value for value, gone in zip(values, missing)], float), nulls
    out = values.copy()
    out[missing] = None
    return out, nulls
