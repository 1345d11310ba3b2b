"""The arithmetic of draws: what is made of a generator's words, as PyTorch makes it."""
import math

import numpy as np

from ....base import dtypes
from ....base.spec import spec as make_spec
from ..memory import allocator
from ..memory.address import address
from . import box_muller, libm
from .fma import FLOAT32, FLOAT64, multiply_add
from .mersenne_twister import native
from .random_stream import need

SIGNIFICAND_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
REAL_DTYPE = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}
UINT64 = np.uint64


def rounded(values, dtype):
    """`values` in `dtype`; on the way to a 16-bit float, in float32 first, as C++ converts them."""
    if dtype.itemsize == 2 and dtype.name in SIGNIFICAND_BITS:
        with np.errstate(over="ignore"):
            return values.astype(FLOAT32).astype(dtype)
    return values.astype(dtype, copy=False)


def normals(drawn, mean, std, out):
    """Normal samples of the dtype of `out`, from words, or of float64 from units; see box_muller.py."""
    if out.dtype == FLOAT64:
        out[:] = scaled(box_muller.from_units(drawn, 0.0, 1.0, system), std, mean)
        return
    run = native("normals", out.size) if box_muller.has_vectors() else None
    if run is None:
        out[:] = rounded(box_muller.from_units(units_of(drawn), mean, std, system), out.dtype)
        return
    made = out if out.dtype == FLOAT32 else np.empty(out.size, FLOAT32)
    run(address(drawn), address(made), out.size // 16, mean, std)
    if made is not out:
        out[:] = rounded(made, out.dtype)


def units_of(words):
    """What 32-bit words are as numbers in [0, 1); the array is written over."""
    words &= np.uint32(2**24 - 1)
    out = words.view(np.int32).astype(FLOAT32)          # signed: what processors convert fastest
    out *= FLOAT32.type(2.0**-24)
    return out


def system(name, values):
    """What the system's function `name` gives for each element; see libm.py."""
    return libm.mapped(name, values, native("map32" if values.dtype == FLOAT32 else "map64", values.size))


def scaled(values, scale, low):
    """`values * scale + low`, rounded once; the array may be written over."""
    scale, low = float(scale), float(low)
    run = native("scale64", values.size) if values.dtype == FLOAT64 and low else None
    if run is None:
        return multiply_add(values, scale, low)
    run(values.ctypes.data, values.size, scale, low)
    return values


def largest(dtype):
    """The end of the row of integers that `dtype` counts through."""
    if dtype.name in SIGNIFICAND_BITS:
        return 2**SIGNIFICAND_BITS[dtype.name]
    return 1 if dtype == np.bool_ else int(np.iinfo(dtype).max)


def representable(low, high, dtype):
    """The range [low, high) moved inwards to numbers that `dtype` holds, lest a draw round out of it."""
    digits = SIGNIFICAND_BITS[dtype.name]
    if -2**digits <= low and high <= 2**digits:
        return low, high

    def near(value):
        return float(rounded(np.array(value, np.int64), dtype))

    if near(low + 1) < low:
        low = int(near(low + 1)) + (1 << abs(low + 1).bit_length() - digits)
    need(math.isfinite(near(high - 1)), f"to - 1 is out of bounds for {dtype.name}, got to={high}")
    if high <= near(high - 1) < 2**63:      # PyTorch's conversion overflows at 2**63, and high stays
        high = int(near(high - 1)) - (1 << abs(high - 1).bit_length() - digits)
    return low, high


def lined_up_room(shape, dtype):
    """An uninitialised array; see Note [Lined up] in memory/allocator.py."""
    dtype = np.dtype(dtype)
    if math.prod(shape if isinstance(shape, tuple) else (shape,)) * dtype.itemsize < allocator.LINED_UP_BYTES:
        return np.empty(shape, dtype)
    return allocator.blank(make_spec(dtypes.from_numpy(dtype), shape if isinstance(shape, tuple) else (shape,)))[0]


def swapped(targets):
    """0 to n - 1 after swapping i with targets[i] >= i for each i in turn, without a loop over n.

    Step i leaves for good, at i, what it finds at its target: what the last earlier step with that target put
    there, or else the target's own number. A step k puts down what stood at k just before it: `stood[k]`,
    which in turn is what the last earlier step with target k put there, or k.
    """
    n = len(targets)
    keys = targets.astype(UINT64) << UINT64(32)
    keys |= np.arange(n, dtype=UINT64)
    keys.sort()                             # by target, then by step, as plain integers: the fast sort
    step, target = keys.astype(np.uint32), (keys >> UINT64(32)).astype(np.uint32)

    stood = np.arange(n, dtype=np.uint32)
    moving = step != target
    stood[target[moving]] = step[moving]     # the last of equal targets wins
    open_ = np.flatnonzero(stood != np.arange(n, dtype=np.uint32))
    while len(open_):                       # follow the references, doubling the reach each time
        here = stood[open_]
        there = stood[here]
        stood[open_] = there
        open_ = open_[here != there]

    found = target.copy()
    again = np.flatnonzero(target[1:] == target[:-1])
    found[again + 1] = stood[step[again]]
    out = np.empty(n, np.uint32)
    out[step] = found
    return out


def poisson_one(rate, unit):
    if rate == 0:
        return 0
    if rate < 10:                           # count the units whose product stays above e**-rate
        count, product, floor = 0, unit(), math.exp(-rate)
        while product > floor:
            count, product = count + 1, product * unit()
        return count
    # Hörmann's transformed rejection (PTRS, 1993)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_sure = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = unit() - 0.5, unit()
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + rate + 0.43) if edge else -1
        if edge >= 0.07 and v <= v_sure:
            return k
        if k < 0 or (edge < 0.013 and v > edge):
            continue
        if (math.log(v) if v else -math.inf) + math.log(inverse_alpha) - math.log(a / (edge * edge) + b) <= (
                k * math.log(rate) - rate - log_gamma(k + 1)):
            return k


def log_gamma(x):
    """The system's, where there is one: Python's own has other last places."""
    return (libm.function("lgamma") or math.lgamma)(x)


def gamma_one(d, unit, normal):
    """Marsaglia and Tsang's rejection (2000) for a shape of d + 1/3, at least 1: the sample over d."""
    c, squeeze = 1.0 / math.sqrt(9.0 * d), float(FLOAT32.type(0.0331))
    while True:
        x = normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v, u, xx = y * y * y, 1 - unit(), x * x
        if u < 1.0 - squeeze * xx * xx or math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
            return v
