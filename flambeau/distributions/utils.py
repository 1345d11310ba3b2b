"""What distributions share: parameters of one shape, probabilities and their logits, triangles as vectors."""
import numpy as np

from ..autograd.modes import enable_grad
from ..base import dtypes
from ..tensor.overrides import is_tensor_like
from ..tensor.tensor import Tensor
from .functions import broadcast_tensors, from_array, randn, tensor

__all__ = ["broadcast_all", "logits_to_probs", "clamp_probs", "probs_to_logits", "lazy_property", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060


def broadcast_all(*values):
    """The values as tensors of one shape; a number takes the dtype and device of the first tensor.

    >>> broadcast_all(torch.zeros(2), 1)
    (tensor([0., 0.]), tensor([1., 1.]))
    """
    like = None
    for value in values:
        if isinstance(value, Tensor):
            like = like if like is not None else value
        elif not isinstance(value, (int, float)) and not is_tensor_like(value):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                             f"__torch_function__, got {type(value).__name__}.")
    dtype, device = (dtypes.get_default_dtype(), None) if like is None else (like.dtype, like.device)
    values = [tensor(v, dtype=dtype, device=device) if isinstance(v, (int, float)) else v for v in values]
    if all(v.shape == values[0].shape for v in values):
        return tuple(values)
    return tuple(broadcast_tensors(*values))


def _standard_normal(shape, dtype, device):
    return randn(shape, dtype=dtype, device=device)


def _sum_rightmost(value, dim):
    """`value` summed over its last `dim` dimensions."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


# --- probabilities and logits -------------------------------------------------------------------------------------


def logits_to_probs(logits, is_binary=False):
    """The probabilities of log-odds, or of unnormalised log-probabilities along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs):
    """`probs` away from 0 and 1 by the least that their dtype can tell from 1."""
    eps = dtypes.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs, is_binary=False):
    """The log-odds of probabilities, or their logarithms; both finite."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


def normalised_logits(logits):
    return logits - logits.logsumexp(-1, keepdim=True)


def clipped(y):
    """`y` inside (0, 1), as near to the ends as its dtype tells."""
    info = dtypes.finfo(y.dtype)
    return y.clamp(min=info.tiny, max=1 - info.eps)


def _clipped_sigmoid(x):
    return clipped(x.sigmoid())


class lazy_property:
    """An attribute computed when it is first read, with gradients on, and kept in the object from then on."""

    def __init__(self, wrapped):
        self.wrapped, self.name, self.__doc__ = wrapped, wrapped.__name__, wrapped.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return _OnClass(self)
        with enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.name] = value
        return value


class _OnClass(lazy_property, property):
    """A lazy property read from its class: documentation tools ask for a `property`."""

    def __init__(self, lazy):
        property.__init__(self, lazy.wrapped)
        lazy_property.__init__(self, lazy.wrapped)


class ProbsOrLogits:
    """A distribution given by its probabilities or its logits; the one that was not given is found when asked for."""

    is_binary = True

    def _given(self, probs, logits):
        """The (name, value) of the one that is not None."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._param_name = "logits" if probs is None else "probs"
        return self._param_name, logits if probs is None else probs

    @property
    def _param(self):
        return self.__dict__[self._param_name]

    @lazy_property
    def logits(self):
        """Log-odds, or normalised log-probabilities."""
        return probs_to_logits(self.probs, is_binary=self.is_binary)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=self.is_binary)

    @property
    def param_shape(self):
        return self._param.size()

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)


# --- triangles ----------------------------------------------------------------------------------------------------


def tril_matrix_to_vec(mat, diag=0):
    """The elements on and below diagonal `diag` of each matrix, row by row, as a vector."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[(..., *_below(n, diag))]


def vec_to_tril_matrix(vec, diag=0):
    """The inverse of `tril_matrix_to_vec`: lower triangular matrices from vectors."""
    length = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > dtypes.finfo(vec.dtype).eps:
        raise ValueError(f"The size of last dimension is {length} which cannot be expressed as the lower triangular "
                         "part of a square D x D matrix.")
    mat = vec.new_zeros(vec.shape[:-1] + (round(n), round(n)))
    mat[(..., *_below(round(n), diag))] = vec
    return mat


def _below(n, diag):
    """Rows and columns of the elements on and below diagonal `diag`."""
    return [from_array(index.astype(np.int64)) for index in np.tril_indices(n, diag)]
