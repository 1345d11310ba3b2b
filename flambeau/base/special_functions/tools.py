"""What the special functions share: running block by block in float64, parts of an array, polynomials."""
import functools
import math
from contextlib import nullcontext

import numpy as np

BLOCK_ELEMENTS = 1 << 14       # elements: a few float64 temporaries of this length stay in the cache
SQRT_2 = math.sqrt(2)
SQRT_HALF = math.sqrt(0.5)


def quiet(xp):
    """A context in which invalid values and overflow give no warning. CuPy never does, and has no switch."""
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()


def elementwise(body):
    """Turn a function of flat float64 arrays into one of any shape and float dtype, run block by block."""
    @functools.wraps(body)
    def call(xp, *args):
        dtype = xp.result_type(*args)
        args = xp.broadcast_arrays(*map(xp.asarray, args))
        out = xp.empty(args[0].shape, dtype)
        flat, target = [a.reshape(-1) for a in args], out.reshape(-1)
        step = BLOCK_ELEMENTS if xp is np else max(target.size, 1)  # a GPU wants everything at once
        with quiet(xp):
            for i in range(0, target.size, step):
                target[i:i + step] = body(xp, *(a[i:i + step].astype(xp.float64) for a in flat))
        return out
    return call


def fill(xp, out, mask, body, *args):
    """Set `out` where `mask` holds to `body(xp, *args)`, evaluated there and nowhere else."""
    at = xp.flatnonzero(mask)
    if at.size == out.size:
        out[...] = body(xp, *args)
    elif at.size:
        out[at] = body(xp, *(a[at] for a in args))


def poly(x, coefficients):
    """Horner's rule, highest power first."""
    out = x * coefficients[0]
    out += coefficients[1]
    for c in coefficients[2:]:
        out *= x
        out += c
    return out


def ratio(x, above, below):
    out = poly(x, above)
    out /= poly(x, below)
    return out
