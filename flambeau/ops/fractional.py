"""Fractional max pooling: windows whose steps are drawn at random, so that a size shrinks by a fraction.

The windows along a dimension start at the whole parts of (i + sample) · alpha, less that of sample · alpha, where alpha
spreads them over the dimension; the last one ends with it. Every plane has its own sample, one number a dimension.
"""
import itertools
import math
from operator import index as as_int

import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .maxpool import _drop, flat_positions
from .pool import need_dtype, need_tensor
from .view import ints

MAX_UNROLLED_TAPS = 64           # of a window that native code looks at
AXIS_NAMES = {2: ("height", "width"), 3: ("time", "height", "width")}


def starts(xp, sample, size, out, kernel):
    """Where the `out` windows of `kernel` elements start, in an array [*sample.shape, out]."""
    made = xp.full((*sample.shape, out), size - kernel, np.int64)
    if out > 1:
        alpha = sample.dtype.type(size - kernel) / sample.dtype.type(out - 1)
        steps = xp.arange(out - 1).astype(sample.dtype)
        sample = sample[..., None]
        made[..., :-1] = ((steps + sample) * alpha).astype(np.int64) - (sample * alpha).astype(np.int64)
    return made


def start_of(k, number, sample, size, out, kernel):
    """In a body: where the window `number` starts, as `starts` has it."""
    if out == 1:
        return k.const(size - kernel, dtypes.int64)
    alpha = k.const(size - kernel, sample.dtype) / k.const(out - 1, sample.dtype)
    step = k.cast((k.cast(number, sample.dtype) + sample) * alpha, dtypes.int64) - k.cast(sample * alpha, dtypes.int64)
    return k.where(number == out - 1, size - kernel, step)


class _fractional_max_pool(Op):
    """The largest element of each window of `input` [*lead, *size], and its index in the flattened `size`.

    `samples` [*lead, n] places the windows; for two dimensions, PyTorch reads it from the last of them on.
    """

    exact = True

    def meta(input, samples, kernel_size, output_size):
        n, name = len(kernel_size), f"fractional_max_pool{len(kernel_size)}d"
        need(input.ndim in (n + 1, n + 2), f"Expected {n + 1}D or {n + 2}D tensor, but got: {list(input.shape)}")
        for d in range(input.ndim - n - 1, input.ndim):
            need(input.shape[d], "Expected input to have non-zero size for non-batch dimensions, but got "
                 f"{list(input.shape)} with dimension {d} being empty.")
        for axis, size, kernel, out in zip(AXIS_NAMES[n], input.shape[-n:], kernel_size, output_size, strict=True):
            least = out + kernel - 1 + (n == 3)                  # one more in three dimensions, as PyTorch has it
            need(least <= size, f"{name}(): pool {axis} {kernel} too large relative to input {axis} {size}: {out} "
                                f"windows need {least} elements")
        lead = input.shape[:-n] if input.ndim == n + 2 else (1, input.shape[0])
        need(samples.ndim == 3, f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
        for d, (words, wanted) in enumerate((("no less than input batch size", lead[0]),
                                             ("equals to input channel size", lead[1]), ("equals to", n))):
            size_here = samples.shape[d]
            need(size_here >= wanted if d == 0 else size_here == wanted,
                 f"Expect _random_samples.size({d}) {words} {wanted}, but got {size_here}.")
        need(samples.dtype is input.dtype, "Expect _random_samples to have the same dtype as input, "
             f"{input.dtype!r}, got {samples.dtype!r}")
        need_dtype(input.dtype, input.dtype.category == 2, name)
        values = spec(input.dtype, (*input.shape[:-n], *output_size), None, input.device)
        return values, values.like(dtype=dtypes.int64)

    def ref(xp, input, samples, kernel_size, output_size):
        n = len(kernel_size)
        lead, size = input.shape[:-n], input.shape[-n:]
        samples = samples[:lead[0]] if len(lead) == 2 else samples[0]
        order = range(n) if n == 3 else range(n - 1, -1, -1)
        position = xp.zeros((*lead, *[1] * 2 * n), np.int64)                 # [*lead, *output_size, *kernel_size]
        for d, at in enumerate(order):
            start = starts(xp, samples[..., at], size[d], output_size[d], kernel_size[d])
            start = start.reshape(*lead, *[output_size[d] if e == d else 1 for e in range(2 * n)])
            inside = xp.arange(kernel_size[d]).reshape([kernel_size[d] if e == n + d else 1 for e in range(2 * n)])
            position = position * size[d] + start + inside
        position = position.reshape(*lead, math.prod(output_size), math.prod(kernel_size))
        flat = position.reshape(*lead, math.prod(position.shape[-2:]))
        seen = xp.take(input.reshape(-1), flat_positions(xp, flat, lead, math.prod(size))).reshape(position.shape)
        best = xp.argmax(seen, -1)[..., None]                                # a nan counts as the largest
        shape = (*lead, *output_size)
        return tuple([xp.take_along_axis(one, best, -1).reshape(shape) for one in (seen, position)])

    def body(k, input, samples, kernel_size, output_size):
        if input.dtype not in (dtypes.float32, dtypes.float64) or math.prod(kernel_size) > MAX_UNROLLED_TAPS:
            return NotImplemented                          # steps are counted in the input's dtype
        n = len(kernel_size)
        lead, size = input.shape[:-n], input.shape[-n:]
        planes, shape = math.prod(lead), (math.prod(lead), *output_size)
        if samples.shape[0] != (lead[0] if len(lead) == 2 else 1):
            return NotImplemented
        samples = k.reshape(samples, (planes, *[1] * n, n))
        begins = []
        for d, at in enumerate(range(n) if n == 3 else range(n - 1, -1, -1)):
            which = k.reshape(k.const(at, dtypes.int64), (1,) * (n + 2))
            sample = k.reshape(k.gather(samples, n + 1, which), (planes, *[1] * n))
            begins.append(start_of(k, k.index(1 + d, shape), sample, size[d], output_size[d], kernel_size[d]))
        flat = k.expand(k.reshape(input, (planes, *[1] * (n - 1), math.prod(size))), (*shape[:-1], math.prod(size)))
        best = where = None
        for tap in itertools.product(*map(range, kernel_size)):
            at = 0
            for begin, offset, length in zip(begins, tap, size, strict=True):
                at = at * length + begin + offset
            value = k.gather(flat, n, k.expand(at, shape))
            if best is None:
                best, where = value, at
                continue
            better = (value > best) | (k.isnan(value) & ~k.isnan(best))
            best, where = k.where(better, value, best), k.where(better, at, where)
        return tuple([k.reshape(k.expand(one, shape), (*lead, *output_size)) for one in (best, where)])

    def d_input(g, out1, input_spec, kernel_size):
        n = len(kernel_size)
        made = _drop(g[0].flatten(-n), out1.flatten(-n), math.prod(input_spec.shape[-n:]))
        return made.reshape(input_spec.shape)


class _fractional_max_pool2d_largest(_fractional_max_pool):  node = "FractionalMaxPool2DBackward0"
class _fractional_max_pool3d_largest(_fractional_max_pool):  node = "FractionalMaxPool3DBackward0"


def per_axis(given, n, what, name):
    """`given`, one int or `n` of them, as a tuple of `n`."""
    made = ints((given,), what)
    need(len(made) in (1, n), f"{name}: {what} must either be a single int or a tuple of {n} ints, got {list(made)}")
    return made if len(made) == n else made * n


def fractional(op, n, input, kernel_size, output_size, output_ratio, samples):
    """(values, indices) of fractional_max_pool2d or fractional_max_pool3d."""
    need_tensor(input)
    name = f"fractional_max_pool{n}d"
    need(output_size is not None or output_ratio is not None, f"{name} requires specifying either an output_size or an "
         "output_ratio", ValueError)
    if output_size is None:
        ratios = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
        need(len(ratios) == n, f"{name} requires output_ratio to be a single number or {n} of them, got {output_ratio}",
             ValueError)
        output_size = [int(size * ratio) for size, ratio in zip(input.shape[-n:], ratios, strict=True)]
    if samples is None:
        need(input.dim() > n, f"Dimension out of range: {name} takes {n + 1} or {n + 2} dimensions, got "
             f"{list(input.shape)}", IndexError)
        batch = 1 if input.dim() == n + 1 else input.shape[0]
        samples = input.detach().new_empty((batch, input.shape[-n - 1], n)).uniform_()
    sizes = tuple([as_int(size) for size in per_axis(output_size, n, "output_size", name)])
    return op(input, samples, per_axis(kernel_size, n, "kernel_size", name), sizes)


class _fractional_max_pool2d_front(Composite):
    """The largest element of each window of `input` [N, C, H, W] (or [C, H, W]); steps between them are random.

    >>> torch.nn.functional.fractional_max_pool2d(torch.arange(16.).reshape(1, 4, 4), 2, output_size=3)[0, -1, -1]
    tensor(15.)
    """

    names = "nn.functional.fractional_max_pool2d"
    forms = "function"

    def of(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        made = fractional(_fractional_max_pool2d_largest, 2, input, kernel_size, output_size, output_ratio,
                          _random_samples)
        return made if return_indices else made[0]


class _fractional_max_pool2d_with_indices(Composite):
    """`fractional_max_pool2d`, and the index of each element in the flattened spatial dimensions."""

    names = "nn.functional.fractional_max_pool2d_with_indices"
    forms = "function"

    def of(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        return fractional(_fractional_max_pool2d_largest, 2, input, kernel_size, output_size, output_ratio,
                          _random_samples)


class _fractional_max_pool3d_front(Composite):
    """The largest element of each window of `input` [N, C, T, H, W] (or no N); steps between them are random."""

    names = "nn.functional.fractional_max_pool3d"
    forms = "function"

    def of(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        made = fractional(_fractional_max_pool3d_largest, 3, input, kernel_size, output_size, output_ratio,
                          _random_samples)
        return made if return_indices else made[0]


class _fractional_max_pool3d_with_indices(Composite):
    """`fractional_max_pool3d`, and the index of each element in the flattened spatial dimensions."""

    names = "nn.functional.fractional_max_pool3d_with_indices"
    forms = "function"

    def of(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        return fractional(_fractional_max_pool3d_largest, 3, input, kernel_size, output_size, output_ratio,
                          _random_samples)
