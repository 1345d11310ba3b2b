"""pandas' frames as a source, by NumPy alone; polars' frames, and everything else of Arrow's, come through arrow.py.

What pandas takes for missing is NULL: NaN in a column of floats too, which cannot be told from a missing value there.
(polars tells them apart, and so do we.)
"""
import numpy as np

from .arrow import in_form
from .arrow_c import ArrowColumn
from .objects import from_objects
from .source import Chunk, ColumnFact
from .tables import TableSource

KIND_OF_NUMPY = {"b": "bool", "i": "int", "u": "uint", "f": "float"}
DECODED_ROWS = 65536                      # at a time, of columns that are not NumPy's


def source(con):
    """The RowSource of a frame, or of a series with a name."""
    if type(con).__name__ == "Series":
        con = con.to_frame()
    return TableSource(PandasTable(con))


class PandasTable:
    """The columns of a pandas frame, for a TableSource."""

    def __init__(self, frame):
        self.frame, self.name = frame, "pandas' DataFrame"

    def facts(self):
        return [ColumnFact(str(name), str(dtype), *kind_of_dtype(dtype, self.frame[name]))
                for name, dtype in self.frame.dtypes.items()]

    def keep(self):
        return len(self.frame)

    def chunks(self, wanted):
        columns = {str(name): name for name in self.frame.columns}
        for start in range(0, len(self.frame), DECODED_ROWS):
            part = self.frame.iloc[start:start + DECODED_ROWS]
            pairs = [in_form(column_of(part[columns[each.name]]), each) for each in wanted]
            yield Chunk([values for values, _ in pairs], [nulls for _, nulls in pairs])


def kind_of_dtype(dtype, series):
    """(kind, bits) of a column."""
    if hasattr(dtype, "categories"):
        return kind_of_dtype(dtype.categories.dtype, series)
    inside = getattr(dtype, "numpy_dtype", dtype)                # of pandas' own integers, floats and truth values
    if str(dtype).startswith("datetime64"):
        return "timestamp", 64
    if str(dtype) in ("string", "str") or str(dtype).startswith("string"):
        return "text", 64
    if isinstance(inside, np.dtype) and inside.kind in KIND_OF_NUMPY:
        return KIND_OF_NUMPY[inside.kind], max(8 * inside.itemsize, 32 if inside.kind == "f" else 8)
    if inside == np.dtype(object):
        present = series.dropna()
        first = present.iloc[0] if len(present) else None
        kinds = {"str": "text", "bool": "bool", "int": "int", "float": "float", "Decimal": "decimal", "date": "date",
                 "datetime": "timestamp", "Timestamp": "timestamp", "NoneType": "unknown"}
        return kinds.get(type(first).__name__, "other"), 64
    return "other", 64


def column_of(series):
    """A pandas column as one of Arrow's: values, and which are missing."""
    if hasattr(series.dtype, "categories"):
        series = series.astype(series.dtype.categories.dtype)
    missing = np.asarray(series.isna())
    nulls = missing if missing.any() else None
    if str(series.dtype).startswith("datetime64"):               # with a zone too: counted in UTC
        if series.dt.tz is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return ArrowColumn(series.to_numpy(), nulls)
    inside = getattr(series.dtype, "numpy_dtype", series.dtype)
    if isinstance(inside, np.dtype) and inside.kind in KIND_OF_NUMPY:
        if isinstance(series.dtype, np.dtype):
            return ArrowColumn(series.to_numpy(), nulls)
        return ArrowColumn(series.to_numpy(dtype=inside, na_value=inside.type(0)), nulls)
    return ArrowColumn(*from_objects(series.to_numpy(dtype=object), missing))
