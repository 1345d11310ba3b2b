"""`torch.ao.quantization`: the marks for where a model is quantised. In a model that is not, they do nothing."""
from ...compat.missing import rest_of
from ...nn import Module

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]
__getattr__ = rest_of("torch.ao.quantization")


class QuantStub(Module):
    """Where a model's input will be quantised; before that, its input as it is. torchvision's quantisable models."""

    def __init__(self, qconfig=None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x):
        return x


class DeQuantStub(QuantStub):
    """Where a model's result will be made floating again; before that, its input as it is."""


class QuantWrapper(Module):
    """A module between a QuantStub and a DeQuantStub."""

    def __init__(self, module):
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(qconfig))
        self.add_module("dequant", DeQuantStub(qconfig))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X):
        return self.dequant(self.module(self.quant(X)))
