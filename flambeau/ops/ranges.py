"""Numbers in a row, and matrices of ones: ranges, the identity, triangles."""
import math

from ..base import dtypes
from ..base.arguments import asked, fitting, number, options, whole
from ..base.errors import need, warn
from ..base.op import Composite, door
from .create import _arange, _eye, _linspace, _logspace, _triangle

# --- rows of numbers --------------------------------------------------


class arange(Composite):
    """The numbers from `start` up to, not including, `end`, by `step`; integers give int64, floats the default dtype.

    >>> torch.arange(1, 4)
    tensor([1, 2, 3])
    """

    forms = "function out"
    creates = True
    out_resize = "count warn"

    def of(*bounds, start=0, end=None, step=None, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        if len(bounds) > 3:
            raise TypeError(f"takes 1 to 3 positional arguments (start, end, step), got {len(bounds)}")
        if len(bounds) == 1 and end is None:
            if step is not None:
                raise TypeError("received an invalid combination of arguments: with a step, give start and end both")
            end, = bounds
        else:
            start, end, step = (*bounds, *(start, end, step)[len(bounds):])
        step = 1 if step is None else step
        if end is None:
            raise TypeError("received an invalid combination of arguments: missing 1 required positional arguments: "
                            '"end"')
        start, end, step = number(start, "start"), number(end, "end"), number(step, "step")
        floating = any(isinstance(n, (float, complex)) for n in (start, end, step))
        fallback = dtypes.get_default_dtype() if floating else dtypes.int64
        dtype, where = options(dtype, fallback, device, layout, pin_memory)
        check_row(start, end, step, dtype, "arange")
        if dtype is dtypes.int64:
            start, end, step = int(start), int(end), int(step)
            count = max(0, -((start - end) // step))
        else:
            count = math.ceil((end - start) / step)
        return asked(_arange(count, start, step, dtype, where), requires_grad)


class range_(Composite):
    """The numbers from `start` to `end`, both included, by `step`. Deprecated in PyTorch: use `arange`."""

    forms = "function out"
    creates = True
    out_resize = "count"

    def of(start=0, end=None, step=1, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        if end is None:
            raise TypeError('missing 1 required positional arguments: "end"')
        warn("torch.range is deprecated and will be removed in a future release because its behavior is "
             "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values in "
             "[start, end).")
        start, end, step = number(start, "start"), number(end, "end"), number(step, "step")
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        check_row(start, end, step, dtype, "range")
        return asked(_arange(math.floor((end - start) / step) + 1, start, step, dtype, where), requires_grad)


def check_row(start, end, step, dtype, what):
    """Refuse a row of numbers that has no end or no dtype to count in."""
    need(dtype.category in (1, 2), f"\"{what}_cpu\" not implemented for '{dtype.cname}'", NotImplementedError)
    for n in (start, end, step):
        need(not isinstance(n, complex), f"value cannot be converted to type double without overflow: {n!r} is "
                                         "complex, and a row of numbers is real")
    need(step != 0, "step must be nonzero")
    need(dtype.category == 2 or int(step) != 0, f"step must be nonzero: {step} is 0 in {dtype.name}", ValueError)
    need(math.isfinite(start) and math.isfinite(end), f"unsupported range: {start} -> {end}")
    need(end >= start if step > 0 else end <= start, "upper bound and lower bound inconsistent with step sign: from "
                                                     f"{start} to {end} by {step}")
    if dtype.category == 1:
        for n in (start, end, step):
            fitting(n, dtypes.int64)


class linspace(Composite):
    """`steps` evenly spaced numbers from `start` to `end`, both included.

    >>> torch.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """

    forms = "function out"
    creates = True
    out_resize = "count"

    def of(start, end, steps, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        start, end, steps, dtype, where = spaced(start, end, steps, dtype, layout, device, pin_memory, "linspace")
        return asked(_linspace(start, end, steps, dtype, where), requires_grad)


class logspace(Composite):
    """`base` raised to `steps` evenly spaced exponents from `start` to `end`, both included.

    >>> torch.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """

    forms = "function out"
    creates = True
    out_resize = "count"

    def of(start, end, steps, base=10.0, *, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        start, end, steps, dtype, where = spaced(start, end, steps, dtype, layout, device, pin_memory, "logspace")
        return asked(_logspace(start, end, steps, number(base, "base"), dtype, where), requires_grad)


def spaced(start, end, steps, dtype, layout, device, pin_memory, what):
    """The arguments of `linspace` and `logspace`, read and checked."""
    ends = []
    for name, given in (("start", start), ("end", end)):
        if isinstance(given, door.tensor):
            need(given._spec.ndim == 0, f"{what} only supports 0-dimensional start and end tensors, but got {name} "
                                        f"with {given._spec.ndim} dimension(s).")
        ends.append(number(given, name))
    start, end = ends
    steps = whole(steps, "steps", 3)
    need(steps >= 0, f"number of steps must be non-negative, got {steps}")
    fallback = dtypes.get_default_dtype()
    if isinstance(start, complex) or isinstance(end, complex):
        fallback = fallback.to_complex()
        need(dtype is None or dtypes.given(dtype).is_complex, f"{what}(): inferred dtype {fallback!r} can't be safely "
                                                              f"cast to passed dtype {dtype!r}")
    dtype, where = options(dtype, fallback, device, layout, pin_memory)
    need(dtype is not dtypes.bool, f"\"{what}_cpu\" not implemented for 'Bool'", NotImplementedError)
    return fitting(start, dtype), fitting(end, dtype), steps, dtype, where


# --- matrices --------------------------------------------------


class eye(Composite):
    """The identity matrix with `n` rows and `m` columns (`n`, if not given).

    >>> torch.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """

    forms = "function out"
    creates = True
    out_resize = ""

    def of(n, m=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        n = whole(n, "n")
        m = n if m is None else whole(m, "m", 2)
        need(n >= 0, f"n must be greater or equal to 0, got {n}")
        need(m >= 0, f"m must be greater or equal to 0, got {m}")
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        return asked(_eye(n, m, dtype, where), requires_grad)


class tril_indices(Composite):
    """Row and column numbers of the lower triangle of a `row` by `col` matrix.

    >>> torch.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """

    forms = "function"

    def of(row, col, offset=0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        return triangle(row, col, offset, False, dtype, layout, device, pin_memory)


class triu_indices(Composite):
    """Row and column numbers of the upper triangle of a `row` by `col` matrix."""

    forms = "function"

    def of(row, col, offset=0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        return triangle(row, col, offset, True, dtype, layout, device, pin_memory)


def triangle(row, col, offset, upper, dtype, layout, device, pin_memory):
    row, col, offset = whole(row, "row"), whole(col, "col", 2), whole(offset, "offset", 3)
    need(row >= 0, f"row must be non-negative, got {row}")
    need(col >= 0, f"col must be non-negative, got {col}")
    dtype, where = options(dtype, dtypes.int64, device, layout, pin_memory)
    need(dtype in (dtypes.int32, dtypes.int64), f"\"{'triu' if upper else 'tril'}_indices\" not implemented for "
                                                f"'{dtype.cname}'", NotImplementedError)
    return _triangle(row, col, offset, upper, dtype, where)


class vander(Composite):
    """The matrix whose columns are falling (or, with `increasing`, rising) powers of the vector `x`.

    >>> torch.vander(torch.tensor([1, 2, 3]), increasing=True)
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """

    forms = "function"

    def of(x, N=None, increasing=False):
        need(x.ndim == 1, f"x must be a one-dimensional tensor, got shape {list(x.shape)}")
        N = x._spec.numel if N is None else N
        need(N >= 0, f"N must be non-negative, got {N}")
        if not x.is_floating_point() and not x.is_complex():
            x = x.to(dtypes.int64)
        if N == 0:
            return x.new_empty((x._spec.numel, 0))
        powers = x.new_ones((x._spec.numel, N))
        if N > 1:
            powers[:, 1:] = x.unsqueeze(1)
            powers[:, 1:] = powers[:, 1:].cumprod(1)
        return powers if increasing else powers.flip(1)
