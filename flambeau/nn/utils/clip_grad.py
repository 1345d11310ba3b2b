"""Keep gradients within bounds: all together by their norm, or each element by its value.

Nothing is looked at unless `error_if_nonfinite` asks for it: the norm and the scaling are recorded with the rest of the
training step. `foreach` says how PyTorch is to loop, and is accepted.
"""
from types import GeneratorType

from ...autograd.modes import no_grad
from ...base.errors import warn
from ...tensor.forms import namespace
from ...tensor.functions import stack, tensor
from ...tensor.tensor import Tensor

vector_norm = namespace["linalg"]["vector_norm"]

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


def listed(parameters):
    """The parameters as a list. An empty generator is most often one that was used up before: it is warned about."""
    if isinstance(parameters, Tensor):
        return [parameters]
    found = list(parameters)
    if not found and isinstance(parameters, GeneratorType):
        warn("`parameters` is an empty generator, no gradient clipping will occur.")
    return found


def _get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors together, as if they were one vector."""
    with no_grad():
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if not tensors:
            return tensor(0.0)
        norm_type = float(norm_type)
        total = vector_norm(stack([vector_norm(t, norm_type) for t in tensors]), norm_type)
        if error_if_nonfinite and not total.isfinite():
            raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so "
                               "it cannot be clipped. To disable this error and scale the gradients by the non-finite "
                               f"norm anyway, set `error_if_nonfinite=False`. The norm is {total.item()}")
        return total


def _clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale the gradients of `parameters`, whose norm is `total_norm`, down to `max_norm` in place."""
    grads = [p.grad for p in listed(parameters) if p.grad is not None]
    with no_grad():
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor)


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients so that their norm together is at most `max_norm`; gives the norm they had.

    >>> w = torch.ones(4, requires_grad=True)
    >>> (3 * w).sum().backward()
    >>> torch.nn.utils.clip_grad_norm_([w], 1.5)
    tensor(6.)
    >>> w.grad
    tensor([0.7500, 0.7500, 0.7500, 0.7500])
    """
    parameters = listed(parameters)
    total = _get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    _clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The old name of `clip_grad_norm_`."""
    warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
         FutureWarning)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Hold each element of the gradients between -`clip_value` and `clip_value`, in place."""
    clip_value = float(clip_value)
    grads = [p.grad for p in listed(parameters) if p.grad is not None]
    with no_grad():
        for grad in grads:
            grad.clamp_(min=-clip_value, max=clip_value)
