"""Fourier transforms, forward and inverse; each function is declared in `ops/fft.py`."""
from .base.names import attribute_error
from .tensor.forms import namespace

globals().update(namespace["fft"])
__all__ = list(namespace["fft"])                    # what `help` of the module lists


def __getattr__(name):
    raise attribute_error("torch.fft", name, globals().keys)
