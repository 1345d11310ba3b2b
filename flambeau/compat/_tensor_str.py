"""`torch._tensor_str`: how tensors print. sentence-transformers prints with other settings for a while."""
from contextlib import contextmanager

from ..tensor.printing import get_printoptions, set_printoptions
from .missing import rest_of

__getattr__ = rest_of("torch._tensor_str")
__all__ = ["get_printoptions", "printoptions", "set_printoptions"]


@contextmanager
def printoptions(**kwargs):
    """`torch.set_printoptions` for the duration of a `with` block."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield get_printoptions()
    finally:
        set_printoptions(**before)
