"""Activation functions as layers."""
from ...base.errors import warn
from ...tensor.functions import empty
from .. import functional as F
from ..init import constant_
from ..parameter import Parameter
from .attention import MultiheadAttention
from .module import Module

__all__ = ["CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
           "LogSigmoid", "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU",
           "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
           "Threshold"]

MultiheadAttention.__module__ = __name__            # whole modules in files, PyTorch's and ours, name it so


class _Shown(Module):
    """A layer that prints the arguments named in `shown`, and `inplace` where it is on."""

    shown: tuple[str, ...] = ()

    def extra_repr(self):
        words = [f"{name}={getattr(self, name)!r}" for name in self.shown]
        return ", ".join([*words, "inplace=True"] if getattr(self, "inplace", False) else words)


class _InPlace(_Shown):
    """A layer whose only argument is whether to write into its input."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace


# --- without parameters -----------------------------------------------------------------------------------------------


class Sigmoid(Module):
    """One over one plus e to the minus input."""

    def forward(self, input):
        return F.sigmoid(input)


class LogSigmoid(Module):
    """The logarithm of the sigmoid."""

    def forward(self, input):
        return F.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input):
        return F.tanh(input)


class Tanhshrink(Module):
    """The input minus its hyperbolic tangent."""

    def forward(self, input):
        return F.tanhshrink(input)


class Softsign(Module):
    """The input over one plus its absolute value."""

    def forward(self, input):
        return F.softsign(input)


class ReLU(_InPlace):
    """The input where it is positive, else zero.

    >>> torch.nn.ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, input):
        return F.relu(input, self.inplace)


class SELU(_InPlace):
    """The exponential unit scaled so that mean and variance stay."""

    def forward(self, input):
        return F.selu(input, self.inplace)


class SiLU(_InPlace):
    """The input times its sigmoid."""

    def forward(self, input):
        return F.silu(input, self.inplace)


class Mish(_InPlace):
    """The input times the hyperbolic tangent of its softplus."""

    def forward(self, input):
        return F.mish(input, self.inplace)


class Hardsigmoid(_InPlace):
    """A sigmoid of three straight pieces."""

    def forward(self, input):
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self):
        return ""


class Hardswish(_InPlace):
    """The input times its hard sigmoid."""

    def forward(self, input):
        return F.hardswish(input, self.inplace)

    def extra_repr(self):
        return ""


# --- with numbers -----------------------------------------------------------------------------------------------------


class Threshold(_Shown):
    """The input where it is above `threshold`, else `value`."""

    shown = ("threshold", "value")

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)


class RReLU(_Shown):
    """The input where it is positive, else times a slope drawn from `lower` to `upper`; their mean in evaluation."""

    shown = ("lower", "upper")

    def __init__(self, lower=1 / 8, upper=1 / 3, inplace=False):
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(_Shown):
    """The input held between `min_val` and `max_val`."""

    shown: tuple[str, ...] = ("min_val", "max_val")

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__()
        if min_value is not None:
            warn("keyword argument `min_value` is deprecated and renamed to `min_val`", FutureWarning)
            min_val = min_value
        if max_value is not None:
            warn("keyword argument `max_value` is deprecated and renamed to `max_val`", FutureWarning)
            max_val = max_value
        if max_val <= min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """The input held between zero and six."""

    shown = ()

    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)


class ELU(_Shown):
    """The input where it is positive, else `alpha` times (e to the input, minus one)."""

    shown = ("alpha",)

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)


class CELU(ELU):
    """An exponential unit whose slope is continuous for every `alpha`."""

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(_Shown):
    """The input where it is positive, else times `negative_slope`."""

    shown = ("negative_slope",)

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class Softplus(_Shown):
    """A smooth ReLU: the logarithm of one plus e to the input, sharper with larger `beta`."""

    shown = ("beta", "threshold")

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)


class GELU(_Shown):
    """The input times the normal distribution function of it, exactly or by `approximate="tanh"`."""

    shown = ("approximate",)

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)


class Hardshrink(Module):
    """The input where it is further than `lambd` from zero, else zero."""

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self):
        return str(self.lambd)


class Softshrink(Hardshrink):
    """The input moved towards zero by `lambd`."""

    def forward(self, input):
        return F.softshrink(input, self.lambd)


class PReLU(_Shown):
    """The input where it is positive, else times a slope that is learned, one for all channels or one for each."""

    shown = ("num_parameters",)

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Set every slope to `init`."""
        constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)


# --- over a dimension -------------------------------------------------------------------------------------------------


class GLU(_Shown):
    """The first half of dimension `dim` times the sigmoid of the second."""

    shown = ("dim",)

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)


class Softmax(_Shown):
    """Positive numbers that sum to one over `dim`: exponentials over their sum."""

    _added = {"dim": None}

    shown = ("dim",)

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmax(input, self.dim)


class Softmin(Softmax):
    """The softmax of minus the input."""

    def forward(self, input):
        return F.softmin(input, self.dim)


class LogSoftmax(Softmax):
    """The logarithm of the softmax."""

    def forward(self, input):
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """The softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)
