"""Functions of functions: derivatives, batching, and modules called with other parameters.

Derivatives are made of the ordinary graph, so they nest, and agree with `backward` to the last digit. `vmap` calls the
function once for each slice and stacks the results: the meaning of PyTorch's, without its speed for many slices.
"""
from ..base.names import attribute_error
from .derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .modules import functional_call, functionalize, replace_all_batch_norm_modules_, stack_module_state
from .vmap import vmap

__all__ = ["functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
           "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]


def __getattr__(name):
    raise attribute_error("torch.func", name, globals().keys)
