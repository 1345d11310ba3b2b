"""Embeddings: rows of a table by number, one by one or summed up in bags."""
from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .create import _arange
from .index import INDEX_DTYPES, are_within, half_widened, reduce_at, rows_at, scattered, within


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
    by_bounds = "indices"

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

    def bounds(weight): return weight

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
        count, width = indices.numel, grad.shape[-1]
        at, grad = k.reshape(indices, (1, count, 1)), k.reshape(grad, (1, count, width))
        if scale_grad_by_freq:
            grad = shared_out(k, grad, at, at, rows)
            if grad is NotImplemented:
                return NotImplemented
        return scattered(k, "sum", grad, at, (1, rows, width), (rows, width), skip=max(padding_idx, -1))

    def d_grad(g, indices, padding_idx):
        out = g.index_select(0, indices.reshape(-1)).reshape((*indices.shape, g.shape[-1]))
        return out if padding_idx < 0 else out.masked_fill((indices == padding_idx).unsqueeze(-1), 0)


def shared_out(k, grad, at, used, rows):
    """For a body: each row of `grad` divided by how often `used` names the row that `at` sends it to; NotImplemented
    without a library."""
    times = scattered(k, "sum", k.reshape(k.const(1, dtypes.int32), (1, 1, 1)), used, (1, rows, 1), (1, rows, 1))
    if times is NotImplemented:
        return NotImplemented
    return grad / k.cast(k.gather(times, 1, k.cast(at, dtypes.int64)), grad.dtype)


class _renormed(Op):
    """`weight` with those of its rows that `indices` names shortened to `max_norm` where they are longer."""

    called = "embedding"
    scalars = ("max_norm", "norm_type")
    forms = ""
    exact = True

    def meta(weight, indices, max_norm, norm_type):
        indices_given(weight, indices)
        return spec(weight.dtype, weight.shape, None, weight.device)

    verify, by_bounds = embedding.verify, "indices"

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
        last, padding_idx = bool(include_last_offset), -1 if padding_idx is None else padding_idx
        if mode == "max":
            return _largest_of_bags(weight, input, offsets, last, padding_idx)[0]
        return _embedding_bag(weight, input, offsets, per_sample_weights, mode, bool(scale_grad_by_freq), last,
                              padding_idx)


def bags_given(weight, indices, offsets, include_last_offset):
    """Check a table and its bags by their Specs; the result's Spec."""
    indices_given(weight, indices)
    need(weight.dtype.is_floating_point, "Expected tensor for argument 'weight' to have one of the following "
                                         "scalar types: Half, BFloat16, Float, Double; but got "
                                         f"torch.{weight.dtype.cname}Tensor instead")
    need(offsets.dtype in INDEX_DTYPES, f"offsets must be int32 or int64, got {offsets.dtype.name}")
    need(not include_last_offset or offsets.numel, "include_last_offset: number of offset should be at least 1")
    return weight.like(shape=(offsets.numel - bool(include_last_offset), weight.shape[1]))


def bags_within(indices, offsets, weight_spec):
    """Refuse the data of indices and offsets that point outside."""
    rows = weight_spec.shape[0]
    within(indices, rows, 0, False, RuntimeError, f"input takes value {{bad}} which is not in the valid range [0, "
                                                  f"{rows})")
    if offsets.size:
        need(offsets[0] == 0, "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                              f"from position 0. However, got {offsets[0]}")
        need(offsets[-1] <= indices.size, f"offsets[-1] can not be greater than input's length {indices.size} but "
                                          f"got offsets[-1] of {offsets[-1]}")
        need((offsets[1:] >= offsets[:-1]).all(), f"offsets must not decrease, got {offsets.tolist()[:20]}")


def bags_in_library(k, weight, indices, offsets, per_sample_weights, mode, include_last_offset, padding_idx):
    """For a body: the results of the library's function, or None."""
    shape = offsets.numel - include_last_offset, weight.shape[1]
    given = [weight, indices, offsets] + ([] if per_sample_weights is None else [per_sample_weights])
    bits = 8 * indices.dtype.itemsize, 8 * offsets.dtype.itemsize
    outs = [(weight.dtype, shape)] + [(dtypes.int64, shape)] * (mode == "max")
    return k.library("bags", given, outs, (mode, padding_idx, bits))


class _embedding_bag(Op):
    """The sums or means of bags of rows."""

    def meta(weight, indices, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
             padding_idx):
        need(per_sample_weights is None or per_sample_weights.dtype is weight.dtype, "expected weight and "
             f"per_sample_weights to have the same dtype, got {weight.dtype.name} and "
             f"{per_sample_weights and per_sample_weights.dtype.name}")
        return bags_given(weight, indices, offsets, include_last_offset)

    def verify(indices, offsets, weight_spec): bags_within(indices, offsets, weight_spec)

    def ref(xp, weight, indices, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
            padding_idx):
        bag, indices, kept = bags_of(xp, indices, offsets, include_last_offset, padding_idx)
        bags, rows = len(offsets) - include_last_offset, weight[indices]
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[kept][:, None]
        out = xp.zeros((bags, weight.shape[1]), weight.dtype)
        reduce_at(xp, xp.add, out, bag, rows)
        if mode == "mean":
            out /= xp.maximum(xp.bincount(bag, minlength=bags), 1).astype(out.dtype)[:, None]
        return out

    def body(k, weight, indices, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
             padding_idx):
        made = bags_in_library(k, weight, indices, offsets, per_sample_weights, mode, include_last_offset, padding_idx)
        return NotImplemented if made is None else made[0]

    def d_weight(g, weight_spec, indices, offsets, per_sample_weights, mode, scale_grad_by_freq, include_last_offset,
                 padding_idx):
        return _embedding_bag_backward(g, indices, offsets, per_sample_weights, weight_spec.shape[0], mode,
                                       scale_grad_by_freq, include_last_offset, padding_idx)

    def d_per_sample_weights(g, weight, indices, offsets, include_last_offset, padding_idx):
        return _bag_weights_backward(g, weight, indices, offsets, include_last_offset, padding_idx)


class _largest_of_bags(Op):
    """(the largest elements of bags of rows, which row each of them is of; -1: the bag is empty)"""

    called = "embedding_bag"
    node = "EmbeddingBagBackward0"

    def meta(weight, indices, offsets, include_last_offset, padding_idx):
        out = bags_given(weight, indices, offsets, include_last_offset)
        return out, spec(dtypes.int64, out.shape, None, weight.device)

    def verify(indices, offsets, weight_spec): bags_within(indices, offsets, weight_spec)

    def ref(xp, weight, indices, offsets, include_last_offset, padding_idx):
        bag, indices, _ = bags_of(xp, indices, offsets, include_last_offset, padding_idx)
        rows, bags, count = weight[indices], len(offsets) - include_last_offset, len(bag)
        out = xp.full((bags, weight.shape[1]), -xp.inf, weight.dtype)
        reduce_at(xp, xp.maximum, out, bag, xp.where(xp.isnan(rows), -xp.inf, rows).astype(rows.dtype))
        # What is not larger than the one before does not count, so that NaN stays where a bag begins with it.
        begins = xp.ones((count, 1), bool)
        begins[1:, 0] = bag[1:] != bag[:-1]
        stays = begins & xp.isnan(rows)
        first = xp.where(rows == out[bag], xp.arange(count)[:, None], count)
        winner = xp.full(out.shape, count)
        reduce_at(xp, xp.minimum, winner, bag, xp.where(stays, -1, first))
        nan = winner < 0
        starts = xp.zeros(bags, xp.int64)
        starts[bag[begins[:, 0]]] = xp.flatnonzero(begins)
        winner = xp.where(nan, starts[:, None], winner)
        none = winner == count                             # an empty bag
        return xp.where(none, 0, xp.where(nan, xp.nan, out)), xp.where(none, -1, xp.append(indices, -1)[winner])

    def body(k, weight, indices, offsets, include_last_offset, padding_idx):
        made = bags_in_library(k, weight, indices, offsets, None, "max", include_last_offset, padding_idx)
        return NotImplemented if made is None else made

    def d_weight(g, out1, weight_spec): return _largest_of_bags_backward(g[0], out1, weight_spec.shape[0])


class _largest_of_bags_backward(Op):
    """Zeros of so many `rows` with the elements of `grad` added to the rows that `winner` names, if any."""

    node = "EmbeddingBagBackwardBackward0"

    def meta(grad, winner, rows): return grad.like(shape=(rows, grad.shape[1]))

    def ref(xp, grad, winner, rows):
        width, won = grad.shape[1], winner >= 0
        out = xp.zeros((rows, width), grad.dtype)
        reduce_at(xp, xp.add, out.reshape(-1, 1), (winner * width + xp.arange(width))[won], grad[won])
        return out

    def body(k, grad, winner, rows):
        (bags, width), won = grad.shape, winner >= 0
        return scattered(k, "sum", k.reshape(k.where(won, grad, 0), (1, bags, width)),
                         k.reshape(k.maximum(winner, 0), (1, bags, width)), (1, rows, width), (rows, width))


def bags_of(xp, indices, offsets, include_last_offset, padding_idx):
    """(bag, index, place in `indices`) of every element that counts."""
    ends = offsets[1:] if include_last_offset else xp.append(offsets[1:], len(indices))
    starts = offsets[:len(ends)]
    bag = xp.repeat(xp.arange(len(starts)), ends - starts) if len(starts) else xp.zeros(0, xp.int64)
    kept = xp.flatnonzero(indices[:len(bag)] != padding_idx)
    return bag[kept], indices[kept], kept


class _embedding_bag_backward(Op):
    """The gradient of the table from that of the bags."""

    def meta(grad, indices, offsets, per_sample_weights, rows, mode, scale_grad_by_freq, include_last_offset,
             padding_idx):
        return grad.like(shape=(rows, grad.shape[1]))

    def ref(xp, grad, indices, offsets, per_sample_weights, rows, mode, scale_grad_by_freq, include_last_offset,
            padding_idx):
        out, every = xp.zeros((rows, grad.shape[1]), grad.dtype), indices
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

    def body(k, grad, indices, offsets, per_sample_weights, rows, mode, scale_grad_by_freq, include_last_offset,
             padding_idx):
        (bags, width), count = grad.shape, indices.numel
        at, found = k.reshape(indices, (1, count, 1)), bag_numbers(k, offsets, count, bags)
        if found is NotImplemented:
            return NotImplemented
        bag, inside = found
        if mode == "mean":
            counted = k.cast(inside & (at != padding_idx), dtypes.int32)
            size = scattered(k, "sum", counted, bag, (1, bags, 1), (bags, 1))
            if size is NotImplemented:
                return NotImplemented
            grad = grad / k.cast(k.maximum(size, k.const(1, dtypes.int32)), grad.dtype)
        each = k.gather(k.reshape(grad, (1, bags, width)), 1, bag)
        if per_sample_weights is not None:
            each = each * k.reshape(per_sample_weights, (1, count, 1))
        if scale_grad_by_freq:
            each = shared_out(k, each, at, at, rows)
        if each is NotImplemented:
            return NotImplemented
        at = k.where(inside & (at != padding_idx), k.cast(at, dtypes.int64), rows)           # or beyond the last row
        return scattered(k, "sum", each, at, (1, rows, width), (rows, width), skip=rows)


def bag_numbers(k, offsets, count, bags):
    """For a body: (which bag each of `count` elements is in, whether it is in any), [1, count, 1] both; NotImplemented
    without a library."""
    one = k.reshape(k.const(1.0, dtypes.float64), (1, 1, 1))
    size = 1, count + 1, 1
    begun = scattered(k, "sum", one, k.reshape(offsets, (1, offsets.numel, 1)), size, size)
    if begun is NotImplemented:
        return NotImplemented
    made = k.library("scan", (begun,), [(dtypes.float64, size)], (1,))
    if made is None:
        return NotImplemented
    number = k.cast(k.gather(made[0], 1, k.index(1, (1, count, 1))), dtypes.int64) - 1
    return k.minimum(number, k.const(bags - 1, dtypes.int64)), number < bags


class _bag_weights_backward(Op):
    """The gradient of the weight of each sample: how far its row points along its bag's gradient."""

    def meta(grad, weight, indices, offsets, include_last_offset, padding_idx):
        return grad.like(shape=indices.shape)

    def ref(xp, grad, weight, indices, offsets, include_last_offset, padding_idx):
        out = xp.zeros(indices.shape, grad.dtype)
        bag, indices, kept = bags_of(xp, indices, offsets, include_last_offset, padding_idx)
        out[kept] = (grad[bag] * weight[indices]).sum(axis=1)
        return out

    def body(k, grad, weight, indices, offsets, include_last_offset, padding_idx):
        count = indices.numel
        found = bag_numbers(k, offsets, count, grad.shape[0])
        if found is NotImplemented:
            return NotImplemented
        bag, inside = [k.reshape(x, (count, 1)) for x in found]
        at = k.reshape(k.cast(indices, dtypes.int64), (count, 1))
        dots = k.sum(k.gather(grad, 0, bag) * k.gather(weight, 0, at), 1)
        return k.reshape(k.where(inside & (at != padding_idx), dots, 0), (count,))
