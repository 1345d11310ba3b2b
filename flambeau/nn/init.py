"""Ways to fill the weights of a layer. Each writes into the tensor it is given, without a gradient, and returns it.

From the same `manual_seed` they give PyTorch's numbers: what is drawn, how often and in which dtype is the same there.
"""
import math
from functools import wraps

from ..autograd.modes import no_grad
from ..base.errors import warn
from ..tensor.forms import namespace
from ..tensor.functions import arange, cat, diag, empty_like, eye as identity, randperm, where
from ..tensor.overrides import handle_torch_function, has_torch_function

__all__ = ["calculate_gain", "constant", "constant_", "dirac", "dirac_", "eye", "eye_", "kaiming_normal",
           "kaiming_normal_", "kaiming_uniform", "kaiming_uniform_", "normal", "normal_", "ones_", "orthogonal",
           "orthogonal_", "sparse", "sparse_", "trunc_normal_", "uniform", "uniform_", "xavier_normal",
           "xavier_normal_", "xavier_uniform", "xavier_uniform_", "zeros_"]

_GAINS = {**dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                           "conv_transpose3d", "sigmoid"), 1),
          "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


def calculate_gain(nonlinearity, param=None):
    """By how much the standard deviation of weights is to be larger before the given function.

    >>> torch.nn.init.calculate_gain("leaky_relu", 0.2)
    1.3867504905630728
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2 / (1 + slope ** 2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _overridable(fill):
    """Let a subclass of Tensor take the call through `__torch_function__`, with all arguments by name as in PyTorch."""
    names, defaults = fill.__code__.co_varnames[:fill.__code__.co_argcount], fill.__defaults__ or ()

    @wraps(fill)
    def filled(tensor, *args, **kwargs):
        if not has_torch_function((tensor,)):
            return fill(tensor, *args, **kwargs)
        given = {**dict(zip(names[::-1], defaults[::-1])), **dict(zip(names, (tensor, *args))), **kwargs}
        return handle_torch_function(filled, (tensor,), **given)
    return filled


# --- the same for every element ---------------------------------------------------------------------------------------


@_overridable
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Numbers drawn evenly from `a` to `b`."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


@_overridable
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Numbers drawn from the normal distribution."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


@_overridable
def constant_(tensor, val):
    """`val` everywhere."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    """One everywhere."""
    with no_grad():
        return tensor.fill_(1.0)


def zeros_(tensor):
    """Zero everywhere."""
    with no_grad():
        return tensor.zero_()


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Numbers drawn from the part of the normal distribution between `a` and `b`."""
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
             "incorrect.")
    inside = (math.erf((b - mean) / std / math.sqrt(2)) - math.erf((a - mean) / std / math.sqrt(2))) / 2
    with no_grad():
        return (_draw_until_inside if inside > 0.3 else _draw_by_height)(tensor, mean, std, a, b, generator)


def _draw_until_inside(tensor, mean, std, a, b, generator):
    """Draw anew what falls outside: few do."""
    low, high = (tensor.new_tensor(bound).item() for bound in (a, b))
    made = tensor.normal_(mean, std, generator=generator)
    while (outside := (made < low) | (made > high)).any():
        made = where(outside, empty_like(made).normal_(mean, std, generator=generator), made)
    return tensor if made is tensor else tensor.copy_(made)


def _draw_by_height(tensor, mean, std, a, b, generator):
    """Draw evenly from the interval, and keep each number as often as the curve is high there."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2

    def rejected(points):
        height = (points - mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        return empty_like(points).uniform_(generator=generator).log_() > height

    made = tensor.uniform_(a, b, generator=generator)
    pending = rejected(made)
    while pending.any():
        points = empty_like(tensor).uniform_(a, b, generator=generator)
        made = where(pending, points, made)
        pending = pending & rejected(points)
    return tensor if made is tensor else tensor.copy_(made)


# --- matrices and kernels -------------------------------------------------------------------------------------------


def eye_(tensor):
    """The identity matrix."""
    _need_matrix(tensor)
    with no_grad():
        return tensor.copy_(identity(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor, groups=1):
    """Kernels of a convolution that hands on as many input channels as it can, within each group."""
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    channels, inputs, *kernel = tensor.shape
    if channels % groups:
        raise ValueError("dim 0 must be divisible by groups")
    if tensor.is_meta:
        return tensor
    each = channels // groups
    kept = range(min(each, inputs))
    with no_grad():
        tensor.zero_()
        if len(kept):
            outs = [group * each + channel for group in range(groups) for channel in kept]
            tensor[(outs, [*kept] * groups, *(size // 2 for size in kernel))] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor):
    """How many numbers go into one result, and into how many results one number goes."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    outputs, inputs, *kernel = tensor.shape
    size = math.prod(kernel)
    return inputs * size, outputs * size


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _xavier_std(tensor, gain):
    return gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor)))


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Even numbers whose spread keeps the variance both forward and backward (Glorot and Bengio, 2010)."""
    bound = math.sqrt(3) * _xavier_std(tensor, gain)
    with no_grad():
        return tensor.uniform_(-bound, bound, generator=generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal numbers whose spread keeps the variance both forward and backward (Glorot and Bengio, 2010)."""
    with no_grad():
        return tensor.normal_(0, _xavier_std(tensor, gain), generator=generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    """The standard deviation; None where there is nothing to fill."""
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@_overridable
def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Even numbers whose spread keeps the variance through rectified layers (He et al., 2015)."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3) * std
    with no_grad():
        return tensor.uniform_(-bound, bound, generator=generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal numbers whose spread keeps the variance through rectified layers (He et al., 2015)."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    with no_grad():
        return tensor.normal_(0, std, generator=generator)


def orthogonal_(tensor, gain=1, generator=None):
    """A random matrix whose rows, or columns if there are fewer, are orthonormal, times `gain`."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.shape[0]
    drawn = tensor.new_empty((rows, tensor.numel() // rows)).normal_(0, 1, generator=generator)
    wide = rows < drawn.shape[1]
    q, r = namespace["linalg"]["qr"](drawn.t() if wide else drawn)
    q = q * diag(r).sign()                 # unique, and so evenly distributed
    with no_grad():
        return tensor.copy_((q.t() if wide else q).reshape(tensor.shape)).mul_(gain)


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal numbers, but zero in the share `sparsity` of each column, at random positions."""
    _need_matrix(tensor)
    if tensor.is_meta:
        return tensor
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        if cols:
            # As in PyTorch, the positions come from the default generator, even if there are none.
            positions = cat([randperm(rows)[:zeros] for _ in range(cols)])
            tensor[positions, arange(cols).repeat_interleave(min(zeros, rows))] = 0
    return tensor


def _need_matrix(tensor):
    if tensor.dim() != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got one with {tensor.dim()}")


# --- names of long ago ----------------------------------------------------------------------------------------------


def _deprecated(fill):
    name = fill.__name__

    @wraps(fill)
    def renamed(*args, **kwargs):
        warn(f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.", FutureWarning)
        return fill(*args, **kwargs)
    renamed.__name__ = name[:-1]
    return renamed


uniform, normal, constant, eye, dirac, orthogonal, sparse = map(_deprecated, (
    uniform_, normal_, constant_, eye_, dirac_, orthogonal_, sparse_))
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(_deprecated, (
    xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_))
