"""`torch._check` and its kin: conditions that a program states, and what is raised where they do not hold.

torchvision states what its transforms take with `_assert` and `_check`, transformers what its models take.
"""
from ..base.errors import warn
from ..tensor.overrides import handle_torch_function, has_torch_function
from ..tensor.tensor import Tensor

__all__ = ["_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_not_implemented",
           "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value", "_check_with"]

_NO_MESSAGE = "Expected cond to be True, but got False. (Could this error message be improved? If so, please report " \
              "an enhancement request to PyTorch.)"


def _check_with(error_type, cond, message=None):
    """Raise `error_type` with what `message()` says, unless `cond` is True."""
    if isinstance(cond, Tensor):
        raise TypeError("cond must be a bool, but got a Tensor. For tensor conditions, use torch._check_tensor_all() "
                        "to assert that all elements are true.")
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(_NO_MESSAGE if message is None else str(message()))


def _check(cond, message=None):
    """Raise RuntimeError with what `message()` says, unless `cond` is True."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond, message=None):
    """Raise IndexError, unless `cond` is True."""
    _check_with(IndexError, cond, message)


def _check_value(cond, message=None):
    """Raise ValueError, unless `cond` is True."""
    _check_with(ValueError, cond, message)


def _check_type(cond, message=None):
    """Raise TypeError, unless `cond` is True."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond, message=None):
    """Raise NotImplementedError, unless `cond` is True."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i, message=None, *, max=None):
    """Raise RuntimeError, unless `i` is not negative, and at most `max`."""
    warn("_check_is_size will be removed in a future PyTorch release along with guard_size_oblivious.     Use "
         "_check(i >= 0) instead.", FutureWarning)
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """Raise `error_type`, unless all elements of the tensor `cond` are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if str(cond.dtype) != "torch.bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, cond.all().item(), message)


def _check_tensor_all(cond, message=None):
    """Raise RuntimeError, unless all elements of the tensor `cond` are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert(condition, message):
    """`assert condition, message`; `condition` may be a tensor of one element, or a Proxy of torch.fx."""
    if type(condition) not in (bool, Tensor) and has_torch_function((condition,)):
        return handle_torch_function(_assert, (condition,), condition, message)
    assert condition, message
    return None


def _assert_async(input, assert_msg=None):
    """Raise RuntimeError, unless the only element of a tensor is not zero."""
    if not input.is_nonzero():
        raise RuntimeError("Expected Tensor with single nonzero value, but got zero" if assert_msg is None
                           else assert_msg)
