"""The dtypes, their NumPy counterparts, conversion between them, and PyTorch's promotion rules.

A dtype is a single object, compared by identity. Promotion looks at three ranks of operand: tensors with
dimensions, zero-dimensional tensors, Python numbers. A lower rank decides the result only when its category
(bool < integer < floating < complex) is higher.

Note [Dtypes of limited support]: PyTorch has most of its kernels for twelve dtypes. Wider unsigned integers and 8-bit
floats can be stored, converted and looked at, and promote with nothing (unsigned integers with floats alone); which
operations take them is a table, base/limited_dtypes.py. Others (quantised numbers, bits, complex32) have a name here
and nothing else: one is refused where a function is given it, or where a Spec of it would be made.
"""
from typing import Any

import ml_dtypes
import numpy as np

from .errors import argument_error, need
from .named import Named


class dtype(Named):
    """The kind of number a tensor holds, for example `flambeau.float32`."""

    __slots__ = ("name", "np", "itemsize", "is_floating_point", "is_complex", "category", "cname", "compute", "family",
                 "foreign")

    def __init__(self, name: str, np_type: Any, cname: str, family: str | None = None) -> None:
        self.name = name
        self.np = None if isinstance(np_type, int) else np.dtype(np_type)       # only a size: no tensors of it
        self.itemsize = np_type if self.np is None else self.np.itemsize
        self.is_floating_point = name.startswith(("float", "bfloat"))
        self.is_complex = name.startswith("complex")
        self.category = 3 if self.is_complex else 2 if self.is_floating_point else 0 if name == "bool" else 1
        self.cname = cname
        self.foreign = self.np is not None and np_type.__module__ == "ml_dtypes"      # NumPy knows it from there alone
        self.family = family                     # one of FAMILIES; see Note [Dtypes of limited support]
        # Narrow floats are computed in float32 and rounded once at the end, as PyTorch does on the CPU.
        self.compute = np.dtype(np.float32) if self.is_floating_point and self.itemsize <= 2 else self.np

    def __reduce__(self) -> tuple:
        return (named, (self.name,))

    @property
    def is_integral(self):
        return self.category <= 1

    @property
    def is_signed(self):
        """Whether it holds negative numbers."""
        if self.family == "quantised":
            raise RuntimeError(f"isSignedType not supported for quantized types, and this is {self}")
        if self.family == "bits":
            raise RuntimeError(f"Bits types are undefined: {self} has no sign")
        return not self.name.startswith(("bool", "uint", "float8_e8m0"))

    def to_real(self):
        """The dtype of the real part."""
        return {complex128: float64, complex64: float32, complex32: float16}.get(self, self)

    def to_complex(self):
        """The complex dtype whose parts have this dtype."""
        if self.is_complex:
            return self
        if self.family is not None and self.is_floating_point:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.cname}: go by way of float32")
        return complex128 if self is float64 else complex64      # complex32 has no NumPy counterpart


FAMILIES = {
    "unsigned": "uint16, uint32, uint64", "float8": "Float8",
    "quantised": "Flambeau has no quantised tensors: keep the whole numbers as uint8, int8 or int32, and scale and "
                 "zero point beside them",
    "bits": "it is a name for bits that PyTorch has no arithmetic for either: keep them as uint8",
    "packed": "several elements would share a byte: keep the bytes as uint8",
    "complex32": "NumPy has no complex numbers of this size: use complex64, or two float16 parts (torch.view_as_real)"}

bool = dtype("bool", np.bool_, "Bool")
uint8 = dtype("uint8", np.uint8, "Byte")
int8 = dtype("int8", np.int8, "Char")
int16 = dtype("int16", np.int16, "Short")
int32 = dtype("int32", np.int32, "Int")
int64 = dtype("int64", np.int64, "Long")
float16 = dtype("float16", np.float16, "Half")
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, "BFloat16")
float32 = dtype("float32", np.float32, "Float")
float64 = dtype("float64", np.float64, "Double")
complex64 = dtype("complex64", np.complex64, "ComplexFloat")
complex128 = dtype("complex128", np.complex128, "ComplexDouble")

uint16 = dtype("uint16", np.uint16, "UInt16", "unsigned")
uint32 = dtype("uint32", np.uint32, "UInt32", "unsigned")
uint64 = dtype("uint64", np.uint64, "UInt64", "unsigned")
float8_e4m3fn = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "Float8_e4m3fn", "float8")
float8_e5m2 = dtype("float8_e5m2", ml_dtypes.float8_e5m2, "Float8_e5m2", "float8")
float8_e4m3fnuz = dtype("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "Float8_e4m3fnuz", "float8")
float8_e5m2fnuz = dtype("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "Float8_e5m2fnuz", "float8")
float8_e8m0fnu = dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "Float8_e8m0fnu", "float8")

complex32 = dtype("complex32", 4, "ComplexHalf", "complex32")
NAMES_ONLY = (complex32, dtype("float4_e2m1fn_x2", 1, "Float4_e2m1fn_x2", "packed"),
              *(dtype(name, size, cname, "quantised") for name, size, cname in (
                  ("quint8", 1, "QUInt8"), ("qint8", 1, "QInt8"), ("qint32", 4, "QInt32"), ("quint4x2", 1, "QUInt4x2"),
                  ("quint2x4", 1, "QUInt2x4"))),
              *(dtype(f"bits{n}", 2 if n == "16" else 1, f"Bits{n}", "bits") for n in ("8", "16", "1x8", "2x4", "4x2")),
              *(dtype(f"{prefix}{n}", 1, f"{prefix.replace('uint', 'UInt').replace('int', 'Int')}{n}", "packed")
                for prefix in ("uint", "int") for n in range(1, 8)))

ALL = tuple(made for made in [*globals().values()] if made.__class__ is dtype and made.np is not None)
COMMON = tuple(made for made in ALL if made.family is None)
_by_name = {d.name: d for d in (*ALL, *NAMES_ONLY)}
ALIASES = {"half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64,
           "cfloat": complex64, "cdouble": complex128, "chalf": complex32, "bit": _by_name["uint1"]}
_by_np = {d.np: d for d in ALL}
_builtin = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
_by_python = {_builtin["bool"]: bool, int: int64, float: float64, complex: complex128}


def named(name):
    """The dtype called `name`."""
    return _by_name.get(name) or ALIASES[name]


def given(d, fallback=None):
    """The dtype that an argument names: a dtype, a Python number type (`float` is float64), or None (the fallback)."""
    if d is None:
        return fallback
    if d.__class__ is dtype:
        return d if d.np is not None else no_tensors(d)
    found = _by_python.get(d) if isinstance(d, type) else None
    if found is None:
        raise argument_error(f"argument 'dtype' must be torch.dtype, not {type(d).__name__}{_meant(d)}")
    return found


def no_tensors(d):
    """Refuse a dtype that is only a name; see Note [Dtypes of limited support]."""
    raise NotImplementedError(f"{d}: {FAMILIES[d.family]}")


def _meant(d):
    """Which dtype a name or a NumPy type stands for, as the end of a sentence that refuses it."""
    try:
        found = named(d.removeprefix("torch.")) if isinstance(d, str) else from_numpy(np.dtype(d))
    except (KeyError, TypeError):
        return f": got {d!r}"
    return f": write torch.{found.name} instead of {d!r}"


def converter(dtype):
    """The method that converts to `dtype`, as one writes it: `float()`."""
    short = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16", "int64": "long"}
    return f"{short[dtype.name]}()" if dtype.name in short else f"to(torch.{dtype.name})"


def from_numpy(np_dtype):
    """The dtype for a NumPy one; TypeError in PyTorch's words if there is none."""
    found = _by_np.get(np_dtype) or _by_np.get(np_dtype.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"can't convert np.ndarray of type numpy.{np_dtype.type.__name__}. The only supported types are: float64, "
            "float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and "
            "bool.")
    return found


def of_number(cls):
    """The dtype a Python number type stands for in promotion (float: the default dtype)."""
    if cls is float:
        return default
    if cls is complex:
        return default.to_complex()
    return int64 if cls is int else bool


default = float32


def get_default_dtype():
    """The floating dtype that Python floats become.

    >>> torch.get_default_dtype()
    torch.float32
    """
    return default


def set_default_dtype(d):
    """Make `d` the dtype of Python floats from now on."""
    global default
    if not isinstance(d, dtype):
        raise TypeError(f"invalid dtype object: set_default_dtype takes a dtype, got {d!r}")
    if not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    if d.family is not None:
        raise TypeError(f"couldn't find storage object {d.cname}Storage: {d} cannot be the default type")
    default = d
    for forget in on_default_change:      # results that were inferred under the old default
        forget()


on_default_change: list = []


def _promote(a, b):
    if a is b:
        return a
    families = {a.family, b.family}
    need("quantised" not in families, "promoteTypes with quantized numbers is not handled yet; figure out what the "
                                      f"correct rules should be, offending types: {a.cname} {b.cname}")
    need(not families & {"bits", "packed"}, f"Promotion from {a.cname} and {b.cname} is unsupported.")
    said = f"attempted to promote {a.cname} and {b.cname}: bring both to one dtype with .to()"
    need("float8" not in families, f"Promotion for Float8 Types is not supported, {said}")
    if "unsigned" in families:
        other = b if a.family == "unsigned" else a
        need(other.is_floating_point, f"Promotion for uint16, uint32, uint64 types is not supported, {said}")
        return other
    if complex32 in (a, b):
        other = b if a is complex32 else a
        return complex32 if other.category < 2 or other is float16 else other.to_complex()
    if a.category < b.category:
        a, b = b, a
    if a.category != b.category:
        # complex64 with float64 must hold both
        return complex128 if a is complex64 and b is float64 else a
    if a.itemsize < b.itemsize:
        a, b = b, a
    if a.itemsize == b.itemsize:               # uint8/int8, float16/bfloat16
        return int16 if a.category == 1 else float32
    return a                                    # a larger integer or float holds the smaller


_table = {(a, b): _promote(a, b) for a in COMMON for b in COMMON}


def _promoted(a, b):
    return _table.get((a, b)) or _promote(a, b)


def promote_types(type1, type2):
    """The smallest dtype that holds both.

    >>> torch.promote_types(torch.int64, torch.float32)
    torch.float32
    """
    if type1.__class__ is not dtype or type2.__class__ is not dtype:
        raise TypeError(f"promote_types takes two dtypes, got {type1!r} and {type2!r}")
    return _promoted(type1, type2)


def _over(higher, lower):
    """The dtype when `higher` ranks above `lower` (see the file's opening)."""
    if higher is None:
        return lower
    if lower is None or higher.category >= lower.category:
        return higher
    if higher.is_floating_point:               # lower is complex: keep the precision of the higher
        return higher.to_complex()
    return _promoted(higher, lower)


def result_of(operands):
    """The promoted dtype of `operands`: pairs (dtype, rank) with rank 2 dimensioned, 1 zero-dim, 0 number."""
    best = [None, None, None]
    for d, rank in operands:
        current = best[rank]
        best[rank] = d if current is None else _promoted(current, d)
    return _over(best[2], _over(best[1], best[0]))


def can_cast(from_, to):
    """Whether a result of dtype `from_` may be written into `to` (PyTorch's rule: not to a lower category).

    >>> torch.can_cast(torch.float32, torch.int64)
    False
    """
    if to.family in ("quantised", "bits"):           # neither integers nor floats to PyTorch
        return not from_.is_complex
    return from_.category <= to.category


# --- conversion ---------------------------------------------------------------------------------------------------


def as_dtype(array, dtype):
    """`array` with its elements converted to `dtype` as PyTorch rounds them; NumPy's own way for the common dtypes.

    Integers of a float go by way of a wide one in `ops/convert.py`, which knows where it matters.
    """
    if array.dtype == dtype.np:
        return array
    if dtype.family != "float8":
        if dtype.np is uint64.np and array.dtype.kind not in "biuc":
            return _unsigned_64(array)
        return array.astype(dtype.np)
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(array).astype(np.float32)
    if dtype is float8_e8m0fnu:
        return _power_of_two(array)
    if dtype is float8_e4m3fn:
        array = np.clip(array, -448, 448)        # what is too large becomes the largest number, infinities too
    made = array.astype(dtype.np)
    if dtype is float8_e5m2:
        made.view(np.uint8)[np.isnan(array)] |= 1          # all bits set, where ml_dtypes leaves the last one out
    return made


def _power_of_two(array):
    """float32 rounded to the nearest power of two, halves upwards; the sign is dropped, zero is the smallest one."""
    bits = array.view(np.uint32) & 0x7fffffff
    exponent = bits >> 23
    half, rest = bits & 0x400000 != 0, bits & 0x3fffff != 0
    up = half & (rest | (exponent > 0)) & (exponent < 255)
    return (exponent + up).astype(np.uint8).view(float8_e8m0fnu.np)


def _unsigned_64(array):
    """Floats as uint64: negative ones wrap around through int64, those beyond it keep their bits."""
    array = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    with np.errstate(invalid="ignore"):
        high = array >= 2.0**63
        low = truncated(np.where(high, array - array.dtype.type(2.0**63), array), np.int64).astype(np.uint64)
    return np.where(high, low ^ np.uint64(1 << 63), low)


def truncated(array, wide, xp=np):
    """Floats as `wide`, int32 or int64, towards zero; what does not fit, and NaN, is the least of them, as x86 has it.

    NumPy does what the processor does, and others saturate, as GPUs do. So it is said here for all of them.
    """
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32)
    least = np.iinfo(wide).min
    fits = (array >= float(least)) & (array < -float(least))
    return xp.where(fits, xp.where(fits, array, 0).astype(wide), least)


class finfo:
    """Numerical limits of a floating dtype (the default one if none is given).

    >>> torch.finfo(torch.float32).eps
    1.1920928955078125e-07
    """

    def __init__(self, type=None):
        d = default if type is None else type
        if not d.is_floating_point and not d.is_complex:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d.name}'")
        d = d.to_real()
        if d.np is None:
            raise TypeError(f"torch.finfo() knows no limits of {d}: {FAMILIES[d.family]}")
        info = ml_dtypes.finfo(d.np)
        self.bits, self.dtype = info.bits, d.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        # not the nearest number of that dtype; 8-bit floats have no decimal digit that is always kept
        self.resolution = 1.0 if d.family else 10.0 ** -info.precision
        if d is float8_e5m2fnuz:
            self.eps = 0.125                              # PyTorch's, half the step above one

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")

    def __eq__(self, other):
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)


class iinfo:
    """Numerical limits of an integer dtype.

    >>> torch.iinfo(torch.int8).max
    127
    """

    def __init__(self, type):
        if type.family == "quantised":
            raise NotImplementedError(f"\"iinfo\" not implemented for '{type.cname}'")
        if type.category != 1 or type.np is None:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type.name}'"
                            if type.category > 1 else "\"iinfo\" not implemented for 'Bool'")
        info = np.iinfo(type.np)
        self.bits, self.min, self.max, self.dtype = info.bits, int(info.min), int(info.max), type.name

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other):
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)
