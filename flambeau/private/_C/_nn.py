"""`torch._C._nn`: how the arguments of `to` are read. accelerate, lightning and tensordict write a `to` of their
own."""
from ...nn import modules

__all__ = ["_parse_to"]

_parse_to = modules.module._to_arguments
