"""Dropout: elements, or whole channels, zeroed at random."""
import math

import numpy as np

from ..base import dtypes
from ..base.errors import need, warn
from ..base.op import Pointwise
from .create import empty_like
from .norm import LayerFunction


def blank_of(input, channels):
    """Memory for a mask: of a number for each element, drawn in the order in which `input` lies, or of one for each
    channel, for the function of the name `channels`."""
    detached = input.detach()
    return detached.new_empty(channel_shape(input, channels)) if channels else empty_like(detached)


def keep_mask(blank, p):
    """`blank` filled with ones where an element is kept, scaled so that the mean stays, else with zeros."""
    return blank.zero_() if p == 1 else blank.bernoulli_(1 - p).div_(1 - p)


def check_probability(p):
    need(0 <= p <= 1, f"dropout probability has to be between 0 and 1, but got {p}", ValueError)


def drop(input, p, training, inplace=False, channels=""):
    """`input` times a mask, in training: of its own shape, or of whole channels for the function named `channels`."""
    check_probability(p)
    if not training or p == 0 or not input.numel():
        return input
    if not inplace and p < 1 and not channels:
        keep = input._dropout_mask(p)
        if keep is not None:
            return _native_dropout(input, keep, kept_scale(p, input.dtype), 1 / (1 - p))
        if input.dtype.category == 2:
            return input * (input._coins(1 - p) / (1 - p))
    mask = keep_mask(blank_of(input, channels if p < 1 else ""), p)
    return input.mul_(mask) if inplace else input * mask


def kept_scale(p, dtype):
    """1 / (1 - p) as PyTorch's CUDA kernel has it: of a float32 but for float64."""
    kept = 1 - p if dtype is dtypes.float64 else float(np.float32(1 - p))
    return 1 / kept


class _native_dropout(Pointwise):
    """`input` times the mask `keep` times `scale`; the gradient's scale is `slope`, which may be rounded otherwise."""

    forms = ""
    operands = "input keep"
    refuses = "bool int"
    node = "NativeDropoutBackward0"

    def ref(xp, input, keep, scale, slope):  return input * keep * scale
    def d_input(g, keep, slope):             return _native_dropout(g, keep, slope, slope)
    def body(k, input, keep, scale, slope):  return input * keep * scale


class _dropout(LayerFunction):
    """In training, each element zeroed with probability `p` and the others scaled by 1 / (1 - p)."""

    names = "nn.functional.dropout"

    def of(input, p=0.5, training=True, inplace=False): return drop(input, p, training, inplace)


class dropout(LayerFunction):
    """In training, each element zeroed with probability `p` and the others scaled by 1 / (1 - p)."""

    def of(input, p, train): return drop(input, p, train)


def channel_shape(input, name):
    """One draw per sample and channel."""
    need(input.dim() >= 2, f"Feature dropout requires at least 2 dimensions in the input: {name} got "
                           f"{list(input.shape)}")
    return (*input.shape[:2], *[1] * (input.dim() - 2))


class _dropout1d(LayerFunction):
    """In training, whole channels zeroed with probability `p`: `input` is [N, C, L] or [C, L]."""

    names = "nn.functional.dropout1d"

    def of(input, p=0.5, training=True, inplace=False):
        need(input.dim() in (2, 3), f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input.")
        return _channels(input, p, training, inplace, 3, "dropout1d")


def _channels(input, p, training, inplace, batched, name):
    check_probability(p)
    single = input.dim() < batched
    x = (input.unsqueeze_(0) if inplace else input.unsqueeze(0)) if single else input
    made = drop(x, p, training, inplace, name)
    return (made.squeeze_(0) if inplace else made.squeeze(0)) if single else made


class _dropout2d(LayerFunction):
    """In training, whole channels zeroed with probability `p`: `input` is [N, C, H, W]."""

    names = "nn.functional.dropout2d"

    def of(input, p=0.5, training=True, inplace=False):
        warn_of_rank("dropout2d", input.dim(), 2)
        if input.dim() == 3:
            warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is "
                 "desired: it is read as (N, C, L). PyTorch says that it will be read as (C, H, W) in a future "
                 "release; dropout1d is the function for (N, C, L).")
        return drop(input, p, training, inplace, "dropout2d")


class _dropout3d(LayerFunction):
    """In training, whole channels zeroed with probability `p`: `input` is [N, C, D, H, W]."""

    names = "nn.functional.dropout3d"

    def of(input, p=0.5, training=True, inplace=False):
        warn_of_rank("dropout3d", input.dim(), 3)
        return _channels(input, p, training, inplace, 5, "dropout3d")


def warn_of_rank(name, rank, spatial):
    """Warn, as PyTorch does, of an input that has not the `spatial` dimensions that the function is for."""
    if rank not in (spatial + 1, spatial + 2):
        warn(f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an error in a "
             f"future release. {name} is for {spatial} spatial dimensions, one of channels and perhaps one of a batch; "
             "for other inputs use dropout.")


ALPHA_LOW = -1.7580993408473766               # minus selu's scale times its alpha


def alpha_drop(input, p, training, inplace, channels=""):
    """Dropout that keeps selu's mean and variance: dropped elements go to selu's lower end. `channels`: see `drop`."""
    check_probability(p)
    if not training or p == 0 or not input.numel():
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    need(not input.dtype.is_integral, "result type Float can't be cast to the desired output type "
         f"{input.dtype.cname}: alpha dropout keeps the mean and variance of floats")
    keep = blank_of(input, channels).bernoulli_(1 - p)
    a = 1 / math.sqrt((ALPHA_LOW * ALPHA_LOW * p + 1) * (1 - p))
    shift = (1 - keep) * (ALPHA_LOW * a) - ALPHA_LOW * a * p
    return input.mul_(keep * a).add_(shift) if inplace else input * (keep * a) + shift


class _alpha_dropout(LayerFunction):
    """Dropout that keeps the mean and variance of selu activations."""

    names = "nn.functional.alpha_dropout"

    def of(input, p=0.5, training=False, inplace=False): return alpha_drop(input, p, training, inplace)


class _feature_alpha_dropout(LayerFunction):
    """Alpha dropout of whole channels."""

    names = "nn.functional.feature_alpha_dropout"

    def of(input, p=0.5, training=False, inplace=False):
        return alpha_drop(input, p, training, inplace, "feature_alpha_dropout")


class _gumbel_softmax(LayerFunction):
    """A sample from the relaxed categorical distribution of `logits`; `hard` rounds it, with the soft gradient."""

    names = "nn.functional.gumbel_softmax"

    def of(logits, tau=1, hard=False, eps=1e-10, dim=-1):
        noise = -logits.detach().new_empty(logits.shape).exponential_().log()
        soft = ((logits + noise) / tau).softmax(dim)
        if not hard:
            return soft
        top = soft.max(dim, keepdim=True)[1]
        one_hot = soft.detach().new_zeros(logits.shape).scatter_(dim, top, 1.0)
        return one_hot - soft.detach() + soft
