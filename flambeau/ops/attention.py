"""Attention: weighted sums whose weights come from queries and keys."""
import math

from ..base import dtypes, shapes
from ..base.errors import need, warn
from ..base.op import Composite, Op
from ..base.spec import CPU, spec
from .create import _full
from .dropout import check_probability, drop, keep_mask
from .matmul import _linear as linear, matmul
from .norm import LayerFunction
from .pieces import cat
from .softmax import _safe_softmax, _softmax_backward, softmax

# --- attention --------------------------------------------------------------------------------------------------------


class _hide_later(Op):
    """`input` [..., queries, keys] with minus infinity for keys that come after their query."""

    def meta(input):      return input.like(shape=input.shape)
    def ref(xp, input):   return xp.where(xp.tri(*input.shape[-2:], dtype=bool), input, input.dtype.type(-xp.inf))
    def body(k, input):   return k.where(k.index(-1, input.shape) <= k.index(-2, input.shape), input, -math.inf)


def wide(t):
    """Half types are computed in float32."""
    return t.float() if t is not None and t._spec.dtype.itemsize == 2 else t


class _wide_product(Op):
    """The matrix products of two batches of half types, left in float32 for a softmax."""

    def meta(input, other):
        return spec(dtypes.float32, (*input.shape[:-1], other.shape[-1]), None, input.device)

    def ref(xp, input, other):            return xp.matmul(input, other)
    def d_input(g, input_spec, other):    return matmul(g.to(input_spec.dtype), other.mT)
    def d_other(g, input, other_spec):    return matmul(input.mT, g.to(other_spec.dtype))
    def body(k, input, other):            return k.matmul(input, other)


def products(left, right):
    """`left @ right`; in float32 where they are of a half type."""
    if left._spec.dtype.itemsize != 2:
        return left @ right
    lead = shapes.broadcast(left.shape[:-2], right.shape[:-2])
    return _wide_product(*[x if x.shape[:-2] == lead else x.expand((*lead, *x.shape[-2:])) for x in (left, right)])


class _attend(Composite):
    """(each query's average of `value`, the weights of the average): the softmax of the scaled products with the keys.

    `attn_mask` is added to the products, or says where they count; `keep` is dropout's mask, which multiplies the
    weights afterwards. Where `groups` queries share a key, they stand one after the other in the rows of `query`.
    The weights, which backward needs, are kept in the dtype of `query`, and nothing else of their size is.
    """

    node = "ScaledDotProductFlashAttentionForCpuBackward0"

    def of(query, key, value, attn_mask, keep, scale, causal, groups, safe):
        scores = products(query, key.transpose(-2, -1)) * scale
        if attn_mask is None and not causal:
            weights = scores.softmax(-1)
        else:
            rows = scores
            if groups > 1:
                *lead, queries, keys = scores._spec.shape
                rows = scores.view((*lead, groups, queries // groups, keys))
            if causal:                                     # no row is hidden in full
                weights = _hide_later(rows).softmax(-1)
            else:
                rows = rows.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is dtypes.bool else rows + attn_mask
                weights = _safe_softmax(rows, -1) if safe else rows.softmax(-1)
            weights = weights.view(scores._spec.shape) if groups > 1 else weights
        out = (weights if keep is None else weights * keep).to(query.dtype) @ value
        return out, weights.to(query.dtype)

    def grads(g, needs, query, key, value, attn_mask, keep, scale, groups, out1):
        g_out, g_weights = g
        needed = iter(needs)
        want_q, want_k, want_v = next(needed), next(needed), next(needed)
        want_mask = attn_mask is not None and next(needed)
        weights, dtype = wide(out1), query.dtype
        made = [None, None, None]
        d_weights = wide(g_weights)
        if g_out is not None:
            if want_v:
                made[2] = (out1 if keep is None else (weights * keep).to(dtype)).transpose(-2, -1) @ g_out
            d = products(g_out, value.transpose(-2, -1))
            d = d if keep is None else d * keep
            d_weights = d if d_weights is None else d + d_weights
        if d_weights is not None and (want_q or want_k or want_mask):
            d = _softmax_backward(d_weights, weights, -1)
            if want_q or want_k:
                scaled = (d * scale).to(dtype)
                made[0] = scaled @ key if want_q else None
                made[1] = scaled.transpose(-2, -1) @ query if want_k else None
            if want_mask and groups > 1:
                *lead, rows, keys = d._spec.shape
                d = d.view((*lead, groups, rows // groups, keys))
        if attn_mask is not None:
            made.append(d if want_mask and d_weights is not None else None)
        return (*made, None) if keep is not None else tuple(made)


class _flash(Op):
    """(each query's average of `value`, the logarithm of what its weights were divided by), where a device's library
    has a kernel that never holds the weights: memory is linear in the number of queries and keys.

    `query` is [samples, heads, queries, features]; `groups` of its heads in a row share one of `key` and `value`.
    `mask`, which is given or None, is added to the products, or says where they count. Backward computes the weights
    again.
    """

    node = "ScaledDotProductFlashAttentionBackward0"

    def meta(query, key, value, mask, scale, causal, groups):
        shape = (*query.shape[:-1], value.shape[-1])
        like = query.strides if value.shape[-1] == query.shape[-1] else shapes.contiguous_strides(shape)
        rest = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
        return spec(query.dtype, shape, shapes.preserved_strides(shape, like), query.device), \
            spec(rest, query.shape[:-1], None, query.device)

    def ref(xp, query, key, value, mask, scale, causal, groups):
        weights, rest = weights_of(xp, query, key, mask, scale, causal, groups)
        return xp.matmul(weights, xp.repeat(value, groups, -3)), rest

    def grads(g, needs, query, key, value, mask, scale, causal, groups, out0, out1):
        made = (None,) * 3 if g[0] is None else \
            tuple(_flash_backward(g[0], query, key, value, out0, out1, mask, scale, causal, groups))
        return made if mask is None else (*made, None)

    def body(k, query, key, value, mask, scale, causal, groups):
        rest = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
        args = (query, key, value) if mask is None else (query, key, value, mask)
        made = k.library("attention", args, [(query.dtype, (*query.shape[:-1], value.shape[-1])),
                                             (rest, query.shape[:-1])], (scale, causal, groups, mask_category(mask)),
                         single=(len(args) + 1,))
        return NotImplemented if made is None else made


class _flash_backward(Op):
    """The gradients of `query`, `key` and `value` of `_flash`, from that of its average."""

    def meta(grad, query, key, value, out, rest, mask, scale, causal, groups):
        return tuple(x.like(strides=shapes.preserved_strides(x.shape, x.strides)) for x in (query, key, value))

    def ref(xp, grad, query, key, value, out, rest, mask, scale, causal, groups):
        weights, _ = weights_of(xp, query, key, mask, scale, causal, groups)
        k, v = xp.repeat(key, groups, -3), xp.repeat(value, groups, -3)
        d = weights * (xp.matmul(grad, v.swapaxes(-1, -2)) - (grad * out).sum(-1, keepdims=True)) * scale

        def summed(x):
            """The sum over the heads that share a key."""
            return x.reshape(*x.shape[:-3], -1, groups, *x.shape[-2:]).sum(-3)

        return xp.matmul(d, k), summed(xp.matmul(d.swapaxes(-1, -2), query)), \
            summed(xp.matmul(weights.swapaxes(-1, -2), grad))

    def body(k, grad, query, key, value, out, rest, mask, scale, causal, groups):
        args = (grad, query, key, value, out, rest)
        made = k.library("attention_backward", args if mask is None else (*args, mask),
                         [(x.dtype, x.shape) for x in (query, key, value)],
                         (scale, causal, groups, mask_category(mask)), single=(5,))
        return NotImplemented if made is None else made


def mask_category(mask):
    """What a library is told of a mask, of which it sees neither dtype nor whether it is there: None, or "bool", or
    "float" for one of the dtype of `query`."""
    return None if mask is None else "bool" if mask.dtype is dtypes.bool else "float"


def weights_of(xp, query, key, mask, scale, causal, groups):
    """(the weights of an attention's averages, the logarithms of what they were divided by). A query that no key counts
    for has no weights, and infinity there, so that none come out of it."""
    scores = xp.matmul(query, xp.repeat(key, groups, -3).swapaxes(-1, -2)) * scale
    if causal:
        scores = xp.where(xp.tri(*scores.shape[-2:], dtype=bool), scores, -xp.inf)
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    weights = xp.exp(scores - xp.where(top == -xp.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    rest = xp.where(total == 0, xp.inf, top + xp.log(xp.where(total == 0, 1, total)))
    return weights / xp.where(total == 0, 1, total), rest[..., 0]


def flash(query, key, value, mask, causal, scale, groups):
    """The average of an attention by `_flash`; None where the device's library has no such kernel, the operands are not
    batches of heads, or the mask is one that needs a gradient."""
    q, k, v = query._spec, key._spec, value._spec
    backend = q.device.backend
    if backend is None or not backend.attends:
        return None
    if mask is not None:
        fits = mask.dim() <= 4 and all(n in (1, m) for n, m in zip(
            mask.shape[::-1], (k.shape[2], *q.shape[2::-1]), strict=False))
        if mask.requires_grad or not fits or mask.dtype not in (dtypes.bool, q.dtype):
            return None
        mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape)) if mask.dim() < 4 else mask
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4 or 0 in (q.numel, k.numel, v.numel) \
            or k.shape[:3] != v.shape[:3] or (q.shape[0], q.shape[1]) != (k.shape[0], k.shape[1] * groups):
        return None
    scale = float(scale) if scale is not None else 1 / math.sqrt(q.shape[-1])
    given = (q, k, v) if mask is None else (q, k, v, mask._spec)
    made = _flash.meta(q, k, v, None if mask is None else mask._spec, scale, causal, groups)
    laid = [[(one.shape, shapes.contiguous_strides(one.shape)) for one in some] for some in (given, made)]
    if not backend.has("attention", q.dtype, *laid, (scale, causal, groups, mask_category(mask))):
        return None
    return _flash(query, key, value, mask, scale, causal, groups)[0]


def attend(query, key, value, mask, dropout, causal, scale, groups=1, safe=True):
    """(average, weights, the weights after dropout) of an attention; see `_attend`."""
    size = query.shape[-1]
    scale = scale if scale is not None else 1 / math.sqrt(size) if size else 1.0
    keep = None
    if dropout > 0:
        check_probability(dropout)
        shape = (*shapes.broadcast(tuple(query.shape[:-2]), tuple(key.shape[:-2])), query.shape[-2], key.shape[-2])
        dtype = dtypes.float32 if query.dtype.itemsize == 2 else query.dtype
        keep = keep_mask(query.detach().new_empty(shape, dtype=dtype), dropout)
    out, weights = _attend(query, key, value, mask, keep, scale, causal, groups, safe)
    return out, weights, weights if keep is None else (weights * keep).to(weights.dtype)


class _scaled_dot_product_attention(LayerFunction):
    """Each query's average of `value`, weighted by the softmax of its products with the keys."""

    names = "nn.functional.scaled_dot_product_attention"

    def of(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
        q, k, v = query, key, value
        need(q.dim() >= 2 and k.dim() >= 2 and v.dim() >= 2, "Expected query, key, and value to all be  at least 2 "
             f"dimensional, but got query.dim: {q.dim()} key.dim: {k.dim()} and value.dim: {v.dim()} instead.")
        need(q.dtype is k.dtype and q.dtype is v.dtype, "Expected query, key, and value to have the same dtype, but "
             f"got query.dtype: {q.dtype} key.dtype: {k.dtype} and value.dtype: {v.dtype} instead.")
        need(not q.is_complex(), f"\"softmax_lastdim_kernel_impl\" not implemented for '{q.dtype.cname}'",
             NotImplementedError)
        need(q.is_floating_point(), f"expected scalar type Float but found {q.dtype.cname}")
        need(q.shape[-1] == k.shape[-1], f"the last sizes of query and key differ: {list(q.shape)} and {list(k.shape)}")
        need(k.shape[-2] == v.shape[-2], f"key and value must have equally many rows: {list(k.shape)} and "
                                         f"{list(v.shape)}")
        need(attn_mask is None or not is_causal, "_scaled_dot_product_attention: Explicit attn_mask should not be set "
                                                 "when is_causal=True")
        need(dropout_p <= 1, f"dropout probability has to be between 0 and 1, but got {dropout_p}")
        if attn_mask is not None:
            need(attn_mask.dtype in (dtypes.bool, dtypes.float32, q.dtype), "Expected attn_mask dtype to be bool or "
                 f"float or to match query dtype, but got attn_mask.dtype: {attn_mask.dtype} and  query.dtype: "
                 f"{q.dtype} instead.")
        groups = 1
        if enable_gqa:
            need(q.dim() > 2, "Dimension out of range (expected to be in range of [-2, 1], but got -3): enable_gqa "
                              "takes heads in the third dimension from the end", IndexError)
            heads, own, other = q.shape[-3], k.shape[-3], v.shape[-3]
            need(own and other and heads % own == 0 and heads % other == 0, "Number of heads in key and value must "
                 f"divide the number of heads in query, got {heads}, {own} and {other}")
            if own == other:
                groups = heads // own
            else:
                k, v = k.repeat_interleave(heads // own, -3), v.repeat_interleave(heads // other, -3)
        made = flash(q, k, v, attn_mask, is_causal, scale, groups) if not dropout_p else None
        if made is not None:
            return made
        if groups == 1:
            return attend(q, k, v, attn_mask, dropout_p, is_causal, scale)[0]
        # The queries that share a key become rows of one matrix, so that no key is repeated in memory.
        *lead, heads, steps, size = q.shape
        if attn_mask is not None and attn_mask.dim() > 2:
            *front, over, rows, keys = attn_mask.shape
            parts = (over // groups, groups) if over > 1 else (1, 1)
            attn_mask = attn_mask.reshape(*front, *parts, rows, keys)
        out = attend(q.reshape(*lead, heads // groups, groups * steps, size), k, v, attn_mask, dropout_p, is_causal,
                     scale, groups)[0]
        return out.reshape(*out.shape[:-3], heads, steps, v.shape[-1])


# --- attention in several heads ---------------------------------------------------------------------------------------


def projected(x, weight, bias):
    """`linear` of [steps, samples, features], which may be the transpose of a contiguous tensor."""
    if not x.is_contiguous() and x.transpose(0, 1).is_contiguous():
        return linear(x.transpose(0, 1), weight, bias).transpose(0, 1)
    return linear(x, weight, bias)


def projections(query, key, value, weight, bias):
    """Query, key and value times their parts of one weight: one product for those that are the same tensor."""
    size = weight.shape[0] // 3
    if query is key and key is value:
        made = projected(query, weight, bias)
        return [made[..., i * size:(i + 1) * size] for i in range(3)]
    if key is value:
        b = (None, None) if bias is None else (bias[:size], bias[size:])
        made = projected(key, weight[size:], b[1])
        return projected(query, weight[:size], b[0]), made[..., :size], made[..., size:]
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return [projected(x, w, b) for x, w, b in zip((query, key, value), weight.chunk(3), biases, strict=True)]


def check_heads(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Refuse arguments of the wrong number of dimensions; whether they are batches."""
    dims = query.dim()
    need(dims in (2, 3), f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor",
         AssertionError)
    words = f"For {'batched (3-D)' if dims == 3 else 'unbatched (2-D)'} `query`, expected "
    need(key.dim() == dims and value.dim() == dims, f"{words}`key` and `value` to be {dims}-D but found {key.dim()}-D "
                                                    f"and {value.dim()}-D tensors respectively", AssertionError)
    if key_padding_mask is not None:
        need(key_padding_mask.dim() == dims - 1, f"{words}`key_padding_mask` to be `None` or {dims - 1}-D but found "
             f"{key_padding_mask.dim()}-D tensor instead", AssertionError)
    if attn_mask is not None:
        need(attn_mask.dim() in (2, 3), f"{words}`attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D "
                                        "tensor instead", AssertionError)
        if attn_mask.dim() == 3 and dims == 2:
            shape = (num_heads, query.shape[0], key.shape[0])
            need(tuple(attn_mask.shape) == shape, f"Expected `attn_mask` shape to be {shape} but got {attn_mask.shape}",
                 AssertionError)
    return dims == 3


class _multi_head_attention_forward(LayerFunction):
    """Attention in several heads: projections in, attention per head, projection out. (output, weights or None)."""

    by_specs = False          # but by whether its tensors are the same
    names = "nn.functional.multi_head_attention_forward"

    def of(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
           add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None,
           need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None,
           v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False):
        batched = check_heads(query, key, value, key_padding_mask, attn_mask, num_heads)
        if not batched:
            same = query is key and key is value
            query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
            key, value = (query, query) if same else (key, value)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        (steps, batch, width), source = query.shape, key.shape[0]
        need(not is_causal or attn_mask is not None, "Need attn_mask if specifying the is_causal hint. You may use the "
             "Transformer module method `generate_square_subsequent_mask` to create this mask.")
        # A hint that the mask is the causal one is taken at its word where nothing else is masked.
        causal = is_causal and key_padding_mask is None and not need_weights
        if attn_mask is not None and key_padding_mask is not None and attn_mask.dtype is not key_padding_mask.dtype:
            warn("Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.")
        key_padding_mask = _float_mask(key_padding_mask, "key_padding_mask", query.dtype)
        attn_mask = None if causal else _float_mask(attn_mask, "attn_mask", query.dtype)
        need(width == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}",
             AssertionError)
        head = width // num_heads
        need(head * num_heads == width, f"embed_dim {width} not divisible by num_heads {num_heads}", AssertionError)
        if use_separate_proj_weight:
            need(tuple(key.shape[:2]) == tuple(value.shape[:2]), f"key's sequence and batch dims {key.shape[:2]} do "
                                                                 f"not match value's {value.shape[:2]}", AssertionError)
            q, k, v = separate_projections((query, key, value), (q_proj_weight, k_proj_weight, v_proj_weight),
                                           in_proj_bias, width)
        else:
            need(tuple(key.shape) == tuple(value.shape), f"key shape {key.shape} does not match value shape "
                                                         f"{value.shape}", AssertionError)
            need(in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is "
                                             "None", AssertionError)
            q, k, v = projections(query, key, value, in_proj_weight, in_proj_bias)
        if attn_mask is not None:
            shape = (steps, source) if attn_mask.dim() == 2 else (batch * num_heads, steps, source)
            need(tuple(attn_mask.shape) == shape, f"The shape of the {attn_mask.dim()}D attn_mask is "
                                                  f"{attn_mask.shape}, but should be {shape}.")
        one = lambda mask: None if mask is None else cat((mask, mask.new_zeros((*mask.shape[:-1], 1))), -1)
        if bias_k is not None and bias_v is not None:
            need(static_k is None and static_v is None, "bias cannot be added to static key or value", AssertionError)
            k, v = cat((k, bias_k.expand(1, batch, width))), cat((v, bias_v.expand(1, batch, width)))
            attn_mask, key_padding_mask = one(attn_mask), one(key_padding_mask)
        else:
            need(bias_k is None and bias_v is None, "bias_k and bias_v are given together or not at all",
                 AssertionError)
        heads = lambda t: t.reshape(t.shape[0], batch, num_heads, head).permute(1, 2, 0, 3)
        q = heads(q)
        k, v = [heads(made) if given is None else _given_heads(given, name, batch, num_heads, head)
                for made, given, name in ((k, static_k, "static_k"), (v, static_v, "static_v"))]
        if add_zero_attn:
            blank = (batch, num_heads, 1, head)
            k, v = cat((k, k.new_zeros(blank)), 2), cat((v, v.new_zeros(blank)), 2)
            attn_mask, key_padding_mask = one(attn_mask), one(key_padding_mask)
        attn_mask = merged_masks(attn_mask, key_padding_mask, batch, num_heads, steps, k.shape[2])
        dropped = dropout_p if training else 0.0
        out = flash(q, k, v, attn_mask, causal, None, 1) if not dropped and not need_weights else None
        if need_weights and q.dtype.itemsize == 2 and q.device is not CPU:
            out, shown = spelled_out(q, k, v, attn_mask, dropped)
        elif out is None:
            out, _, shown = attend(q, k, v, attn_mask, dropped, causal, None, safe=not need_weights)
        out = linear(out.permute(2, 0, 1, 3).reshape(steps, batch, width), out_proj_weight, out_proj_bias)
        if not need_weights:
            return (out if batched else out.squeeze(1)), None
        shown = shown.mean(1) if average_attn_weights else shown
        return (out, shown) if batched else (out.squeeze(1), shown.squeeze(0))


def separate_projections(inputs, weights, bias, width):
    """Queries, keys and values, each by a weight of its own."""
    for name, x, w in zip(("query", "key", "value"), inputs, weights, strict=True):
        need(w is not None, f"use_separate_proj_weight is True but {name[0]}_proj_weight is None", AssertionError)
        need(tuple(w.shape) == (width, x.shape[2]), f"expecting {name} weights shape of {(width, x.shape[2])}, "
                                                    f"but got {w.shape}", AssertionError)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return [projected(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def merged_masks(attn_mask, key_padding_mask, batch, heads, steps, source):
    """One mask of what both say, or None."""
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.view(batch, heads, steps, source)
    if key_padding_mask is None:
        return attn_mask
    for d, size in enumerate((batch, source)):
        need(key_padding_mask.shape[d] == size, f"Expected key_padded_mask.shape[{d}] to be {size}, but got "
                                                f"{key_padding_mask.shape[d]}", AssertionError)
    pad = key_padding_mask.view(batch, 1, 1, source)
    return pad if attn_mask is None else attn_mask + pad


def spelled_out(query, key, value, mask, dropout):
    """(average, weights) operation by operation: on a GPU, autocast has the weights computed in float32."""
    scores = matmul(query * math.sqrt(1 / query.shape[-1]), key.transpose(-1, -2))
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    weights = softmax(scores, -1)
    weights = drop(weights, dropout, True)
    return matmul(weights, value), weights


def _given_heads(given, name, batch, heads, head):
    """Keys or values that were split into heads by the caller: [samples · heads, steps, features]."""
    need(given.shape[0] == batch * heads, f"expecting {name}.size(0) of {batch * heads}, but got {given.shape[0]}",
         AssertionError)
    need(given.shape[2] == head, f"expecting {name}.size(2) of {head}, but got {given.shape[2]}", AssertionError)
    return given.view(batch, heads, given.shape[1], head)


def _float_mask(mask, name, dtype):
    """A mask as numbers to add to the scores: minus infinity where a boolean one is true."""
    if mask is None:
        return None
    need(mask.dtype is dtypes.bool or mask.is_floating_point(), f"only bool and floating types of {name} are supported",
         AssertionError)
    if mask.dtype is dtypes.bool:
        return _full(tuple(mask.shape), 0.0, dtype, mask.device).masked_fill(mask, -math.inf)
    return mask
