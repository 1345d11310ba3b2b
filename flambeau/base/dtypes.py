"""The dtypes, their NumPy counterparts, and PyTorch's promotion rules.

A dtype is a single object, compared by identity. Promotion looks at three ranks of operand: tensors with
dimensions, zero-dimensional tensors, Python numbers. A lower rank decides the result only when its category
(bool < integer < floating < complex) is higher.
"""
import ml_dtypes
import numpy as np

from .errors import argument_error


class dtype:
    """The kind of number a tensor holds, for example `flambeau.float32`."""

    __slots__ = ("name", "np", "itemsize", "is_floating_point", "is_complex", "is_signed", "category", "cname",
                 "compute")

    def __init__(self, name, np_type, cname):
        self.name = name
        self.np = np.dtype(np_type)
        self.itemsize = self.np.itemsize
        self.is_floating_point = name.startswith(("float", "bfloat"))
        self.is_complex = name.startswith("complex")
        self.is_signed = name != "bool" and not name.startswith("uint")
        self.category = 3 if self.is_complex else 2 if self.is_floating_point else 0 if name == "bool" else 1
        self.cname = cname
        # Half types are computed in float32 and rounded once at the end, as PyTorch does on the CPU.
        self.compute = np.dtype(np.float32) if self.is_floating_point and self.itemsize == 2 else self.np

    def __repr__(self):
        return "torch." + self.name

    def __reduce__(self):
        return (named, (self.name,))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    @property
    def is_integral(self):
        return self.category <= 1

    def to_real(self):
        """The dtype of the real part."""
        return float64 if self is complex128 else float32 if self is complex64 else self

    def to_complex(self):
        """The complex dtype whose parts have this dtype."""
        if self.is_complex:
            return self
        return complex128 if self is float64 else complex64      # PyTorch's complex32 has no NumPy counterpart


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

ALL = (bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128)
ALIASES = {"half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64,
           "cfloat": complex64, "cdouble": complex128}
_by_name = {d.name: d for d in ALL}
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
        return d
    found = _by_python.get(d) if isinstance(d, type) else None
    if found is None:
        raise argument_error(f"argument 'dtype' must be torch.dtype, not {type(d).__name__}{_meant(d)}")
    return found


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
            "float32, float16, complex64, complex128, int64, int32, int16, int8, uint8, and bool.")
    return found


def of_number(kind):
    """The dtype a Python number type stands for in promotion (float: the default dtype)."""
    if kind is float:
        return default
    if kind is complex:
        return default.to_complex()
    return int64 if kind is int else bool


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
    default = d
    for forget in on_default_change:      # results that were inferred under the old default
        forget()


on_default_change: list = []


def _promote(a, b):
    if a is b:
        return a
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


_table = {(a, b): _promote(a, b) for a in ALL for b in ALL}


def promote_types(type1, type2):
    """The smallest dtype that holds both.

    >>> torch.promote_types(torch.int64, torch.float32)
    torch.float32
    """
    try:
        return _table[type1, type2]
    except KeyError:
        raise TypeError(f"promote_types takes two dtypes, got {type1!r} and {type2!r}") from None


def _over(higher, lower):
    """The dtype when `higher` ranks above `lower` (see the file's opening)."""
    if higher is None:
        return lower
    if lower is None or higher.category >= lower.category:
        return higher
    if higher.is_floating_point:               # lower is complex: keep the precision of the higher
        return higher.to_complex()
    return _table[higher, lower]


def result_of(operands):
    """The promoted dtype of `operands`: pairs (dtype, rank) with rank 2 dimensioned, 1 zero-dim, 0 number."""
    best = [None, None, None]
    for d, rank in operands:
        held = best[rank]
        best[rank] = d if held is None else _table[held, d]
    return _over(best[2], _over(best[1], best[0]))


def can_cast(from_, to):
    """Whether a result of dtype `from_` may be written into `to` (PyTorch's rule: not to a lower category).

    >>> torch.can_cast(torch.float32, torch.int64)
    False
    """
    return from_.category <= to.category


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
        info = ml_dtypes.finfo(d.np)
        self.bits, self.dtype = info.bits, d.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = 10.0 ** -info.precision         # not the nearest number of that dtype

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
        if type.category != 1:
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
