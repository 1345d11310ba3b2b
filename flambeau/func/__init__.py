"""Functions of functions: derivatives, batching, and modules called with other parameters.

Derivatives are made of the ordinary graph, so they nest, and agree with `backward` to the last digit. `vmap` calls the
function once for each slice and stacks the results: the meaning of PyTorch's, without its speed for many slices.
"""
from ..base.names import attribute_error
from . import derivatives, modules
from .derivatives import *
from .modules import *
from .vmap import vmap

__all__ = sorted([*derivatives.__all__, *modules.__all__, "vmap"])


def __getattr__(name):
    raise attribute_error("torch.func", name, globals().keys)
