"""Arrow's C data interface: the columns of another library's record batches as NumPy arrays, over the same memory.

A producer hands over a stream (`__arrow_c_stream__`) or one batch (`__arrow_c_array__`) as C structures of pointers.
They are read with ctypes, so that no Arrow library is needed on this side. What has a NumPy dtype of its own is shown
where it lies; bits, texts and decimals are decoded. Every structure is released exactly once: a stream when it ends or
is closed, a batch when the last array over its memory is gone.
"""
import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...base.weakbag import at_end

EXACT_POWERS = 22             # 10**22 is the largest power of ten that a float64 holds exactly
VIEW_BYTES, INLINE_BYTES = 16, 12       # of an entry of a view array, and of the text that it can hold itself


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


class ArrowArrayStream(ctypes.Structure):
    pass


ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))), ("private_data", ctypes.c_void_p)]
ArrowArray._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))), ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))), ("private_data", ctypes.c_void_p)]
ArrowArrayStream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowSchema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowArray))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(ArrowArrayStream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArrayStream))), ("private_data", ctypes.c_void_p)]

_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

# What lies in memory as NumPy has it. Times and durations are numbers of a unit, which stands in the format.
SAME_IN_NUMPY = {
    "c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8",
    "e": "f2", "f": "f4", "g": "f8", "tdD": "i4", "tdm": "i8", "tts": "i4", "ttm": "i4", "ttu": "i8",
    "ttn": "i8", "tDs": "m8[s]", "tDm": "m8[ms]", "tDu": "m8[us]", "tDn": "m8[ns]",
    "tss": "M8[s]", "tsm": "M8[ms]", "tsu": "M8[us]", "tsn": "M8[ns]"}
CLOCK_UNITS = {"tts": "s", "ttm": "ms", "ttu": "us", "ttn": "ns"}                 # since midnight
TEXT_OFFSETS = {"u": "i4", "U": "i8", "z": "i4", "Z": "i8"}
TEXT_VIEWS = {"vu": True, "vz": False}                                            # whether it is text, not bytes
DECIMAL_BITS = (32, 64, 128, 256)


@dataclass(frozen=True)
class ArrowField:
    """A column of a stream: its name, Arrow's format of its values, of its dictionary's values too, if it has one."""
    name: str
    format: str
    dictionary: "ArrowField | None" = None

    @property
    def kind(self):
        """What the decoded values are: int, uint, float, bool, text, bytes, decimal, date, timestamp, time, duration
        or null; "other": they cannot be decoded."""
        return self.dictionary.kind if self.dictionary is not None else _kind(self.format)

    @property
    def zone(self):
        """The time zone of a timestamp, None where it has none."""
        return (self.format[4:] or None) if self.kind == "timestamp" and self.dictionary is None else None


@dataclass(frozen=True)
class ArrowColumn:
    """The values of a column in one batch: an array, and which of them are null (None: not one is).

    Texts and bytes are objects of Python's. Of a column with a dictionary `values` are positions in `dictionary`, which
    is a column itself.
    """
    values: np.ndarray
    nulls: np.ndarray | None
    dictionary: "ArrowColumn | None" = None

    def plain(self):
        """The same without a dictionary."""
        if self.dictionary is None:
            return self
        positions = self.values if self.nulls is None else np.where(self.nulls, 0, self.values)
        inside = self.dictionary.plain()
        if not len(inside.values):                # then every value is null
            return ArrowColumn(np.zeros(len(positions), inside.values.dtype), np.ones(len(positions), bool))
        nulls = self.nulls
        if inside.nulls is not None:
            nulls = inside.nulls[positions] if nulls is None else nulls | inside.nulls[positions]
        return ArrowColumn(inside.values[positions], nulls)


class ArrowError(RuntimeError):
    """What a producer said instead of giving a batch."""


class ArrowStream:
    """The batches that an object gives by `__arrow_c_stream__` or `__arrow_c_array__`, or that stand in a capsule.

    `fields` are known at once. `batch()` gives the next batch, its length and its columns, or None after the last. It
    is an iterable of these, and a context that closes.
    """

    def __init__(self, thing):
        self._stream = self._single = None
        if hasattr(thing, "__arrow_c_stream__"):
            thing = thing.__arrow_c_stream__()
        elif hasattr(thing, "__arrow_c_array__"):
            schema, array = thing.__arrow_c_array__()
            self.fields = _fields(_taken(schema, b"arrow_schema", ArrowSchema))
            self._single = _Batch(_taken(array, b"arrow_array", ArrowArray))
            return
        self._stream = _taken(thing, b"arrow_array_stream", ArrowArrayStream)
        try:
            schema = ArrowSchema()
            self._call(self._stream.get_schema, schema)
            self.fields = _fields(schema)
        except BaseException:
            self.close()
            raise

    def batch(self):
        """(how many rows, ArrowColumns), or None after the last batch."""
        if self._stream is not None:
            array = ArrowArray()
            self._call(self._stream.get_next, array)
            if not array.release:                               # the end of the stream
                self.close()
                return None
            owner = _Batch(array)
        elif self._single is not None:
            owner, self._single = self._single, None
        else:
            return None
        if owner.array.n_children != len(self.fields):
            raise ArrowError(f"a batch has {owner.array.n_children} columns, its stream's schema {len(self.fields)}")
        return owner.array.length, ArrowColumns(owner, self.fields)

    def __iter__(self):
        return iter(self.batch, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Tell the producer that there are no more calls; batches that were given stay as they are."""
        stream, self._stream, self._single = self._stream, None, None
        if stream is not None:
            stream.release(stream)

    __del__ = close

    def _call(self, function, result):
        """`function(stream, result)`, and the producer's words for what went wrong as an error."""
        code = function(self._stream, result)
        if code:
            said = self._stream.get_last_error(self._stream)
            if code == errno.EINTR:
                raise KeyboardInterrupt
            words = (said or os.strerror(code).encode()).decode(errors="replace")
            raise ArrowError(words)


class ArrowColumns(Sequence):
    """The columns of a batch, each decoded when it is first asked for."""

    def __init__(self, owner, fields):
        self.owner, self.fields, self.decoded = owner, fields, [None] * len(fields)

    def __len__(self):
        return len(self.fields)

    def __getitem__(self, which):
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        which = range(len(self))[which]           # the producer's pointers know no -1
        if self.decoded[which] is None:
            self.decoded[which] = self.decode(which)
        return self.decoded[which]

    def decode(self, which):
        batch, field = self.owner.array, self.fields[which]
        if field.kind == "other":
            raise NotImplementedError(f"column {field.name!r} has Arrow's type {field.format!r}, which is no number, "
                                      "truth value, text, decimal, date or time: unnest or cast it in the query, or "
                                      "leave it out")
        column = _column(self.owner, batch.children[which].contents, field, batch.offset, batch.length)
        whole = _nulls(self.owner, batch, batch.offset, batch.length)       # a row that is null as a whole
        if whole is None:
            return column
        return ArrowColumn(column.values, whole if column.nulls is None else whole | column.nulls, column.dictionary)


class _Batch:
    """A batch's memory, released with the last array that stands on it."""

    def __init__(self, array):
        self.array = array
        at_end(self, array.release, array)


class _Memory:
    """`count` elements at an address, as the array interface shows them, with what keeps them alive."""

    def __init__(self, owner, address, count, dtype):
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": (count,), "typestr": dtype, "data": (address, True)}


def _taken(capsule, name, structure):
    """The structure inside a capsule, moved out of it: what is left there is marked as released."""
    inside = structure.from_address(_pointer_in(capsule, name))
    if not inside.release:
        raise ValueError(f"the {name.decode()} was read already: a stream is read once, so ask for another")
    moved = structure.from_buffer_copy(inside)
    ctypes.memset(ctypes.addressof(inside) + structure.release.offset, 0, structure.release.size)
    return moved


# --- what there is --------------------------------------------------


def _fields(schema):
    """The fields of a schema, which is released."""
    try:
        if schema.format != b"+s":
            raise NotImplementedError(f"the stream holds Arrow's {schema.format.decode()!r}, not rows with columns: "
                                      "give a table, a record batch or a reader of record batches")
        fields = [_field(schema.children[i].contents) for i in range(schema.n_children)]
    finally:
        schema.release(schema)
    return fields


def _field(schema):
    inside = _field(schema.dictionary.contents) if schema.dictionary else None
    return ArrowField((schema.name or b"").decode(), schema.format.decode(), inside)


def _kind(format):
    """The kind of values of Arrow's format."""
    if format in ("b", "n"):
        return {"b": "bool", "n": "null"}[format]
    if format in TEXT_OFFSETS or format in TEXT_VIEWS:
        return "text" if format.lower().endswith("u") else "bytes"
    if format[:2] == "d:" and _decimal(format)[1] in DECIMAL_BITS:
        return "decimal"
    if format[:3] in SAME_IN_NUMPY:
        if format[0] == "t":
            return {"td": "date", "tt": "time", "ts": "timestamp", "tD": "duration"}[format[:2]]
        return "float" if format in "efg" else "uint" if format.isupper() else "int"
    return "other"


def _decimal(format):
    """(digits after the point, bits) of `d:19,10` or `d:19,10,256`."""
    precision, scale, *bits = format[2:].split(",")
    return int(scale), int(bits[0]) if bits else 128


# --- decoding --------------------------------------------------


def _column(owner, array, field, skip, length):
    """`length` values of a column, from the `skip`th on."""
    start = array.offset + skip
    if field.format == "n":
        return ArrowColumn(np.zeros(length), np.ones(length, bool))
    nulls = _nulls(owner, array, start, length)
    if field.dictionary is not None:
        inside = array.dictionary.contents
        return ArrowColumn(_values(owner, array, field.format, start, length, nulls), nulls,
                           _column(owner, inside, field.dictionary, 0, inside.length))
    return ArrowColumn(_values(owner, array, field.format, start, length, nulls), nulls)


def _buffer(owner, array, index, dtype, start, length):
    """`length` elements of a buffer from the `start`th on. A buffer of no elements may have no address."""
    address = array.buffers[index]
    if not length or address is None:
        return np.zeros(length, dtype)
    return np.asarray(_Memory(owner, address + start * np.dtype(dtype).itemsize, length, np.dtype(dtype).str))


def _bits(owner, array, index, start, length):
    packed = _buffer(owner, array, index, "u1", start // 8, -(-(start % 8 + length) // 8))
    return np.unpackbits(packed, count=start % 8 + length, bitorder="little")[start % 8:].view(bool)


def _nulls(owner, array, start, length):
    """Which values are null; None if none is."""
    if array.null_count == 0 or array.n_buffers == 0 or array.buffers[0] is None or not length:
        return None
    nulls = ~_bits(owner, array, 0, start, length)
    return nulls if nulls.any() else None


def _values(owner, array, format, start, length, nulls):
    if format == "b":
        return _bits(owner, array, 1, start, length)
    if format in TEXT_OFFSETS:
        ends = _buffer(owner, array, 1, TEXT_OFFSETS[format], start, length + 1 if length else 0)
        low, high = (int(ends[0]), int(ends[-1])) if length else (0, 0)
        content = bytes(_buffer(owner, array, 2, "u1", low, high - low))
        bounds = (ends - low).tolist()
        return _objects([content[a:b] for a, b in zip(bounds, bounds[1:])], format in "uU", nulls)
    if format in TEXT_VIEWS:
        return _objects(_viewed(owner, array, start, length, nulls), TEXT_VIEWS[format], nulls)
    if format[:2] == "d:":
        return _decimals(owner, array, *_decimal(format), start, length, nulls)
    values = _buffer(owner, array, 1, SAME_IN_NUMPY[format[:3]], start, length)
    if format == "tdD":
        return values.astype("M8[D]")
    if format == "tdm":
        return values.view("M8[ms]").astype("M8[D]")
    if format in CLOCK_UNITS:
        return values.astype("i8").view(f"m8[{CLOCK_UNITS[format]}]")
    return values


def _objects(pieces, is_text, nulls):
    """Bytes as an array of objects: texts are decoded, and what is null holds None."""
    gone = [False] * len(pieces) if nulls is None else nulls.tolist()     # what stands there need not be text
    out = np.empty(len(pieces), object)
    out[:] = [None if null else piece.decode() if is_text else piece for piece, null in zip(pieces, gone)]
    return out


def _viewed(owner, array, start, length, nulls):
    """The bytes of a view array: short ones stand in the entry itself, long ones in one of several buffers."""
    entries = _buffer(owner, array, 1, "u1", start * VIEW_BYTES, length * VIEW_BYTES)
    raw, words = bytes(entries), entries.view("i4").reshape(length, 4)
    sizes = (words[:, 0] if nulls is None else np.where(nulls, 0, words[:, 0])).tolist()
    which, at = words[:, 2].tolist(), words[:, 3].tolist()
    count = array.n_buffers - 3                   # validity, entries, the others, and how long each of those is
    ends = _buffer(owner, array, array.n_buffers - 1, "i8", 0, count).tolist()
    others = [memoryview(_buffer(owner, array, 2 + i, "u1", 0, ends[i])) for i in range(count)]
    return [raw[VIEW_BYTES * i + 4:VIEW_BYTES * i + 4 + n] if n <= INLINE_BYTES else bytes(others[b][o:o + n])
            for i, (n, b, o) in enumerate(zip(sizes, which, at))]


def _decimals(owner, array, scale, bits, start, length, nulls):
    """Decimals as the float64 nearest to each."""
    words = -(-bits // 64)
    if bits == 32:
        low = _buffer(owner, array, 1, "i4", start, length).astype("i8")
        fits = np.ones(length, bool)
    else:
        parts = _buffer(owner, array, 1, "i8", start * words, length * words).reshape(length, words)
        low = parts[:, 0]
        fits = (parts[:, 1:] == (low >> 63)[:, None]).all(1)      # the words above hold the sign alone
    if nulls is not None:
        fits = fits | nulls
    if 0 <= scale <= EXACT_POWERS and (fits & (np.abs(low) <= 1 << 53)).all():
        return low / 10.0 ** scale                # both exact, so that the quotient is the nearest
    if bits == 32:
        whole = low.tolist()
    else:
        raw = bytes(parts)
        whole = [int.from_bytes(raw[i:i + 8 * words], "little", signed=True) for i in range(0, len(raw), 8 * words)]
    power = 10 ** abs(scale)
    return np.array([n / power if scale >= 0 else float(n * power) for n in whole], float)
