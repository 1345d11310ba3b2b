"""What torchvision decorates its functions for ONNX with."""
from ..compat.missing import rest_of

__all__ = ["parse_args"]
__getattr__ = rest_of("torch.onnx.symbolic_helper")


def parse_args(*arg_descriptors):
    """A decorator that says of which kinds the arguments of an exporting function are; the function stays as it is."""
    return lambda fn: fn
