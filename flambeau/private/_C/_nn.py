"""`torch._C._nn`: how the arguments of `to` are read. accelerate, lightning and tensordict write a `to` of their
own."""
from ...nn.modules.module import _to_arguments as _parse_to

__all__ = ["_parse_to"]
