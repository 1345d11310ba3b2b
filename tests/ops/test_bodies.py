"""Every `body` means what its `ref` means: both run over arrays here, on numbers that are hard, and are compared.

`NumpyKernel` is the `k` that a body is written for, with arrays in the place of expressions. It is strict: operands of two
dtypes, a division by zero of integers, a shift too far, all that compiled code would answer with nonsense, are errors here.
Its functions are NumPy's, so what is compared is the formula. The same calls are then compared as they are when compiled.
"""
import math
import operator
from functools import partial

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.reference import execute
from flambeau.base import dtypes, settings, special_functions
from flambeau.base.op import REQUIRED
from flambeau.loops.scalar import SPECIAL_FUNCTIONS
from flambeau.trace.recording.record import current

from ..test_ops import GIVEN, OPS, POINTWISE, WHOLE
from ..thorough import sample

pytestmark = pytest.mark.pinned

HALVES = (dtypes.float16, dtypes.bfloat16)
FLOATS = (dtypes.float32, dtypes.float64)


# --- expressions over arrays ------------------------------------------------------------------------------------------------


class Numbers:
    """An expression: an array and its dtype."""

    def __init__(self, array, dtype):
        self.array, self.dtype = np.asarray(array), dtype
        assert self.array.dtype == dtype.np, f"{self.array.dtype} as {dtype}"
        self.shape = self.array.shape

    __hash__ = None


def pair(a, b):
    """Two operands of one dtype; a Python number takes the other's."""
    a = a if isinstance(a, Numbers) else const(a, b.dtype)
    b = b if isinstance(b, Numbers) else const(b, a.dtype)
    assert a.dtype is b.dtype, f"{a.dtype} with {b.dtype}"
    return a, b


def const(value, dtype):
    if dtype.category == 1:
        assert np.iinfo(dtype.np).min <= value <= np.iinfo(dtype.np).max, f"{value} in {dtype}"
    return Numbers(np.asarray(value).astype(dtype.np), dtype)


def arithmetic(how, kinds):
    def method(self, other):
        a, b = pair(self, other)
        assert a.dtype in kinds, f"{how.__name__} of {a.dtype}"
        return Numbers(how(a.array, b.array), a.dtype)
    return method, lambda self, other: method(*pair(other, self))


def compare(how):
    def method(self, other):
        a, b = pair(self, other)
        assert a.dtype not in HALVES, f"{how.__name__} of {a.dtype}"
        return Numbers(how(a.array, b.array), dtypes.bool)
    return method


INTS = tuple(d for d in dtypes.ALL if d.category == 1)
for _name, _kinds in {"add": FLOATS + INTS, "sub": FLOATS + INTS, "mul": FLOATS + INTS, "truediv": FLOATS,
                      "and": (*INTS, dtypes.bool), "or": (*INTS, dtypes.bool), "xor": (*INTS, dtypes.bool)}.items():
    _how = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    _method, _reflected = arithmetic(_how, _kinds)
    setattr(Numbers, f"__{_name}__", _method)
    setattr(Numbers, f"__r{_name}__", _reflected)
for _name in "lt le gt ge eq ne".split():
    setattr(Numbers, f"__{_name}__", compare(getattr(operator, _name)))


def shift(how):
    def method(self, other):
        a, b = pair(self, other)
        assert a.dtype in INTS and np.all((b.array >= 0) & (b.array < 8 * a.dtype.itemsize)), "a shift too far"
        return Numbers(how(a.array, b.array), a.dtype)
    return method


Numbers.__lshift__, Numbers.__rshift__ = shift(np.left_shift), shift(np.right_shift)
Numbers.__neg__ = lambda x: Numbers(np.negative(x.array), x.dtype)
Numbers.__invert__ = lambda x: Numbers(np.invert(x.array), x.dtype)


def lost_by_sum(a, b, total):
    """What rounding took from a + b, exactly (Knuth)."""
    back = total - a
    return (a - (total - back)) + (b - back)


def lost_by_product(a, b, product):
    """What rounding took from a * b, exactly (Dekker): halves of 26 bits have exact products."""
    high_a, high_b = (x * 134217729.0 - (x * 134217729.0 - x) for x in (a, b))
    low_a, low_b = a - high_a, b - high_b
    return low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)


class NumpyKernel:
    """`k` over arrays."""

    const = staticmethod(const)

    @staticmethod
    def cast(x, dtype):
        return Numbers(x.array.astype(dtype.np), dtype)

    @staticmethod
    def where(c, a, b):
        a, b = pair(a, b)
        assert c.dtype is dtypes.bool
        return Numbers(np.where(c.array, a.array, b.array), a.dtype)

    @staticmethod
    def fma(a, b, c):
        like = next(x for x in (a, b, c) if isinstance(x, Numbers))
        a, b, c = (x if isinstance(x, Numbers) else const(x, like.dtype) for x in (a, b, c))
        assert a.dtype is b.dtype is c.dtype
        a, b, c = (x.array.astype(np.float64) for x in (a, b, c))
        product = a * b
        total = product + c
        fine = total + (lost_by_sum(product, c, total) + lost_by_product(a, b, product))
        return Numbers(np.where(np.isfinite(fine) & (fine != 0), fine, total).astype(like.dtype.np), like.dtype)

    fma_exact = fma

    @staticmethod
    def isnan(x):
        return Numbers(np.isnan(x.array), dtypes.bool) if x.dtype.is_floating_point else const(False, dtypes.bool)

    @staticmethod
    def complex(re, im):
        made = np.empty(np.broadcast_shapes(re.array.shape, im.array.shape), np.result_type(re.array, np.complex64))
        made.real, made.imag = re.array, im.array
        return Numbers(made, re.dtype.to_complex())

    @staticmethod
    def bits(x):
        assert x.dtype in FLOATS
        kind = dtypes.int32 if x.dtype is dtypes.float32 else dtypes.int64
        return Numbers(x.array.view(kind.np), kind)

    @staticmethod
    def from_bits(x, dtype):
        assert dtype in FLOATS and dtype.itemsize == x.dtype.itemsize
        return Numbers(x.array.view(dtype.np), dtype)

    @staticmethod
    def idiv(a, b):
        a, b = pair(a, b)
        divisible(a, b)
        floor = a.array // b.array
        return Numbers(floor + ((floor * b.array != a.array) & ((a.array < 0) != (b.array < 0))).astype(a.dtype.np), a.dtype)

    @staticmethod
    def irem(a, b):
        a, b = pair(a, b)
        divisible(a, b)
        return Numbers(np.fmod(a.array, b.array), a.dtype)

    @staticmethod
    def index(dim, shape):
        shape = [n if d == dim else 1 for d, n in enumerate(shape)]
        return Numbers(np.arange(shape[dim]).reshape(shape), dtypes.int64)

    @staticmethod
    def gather(x, dim, index):
        assert index.dtype is dtypes.int64 and np.all((index.array >= 0) & (index.array < x.shape[dim]))
        shape = list(x.shape)
        shape[dim] = index.shape[dim]
        return Numbers(np.take_along_axis(x.array, np.broadcast_to(index.array, shape), dim), x.dtype)

    @staticmethod
    def reshape(x, shape): return Numbers(x.array.reshape(shape), x.dtype)

    @staticmethod
    def expand(x, shape): return Numbers(np.broadcast_to(x.array, shape), x.dtype)

    @staticmethod
    def permute(x, dims): return Numbers(x.array.transpose(dims), x.dtype)


def divisible(a, b):
    least = np.iinfo(a.dtype.np).min
    assert a.dtype in INTS and np.all(b.array != 0), "division by zero"
    assert not a.dtype.is_signed or not np.any((a.array == least) & (b.array == -1)), "the least number over -1"


def unary(how, kinds=FLOATS):
    def function(x):
        assert x.dtype in kinds, f"{how} of {x.dtype}"
        return Numbers(how(x.array).astype(x.dtype.np), x.dtype)
    return staticmethod(function)


def binary(how, kinds=FLOATS):
    def function(a, b):
        a, b = pair(a, b)
        assert a.dtype in kinds, f"{how} of {a.dtype}"
        return Numbers(how(a.array, b.array), a.dtype)
    return staticmethod(function)


def whole(how):
    """A rounding, which leaves integers as they are."""
    return staticmethod(lambda x: Numbers(how(x.array), x.dtype) if x.dtype.is_floating_point else x)


for _name in "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh".split():
    setattr(NumpyKernel, _name, unary(getattr(np, _name)))
for _name in "asin acos atan asinh acosh atanh".split():
    setattr(NumpyKernel, _name, unary(getattr(np, "arc" + _name[1:])))
for _name in ["erf", "erfc", "erfinv", "lgamma", "digamma", *SPECIAL_FUNCTIONS]:
    setattr(NumpyKernel, _name, unary(partial(getattr(special_functions, _name), np)))
NumpyKernel.sigmoid, NumpyKernel.rsqrt = unary(lambda x: 1 / (1 + np.exp(-x))), unary(lambda x: 1 / np.sqrt(x))
NumpyKernel.abs = unary(np.abs, FLOATS + INTS + (dtypes.bool,))
for _name in "floor ceil trunc rint".split():
    setattr(NumpyKernel, _name, whole(getattr(np, _name)))
for _name in "minimum maximum fmin fmax".split():
    setattr(NumpyKernel, _name, binary(getattr(np, _name), FLOATS + INTS + (dtypes.bool,)))
NumpyKernel.copysign, NumpyKernel.atan2 = binary(np.copysign), binary(np.arctan2)
NumpyKernel.pow = binary(lambda a, b: np.power(a, b + np.zeros_like(a)))       # a single 0.5 would be made a root
k = NumpyKernel()


# --- running both -----------------------------------------------------------------------------------------------------------


def recorded(op, args):
    """(results, entry, arrays, parameters) of a call with all its arguments, as it was recorded."""
    arrays = [a._storage.value.ready().look(a._spec, a._offset) for a in args if isinstance(a, torch.Tensor)]
    current().run()
    n = op.n_positional
    made = op(*args[:n], **dict(zip(op.kwonly, args[n:], strict=True)))
    last = current().code[-1]
    entry, params = last.entry, last.params
    assert entry.op is op
    return made, entry, arrays, params


def number(value, dtype):
    """A runtime number as a body gets it: in the dtype that is computed in."""
    dtype = dtypes.float32 if dtype in HALVES else dtype
    if dtype.category == 1:
        value = int(value) & (1 << 8 * dtype.itemsize) - 1
        return Numbers(np.array(value, np.uint64).astype(dtype.np), dtype)
    return Numbers(np.asarray(value).astype(dtype.np), dtype)


def run_body(made, entry, args, arrays):
    """The results of an operation's body, as arrays of its specs; NotImplemented where it leaves the case to `ref`."""
    op = entry.op
    half, slots, places = entry.rounded or (None, (), ())    # operands that are 16-bit floats before they are widened
    arrays = [a.astype(half.np) if slot in slots else a for slot, a in enumerate(arrays)]
    casts = entry.casts or [a.dtype for a in arrays]
    given = [Numbers(a.astype(c), dtypes.from_numpy(c)) for a, c in zip(arrays, casts, strict=True)]
    if op.pointwise:
        compute = op.infer(tuple(seen(a) for a in args))[2]
    else:
        compute = given[0].dtype if given else dtypes.float64 if entry.outs[0].dtype in FLOATS else entry.outs[0].dtype
    argv, left = [], list(given)
    for at, a in enumerate(args):
        if isinstance(a, torch.Tensor):
            a = left.pop(0)
        elif a.__class__ in (bool, int, float) and (op.pointwise or op.scalar_at[at]):
            a = number(float(half.np.type(a)) if at in places else a, compute)
        argv.append(a)
    n = op.n_positional
    made = op.body(k, *argv[:n], **dict(zip(op.kwonly, argv[n:], strict=True)))
    if made is NotImplemented:
        return made
    return [fitted(one, spec) for one, spec in zip(made if entry.many else [made], entry.outs, strict=True)]


def seen(a):
    return a._spec if isinstance(a, torch.Tensor) else a.__class__ if a.__class__ in (bool, int, float) else a


def fitted(made, spec):
    made = k.cast(made, spec.dtype).array
    if made.size == spec.numel:
        return made.reshape(spec.shape)
    return np.broadcast_to(made, spec.shape)


def both(a, b):
    return np.abs(a) + np.abs(b)


# How many units in the last place a body may be from its reference (1 for halves, which are rounded at the end).
ULPS = {"_round_decimals": 1, "sinc": 6, "logaddexp": 4, "logaddexp2": 6, "_mish": 8, "lerp": 8, "_celu": 16, "_softplus": 6,
        "_ndtr": 8, "_log_ndtr": 8, "ldexp": 4, "erfinv": 6, "lgamma": 16, "digamma": 6,
        "i0": 8, "_erfcx": 8, "_ndtri": 14, "_i0e": 8, "_i1": 8, "_i1e": 8, "_polygamma_of_order": 64,
        "_mvlgamma_of_dimension": 16}
# What the reference itself loses, beside the size of its operands: it subtracts nearly equal numbers.
LOST = {"add": lambda a, b, _: both(a, b), "sub": lambda a, b, _: both(a, b), "logaddexp": both, "logaddexp2": both,
        "_gelu": lambda x, *_: np.abs(x), "_gelu_slope": lambda x: 0 * x + 1, "lerp": lambda a, b, w: both(a, b) + np.abs((b - a) * (1 - w)),
        "_celu": lambda x, alpha: 0 * x + abs(alpha),
        # left of zero by the reflection: a sum of terms that nearly cancel where the function is nearly zero
        "lgamma": lambda x: 4 * (x < 0), "digamma": lambda x: 4 * (x < 0)}
FLUSHED = {"sigmoid", "_silu"}                      # 0 in the reference where e to the minus `input` overflows
# Where the sign of a zero is whatever the processor's maximum makes of two zeros.
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "_clamp", "_clamp_tensor", "clamp_min", "clamp_max", "relu", "_hardtanh",
               "_hardswish", "_gelu", "_silu", "_mish"}


def agree(name, dtype, mine, theirs, arrays):
    if not dtype.is_floating_point:
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
        return
    info = dtypes.finfo(dtype)
    lost = 0.0
    if name in LOST:
        with np.errstate(all="ignore"):
            lost = np.asarray(LOST[name](*arrays)).astype(np.float64) * info.eps
        lost = np.where(np.isfinite(lost), lost, 0)
    mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
    tolerance = (1 if dtype in HALVES else ULPS.get(name, 2)) * (np.abs(theirs) * info.eps + info.tiny * info.eps) + lost
    tolerance += 32 * info.tiny * (name in FLUSHED)
    with np.errstate(all="ignore"):
        wrong = ~((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)) | (np.abs(mine - theirs) <= tolerance))
        if name not in EITHER_ZERO:
            wrong |= (mine == 0) & (theirs == 0) & (np.signbit(mine) != np.signbit(theirs))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        given = [np.broadcast_to(a, wrong.shape)[at] if isinstance(a, np.ndarray) else a for a in arrays]
        raise AssertionError(f"{name} of {dtype.name}: {given} gives {mine[at]!r}, its reference {theirs[at]!r} "
                             f"({int(wrong.sum())} of {wrong.size})")


def compiled(made, entry, args, arrays):
    """The results of a call as the native executor computes them."""
    return [one._storage.value.ready().look(one._spec, one._offset) for one in (made if entry.many else [made])]


def check(name, args, how=run_body):
    """Compare body and reference; False where the body leaves the case to the reference."""
    made, entry, arrays, params = recorded(OPS[name], args)
    with np.errstate(all="ignore"):
        mine, theirs = how(made, entry, args, arrays), execute(entry, arrays, params)
    if mine is NotImplemented:
        return False
    given = [args[i] if not isinstance(a, torch.Tensor) else arrays[sum(isinstance(b, torch.Tensor) for b in args[:i])]
             for i, a in enumerate(args)]
    for one, other, spec in zip(mine, theirs, entry.outs, strict=True):
        agree(name, spec.dtype, one, other, given)
    return True


# --- numbers that are hard ------------------------------------------------------------------------------------------------------


def samples(dtype, rng):
    """Zeros, infinities, nan, the smallest and largest, halves, whole numbers, and some from every order of magnitude."""
    if dtype is dtypes.bool:
        return np.array([False, True])
    if dtype.category == 1:
        info = np.iinfo(dtype.np)
        few = [n for n in (0, 1, -1, 2, -2, 3, 7, -7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 100, info.min, info.min + 1, info.max)
               if info.min <= n <= info.max]
        return np.array([*few, *rng.integers(info.min, info.max, 12, dtype=dtype.np, endpoint=True)], dtype.np)
    info = dtypes.finfo(dtype)
    few = [0.0, 1, 0.5, 1.5, 2.5, 2, 3, 0.1, 0.49999, 1 / 3, 6, 10, 19.9, 20.5, 89, 200, 750, 1e3, 1e-3, 1e-6, info.eps, 1 + info.eps,
           1 - info.eps, info.tiny, info.tiny * info.eps, info.tiny / 3, info.max, 2.0 ** 24, 12345.678, math.inf]
    few += [*rng.normal(0, 2, 12), *10.0 ** rng.uniform(-6, 6, 8), *2.0 ** rng.uniform(math.log2(info.tiny), math.log2(info.max), 8)]
    with np.errstate(all="ignore"):
        return np.array([*few, *[-x for x in few], math.nan]).astype(dtype.np)


def crossed(columns, rng):
    """The columns crossed with each other: all pairs, or as many combinations as make a good sample."""
    if len(columns) == 1:
        return columns
    if len(columns) == 2:
        a, b = np.meshgrid(*columns, indexing="ij")
        return [a.reshape(-1), b.reshape(-1)]
    return [rng.choice(column, 4000) for column in columns]


# Arguments that are no operands: several sets, each for its own path through the body.
PATHS = {
    "add": [{}, {"alpha": 3}, {"alpha": -1.0}, {"alpha": True}], "sub": [{}, {"alpha": 3}, {"alpha": -1.0}],
    "rsub": [{}, {"alpha": 3}, {"alpha": -1.0}],
    "_native_dropout": [{"scale": 1.25, "slope": 1.25}, {"scale": 1.1, "slope": 2.5}],
    "addcmul": [{}, {"value": 3}, {"value": 2.5}], "addcdiv": [{}, {"value": 3}, {"value": 2.5}],
    "_integer_division": [{"part": part} for part in ("floor", "trunc", "remainder", "fmod")],
    "_div_rounded": [{"rounding_mode": "floor"}, {"rounding_mode": "trunc"}],
    "_pow_number": [{"exponent": e} for e in (0, 1, 2, 3, 0.5, -0.5, -1, 2.5, -2, 0.0)], "_pow_of_number": [{"input": 2}, {"input": -1.7}],
    "lerp": [{"weight": 0.25}, {"weight": 0.75}, {}], "logit": [{}, {"eps": 0.0625}],
    "_round_decimals": [{"decimals": n} for n in (1, 3, -2, 7)],
    "nan_to_num": [{}, {"nan": 2.5, "posinf": 7.0, "neginf": -1e30}, {"nan": None}],
    "_clamp": [{"min": -1, "max": 1}, {"min": 0.3}, {"max": 2}, {"min": 3, "max": 1}],
    "_isclose": [{"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}, {"rtol": 0.3, "atol": 0.0, "equal_nan": True}],
    "_threshold": [{"threshold": 0.5, "value": 7.0}, {"threshold": -1, "value": 3}], "_threshold_backward": [{"threshold": 0}],
    "_hardtanh": [{"min_val": -1.0, "max_val": 1.0}, {"min_val": 0, "max_val": 6}],
    "_hardshrink": [{"lambd": 0.5}, {"lambd": 1.0}], "_softshrink": [{"lambd": 0.5}, {"lambd": 0}],
    "_elu": [{"alpha": 1.0, "scale": 1, "input_scale": 1}, {"alpha": 1.5, "scale": 2, "input_scale": 0.5}],
    "_celu": [{"alpha": 1.0}, {"alpha": -2.0}, {"alpha": 0.7}], "_softplus": [{}, {"beta": 2, "threshold": 5}],
    "_gelu": [{}, {"approximate": "tanh"}], "_leaky_relu": [{"negative_slope": 0.25}],
    "_where": [{"condition": None}],
}
NUMBERS = (0, 2, -3, 0.5, 0.1, math.nan, math.inf)          # as the second operand, in the place of a tensor

# What a body leaves to `ref`, by kind of dtype.
LEFT = {
    "_pow": ("int bool", "takes as many products as the exponent has bits"),
    "_pow_number": ("int bool", "takes as many products as the exponent has bits; squares and cubes are operations of their own"),
    "_pow_of_number": ("int bool", "takes as many products as the exponent has bits"),
    "_remainder": ("float64 int bool", "the quotient of two float64 has up to 2000 bits"),
    "_fmod": ("float64 int bool", "the quotient of two float64 has up to 2000 bits"),
    "_floor_divide": ("float64 int bool", "goes by the remainder"),
    "_div_rounded": ("float64 int bool", "floor goes by the remainder"),
    "nextafter": ("half", "the bits of a half are not to be had"),
    "_isclose": ("int bool", "the tolerances come in the dtype of the operands"),
    "_threshold": ("int", "the threshold comes in the dtype of the operands"),
    "_threshold_backward": ("int bool", "the threshold comes in the dtype of the operands"),
}


def kind_of(dtype):
    return "half" if dtype in HALVES else dtype.name if dtype in (*FLOATS, dtypes.bool) else "int"


TESTED = [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.int8,
          dtypes.bool]
WITH_BODY = {name: op for name, op in POINTWISE.items() if hasattr(op, "body")}


def accepted(op, args):
    try:
        recorded(op, args)
        return True
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def calls(name):
    """Arguments of calls that the operation accepts: every dtype, every path, tensors and numbers."""
    op, rng = WITH_BODY[name], np.random.default_rng(3)
    for dtype in TESTED:
        column = samples(dtype, rng)
        for path in PATHS.get(name, [GIVEN.get(name, {})]):
            if path.get("exponent", 0) < 0 and dtype.category < 2:
                continue                                            # refused at the call
            if dtype is dtypes.uint8 and path.get("min_val", 0) < 0:
                continue                                            # refused in front: as a byte, -1.0 is the processor's
            if path.get("alpha") == 3 and dtype.category == 2:
                continue                                            # rounded once, not twice as the reference
            tensors = [n for n, d in zip(op.arg_names, op.defaults)
                       if (d is REQUIRED or name == "_clamp_tensor") and path.get(n) is None]
            columns = crossed([samples(dtypes.bool, rng) if n in ("condition", "keep") else column for n in tensors], rng)
            if name == "_integer_division":
                columns = [c[columns[1] != 0] for c in columns]
            some = [dict(zip(tensors, [torch.tensor(c) for c in columns]))]
            if len(tensors) == 2:
                some += [{tensors[0]: torch.tensor(column), tensors[1]: n} for n in NUMBERS if n or name not in WHOLE]
            for call in some:
                args = [{**path, **call}.get(n, d) for n, d in zip(op.arg_names, op.defaults)]
                fraction = dtype.category == 2 or any(isinstance(a, float) for a in args)
                if not (name in WHOLE and fraction) and accepted(op, args):
                    yield args


@pytest.fixture(autouse=True)
def nothing_left_over():
    """What one test fails to run is not run by the next."""
    yield
    current().clear()


@pytest.mark.parametrize("name", WITH_BODY)
def test_body_means_what_the_reference_means(name):
    left, compared = set(), 0
    for args in calls(name):
        if check(name, args):
            compared += 1
        else:
            left.add(kind_of(next(a.dtype for a in args if isinstance(a, torch.Tensor))))
    assert compared >= 2
    assert left <= set(LEFT.get(name, ("",))[0].split()), f"{name} leaves {left} to its reference"


@pytest.mark.parametrize("name", sample(WITH_BODY, 2))
def test_compiled_body_means_what_the_reference_means(name, monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    for args in calls(name):
        check(name, args, compiled)


# --- those that are not pointwise by declaration ----------------------------------------------------------------------------------

F32 = torch.tensor(samples(dtypes.float32, np.random.default_rng(0)))
GRID, OTHER = torch.arange(48.).reshape(2, 4, 2, 3) - 20.3, torch.linspace(-2, 3, 48).reshape(2, 4, 2, 3)
ROW = torch.tensor([1.5, -2.25, 7])
MASK = torch.tensor([[True], [False]])
CPU = ROW.device
CALLS = [
    *[("_full", (4, 2), n, d, CPU, None) for n, d in ((0, dtypes.float32), (2.7, dtypes.float64), (-1, dtypes.uint8), (3, dtypes.int64),
                                                      (0.1, dtypes.float16), (2, dtypes.bool), (math.nan, dtypes.bfloat16))],
    *[("_arange", 9, a, b, d, CPU) for a, b, d in ((0, 1, dtypes.int64), (5, -3, dtypes.int8), (0, 0.1, dtypes.float32), (250, 3, dtypes.uint8),
                                                   (-1.5, 0.3, dtypes.float64), (0.7, 2.9, dtypes.int32))],
    *[("_linspace", a, b, n, d, CPU) for a, b, n, d in ((0, 1, 11, dtypes.float32), (-3.3, 7, 8, dtypes.float64), (0, 100, 7, dtypes.int32),
                                                        (5, 9, 1, dtypes.float32), (9, -4, 4, dtypes.int64))],
    ("_eye", 3, 4, dtypes.float32, CPU), ("_eye", 4, 2, dtypes.bool, CPU), ("_eye", 2, 2, dtypes.float16, CPU),
    ("clone", F32, None), ("clone", F32.to(torch.bfloat16), None), ("_drawn", ROW, ROW + 1), ("_normal_both", ROW, ROW, ROW + 1),
    *[("_to_copy", F32[F32.abs() < 1e9], d, None, None) for d in TESTED], *[("_to_copy", (F32 > 0), d, None, None) for d in TESTED],
    *[("_to_copy", torch.tensor([0, 1, -1, 300, 70000, 2 ** 40 + 1]), d, None, None) for d in TESTED],
    *[("_spread", torch.tensor(2.5, dtype=torch.float64), d, (3, 2), None) for d in TESTED],
    ("_masked_fill", ROW.expand(2, 3), MASK, 0.1), ("_masked_fill", ROW.half(), MASK, 0.1), ("_masked_fill", torch.arange(3), MASK, -2.5),
    ("_masked_fill", torch.arange(3, dtype=torch.uint8), MASK, -1), ("_masked_fill", ROW > 0, MASK, 1),
    ("_masked_fill_tensor", ROW, MASK, torch.tensor(-7)), ("_masked_fill_tensor", ROW.bfloat16(), MASK, torch.tensor(0.1)),
    ("_masked_fill_tensor", torch.arange(3, dtype=torch.int8), MASK, torch.tensor(-7.9)),
    ("_inside_unit", torch.tensor([0.0, 1, 0.3]), "input"), ("_class_check", torch.tensor([0, 2]), 3, 0),
    *[("_glu", GRID, d) for d in (0, 1, -2)], ("_glu", GRID.half(), 1), ("_addr", OTHER[0, :3, 0], ROW, ROW[:3], 0.5, 2),
    ("_addr", ROW * math.inf, ROW[:2], ROW, 0, 1), ("_addr", torch.arange(3), torch.arange(2), torch.arange(3), 2, 3),
    ("_addr", ROW > 0, MASK[:, 0], ROW < 7, True, True), ("_cross", GRID, OTHER, -1), ("_cross", torch.rand(2, 3, 4), torch.rand(1, 3, 4), 1), ("_cross", ROW, torch.tensor([0.5, 3, -1]), 0),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_other_bodies(call, monkeypatch):
    name, *args = call
    assert check(name, args)
    monkeypatch.setattr(settings, "executor", "native")
    assert check(name, args, compiled)


# --- nothing is left out ----------------------------------------------------------------------------------------------------

def test_every_path_is_one_of_a_body():
    assert set(PATHS) | set(LEFT) <= set(WITH_BODY)


def test_a_body_takes_the_arguments_of_its_reference():
    for name, op in OPS.items():
        body = getattr(op, "body", None)
        if body is not None:
            code = body.__code__
            names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
            first = "words" if "k" in op.arg_names else "k"
            assert names == (first, *op.arg_names) and code.co_argcount == 1 + op.n_positional, name
