"""Convolutions and transposed convolutions over one to three dimensions, and their lazy forms.

A lazy one finds `in_channels` from its first input, and becomes an ordinary one then.
"""
import math

from ...base.errors import warn
from ...tensor.functions import empty
from .. import functional as F, init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module
from .utils import _ntuple, _reverse_repeat_tuple

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
           "LazyConv1d", "LazyConv2d", "LazyConv3d",
           "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d"]

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: the checked sizes, weight and bias."""

    _dims = 0                 # how many spatial dimensions
    _function = ""            # what computes it, by its name: a program may put another in its place
    _added = {"padding_mode": "zeros"}

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
                 groups, bias, padding_mode, device=None, dtype=None):
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer, got {groups}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups, got {name}={channels} and groups={groups}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of 'valid', 'same'")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError(f"padding='same' is not supported for strided convolutions, got stride={stride}")
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {PADDING_MODES}, but got padding_mode={padding_mode!r}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.transposed, self.output_padding = transposed, output_padding
        self.groups, self.padding_mode = groups, padding_mode
        self._reversed_padding_repeated_twice = self._sides()
        if transposed:
            shape = (in_channels, out_channels // groups, *kernel_size)
        else:
            shape = (out_channels, in_channels // groups, *kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _sides(self):
        """The padding as `pad` takes it: before and after the last dimension, then the one before, …."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        if self.padding == "valid":
            return [0, 0] * len(self.kernel_size)
        totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
        return [side for total in reversed(totals) for side in (total // 2, total - total // 2)]

    def reset_parameters(self):
        """Draw weight and bias anew, uniformly within one over the square root of the fan-in."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        n = len(self.kernel_size)
        says = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        says += [f"{name}={getattr(self, name)}" for name, usual in (
            ("padding", (0,) * len(self.padding)), ("dilation", (1,) * len(self.dilation)),
            ("output_padding", (0,) * n), ("groups", 1)) if getattr(self, name) != usual]
        if self.bias is None:
            says.append("bias=False")
        if self.padding_mode != "zeros":
            says.append(f"padding_mode={self.padding_mode}")
        return ", ".join(says)


# --- plain ------------------------------------------------------------------------------------------------------------


class _Conv(_ConvNd):
    """A convolution; subclasses say over how many dimensions."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        each = _ntuple(self._dims)
        super().__init__(in_channels, out_channels, each(kernel_size), each(stride),
                         padding if isinstance(padding, str) else each(padding), each(dilation), False, each(0), groups,
                         bias, padding_mode, device=device, dtype=dtype)

    def _conv_forward(self, input, weight, bias):
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return getattr(F, self._function)(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        return getattr(F, self._function)(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """A convolution over [N, C, L] (or [C, L])."""

    _dims, _function = 1, "conv1d"


class Conv2d(_Conv):
    """A convolution over [N, C, H, W] (or [C, H, W]).

    >>> layer = torch.nn.Conv2d(3, 8, kernel_size=3, padding=1)
    >>> layer(torch.zeros(2, 3, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    >>> layer
    Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    """

    _dims, _function = 2, "conv2d"


class Conv3d(_Conv):
    """A convolution over [N, C, D, H, W] (or [C, D, H, W])."""

    _dims, _function = 3, "conv3d"


# --- transposed -------------------------------------------------------------------------------------------------------


class _ConvTransposeNd(_ConvNd):
    """What transposed convolutions share: the output padding that makes a wanted size."""

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
                 groups, bias, padding_mode, device=None, dtype=None):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, got '
                             f"padding_mode={padding_mode!r}")
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding,
                         groups, bias, padding_mode, device=device, dtype=dtype)

    def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
        """How much to add at the ends so that the result has `output_size` (without it: what the layer says)."""
        if output_size is None:
            return self.output_padding if isinstance(self.output_padding, tuple) else (self.output_padding,)
        n = num_spatial_dims
        lead = 2 if input.dim() == n + 2 else 1
        if len(output_size) == lead + n:
            output_size = output_size[lead:]
        if len(output_size) != n:
            raise ValueError(f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {lead + n} "
                             f"elements (got {len(output_size)})")
        size, dilation = input.shape[lead:], (1,) * n if dilation is None else dilation
        least = [(s - 1) * t - 2 * p + d * (k - 1) + 1 for s, t, p, d, k in zip(
            size, stride, padding, dilation, kernel_size, strict=True)]
        most = [low + t - 1 for low, t in zip(least, stride, strict=True)]
        if any(not low <= wanted <= high for low, wanted, high in zip(least, output_size, most, strict=True)):
            raise ValueError(f"requested an output size of {list(output_size)}, but valid sizes range from {least} to "
                             f"{most} (for an input of {size})")
        return [wanted - low for wanted, low in zip(output_size, least, strict=True)]


class _ConvTransposeMixin(_ConvTransposeNd):
    """The base of transposed convolutions, by a name that PyTorch had before; mmengine counts operations by it."""

    def __init__(self, *args, **kwargs):
        warn("`_ConvTransposeMixin` is a deprecated internal class. Please consider using public APIs.", FutureWarning)
        super().__init__(*args, **kwargs)


class _ConvTranspose(_ConvTransposeNd):
    """A transposed convolution; subclasses say over how many dimensions."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1,
                 bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        each = _ntuple(self._dims)
        super().__init__(in_channels, out_channels, each(kernel_size), each(stride), each(padding), each(dilation),
                         True, each(output_padding), groups, bias, padding_mode, device=device, dtype=dtype)

    def forward(self, input, output_size=None):
        if self.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for {type(self).__name__}, got "
                             f"{self.padding_mode!r}")
        extra = self.output_padding if output_size is None else self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._dims, self.dilation)
        return getattr(F, self._function)(input, self.weight, self.bias, self.stride, self.padding, extra,
                                          self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution over [N, C, L] (or [C, L])."""

    _dims, _function = 1, "conv_transpose1d"


class ConvTranspose2d(_ConvTranspose):
    """A transposed convolution over [N, C, H, W] (or [C, H, W]); a call may say its `output_size`.

    >>> layer = torch.nn.ConvTranspose2d(3, 8, kernel_size=3, stride=2)
    >>> layer(torch.zeros(2, 3, 4, 4), output_size=(10, 10)).shape
    torch.Size([2, 8, 10, 10])
    """

    _dims, _function = 2, "conv_transpose2d"


class ConvTranspose3d(_ConvTranspose):
    """A transposed convolution over [N, C, D, H, W] (or [C, D, H, W])."""

    _dims, _function = 3, "conv_transpose3d"


# --- lazy -------------------------------------------------------------------------------------------------------------


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution that takes `in_channels` from its first input."""

    def _wait(self, out_channels, bias, device, dtype):
        """Hold weight and bias open until the first input."""
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input, *args, **kwargs):
        """Make weight and bias for the channels of `input`."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups:
            raise ValueError(f"in_channels must be divisible by groups, got in_channels={self.in_channels} and "
                             f"groups={self.groups}")
        channels = self.in_channels, self.out_channels
        first, second = channels if self.transposed else reversed(channels)
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input):
        n = self._get_num_spatial_dims()
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, "
                               f"but got input of size: {input.shape}")
        return input.shape[-n - 1]

    def _get_num_spatial_dims(self):
        return self._dims


class _LazyConv(_LazyConvXdMixin):
    """The constructor of lazy convolutions."""

    def __init__(self, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device=device,
                         dtype=dtype)
        self._wait(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    """The constructor of lazy transposed convolutions."""

    def __init__(self, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
                 dilation=1, padding_mode="zeros", device=None, dtype=None):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode,
                         device=device, dtype=dtype)
        self._wait(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` that takes `in_channels` from its first input.

    >>> layer = torch.nn.LazyConv2d(8, kernel_size=3)
    >>> _ = layer(torch.zeros(2, 3, 5, 5))
    >>> layer
    Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` that takes `in_channels` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose3d
