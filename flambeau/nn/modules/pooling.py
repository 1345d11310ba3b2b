"""Pooling: the largest element, the mean or the p-norm of windows, and the way back from the largest."""
from .. import functional as F
from .module import Module
from .utils import _ntuple, _pair, _single, _triple

__all__ = ["MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
           "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
           "LPPool1d", "LPPool2d", "LPPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
           "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"]


# --- the largest ------------------------------------------------------------------------------------------------------


# The functions are called by their names in nn.functional, where a program may have put others in their places.

class _MaxPoolNd(Module):
    """The largest element of each window; with `return_indices`, also where it was."""

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input):
        return getattr(F, self._function)(input, self.kernel_size, self.stride, self.padding, self.dilation,
                                          self.ceil_mode, self.return_indices)

    def extra_repr(self):
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window of [N, C, L] (or [C, L])."""

    _function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of [N, C, H, W] (or [C, H, W]).

    >>> torch.nn.MaxPool2d(2)(torch.arange(16.).reshape(1, 4, 4))
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """

    _function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window of [N, C, D, H, W] (or [C, D, H, W])."""

    _function = "max_pool3d"


class _MaxUnpoolNd(Module):
    """Zeros, with the elements of the input at the places that pooling found them at."""

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        each = self._each
        self.kernel_size = each(kernel_size)
        self.stride = each(kernel_size if stride is None else stride)
        self.padding = each(padding)

    def forward(self, input, indices, output_size=None):
        return getattr(F, self._function)(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """The way back from `MaxPool1d` with `return_indices`."""

    _each, _function = staticmethod(_single), "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """The way back from `MaxPool2d` with `return_indices`.

    >>> values, places = torch.nn.MaxPool2d(2, return_indices=True)(torch.arange(4.).reshape(1, 2, 2))
    >>> torch.nn.MaxUnpool2d(2)(values, places)
    tensor([[[0., 0.],
             [0., 3.]]])
    """

    _each, _function = staticmethod(_pair), "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """The way back from `MaxPool3d` with `return_indices`."""

    _each, _function = staticmethod(_triple), "max_unpool3d"


class _FractionalMaxPoolNd(Module):
    """The largest element of windows at random steps; subclasses say over how many dimensions."""

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        name, each = type(self).__name__, _ntuple(self._dims)
        self.kernel_size = each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else each(output_size)
        self.output_ratio = None if output_ratio is None else each(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError(f"only one of output_size and output_ratio may be specified, {name} got "
                             f"output_size={output_size} and output_ratio={output_ratio}")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio[:self._dims]):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input):
        return getattr(F, self._function)(input, self.kernel_size, self.output_size, self.output_ratio,
                                          self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The largest element of windows of [N, C, H, W] (or [C, H, W]) at random steps, as many as the output is large.

    >>> torch.nn.FractionalMaxPool2d(2, output_ratio=0.75)(torch.zeros(1, 8, 8)).shape
    torch.Size([1, 6, 6])
    """

    _dims, _function = 2, "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The largest element of windows of [N, C, T, H, W] (or [C, T, H, W]) at random steps."""

    _dims, _function = 3, "fractional_max_pool3d"


class _AdaptiveMaxPoolNd(Module):
    """The largest elements of as many windows as `output_size` says; None keeps a dimension."""

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input):
        return getattr(F, self._function)(input, self.output_size, self.return_indices)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest elements of `output_size` windows that cover [N, C, L] (or [C, L])."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest elements of `output_size` windows that cover [N, C, H, W] (or [C, H, W])."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest elements of `output_size` windows that cover [N, C, D, H, W] (or [C, D, H, W])."""

    _function = "adaptive_max_pool3d"


# --- means ------------------------------------------------------------------------------------------------------------


class _AvgPoolNd(Module):
    """The mean of each window."""

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of [N, C, L] (or [C, L])."""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = _single(kernel_size if stride is None else stride)
        self.padding = _single(padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(_AvgPoolNd):
    """The mean of each window over two or three dimensions."""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input):
        return getattr(F, self._function)(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                                          self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPool):
    """The mean of each window of [N, C, H, W] (or [C, H, W]).

    >>> torch.nn.AvgPool2d(2)(torch.arange(4.).reshape(1, 2, 2))
    tensor([[[1.5000]]])
    """

    _function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean of each window of [N, C, D, H, W] (or [C, D, H, W])."""

    _added = {"padding": 0, "ceil_mode": False, "count_include_pad": True}
    _function = "avg_pool3d"


class _AdaptiveAvgPoolNd(Module):
    """The means of as many windows as `output_size` says; None keeps a dimension."""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return getattr(F, self._function)(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of `output_size` windows that cover [N, C, L] (or [C, L])."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of `output_size` windows that cover [N, C, H, W] (or [C, H, W]).

    >>> torch.nn.AdaptiveAvgPool2d((1, None))(torch.ones(8, 5, 7)).shape
    torch.Size([8, 1, 7])
    """

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of `output_size` windows that cover [N, C, D, H, W] (or [C, D, H, W])."""

    _function = "adaptive_avg_pool3d"


# --- p-norms ----------------------------------------------------------------------------------------------------------


class _LPPoolNd(Module):
    """The p-norm of each window."""

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input):
        return getattr(F, self._function)(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self):
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
                f"ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of [N, C, L] (or [C, L])."""

    _function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of [N, C, H, W] (or [C, H, W])."""

    _function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of [N, C, D, H, W] (or [C, D, H, W])."""

    _function = "lp_pool3d"
