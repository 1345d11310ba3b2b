"""What comes over Arrow's C data interface, in the forms that SQLDataset asks for; and streams of it as a source.

DuckDB, ADBC, polars, pyarrow, Spark and Ray give Arrow's batches. `chunk_of` turns one into a Chunk, for all of them,
so that a type means the same whichever library sends it. An object with `__arrow_c_stream__` and no database behind it
is read batch by batch where the order is its own, and is held in memory, as NumPy columns, for every other order.
"""
import numpy as np

from .arrow_c import ArrowColumn, ArrowStream
from .source import Chunk, ColumnFact
from .tables import TableSource

EXACT_INTEGER_LIMIT = 1 << 53             # beyond it float64 has gaps
SECONDS_OF_UNIT = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
KIND_OF_ARROW = {**{kind: kind for kind in ("bool", "int", "uint", "float", "decimal", "text", "date", "timestamp")},
                 "null": "unknown"}


def source(con):
    """The RowSource of an object with `__arrow_c_stream__` or `__arrow_c_array__`."""
    return TableSource(ArrowTable(con))


def facts_of(fields):
    """What Arrow says of its columns."""
    return [ColumnFact(field.name, declared(field), KIND_OF_ARROW.get(field.kind, "other"), bits_of(field))
            for field in fields]


def declared(field):
    return f"Arrow's {field.format!r}" if field.dictionary is None else f"dictionary of {declared(field.dictionary)}"


def bits_of(field):
    format = field.format if field.dictionary is None else field.dictionary.format
    return {"c": 8, "C": 8, "s": 16, "S": 16, "e": 32, "i": 32, "I": 32, "f": 32}.get(format, 64)


def chunk_of(columns, wanted):
    """The Chunk of ArrowColumns, which stand in the order of `wanted`."""
    pairs = [in_form(column, each) for column, each in zip(columns, wanted)]
    return Chunk([values for values, _ in pairs], [nulls for _, nulls in pairs])


def in_form(column: ArrowColumn, wanted):
    """(array in the form that is wanted, nulls). What would lose something is refused with the column and the value."""
    plain = column.plain()
    values, nulls, form = plain.values, plain.nulls, wanted.form
    if form == "text":
        if values.dtype != object:
            if nulls is not None and nulls.all():
                return np.full(len(values), None, object), nulls
            refuse_form(wanted, some_value(values, nulls))
        for text in {type(value) for value in values.tolist()} - {str, type(None)}:
            refuse_form(wanted, next(value for value in values if isinstance(value, text)))
        return values, nulls
    if values.dtype == object:
        if nulls is not None and nulls.all():
            return np.zeros(len(values), form), nulls
        refuse_form(wanted, some_value(values, nulls))
    if values.dtype.kind == "M":
        unit = np.datetime_data(values.dtype)[0]
        values = values.view(np.int64) if unit == "D" else values.view(np.int64) / SECONDS_OF_UNIT[unit]
    elif values.dtype.kind == "m":
        refuse_form(wanted, some_value(values, nulls))
    return exactly(values, nulls, wanted), nulls


def exactly(values, nulls, wanted):
    """Numbers as the NumPy type of `wanted.form`, if each is equal to what it becomes; those at a null do not count."""
    target = np.dtype(wanted.form)
    if values.dtype == target:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(target)
        if target.kind == "b":
            same = (values == 0) | (values == 1)
        elif target.kind == "f" and values.dtype.kind in "iu":
            same = np.ones(len(values), bool) if values.dtype.itemsize < target.itemsize else \
                np.fromiter((int(number) == value for number, value in zip(cast.tolist(), values.tolist())), bool) \
                if (abs(values) > EXACT_INTEGER_LIMIT).any() or target.itemsize < 8 else np.ones(len(values), bool)
        else:
            same = (cast == values) | (values != values) if target.kind == "f" else cast == values
    wrong = ~same if nulls is None else ~same & ~nulls
    if wrong.any():
        value = values[wrong.argmax()].item()
        raise OverflowError(f"column {wanted.name!r} holds {value!r}, which no {wanted.form} is equal to; cast it in "
                            "the query to what is meant")
    return cast


def some_value(values, nulls):
    return values[0 if nulls is None else int((~nulls).argmax())]


def refuse_form(wanted, value):
    said = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "…"
    hint = (f"text becomes numbers by codes={{{wanted.name!r}: {{{said}: 0, …}}}}" if isinstance(value, str)
            else "cast it in the query")
    raise TypeError(f"column {wanted.name!r} is taken for {wanted.kind} and holds {said}; {hint}")


class ArrowTable:
    """The columns of an object with `__arrow_c_stream__`, for a TableSource."""

    def __init__(self, thing):
        self.thing, self.rows, self.kept = thing, None, None
        self.name = f"{type(thing).__module__.split('.')[0]}'s {type(thing).__name__}"
        self.unread = ArrowStream(thing)          # a reader gives its batches once: these are the first to be given
        self.fields = self.unread.fields

    def facts(self):
        return facts_of(self.fields)

    def keep(self):
        """Keep the batches: over the same memory, where they are a table's, and a stream is read once alone."""
        if self.kept is None:
            self.kept = list(self.batches())
        return sum(rows for rows, _ in self.kept)

    def batches(self):
        if self.kept is not None:
            yield from self.kept
            return
        unread, self.unread, seen = self.unread, None, 0
        with unread or ArrowStream(self.thing) as stream:
            for rows, columns in stream:
                seen += rows
                yield rows, columns
        if seen != self.rows and self.rows is not None:       # a reader that is read out, for one
            raise ValueError(f"{self.name} gave {self.rows} rows, and {seen} when it was read again: make a table of "
                             "it (reader.read_all() of pyarrow), or keep what is read with cache=")
        self.rows = seen

    def chunks(self, wanted):
        """The rows in their own order, batch by batch."""
        index_of = {field.name: i for i, field in enumerate(self.fields)}
        for rows, columns in self.batches():
            if rows:
                yield chunk_of([columns[index_of[each.name]] for each in wanted], wanted)

    def __getstate__(self):
        return {**self.__dict__, "unread": None, "kept": None}
