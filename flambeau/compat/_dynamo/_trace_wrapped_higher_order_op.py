"""What transformers enters around `vmap` when it makes attention masks."""
from contextlib import nullcontext

from ..missing import rest_of

__getattr__ = rest_of("torch._dynamo._trace_wrapped_higher_order_op")


class TransformGetItemToIndex(nullcontext):
    """A context in which a tensor is indexed by tensors inside `vmap`, which here works anyway."""
