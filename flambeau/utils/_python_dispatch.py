"""`torch.utils._python_dispatch`: names that packages import, and why there are no TorchDispatchModes here.

A TorchDispatchMode of PyTorch's sees the operators of ATen below autograd, and what is written for one (fake tensors,
quantisation, checkpointing by operator) counts on just those operators with just their arguments. Flambeau's operations
are others, so a mode would see what it was not written for. It can be derived from; entering it is refused, with a word
on what there is instead.
"""
import contextlib

from ..tensor.tensor import Tensor

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """A mode below autograd: can be derived from, not entered."""

    def __init__(self, _dispatch_key=None):
        pass

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__} has no __torch_dispatch__")

    def __enter__(self):
        raise NotImplementedError(f"{type(self).__name__} is a TorchDispatchMode, which sees ATen's operators; "
                                  "Flambeau's operations are others. Use torch.overrides.TorchFunctionMode to see the "
                                  "calls of a program, or torch.utils.flop_counter.FlopCounterMode to count")

    def __exit__(self, *exc):
        raise NotImplementedError(f"{type(self).__name__} was never entered")

    @classmethod
    def push(cls, *args, **kwargs):
        """A new mode."""
        return cls(*args, **kwargs)


def _get_current_dispatch_mode():
    """None: no TorchDispatchMode is ever active."""
    return None


def _get_current_dispatch_mode_stack():
    """None of them is ever active."""
    return []


def _len_torch_dispatch_stack():
    return 0


@contextlib.contextmanager
def _disable_current_modes():
    """A context in which no TorchDispatchMode is active, as ever. unsloth, torchao."""
    yield []


def is_in_torch_dispatch_mode(include_infra_modes=True):
    """Whether a TorchDispatchMode is active: never."""
    return False


def is_traceable_wrapper_subclass(t):
    """Whether `t` is a tensor made of others that it can name, by `__tensor_flatten__` and `__tensor_unflatten__`."""
    return isinstance(t, Tensor) and type(t) is not Tensor and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t):
    """Whether the class `t` is one of tensors made of other tensors."""
    return issubclass(t, Tensor) and t is not Tensor and hasattr(t, "__tensor_flatten__") \
        and hasattr(t, "__tensor_unflatten__")
