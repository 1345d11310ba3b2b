"""`torch._C._nn`: how the arguments of `to` are read (accelerate, lightning and tensordict write a `to` of their own),
and the compiled functions of torch.nn.functional, by which PyTorch's pickles, the code of its graphs, deepspeed and
torchao name them.
"""
from ..._utils import (
    _flatten_dense_tensors as flatten_dense_tensors,
    _unflatten_dense_tensors as unflatten_dense_tensors,
)
from ...nn import functional, modules

__all__ = ["_parse_to", "flatten_dense_tensors", "unflatten_dense_tensors"]

_parse_to = modules.module._to_arguments
globals().update({name: getattr(functional, name) for name in (
    "avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "one_hot",
    "scaled_dot_product_attention", "softplus", "softshrink")}, log_sigmoid=functional.logsigmoid)
