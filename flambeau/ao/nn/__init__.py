"""`torch.ao.nn`: layers of quantised models. What also stands in models that are not quantised works."""
from . import quantized

__all__ = ["quantized"]
