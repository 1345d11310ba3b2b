"""`torch._C._nn`: how the arguments of `to` are read (accelerate, lightning and tensordict write a `to` of their own),
and functions of `nn.functional` by the names that they have in PyTorch's compiled half: deepspeed and torchao ask for
them, and PyTorch's pickles and the code of its graphs have them in."""
from ...nn import functional, modules
from .._utils import (
    _flatten_dense_tensors as flatten_dense_tensors,
    _unflatten_dense_tensors as unflatten_dense_tensors,
)

FUNCTIONS = ("avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "one_hot",
             "scaled_dot_product_attention", "softplus", "softshrink")
__all__ = ["_parse_to", "flatten_dense_tensors", "log_sigmoid", "unflatten_dense_tensors", *FUNCTIONS]

_parse_to = modules.module._to_arguments
log_sigmoid = functional.logsigmoid
globals().update({name: getattr(functional, name) for name in FUNCTIONS})
