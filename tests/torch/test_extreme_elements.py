"""Elementwise operations at the ends of what a dtype holds (denormal and huge numbers, infinities, nan, signed zeros),
beside PyTorch's, on both executors, with operands of one dtype and of two."""
import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from tests.torch.harness import attempt, by_path, fb, function, to_fb

PAIRS = ((torch.float32, torch.float32), (torch.float64, torch.float64), (torch.bfloat16, torch.bfloat16),
         (torch.float16, torch.float16), (torch.int64, torch.int64), (torch.uint8, torch.uint8),
         (torch.float32, torch.int64), (torch.float64, torch.int32), (torch.bfloat16, torch.int64),
         (torch.float16, torch.int16), (torch.int8, torch.float32))
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}

# Where PyTorch passes through infinity on its way, or loses what is left: there its answer is not held against ours.
THEIRS_OVERFLOW = {"nn.functional.silu", "sigmoid", "cosh", "sinh", "fmod", "remainder", "__rmod__", "erf", "i0",
                   "special.i1", "mvlgamma", "special.ndtr", "ldexp", "sinc"}
# Beside a pole or a zero PyTorch's answer has few digits.
FEW_DIGITS = {"digamma": 0.5, "polygamma": 0.5, "special.polygamma": 0.5, "special.ndtr": 0.5, "sinc": 1e-7}
LEFT_OUT = {"igamma", "igammac",         # 0 and 1 in PyTorch of denormal numbers, where they are 1 and nearly 0
            "gcd", "lcm",                # PyTorch's process ends with a signal, of the least int64
            "special.zeta",              # of large negative sums, where ours is 0: see `zeta`
            # PyTorch takes as many steps as the degree says; see test_polynomials.py
            *[f"special.{moved}chebyshev_polynomial_{kind}" for moved in ("", "shifted_") for kind in "tuvw"],
            "special.hermite_polynomial_h", "special.hermite_polynomial_he", "special.laguerre_polynomial_l",
            "special.legendre_polynomial_p"}
# Zeros of either sign are the same number, and which is the smaller one, nobody says.
ANY_ZERO = {"clamp_max", "clamp_min", "max", "min", "maximum", "minimum", "fmin", "fmax", "nn.functional.relu",
            "nn.functional.relu6", "nn.functional.logsigmoid", "nn.functional.softshrink", "sinc"}


def extremes(dtype):
    if not dtype.is_floating_point:
        ends = torch.iinfo(dtype)
        found = [0, 1, 2, 3, 10, ends.max, ends.min, ends.max - 1, ends.max // 2]
        found += [n for n in (-1, -2, -10, 100, 127, 128, 150, -150, 1000, -1000, 32767, -32768, 2**24 + 1, 2**53 + 1)
                  if ends.min <= n <= ends.max]
        return torch.tensor(found, dtype=dtype)
    ends = torch.finfo(dtype)
    sizes = [0, 1, 0.5, 2, 3, 10, 30, 89, 100, 300, 709.8, 745.2, 1e4, 32767, math.inf, ends.max, ends.max / 2,
             ends.max**0.5, ends.max**0.75, ends.tiny, ends.tiny / 2, ends.tiny * ends.eps, ends.tiny**0.5, ends.eps]
    found = torch.tensor([math.nan, *sizes, 1 - ends.eps, 1 + ends.eps], dtype=torch.float64)
    return torch.cat([found, -found]).to(dtype)


def agree(theirs, mine, dtype, op):
    """Whether each of two lists of numbers has the same ones."""
    if not dtype.is_floating_point:
        return np.array([a == b for a, b in zip(theirs, mine, strict=True)])
    theirs, mine = np.array(theirs, np.float64), np.array(mine, np.float64)
    tiny = torch.finfo(dtype).tiny
    with np.errstate(all="ignore"):
        near = np.abs(theirs - mine) <= TOLERANCES[dtype] * np.maximum(np.abs(theirs), np.abs(mine)) + tiny / 8
    near &= np.isfinite(theirs) & np.isfinite(mine)
    near |= np.abs(theirs - mine) <= FEW_DIGITS.get(op.name, 0) * (np.abs(theirs) if op.name != "sinc" else 1)
    same = (theirs == mine) | np.isnan(theirs) & np.isnan(mine) | near
    if op.name in THEIRS_OVERFLOW:
        same |= ~np.isfinite(theirs) & ~np.isnan(mine) | (np.abs(mine) < 1e-6) & (theirs == 0)
    zeros = (theirs == 0) & (mine == 0)
    return same & (~zeros | (np.signbit(theirs) == np.signbit(mine)) | (op.name in ANY_ZERO))


def cases(op):
    """(arguments, results) of PyTorch's, where it has the operation."""
    found = []
    for one, other in PAIRS:
        if op.name == "ldexp" and other.is_floating_point and other.itemsize == 2:
            continue                     # a power of 16 bits, which is zero or infinite soon
        a, b = extremes(one), extremes(other)
        if op.name == "ldexp" and other is torch.int64:
            b = b.clamp(-2**31, 2**31 - 1)       # PyTorch takes the lowest 32 bits of an exponent
        if isinstance(op, BinaryUfuncInfo):
            args, kwargs = (a.repeat_interleave(len(b)), b.repeat(len(a))), {}
        elif one is other and op.supports_dtype(one, "cpu"):
            args, kwargs = (a.repeat(3),), op.sample_kwargs("cpu", one, a)[0]
        else:
            continue
        made = attempt(lambda: op.op(*[x.clone() for x in args], **kwargs))
        parts = made if isinstance(made, (tuple, list)) else [made]
        if all(isinstance(part, torch.Tensor) and not part.dtype.is_complex for part in parts):
            found.append((args, kwargs, parts))
    return found


def is_here(op):
    """Whether Flambeau has the operation, in core_ops.txt or besides."""
    if op.name.startswith("__") or op.name in LEFT_OUT:
        return op.name not in LEFT_OUT
    try:
        by_path(op.name)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("op", [op for op in op_db if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))
                                and is_here(op)], ids=lambda op: op.full_name)
def test_extremes(op):
    for (args, kwargs, theirs), executor in itertools.product(cases(op), ("native", "reference")):
        with fb.config.using(executor=executor):
            made = function(op)(*to_fb(args), **to_fb(kwargs))
            made = made if isinstance(made, (tuple, list)) else [made]
            mine = [part.tolist() for part in made]
        for part, numbers in zip(theirs, mine, strict=True):
            wrong = np.nonzero(~agree(part.tolist(), numbers, part.dtype, op))[0]
            assert not len(wrong), [(*[x[at].item() for x in args], part[at].item(), numbers[at]) for at in wrong[:4]]
