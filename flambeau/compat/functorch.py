"""The package `functorch`, the older name of `torch.func`. timm and tensordict import it."""
from ..func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from .missing import rest_of

__getattr__ = rest_of("functorch", make_functional="use torch.func.functional_call",
                      make_functional_with_buffers="use torch.func.functional_call")
__all__ = ["functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
           "stack_module_state", "vjp", "vmap"]
