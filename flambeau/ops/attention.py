"""Dropout and attention: random zeroing, and weighted sums whose weights come from queries and keys."""
import math

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, door
from .reduce import _safe_softmax


class Layer(Composite):
    """A composite in `nn.functional`."""

    forms = "function"


# --- dropout ----------------------------------------------------------------------------------------------------------


def keep_mask(input, p, shape):
    """Ones where an element is kept, scaled so that the mean stays; zeros where it is dropped."""
    if p == 1:
        return input.new_zeros(shape)
    return input.new_empty(shape).bernoulli_(1 - p).div_(1 - p)


def check_probability(p):
    need(0 <= p <= 1, f"dropout probability has to be between 0 and 1, but got {p}", ValueError)


def drop(input, p, training, inplace, shape):
    """`input` times a mask of `shape`, in training."""
    check_probability(p)
    if not training or p == 0 or not input.numel():
        return input
    mask = keep_mask(input.detach(), p, shape)
    return input.mul_(mask) if inplace else input * mask


class _dropout(Layer):
    """In training, each element zeroed with probability `p` and the others scaled by 1 / (1 - p)."""

    names = "nn.functional.dropout"

    def of(input, p=0.5, training=True, inplace=False): return drop(input, p, training, inplace, input.shape)


class dropout(Layer):
    """In training, each element zeroed with probability `p` and the others scaled by 1 / (1 - p)."""

    def of(input, p, train): return drop(input, p, train, False, input.shape)


def channel_shape(input, name):
    """One draw per sample and channel."""
    need(input.dim() >= 2, f"Feature dropout requires at least 2 dimensions in the input: {name} got "
                           f"{list(input.shape)}")
    return (*input.shape[:2], *[1] * (input.dim() - 2))


class _dropout1d(Layer):
    """In training, whole channels zeroed with probability `p`: `input` is [N, C, L] or [C, L]."""

    names = "nn.functional.dropout1d"

    def of(input, p=0.5, training=True, inplace=False):
        need(input.dim() in (2, 3), f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input.")
        return _channels(input, p, training, inplace, 3, "dropout1d")


def _channels(input, p, training, inplace, batched, name):
    check_probability(p)
    single = input.dim() < batched
    x = (input.unsqueeze_(0) if inplace else input.unsqueeze(0)) if single else input
    made = drop(x, p, training, inplace, channel_shape(x, name))
    return (made.squeeze_(0) if inplace else made.squeeze(0)) if single else made


class _dropout2d(Layer):
    """In training, whole channels zeroed with probability `p`: `input` is [N, C, H, W]."""

    names = "nn.functional.dropout2d"

    def of(input, p=0.5, training=True, inplace=False):
        return drop(input, p, training, inplace, channel_shape(input, "dropout2d"))


class _dropout3d(Layer):
    """In training, whole channels zeroed with probability `p`: `input` is [N, C, D, H, W]."""

    names = "nn.functional.dropout3d"

    def of(input, p=0.5, training=True, inplace=False):
        return _channels(input, p, training, inplace, 5, "dropout3d")


ALPHA_LOW = -1.7580993408473766               # minus selu's scale times its alpha


def alpha_drop(input, p, training, inplace, shape):
    """Dropout that keeps selu's mean and variance: dropped elements go to selu's lower end."""
    check_probability(p)
    if not training or p == 0 or not input.numel():
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    keep = input.detach().new_empty(shape).bernoulli_(1 - p)
    a = 1 / math.sqrt((ALPHA_LOW * ALPHA_LOW * p + 1) * (1 - p))
    shift = (1 - keep) * (ALPHA_LOW * a) - ALPHA_LOW * a * p
    return input.mul_(keep * a).add_(shift) if inplace else input * (keep * a) + shift


class _alpha_dropout(Layer):
    """Dropout that keeps the mean and variance of selu activations."""

    names = "nn.functional.alpha_dropout"

    def of(input, p=0.5, training=False, inplace=False): return alpha_drop(input, p, training, inplace, input.shape)


class _feature_alpha_dropout(Layer):
    """Alpha dropout of whole channels."""

    names = "nn.functional.feature_alpha_dropout"

    def of(input, p=0.5, training=False, inplace=False):
        return alpha_drop(input, p, training, inplace, channel_shape(input, "feature_alpha_dropout"))


class _gumbel_softmax(Layer):
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


# --- attention --------------------------------------------------------------------------------------------------------


class _scaled_dot_product_attention(Layer):
    """Each query's average of `value`, weighted by the softmax of its products with the keys."""

    names = "nn.functional.scaled_dot_product_attention"

    def of(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
        for what, t in (("query", query), ("key", key), ("value", value)):
            need(t.dim() >= 2, f"scaled_dot_product_attention: {what} must have at least 2 dimensions, got "
                               f"{list(t.shape)}")
        need(query.dtype is key.dtype and query.dtype is value.dtype, "Expected query, key, and value to have the same "
                                                                      "dtype, but "
             f"got query.dtype: {query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead.")
        need(query.is_floating_point(), f"scaled_dot_product_attention takes floating tensors, got {query.dtype}")
        need(query.shape[-1] == key.shape[-1], f"the last sizes of query and key differ: {list(query.shape)} and "
                                               f"{list(key.shape)}")
        need(attn_mask is None or not is_causal, "_scaled_dot_product_attention: Explicit attn_mask should not be set "
                                                 "when is_causal=True")
        if attn_mask is not None:
            need(attn_mask.dtype in (dtypes.bool, query.dtype), "Expected attn_mask dtype to be bool or to match query "
                                                                f"dtype, but got attn_mask.dtype: {attn_mask.dtype} "
                                                                f"and  query.dtype: {query.dtype} instead.")
        half = query.dtype.itemsize == 2
        q, k, v = (query.float(), key.float(), value.float()) if half else (query, key, value)
        if enable_gqa:
            need(q.shape[-3] % k.shape[-3] == 0 and q.shape[-3] % v.shape[-3] == 0,
                 f"Number of heads in key and value must divide the number of heads in query, got {q.shape[-3]}, "
                 f"{k.shape[-3]} and {v.shape[-3]}")
            k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
            v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
        # scaling both sides by the root keeps products of large vectors in range
        root = math.sqrt(scale) if scale is not None and scale > 0 else \
            None if scale is not None else math.sqrt(1 / math.sqrt(q.shape[-1])) if q.shape[-1] else 1.0
        scores = (q * root) @ (k * root).transpose(-2, -1) if root is not None else (q * scale) @ k.transpose(-2, -1)
        if is_causal:
            attn_mask = query.detach().new_ones((q.shape[-2], k.shape[-2]), dtype=dtypes.bool).tril()
        weights = _masked_softmax(scores, attn_mask)
        if dropout_p > 0:
            weights = drop(weights, dropout_p, True, False, weights.shape)
        out = weights @ v
        return out.to(query.dtype) if half else out


def _masked_softmax(scores, mask):
    if mask is None:
        return scores.softmax(-1)
    if mask.dtype is dtypes.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    else:
        scores = scores + mask
    return _safe_softmax(scores, -1)


class _multi_head_attention_forward(Layer):
    """Attention in several heads: projections in, attention per head, projection out. (output, weights or None)."""

    names = "nn.functional.multi_head_attention_forward"

    def of(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
           add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None,
           need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None,
           v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False):
        from .matmul import _linear as linear
        from .shape import cat
        need(query.dim() in (2, 3), f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D "
                                    "query tensor",
             AssertionError)
        batched = query.dim() == 3
        need(key.dim() == query.dim() and value.dim() == query.dim(),
             f"For {'batched (3-D)' if batched else 'unbatched (2-D)'} `query`, expected `key` and `value` to be "
             f"{query.dim()}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively", AssertionError)
        if not batched:
            query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        steps, batch, width = query.shape
        source = key.shape[0]
        need(width == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}",
             AssertionError)
        head = width // num_heads
        need(head * num_heads == width, f"embed_dim {width} not divisible by num_heads {num_heads}", AssertionError)
        need(tuple(key.shape[:2]) == tuple(value.shape[:2]), f"key's sequence and batch dims {key.shape[:2]} do not "
                                                             f"match value's {value.shape[:2]}", AssertionError)
        need(not (is_causal and attn_mask is None), "Need attn_mask if specifying the is_causal hint.")
        key_padding_mask = _float_mask(key_padding_mask, "key_padding_mask", query.dtype)
        attn_mask = _float_mask(attn_mask, "attn_mask", query.dtype)
        if use_separate_proj_weight:
            bq, bk, bv = in_proj_bias.chunk(3) if in_proj_bias is not None else (None, None, None)
            q, k, v = linear(query, q_proj_weight, bq), linear(key, k_proj_weight, bk), linear(value, v_proj_weight, bv)
        else:
            need(in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is "
                                             "None", AssertionError)
            wq, wk, wv = in_proj_weight.chunk(3)
            bq, bk, bv = in_proj_bias.chunk(3) if in_proj_bias is not None else (None, None, None)
            q, k, v = linear(query, wq, bq), linear(key, wk, bk), linear(value, wv, bv)
        if attn_mask is not None:
            shape = (steps, source) if attn_mask.dim() == 2 else (batch * num_heads, steps, source)
            need(tuple(attn_mask.shape) == shape, f"The shape of the {attn_mask.dim()}D attn_mask is "
                                                  f"{tuple(attn_mask.shape)}, but should be {shape}.")
            attn_mask = attn_mask.unsqueeze(0) if attn_mask.dim() == 2 else attn_mask
        one = lambda mask: None if mask is None else cat((mask, mask.new_zeros((*mask.shape[:-1], 1))), -1)
        if bias_k is not None and bias_v is not None:
            need(static_k is None and static_v is None, "bias cannot be added to static key or value", AssertionError)
            k, v = cat((k, bias_k.repeat(1, batch, 1)), 0), cat((v, bias_v.repeat(1, batch, 1)), 0)
            attn_mask, key_padding_mask = one(attn_mask), one(key_padding_mask)
        split = lambda t: t.contiguous().view(t.shape[0], batch * num_heads, head).transpose(0, 1)
        q = split(q)
        k = split(k) if static_k is None else static_k
        v = split(v) if static_v is None else static_v
        if add_zero_attn:
            blank = (batch * num_heads, 1, head)
            k, v = cat((k, k.new_zeros(blank)), 1), cat((v, v.new_zeros(blank)), 1)
            attn_mask, key_padding_mask = one(attn_mask), one(key_padding_mask)
        source = k.shape[1]
        if key_padding_mask is not None:
            need(tuple(key_padding_mask.shape) == (batch, source), "expecting key_padding_mask shape of "
                 f"{(batch, source)}, but got {tuple(key_padding_mask.shape)}", AssertionError)
            pad = key_padding_mask.view(batch, 1, 1, source).expand(-1, num_heads, -1, -1)
            pad = pad.reshape(batch * num_heads, 1, source)
            attn_mask = pad if attn_mask is None else attn_mask + pad
        scores = (q * math.sqrt(1 / head)) @ k.transpose(-2, -1)
        weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
        if training and dropout_p > 0:
            weights = drop(weights, dropout_p, True, False, weights.shape)
        out = (weights @ v).transpose(0, 1).contiguous().view(steps * batch, width)
        out = linear(out, out_proj_weight, out_proj_bias).view(steps, batch, -1)
        shown = None
        if need_weights:
            shown = weights.view(batch, num_heads, steps, source)
            shown = shown.mean(1) if average_attn_weights else shown
            shown = shown if batched else shown.squeeze(0)
        return (out if batched else out.squeeze(1)), shown


def _float_mask(mask, name, dtype):
    """A mask as numbers to add to the scores: minus infinity where a boolean one is true."""
    if mask is None:
        return None
    need(mask.dtype is dtypes.bool or mask.is_floating_point(), f"only bool and floating types of {name} are supported",
         AssertionError)
    if mask.dtype is dtypes.bool:
        return door.full(tuple(mask.shape), 0.0, dtype, mask.device).masked_fill(mask, -math.inf)
    return mask.to(dtype)
