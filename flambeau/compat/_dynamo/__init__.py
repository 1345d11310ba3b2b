"""`torch._dynamo`, the front of PyTorch's compiler. Flambeau's is `flambeau.compile`, which needs none of its hints.

So marks on functions and tensors are taken and change nothing: transformers marks its caches (`mark_static_address`)
and kernels (`allow_in_graph`, `assume_constant_result`), diffusers and einops theirs; accelerate, diffusers and
lightning look for an `OptimizedModule`.
"""
from ...compiler import allow_in_graph, assume_constant_result, disable, is_compiling, list_backends, reset
from ..missing import rest_of
from . import config, eval_frame, utils
from .eval_frame import OptimizedModule

__getattr__ = rest_of("torch._dynamo")


def forbid_in_graph(fn):
    """`fn`, which may not stand in a compiled function."""
    return disable(fn)


def graph_break(msg=""):
    """End a compiled part in PyTorch; nothing here."""


def mark_static_address(t, guard=False):
    """Say that a tensor stays where it is."""


def mark_dynamic(t, index=None, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Say that a size will change; recordings are made anew for a new shape."""


def maybe_mark_dynamic(t, index=None):
    """Say that a size may change."""


def mark_static(t, index=None):
    """Say that a size stays."""


def mark_unbacked(t, index=None, hint_override=None, strict=False, specialize_on=None):
    """Say that nothing is known of a size."""


def _disable_dynamo(fn=None, recursive=True):
    """`torch._disable_dynamo`: a decorator for functions that are not to be compiled. deepspeed, torchao."""
    return disable if fn is None else disable(fn, recursive)
