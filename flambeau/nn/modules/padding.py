"""Padding: more around the last dimensions, of a constant, mirrored, repeated at the edge, or from the other end."""
from .. import functional as F
from .module import Module
from .utils import _ntuple

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
           "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]


class _PadNd(Module):
    """`padding` is one number for all sides, or before and after the last dimension, then the one before, …."""

    _dims = 0
    _mode = "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input):
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self):
        return f"{self.padding}"


# --- a constant -------------------------------------------------------------------------------------------------------


class _ConstantPadNd(_PadNd):
    """Padding by `value`."""

    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """The last dimension padded by `value`."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """The last two dimensions padded by `value`."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """The last three dimensions padded by `value`."""

    _dims = 3


class _ZeroPad(_ConstantPadNd):
    """Padding by zeros: a constant, without being asked for it."""

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """The last dimension padded by zeros."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """The last two dimensions padded by zeros.

    >>> torch.nn.ZeroPad2d((1, 0, 0, 1))(torch.ones(1, 1, 2))
    tensor([[[0., 1., 1.],
             [0., 0., 0.]]])
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """The last three dimensions padded by zeros."""


# --- from the input itself --------------------------------------------------------------------------------------------


class _ReflectionPadNd(_PadNd):
    """Padding mirrored at the first and last element."""

    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """The last dimension padded by its mirror image.

    >>> torch.nn.ReflectionPad1d(2)(torch.tensor([[1., 2., 3.]]))
    tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """The last two dimensions padded by their mirror image."""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """The last three dimensions padded by their mirror image."""

    _dims = 3


class _ReplicationPadNd(_PadNd):
    """Padding by the first and last element."""

    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """The last dimension padded by its first and last element."""

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """The last two dimensions padded by their edges."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """The last three dimensions padded by their edges."""

    _dims = 3


class _CircularPadNd(_PadNd):
    """Padding that goes on at the other end."""

    _mode = "circular"

    def _check_input_dim(self, input):
        n = self._dims
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")

    def forward(self, input):
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")


class CircularPad1d(_CircularPadNd):
    """The last dimension padded as if it went around.

    >>> torch.nn.CircularPad1d((1, 2))(torch.tensor([[1., 2., 3.]]))
    tensor([[3., 1., 2., 3., 1., 2.]])
    """

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """The last two dimensions padded as if they went around."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """The last three dimensions padded as if they went around."""

    _dims = 3
