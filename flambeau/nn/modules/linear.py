"""Layers that are a product with a weight."""
import math

from ...autograd.modes import no_grad
from ...tensor.functions import empty
from .. import functional as F, init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]

_lookup = Module.__getattr__


class Identity(Module):
    """Gives back its input, whatever it was made with."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """`input` times the transposed weight, plus the bias; over the last dimension.

    >>> layer = torch.nn.Linear(3, 4)
    >>> layer(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    """

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias anew, evenly within one over the root of `in_features`."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        # `self.weight` would look everywhere else first, which is a third of the time of a small layer. A program that
        # has put something else in the way of these names (pruning, norms, tracing) is asked as ever.
        own, cls = self.__dict__, type(self)
        parameters = own["_parameters"]
        if "weight" in parameters and "bias" in parameters and "weight" not in own and "bias" not in own \
                and cls.__getattr__ is _lookup and cls.__getattribute__ is object.__getattribute__:
            return F.linear(input, parameters["weight"], parameters["bias"])
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear under the name that attention has for its output projection."""


class Bilinear(Module):
    """A weight between every pair of the features of two inputs, summed, plus the bias."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias anew, evenly within one over the root of `in1_features`."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return f"in1_features={self.in1_features}, in2_features={self.in2_features}, " \
               f"out_features={self.out_features}, bias={self.bias is not None}"


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear that takes `in_features` from its first input.

    >>> layer = torch.nn.LazyLinear(4)
    >>> layer(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    >>> layer
    Linear(in_features=3, out_features=4, bias=True)
    """

    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        """Draw weight and bias anew once they are there."""
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input):
        """Give weight and bias the shape that `input` asks for."""
        found = input.shape[-1]
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = found
                self.weight.materialize((self.out_features, found))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:               # the weight came from a state dict
            if found != self.weight.shape[-1]:
                raise AssertionError(f"The in_features inferred from input: {found} is not equal to in_features from "
                                     f"self.weight: {self.weight.shape[-1]}")
            self.in_features = found
