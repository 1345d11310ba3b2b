"""Arrow's C data interface from the other side: a producer written here, whose releases are counted.

tests/data/sql compares with the producers that people have: pyarrow, polars, DuckDB.
"""
import ctypes
import gc
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flambeau.data.sql.arrow_c import ArrowArray, ArrowArrayStream, ArrowError, ArrowSchema, ArrowStream

pytestmark = pytest.mark.pinned

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Column:
    """A column as Arrow lays it out: a format and buffers, with `offset` values in front that do not count."""

    def __init__(self, format, values, offset=0, dictionary=None):
        self.format, self.offset, self.dictionary = format, offset, dictionary
        values = [None] * offset + list(values)
        self.length, self.nulls = len(values) - offset, any(value is None for value in values)
        self.validity = np.packbits([value is not None for value in values], bitorder="little") if self.nulls else None
        self.buffers = [self.validity, *self.laid_out(values)]

    def laid_out(self, values):
        if self.format == "n":
            return []
        if self.format == "b":
            return [np.packbits(np.array(values, bool), bitorder="little")]
        if self.format in "uUzZ":
            pieces = [b"" if value is None else value.encode() if isinstance(value, str) else value for value in values]
            ends = np.cumsum([0, *map(len, pieces)]).astype("i4" if self.format in "uz" else "i8")
            return [ends, np.frombuffer(b"".join(pieces), "u1")]
        if self.format in ("vu", "vz"):
            return self.views([b"" if value is None else value.encode() for value in values])
        if self.format.startswith("d:"):
            size = int((self.format + ",128").split(",")[2]) // 8
            numbers = b"".join((value or 0).to_bytes(size, "little", signed=True) for value in values)
            return [np.frombuffer(numbers, "u1")]
        dtype = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8", "e": "f2",
                 "f": "f4", "g": "f8", "tdD": "i4", "tdm": "i8", "tts": "i4", "ttm": "i4"}.get(self.format, "i8")
        return [np.array([7 if value is None else value for value in values], dtype)]

    @staticmethod
    def views(pieces):
        entries, others = b"", [b"", b""]
        for i, piece in enumerate(pieces):
            head = len(piece).to_bytes(4, "little")
            if len(piece) <= 12:
                entries += head + piece.ljust(12, b"\0")
            else:
                entries += head + piece[:4] + (i % 2).to_bytes(4, "little") + len(others[i % 2]).to_bytes(4, "little")
                others[i % 2] += piece
        return [*(np.frombuffer(part, "u1") for part in (entries, *others)), np.array([*map(len, others)], "i8")]


class Producer:
    """An object with `__arrow_c_stream__` (or only `__arrow_c_array__`) that counts what is released, and how often."""

    def __init__(self, *batches, names=None, fails_at=None, offset=0):
        self.batches, self.names, self.fails_at, self.offset = batches, names, fails_at, offset
        self.released, self.alive, self.given = [], [], 0

    def schema(self, out, columns):
        children = [self.field(ArrowSchema(), column, name)
                    for column, name in zip(columns, self.names or map(str, range(len(columns))))]
        out.format, out.name, out.n_children = b"+s", b"", len(children)
        out.children = self.kept((ctypes.POINTER(ArrowSchema) * len(children))(*map(ctypes.pointer, children)))
        out.release = self.release(ArrowSchema, "schema")

    def field(self, out, column, name):
        out.format, out.name = self.kept(column.format.encode()), self.kept(name.encode())
        if column.dictionary is not None:
            out.dictionary = ctypes.pointer(self.field(ArrowSchema(), column.dictionary, ""))
        return self.kept(out)

    def array(self, out, columns):
        children = [self.child(ArrowArray(), column) for column in columns]
        out.length = columns[0].length - self.offset if columns else 0
        out.offset, out.n_buffers, out.n_children = self.offset, 1, len(children)
        out.buffers = self.kept((ctypes.c_void_p * 1)(None))
        out.children = self.kept((ctypes.POINTER(ArrowArray) * len(children))(*map(ctypes.pointer, children)))
        out.release = self.release(ArrowArray, f"batch {self.given}")

    def child(self, out, column):
        out.length, out.offset, out.null_count = column.length, column.offset, -1
        out.n_buffers = len(column.buffers) if column.format != "n" else 0
        out.buffers = self.kept((ctypes.c_void_p * len(column.buffers))(
            *(None if buffer is None or not buffer.size else buffer.ctypes.data for buffer in column.buffers)))
        if column.dictionary is not None:
            out.dictionary = ctypes.pointer(self.child(ArrowArray(), column.dictionary))
        return self.kept(out)

    def kept(self, thing):
        """`thing`, alive for as long as the producer: a structure holds addresses alone."""
        self.alive.append(thing)
        return thing

    def release(self, structure, what):
        def release(at):
            self.released.append(what)
            ctypes.memset(ctypes.addressof(at.contents) + structure.release.offset, 0, 8)
        return self.kept(dict(structure._fields_)["release"](release))

    def __arrow_c_stream__(self, requested_schema=None):
        fields = dict(ArrowArrayStream._fields_)

        def get_schema(_, out):
            self.schema(out.contents, self.batches[0])
            return 0

        def get_next(_, out):
            if self.given == self.fails_at:
                return 5
            if self.given < len(self.batches):
                self.array(out.contents, self.batches[self.given])
                self.given += 1
            else:
                out.contents.release = fields_of_array["release"]()
            return 0
        fields_of_array = dict(ArrowArray._fields_)
        words = ctypes.create_string_buffer(b"the disk is gone")
        stream = ArrowArrayStream(fields["get_schema"](get_schema), fields["get_next"](get_next),
                                  fields["get_last_error"](lambda _: ctypes.addressof(words)),
                                  self.release(ArrowArrayStream, "stream"))
        self.alive += [stream, stream.get_schema, stream.get_next, stream.get_last_error, words, self.batches]
        return _new_capsule(ctypes.addressof(stream), b"arrow_array_stream", None)


class ProducerOfOne(Producer):
    """One that knows `__arrow_c_array__` alone."""

    __arrow_c_stream__ = property()               # hasattr says no

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = ArrowSchema(), ArrowArray()
        self.schema(schema, self.batches[0])
        self.array(array, self.batches[0])
        self.alive += [schema, array]
        return (_new_capsule(ctypes.addressof(schema), b"arrow_schema", None),
                _new_capsule(ctypes.addressof(array), b"arrow_array", None))


def decoded(producer):
    """The values of all batches, column by column, None where they are null."""
    rows = []
    with ArrowStream(producer) as stream:
        for length, columns in stream:
            plain = [column.plain() for column in columns]
            assert all(len(column.values) == length for column in plain)
            rows.append([np.where(column.nulls, None, column.values).tolist() if column.nulls is not None
                         else column.values.tolist() for column in plain])
    return [sum(parts, []) for parts in zip(*rows)]


INTEGERS = {"c": 8, "C": 8, "s": 16, "S": 16, "i": 32, "I": 32, "l": 64, "L": 64}


def range_of(format):
    bits = INTEGERS[format]
    return (0, (1 << bits) - 1) if format.isupper() else (-(1 << bits - 1), (1 << bits - 1) - 1)


def values_of(format):
    if format in INTEGERS:
        return st.integers(*range_of(format))
    if format in "efg":
        return st.floats(width={"e": 16, "f": 32, "g": 64}[format], allow_nan=False)
    if format == "b":
        return st.booleans()
    if format[0] == "d":
        return st.integers(-10**9, 10**9) if format.endswith(",32") else st.integers(-10**18, 10**18)
    return st.text(max_size=20)


@pytest.mark.parametrize("format", [*INTEGERS, "e", "f", "g", "b", "u", "U", "vu"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_values_nulls_and_offsets(format, data):
    values = data.draw(st.lists(st.none() | values_of(format), max_size=20))
    offset = data.draw(st.integers(0, 11))
    skip = data.draw(st.integers(0, len(values)))
    producer = Producer([Column(format, values, offset)], offset=skip)
    assert decoded(producer) == [values[skip:]]
    assert sorted(producer.released) == ["batch 0", "schema", "stream"]


@pytest.mark.parametrize("format", ["d:9,4,32", "d:18,7,64", "d:19,10", "d:30,2,256"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_decimals_are_the_nearest_number(format, data):
    values = data.draw(st.lists(st.none() | values_of(format), min_size=1, max_size=20))
    scale = int(format.split(",")[1])
    assert decoded(Producer([Column(format, values)])) == [
        [None if value is None else float(Fraction(value, 10 ** scale)) for value in values]]


def test_decimals_beyond_64_bits():
    big = [10**30 + 1, -(10**37), 3]
    assert decoded(Producer([Column("d:38,5", big)])) == [[float(Fraction(n, 10**5)) for n in big]]
    assert decoded(Producer([Column("d:38,-3", [2, -5])])) == [[2000.0, -5000.0]]
    assert decoded(Producer([Column("d:76,40,256", [10**60])])) == [[1e20]]


def test_dates_and_times():
    day, milliseconds = 19_000, 19_000 * 86_400_000
    producer = Producer([Column("tdD", [day, None]), Column("tdm", [milliseconds, 0]), Column("tss:", [5, None]),
                         Column("tsn:UTC", [7, 8]), Column("ttu", [9, 10]), Column("tts", [1, None]),
                         Column("tDm", [3, 4])])
    stream = ArrowStream(producer)
    assert [field.kind for field in stream.fields] == "date date timestamp timestamp time time duration".split()
    assert [field.zone for field in stream.fields] == [None, None, None, "UTC", None, None, None]
    _, columns = stream.batch()
    assert columns[0].values[0] == columns[1].values[0] == np.datetime64(day, "D")
    assert columns[0].nulls.tolist() == [False, True] and columns[1].nulls is None
    assert [str(column.values.dtype) for column in columns[2:]] == [
        "datetime64[s]", "datetime64[ns]", "timedelta64[us]", "timedelta64[s]", "timedelta64[ms]"]
    assert columns[4].values.astype(int).tolist() == [9, 10]


@pytest.mark.parametrize("positions, kinds, expected", [
    ([1, None, 0, 1], ["a", "bb"], ["bb", None, "a", "bb"]),
    ([1, 0, 1], ["a", None], [None, "a", None]),
    ([None, None], [], [None, None]),
    ([], ["a"], []),
])
def test_dictionaries(positions, kinds, expected):
    column = Column("c", positions, offset=3, dictionary=Column("u", kinds))
    assert ArrowStream(Producer([column])).fields[0].kind == "text"
    assert decoded(Producer([column])) == [expected]


def test_columns_of_nulls_alone():
    assert decoded(Producer([Column("n", [None] * 3), Column("l", [None, 2, None])])) == [[None] * 3, [None, 2, None]]


def test_columns_are_counted_from_the_end_too():
    with ArrowStream(Producer([Column("l", [1, 2]), Column("g", [3, 4])], names=["a", "b"])) as stream:
        [(_, columns)] = stream
    assert columns[-1].values.tolist() == [3, 4] and [c.values.tolist() for c in columns[-2:]] == [[1, 2], [3, 4]]
    for which in (2, -3):
        with pytest.raises(IndexError):
            columns[which]


def test_values_are_not_copied():
    column = Column("l", range(1000))
    _, [given] = ArrowStream(Producer([column])).batch()
    assert np.shares_memory(given.values, column.buffers[1]) and not given.values.flags.writeable


def test_a_batch_is_released_with_the_last_array_over_it():
    producer = Producer([Column("l", [1]), Column("g", [2])], [Column("l", [3]), Column("g", [4])])
    stream = ArrowStream(producer)
    assert producer.released == ["schema"]
    _, [whole, real] = stream.batch()
    part = whole.values[:1]
    del whole
    gc.collect()
    assert producer.released == ["schema"]
    stream.close()
    stream.close()
    assert producer.released == ["schema", "stream"] and part.tolist() == [1] and real.values.tolist() == [2]
    assert stream.batch() is None
    del part, real
    gc.collect()
    assert producer.released == ["schema", "stream", "batch 0"]


def test_a_stream_that_is_dropped_is_released():
    producer = Producer([Column("l", [1])])
    ArrowStream(producer)
    gc.collect()
    assert producer.released == ["schema", "stream"]


def test_one_batch_without_a_stream():
    producer = ProducerOfOne([Column("l", [1, None])])
    assert decoded(producer) == [[1, None]]
    gc.collect()
    assert producer.released == ["schema", "batch 0"]
    unread = ProducerOfOne([Column("l", [1, None])])
    ArrowStream(unread).close()
    gc.collect()
    assert unread.released == ["schema", "batch 0"]


def test_a_capsule_is_read_once():
    capsule = Producer([Column("l", [1])]).__arrow_c_stream__()
    assert decoded(capsule) == [[1]]
    with pytest.raises(ValueError, match="was read already: a stream is read once"):
        ArrowStream(capsule)
    with pytest.raises(ValueError):
        ArrowStream(_new_capsule(1, b"dltensor", None))


def test_what_the_producer_says_is_the_error():
    producer = Producer([Column("l", [1])], [Column("l", [2])], fails_at=1)
    stream = ArrowStream(producer)
    stream.batch()
    with pytest.raises(ArrowError, match="the disk is gone"):
        stream.batch()
    stream.close()
    assert "stream" in producer.released


@pytest.mark.parametrize("format", ["+l", "+s", "w:16", "tiM", "+r", "d:9,2,16"])
def test_other_types_are_refused_by_name(format):
    producer = Producer([Column("n", [])], names=["wide"])
    producer.batches[0][0].format = format
    stream = ArrowStream(producer)
    assert stream.fields[0].kind == "other"
    _, columns = stream.batch()
    with pytest.raises(NotImplementedError, match=f"column 'wide' has Arrow's type '{format.replace('+', '[+]')}'"):
        columns[0]


def test_a_stream_of_no_rows_is_refused():
    class Bare(Producer):
        def schema(self, out, columns):
            super().schema(out, columns)
            out.format = b"l"
    with pytest.raises(NotImplementedError, match="holds Arrow's 'l', not rows with columns"):
        ArrowStream(Bare([Column("l", [1])]))


def test_infinities_and_nan():
    [values] = decoded(Producer([Column("g", [math.inf, -math.inf, math.nan, -0.0])]))
    assert values[:2] == [math.inf, -math.inf] and math.isnan(values[2]) and math.copysign(1, values[3]) == -1
