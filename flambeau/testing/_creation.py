"""Random tensors to test with: `make_tensor`, which draws PyTorch's numbers."""
import collections.abc
import math
import warnings

from ..base import dtypes
from ..tensor.functions import empty, view_as_real
from ..tensor.random import randint

DRAWN_AS_FLOAT32 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e4m3fnuz, dtypes.float8_e5m2fnuz)


def make_tensor(*shape, dtype, device, low=None, high=None, requires_grad=False, noncontiguous=False,
                exclude_zero=False, memory_format=None):
    """Numbers drawn evenly from [`low`, `high`), in range for `dtype`: by default from -9 to 9, or 0 and 1.

    With `noncontiguous` it is every second element of a larger tensor; with `exclude_zero` zeros are the smallest
    positive number instead.

    >>> torch.testing.make_tensor(2, 3, dtype=torch.float32, device="cpu", low=1, high=2).shape
    torch.Size([2, 3])
    """
    if len(shape) == 1 and isinstance(shape[0], collections.abc.Sequence):
        shape, = shape
    shape = tuple(shape)
    whole = not dtype.is_floating_point and not dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
                         f"{noncontiguous=} and {memory_format=}")
    if requires_grad and whole:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    if not whole and dtype.itemsize == 1 and dtype not in DRAWN_AS_FLOAT32:
        raise TypeError(f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor().")
    low, high = _interval(low, high, dtype)
    noncontiguous = noncontiguous and math.prod(shape) > 1
    if noncontiguous:
        shape = *shape[:-1], 2 * shape[-1]
    if whole:
        made = randint(math.ceil(low), math.ceil(high), shape, dtype=dtype, device=device)
    else:
        made = empty(shape, dtype=dtypes.float32 if dtype in DRAWN_AS_FLOAT32 else dtype, device=device)
        _draw(view_as_real(made) if dtype.is_complex else made, low, high)
        made = made.to(dtype)
    if noncontiguous:
        made = made[..., 1::2]                    # not from its beginning, which shows an offset that is forgotten
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = 1 if whole else dtypes.finfo(dtype).tiny
    if not whole and dtype not in DRAWN_AS_FLOAT32:
        made.requires_grad = requires_grad
    return made


def _interval(low, high, dtype):
    """[low, high) as far as it lies in what `dtype` has."""
    whole = not dtype.is_floating_point and not dtype.is_complex
    if dtype is dtypes.bool:
        least, most, low, high = 0, 2, 0 if low is None else low, 2 if high is None else high
    else:
        range_of = dtypes.iinfo(dtype) if whole else dtypes.finfo(dtype)
        least, most = range_of.min, range_of.max
        most += 1 if whole and dtype is not dtypes.int64 else 0        # randint takes no bound over int64's
        low, high = -9 if low is None else low, (10 if whole else 9) if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and not whole and dtype not in DRAWN_AS_FLOAT32:
        warnings.warn("Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated "
                      "since 2.1 and will be removed in 2.3. Use `torch.full(...)` instead.", FutureWarning,
                      stacklevel=3)
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= most:
        raise ValueError(f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only "
                         f"supports [{least}, {most})")
    return min(max(low, least), most), min(max(high, least), most)


def _draw(made, low, high):
    """Fill with numbers of [low, high), also where the interval is wider than the largest number."""
    if high - low >= dtypes.finfo(made.dtype).max:
        made.uniform_(low / 2, high / 2).mul_(2)
    else:
        made.uniform_(low, high)
