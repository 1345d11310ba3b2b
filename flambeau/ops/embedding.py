"""Embeddings: rows of a table by number, one by one or summed up in bags."""
from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .create import _arange
from .index import INDEX_DTYPES, are_within, half_widened, reduce_at, rows_at, within


def indices_given(weight, indices):
    need(weight.ndim == 2, f"'weight' must be 2-D, got {weight.ndim} dimensions")
    need(indices.dtype in INDEX_DTYPES,
         "Expected tensor for argument 'indices' to have one of the following scalar types: "
         f"Long, Int; but got torch.{indices.dtype.cname}Tensor instead; .long() converts it")


class embedding(Op):
    """The rows of `weight` at `indices`.

    Gradients leave row `padding_idx` alone; `scale_grad_by_freq` divides each row's by how often it was used. With
    `sparse` the gradient has the same values, in a dense tensor.
    """

    forms = "function"
    exact = True

    def meta(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
        indices_given(weight, indices)
        return weight.like(shape=(*indices.shape, weight.shape[1]))

    def verify(indices, weight_spec):
        rows = weight_spec.shape[0]
        within(indices, rows, 0, False, words=f"index out of range in self: index {{bad}} for a table of {rows} rows")

    def holds(indices, weight_spec): return are_within(indices, weight_spec.shape[0], False)

    def ref(xp, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
        return weight[indices]

    def d_weight(g, weight_spec, indices, padding_idx, scale_grad_by_freq):
        return _embedding_backward(g, indices, weight_spec.shape[0], padding_idx, scale_grad_by_freq)

    def body(k, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
        return rows_at(k, weight, 0, k.cast(indices, dtypes.int64))


class _embedding_backward(Op):
    """A table of `rows` rows with those of `grad` added at `indices`."""

    node = "EmbeddingDenseBackward0"

    def meta(grad, indices, rows, padding_idx, scale_grad_by_freq):
        return grad.like(shape=(rows, grad.shape[-1]))

    def ref(xp, grad, indices, rows, padding_idx, scale_grad_by_freq):
        width = grad.shape[-1]
        out, at = xp.zeros((rows, width), grad.dtype), indices.reshape(-1)
        grad = grad.reshape(len(at), width)
        if scale_grad_by_freq and len(at):
            grad = grad / xp.bincount(at, minlength=rows)[at, None].astype(grad.dtype)
        reduce_at(xp, xp.add, out, at, grad)
        if padding_idx >= 0:
            out[padding_idx] = 0
        return out

    def body(k, grad, indices, rows, padding_idx, scale_grad_by_freq):
        if scale_grad_by_freq or not indices.numel:
            return NotImplemented
        at = k.reshape(k.cast(indices, dtypes.int64), (indices.numel,))
        grad = k.reshape(grad, (indices.numel, grad.shape[-1]))
        made = k.library("add_rows", (grad, at), [(grad.dtype, (rows, grad.shape[-1]))], (max(padding_idx, -1),))
        return NotImplemented if made is None else made[0]

    def d_grad(g, indices, padding_idx):
        out = g.index_select(0, indices.reshape(-1)).reshape((*indices.shape, g.shape[-1]))
        return out if padding_idx < 0 else out.masked_fill((indices == padding_idx).unsqueeze(-1), 0)


class _renormed(Op):
    """`weight` with those of its rows that `indices` names shortened to `max_norm` where they are longer."""

    called = "embedding"
    scalars = ("max_norm", "norm_type")
    forms = ""
    exact = True

    def meta(weight, indices, max_norm, norm_type):
        indices_given(weight, indices)
        return spec(weight.dtype, weight.shape, None, weight.device)

    verify = embedding.verify

    def ref(xp, weight, indices, max_norm, norm_type):
        out, rows = xp.array(weight), xp.unique(indices)
        wide = half_widened(xp, out[rows])
        norms = xp.linalg.norm(wide, norm_type, axis=1, keepdims=True) if len(rows) else wide[:, :1]
        norms = norms.astype(out.dtype).astype(xp.float64)     # PyTorch rounds norm and factor to the dtype
        factor = (max_norm / (norms + 1e-7)).astype(out.dtype).astype(wide.dtype)
        out[rows] = xp.where(norms > max_norm, wide * factor, wide).astype(out.dtype)
        return out


def renorm(weight, indices, max_norm, norm_type):
    """Shorten, in place and unseen by autograd, the rows of `weight` that are about to be used."""
    table = weight.detach()
    if table.stride(0) == 0 and indices.numel():               # an expanded table: all of its rows are one
        table, indices = table[:1], indices.reshape(-1)[:1] * 0
    table.copy_(_renormed(table, indices, float(max_norm), float(norm_type)))


class _embedding(Composite):
    """The rows of `weight` at the numbers in `input`; gradients leave row `padding_idx` alone.

    With `max_norm`, rows that are longer are first shortened to it, in place.

    >>> torch.nn.functional.embedding(torch.tensor([1, 1]), torch.tensor([[0., 1.], [2., 3.]]))
    tensor([[2., 3.],
            [2., 3.]])
    """

    names = "nn.functional.embedding"

    def of(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
           sparse=False):
        if padding_idx is not None:
            rows = weight.shape[0]
            need(-rows <= padding_idx < max(rows, 1), f"Padding_idx must be within num_embeddings: {padding_idx} of "
                                                      f"{rows}", AssertionError)
            padding_idx = padding_idx % max(rows, 1)
        if max_norm is not None:
            renorm(weight, input, max_norm, norm_type)
        return embedding(weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq)


# --- bags ---------------------------------------------------------------------------------------------------


class _embedding_bag_front(Composite):
    """The rows of `weight` at the numbers in `input`, reduced bag by bag: by "sum", "mean" or "max".

    Each row of a two-dimensional `input` is a bag; of a vector, `offsets` says where each bag starts (and, with
    `include_last_offset`, where the last one ends). Numbers equal to `padding_idx` do not count.
    """

    called = "embedding_bag"
    names = "nn.functional.embedding_bag"

    def of(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
           sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None):
        need(per_sample_weights is None or input.shape == per_sample_weights.shape, "If per_sample_weights "
             f"({getattr(per_sample_weights, 'shape', None)}) is not None, then it must have the same shape "
             f"as the input ({input.shape})", ValueError)
        need(weight.ndim == 2, f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}",
             ValueError)
        need(input.ndim in (1, 2), "input has to be 1D or 2D Tensor, but got Tensor of dimension "
                                   f"{input.ndim}", ValueError)
        if input.ndim == 2:
            need(offsets is None, "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                                  f"fixed length sequences. However, found offsets of type {type(offsets)}", ValueError)
            bags, each = input.shape
            offsets, include_last_offset = _arange(bags, 0, each, dtypes.int64, input.device), False
            input = input.reshape(-1)
            per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        need(offsets is not None and offsets.ndim == 1, "offsets has to be a 1D Tensor but got "
             f"{None if offsets is None else offsets.ndim}", ValueError)
        need(mode in ("sum", "mean", "max"), f"mode has to be one of sum, mean or max, got {mode!r}",
             ValueError)
        need(mode != "max" or not scale_grad_by_freq, "max mode does not support scaling the gradient by the "
             "frequency", ValueError)
        need(mode != "max" or not sparse, "max mode does not support sparse weights", ValueError)
        if max_norm is not None:
            renorm(weight, input, max_norm, norm_type)
        need(per_sample_weights is None or mode == "sum", "per_sample_weights was not None. "
             f"per_sample_weights is only supported for mode='sum' (got mode='{mode}').", NotImplementedError)
        rows = weight.shape[0]
        if padding_idx is not None:
            need(-rows <= padding_idx < rows, f"padding_idx must be within the number of embeddings, {-rows} through "
                                              f"{rows - 1}, but got {padding_idx}")
            padding_idx = padding_idx % max(rows, 1)
        return _embedding_bag(weight, input, offsets, per_sample_weights, mode, bool(scale_grad_by_freq),
                              bool(include_last_offset), -1 if padding_idx is None else padding_idx)[0]


class _embedding_bag(Op):
    """(reduced bags, for "max" the element that won each place)"""

    def meta(weight, indices, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
             padding_idx):
        indices_given(weight, indices)
        need(weight.dtype.is_floating_point, "Expected tensor for argument 'weight' to have one of the following "
                                             "scalar types: Half, BFloat16, Float, Double; but got "
                                             f"torch.{weight.dtype.cname}Tensor instead")
        need(per_sample_weights is None or per_sample_weights.dtype is weight.dtype, "expected weight and "
             f"per_sample_weights to have the same dtype, got {weight.dtype.name} and "
             f"{per_sample_weights and per_sample_weights.dtype.name}")
        need(offsets.dtype in INDEX_DTYPES, f"offsets must be int32 or int64, got {offsets.dtype.name}")
        need(not include_last_offset or offsets.numel, "include_last_offset: number of offset should be at least 1")
        bags = offsets.numel - bool(include_last_offset)
        shape = (bags, weight.shape[1])
        won = spec(dtypes.int64, shape if mode == "max" else (0,), None, weight.device)
        return weight.like(shape=shape), won

    def verify(indices, offsets, weight_spec):
        rows = weight_spec.shape[0]
        within(indices, rows, 0, False, RuntimeError, f"input takes value {{bad}} which is not in the valid range [0, "
                                                      f"{rows})")
        if offsets.size:
            need(offsets[0] == 0, "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                                  f"from position 0. However, got {offsets[0]}")
            need(offsets[-1] <= indices.size, f"offsets[-1] can not be greater than input's length {indices.size} but "
                                              f"got offsets[-1] of {offsets[-1]}")
            need((offsets[1:] >= offsets[:-1]).all(), f"offsets must not decrease, got {offsets.tolist()[:20]}")

    def ref(xp, weight, indices, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
            padding_idx):
        bag, indices, kept = bags_of(xp, indices, offsets, include_last_offset, padding_idx)
        bags, width = len(offsets) - include_last_offset, weight.shape[1]
        rows = weight[indices]
        if mode == "max":
            out, winner = xp.full((bags, width), -xp.inf, weight.dtype), xp.full((bags, width), len(bag))
            reduce_at(xp, xp.maximum, out, bag, rows)
            first = xp.where(rows == out[bag], xp.arange(len(bag))[:, None], len(bag))
            reduce_at(xp, xp.minimum, winner, bag, first)
            none = winner == len(bag)                      # an empty bag
            winner = xp.where(none, -1, xp.append(indices, -1)[winner])
            return xp.where(none, 0, out), winner
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[kept][:, None]
        out = xp.zeros((bags, width), weight.dtype)
        reduce_at(xp, xp.add, out, bag, rows)
        if mode == "mean":
            out /= xp.maximum(xp.bincount(bag, minlength=bags), 1).astype(out.dtype)[:, None]
        return out, xp.zeros(0, xp.int64)

    def d_weight(g, out1, weight_spec, indices, offsets, per_sample_weights, mode, scale_grad_by_freq,
                 include_last_offset, padding_idx):
        return _embedding_bag_backward(g[0], out1, indices, offsets, per_sample_weights, weight_spec.shape[0],
                                       mode, scale_grad_by_freq, include_last_offset, padding_idx)

    def d_per_sample_weights(g, weight, indices, offsets, include_last_offset, padding_idx):
        return _bag_weights_backward(g[0], weight, indices, offsets, include_last_offset, padding_idx)


def bags_of(xp, indices, offsets, include_last_offset, padding_idx):
    """(bag, index, place in `indices`) of every element that counts."""
    ends = offsets[1:] if include_last_offset else xp.append(offsets[1:], len(indices))
    starts = offsets[:len(ends)]
    bag = xp.repeat(xp.arange(len(starts)), ends - starts) if len(starts) else xp.zeros(0, xp.int64)
    kept = xp.flatnonzero(indices[:len(bag)] != padding_idx)
    return bag[kept], indices[kept], kept


class _embedding_bag_backward(Op):
    """The gradient of the table from that of the bags."""

    def meta(grad, winner, indices, offsets, per_sample_weights, rows, mode, scale_grad_by_freq,
             include_last_offset, padding_idx):
        return grad.like(shape=(rows, grad.shape[1]))

    def ref(xp, grad, winner, indices, offsets, per_sample_weights, rows, mode, scale_grad_by_freq,
            include_last_offset, padding_idx):
        width = grad.shape[1]
        out = xp.zeros((rows, width), grad.dtype)
        if mode == "max":
            won = winner >= 0
            at = (winner * width + xp.arange(width))[won]
            reduce_at(xp, xp.add, out.reshape(-1, 1), at, grad[won])
            return out
        every = indices
        bag, indices, kept = bags_of(xp, indices, offsets, include_last_offset, padding_idx)
        if mode == "mean":
            grad = grad / xp.maximum(xp.bincount(bag, minlength=len(grad)), 1).astype(grad.dtype)[:, None]
        each = grad[bag]
        if per_sample_weights is not None:
            each = each * per_sample_weights[kept][:, None]
        if scale_grad_by_freq and len(every):
            each = each / xp.bincount(every, minlength=rows)[indices, None].astype(grad.dtype)
        reduce_at(xp, xp.add, out, indices, each)
        return out


class _bag_weights_backward(Op):
    """The gradient of the weight of each sample: how far its row points along its bag's gradient."""

    def meta(grad, weight, indices, offsets, include_last_offset, padding_idx):
        return grad.like(shape=indices.shape)

    def ref(xp, grad, weight, indices, offsets, include_last_offset, padding_idx):
        out = xp.zeros(indices.shape, grad.dtype)
        bag, indices, kept = bags_of(xp, indices, offsets, include_last_offset, padding_idx)
        out[kept] = (grad[bag] * weight[indices]).sum(axis=1)
        return out
