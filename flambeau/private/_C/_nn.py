"""`torch._C._nn`: how the arguments of `to` are read (accelerate, lightning and tensordict write a `to` of their own),
and functions of `nn.functional` by the names that they have in PyTorch's compiled half (deepspeed, torchao)."""
from ..._utils import (
           _flatten_dense_tensors as flatten_dense_tensors,
           _unflatten_dense_tensors as unflatten_dense_tensors,
)
from ...nn import functional, modules

__all__ = ["_parse_to", "flatten_dense_tensors", "gelu", "linear", "scaled_dot_product_attention",
           "unflatten_dense_tensors"]

_parse_to = modules.module._to_arguments
gelu, linear = functional.gelu, functional.linear
scaled_dot_product_attention = functional.scaled_dot_product_attention
