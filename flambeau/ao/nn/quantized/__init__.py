"""`torch.ao.nn.quantized`, also `torch.nn.quantized`: operations as modules, so that they can be observed."""
from ....compat.missing import rest_of
from ....nn import Identity, Module
from ....tensor.forms import namespace

__all__ = ["FloatFunctional"]
__getattr__ = rest_of("torch.ao.nn.quantized")

_torch, _functional = namespace[""], namespace["nn.functional"]


class FloatFunctional(Module):
    """Operations of a model that is not quantised (yet), by name. torchvision's quantisable models.

    >>> from flambeau.ao.nn.quantized import FloatFunctional
    >>> FloatFunctional().add_relu(torch.tensor([1.0, -2.0]), torch.ones(2))
    tensor([2., 0.])
    """

    def __init__(self):
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x):
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x, y):
        """The sum of two tensors."""
        return self.activation_post_process(_torch["add"](x, y))

    def add_scalar(self, x, y):
        """The sum of a tensor and a number."""
        return _torch["add"](x, y)

    def mul(self, x, y):
        """The product of two tensors, elementwise."""
        return self.activation_post_process(_torch["mul"](x, y))

    def mul_scalar(self, x, y):
        """The product of a tensor and a number."""
        return _torch["mul"](x, y)

    def cat(self, x, dim=0):
        """The tensors of a list, one after the other."""
        return self.activation_post_process(_torch["cat"](x, dim=dim))

    def add_relu(self, x, y):
        """The sum of two tensors, and 0 where it is negative."""
        return self.activation_post_process(_functional["relu"](_torch["add"](x, y)))

    def matmul(self, x, y):
        """The matrix product."""
        return self.activation_post_process(_torch["matmul"](x, y))
