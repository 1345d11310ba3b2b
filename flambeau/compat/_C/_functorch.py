"""`torch._C._functorch`: tensordict and transformers ask whether a tensor is wrapped by a transform of torch.func.

Here a transform calls its function with plain tensors, so none is.
"""
from ..missing import rest_of

__getattr__ = rest_of("torch._C._functorch")


def _never(tensor):
    """Whether a transform has wrapped the tensor: never."""
    return False


is_batchedtensor = is_gradtrackingtensor = is_functorch_wrapped_tensor = is_legacy_batchedtensor = _never


def get_unwrapped(tensor):
    """The tensor inside; the tensor itself, which is not wrapped."""
    return tensor


def maybe_get_level(tensor):
    """The level of the transform that has wrapped the tensor: -1 for none."""
    return -1


def maybe_get_bdim(tensor):
    """The dimension that a transform has hidden: -1 for none."""
    return -1
