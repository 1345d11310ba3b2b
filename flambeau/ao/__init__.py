"""`torch.ao`, PyTorch's quantisation: the marks that models carry for it work, the rest is missing."""
from . import nn, quantization

__all__ = ["nn", "quantization"]
