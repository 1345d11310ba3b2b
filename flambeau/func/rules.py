"""The rules of operations that do not go by what they declare; see Note [Rules] in batching.py.

First what many share: dimensions are shifted by one, or leading dimensions are taken as they come. Then views and
products.
"""
from ..base import shapes
from ..base.op import Composite
from ..tensor.batched import Unbatchable
from ..tensor.forms import declared
from .batching import DIMS, aligned, by_values, invoke, rules, slice_by_slice, view


def by(words, rule):
    """Have all operations that `words` name go by a rule."""
    for name in words.split():
        rules[declared[name]] = rule


def at_of(sliced, name):
    """The place of the argument called `name`."""
    return sliced.op.arg_names.index(name)


# --- dimensions -------------------------------------------------------------------------------------------------------


def shifted(dim, ndim):
    """A dimension of slices, or several, as those of the value."""
    if isinstance(dim, (tuple, list)):
        return tuple([shifted(d, ndim) for d in dim])
    return shapes.wrap_dim(dim, ndim) + 1


def along(sliced):
    """What goes along a `dim`, or several: one more than it was. None is all of them, and so is () of a reduction."""
    op, args = sliced.op, list(sliced.args)
    tensors = [at for at, shape in enumerate(sliced.shapes) if shape is not None]
    size = args[at_of(sliced, "size")] if "size" in op.arg_names and isinstance(args[at_of(sliced, "size")],
                                                                               (tuple, list)) else None
    ndim = len(size) if size is not None else len(sliced.shapes[tensors[0]])
    for at in tensors:
        args[at] = sliced.whole(at)
        if not ndim:                                      # a slice without dimensions counts as one of one element
            args[at] = args[at].unsqueeze(1)
    for at, name in enumerate(op.arg_names):
        if name in DIMS and at not in tensors:
            dim = args[at]
            every = dim is None or not op.is_view and name == "dim" and (dim == () or dim == [])
            args[at] = tuple(range(1, max(ndim, 1) + 1)) if every else shifted(dim, max(ndim, 1) if ndim else 1)
        elif name == "inner" and args[at]:                # dimensions that a transform went along before
            args[at] = shifted(args[at], ndim)
    if size is not None:
        args[at_of(sliced, "size")] = (sliced.size, *(size if ndim else (1,)))
    return fitted(sliced, sliced.run(args))


def fitted(sliced, made):
    """Results in the shapes that they have over all slices."""
    if made.__class__ in (tuple, list) or hasattr(made, "_fields"):
        return [view(value, sliced.shape(nth)) for nth, value in enumerate(made)]
    return view(made, sliced.shape())


def flat_along(sliced):
    """The same, where no `dim` means all elements in a row."""
    dim = sliced.args[at_of(sliced, "dim" if "dim" in sliced.op.arg_names else "dims")]
    if dim is not None and dim != () and dim != []:
        return along(sliced)
    args = [view(sliced.args[0], (sliced.size, -1)) if 0 not in sliced.args[0]._spec.shape else
            sliced.args[0].flatten(1) if sliced.shapes[0] else sliced.args[0].unsqueeze(1), *sliced.args[1:]]
    args[at_of(sliced, "dim" if "dim" in sliced.op.arg_names else "dims")] = 1 if "dim" in sliced.op.arg_names else (1,)
    return fitted(sliced, sliced.run(args))


def in_a_row(other, *more):
    """The rule of a reduction of all elements: another one, along all of them in a row."""
    def rule(sliced):
        row = sliced.args[0].reshape(sliced.size, max(shapes.numel(sliced.shapes[0]), 0))
        made = invoke(declared[other], (row, 1, *more))
        return made[0] if made.__class__ in (tuple, list) or hasattr(made, "_fields") else made
    return rule


by("""_sum _sum_dim nansum _mean _mean_dim _prod_dim all_ any_ count_nonzero _put_along _take_along amax amin _max_dim
    _min_dim _var _std _var_mean _std_mean logsumexp _softmax _safe_softmax _softmax_backward _log_softmax
    _log_softmax_backward sort topk kthvalue _median_dim _nanmedian_dim mode cumsum cumprod _recur cummax cummin
    logcumsumexp transpose _squeeze_dim _squeeze_dims select _select_backward _slice _slice_backward
    diagonal _diagonal_backward unfold _unfold_backward _split _split_with_sizes unbind _flip rot90 select_scatter
    slice_scatter diagonal_scatter gather _gather_backward _scatter _scatter_value scatter_add scatter_reduce _glu
    _c2c _r2c _c2r _cross""", along)
by("argmax argmin aminmax _roll _vector_norm _norm_of_rows", flat_along)
by("_max", in_a_row("amax"))
by("_min", in_a_row("amin"))
by("_median", in_a_row("_median_dim"))
by("_nanmedian", in_a_row("_nanmedian_dim"))
rules[declared["_prod"]] = lambda sliced: in_a_row("_prod_dim", False, sliced.args[1])(sliced)


def embedded(sliced):
    """Diagonals: a dimension more comes in."""
    value, offset, dim1, dim2 = sliced.args
    ndim = len(sliced.shapes[0]) + 1
    return sliced.run((value, offset, shifted(dim1, ndim), shifted(dim2, ndim)))


by("diag_embed", embedded)
by("unsqueeze", lambda sliced: sliced.run((sliced.args[0], shifted(sliced.args[1], len(sliced.shapes[0]) + 1))))
by("_diagonal_copy", lambda sliced: sliced.args[0].diagonal(sliced.args[1], 1, 2).clone())


def pairwise_dims(sliced):
    """A list of tensors put together along a dimension."""
    parts = [sliced.expanded(part, own) for part, own in zip(sliced.args[0], sliced.has[0], strict=True)]
    shape = sliced.entry.outs[0].shape
    if sliced.op is declared["cat"]:                      # an empty vector beside others counts for nothing
        parts = [part for part in parts if part.dim() == len(shape) + 1] or parts
    common = sliced.entry.outs[0].dtype
    parts = [part if part.dtype is common else part.to(common) for part in parts]
    return sliced.run((tuple(parts), shifted(sliced.args[1], len(shape))))


by("cat stack", pairwise_dims)

# --- leading dimensions -----------------------------------------------------------------------------------------------


def leading(sliced):
    """What takes dimensions in front as they come: one more is a batch."""
    return fitted(sliced, sliced.run([sliced.whole(at) if shape is not None else a
                                      for at, (a, shape) in enumerate(zip(sliced.args, sliced.shapes, strict=True))]))


def matrices(sliced):
    """The same for several tensors whose batches broadcast: each gets as many dimensions in front."""
    ndim = max(len(shape) for shape in sliced.shapes if shape is not None)
    args = [a if shape is None else sliced.wide(at, ndim)
            for at, (a, shape) in enumerate(zip(sliced.args, sliced.shapes, strict=True))]
    return fitted(sliced, sliced.run(args))


by("""tril triu _cholesky _cholesky_old _inv _qr _lu _permutation _eigh _eigvalsh _eig _eigvals _svd _svdvals det
    _slogdet matrix_exp _alias _real _imag view_as_real _view_as_complex constant_pad_nd geqrf
    _mean_pool _mean_pool_back _avg_pool2d_mean _adaptive_avg_pool2d_mean _avg_pool3d_mean _adaptive_avg_pool3d_mean
    _resized _resized_back _reflection_pad1d _reflection_pad2d _reflection_pad3d _replication_pad1d _replication_pad2d
    _replication_pad3d _pad_circular _resized_bytes _upsample_nearest1d _upsample_nearest2d _upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _upsample_linear1d
    _upsample_bilinear2d _upsample_trilinear3d _upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    _upsample_lanczos2d_aa _max_pool _max_pool2d_largest _adaptive_max_pool2d_largest _max_pool3d_largest
    _adaptive_max_pool3d_largest pixel_shuffle pixel_unshuffle _hide_later _class_check
    _inside_unit _not_negative _lstm_back _gru_back _drawn _bernoulli _poisson _standard_gamma _sample_dirichlet
    _uniform _normal _random _bernoulli_at _bernoulli_p _exponential _geometric _cauchy _log_normal""", leading)
by("_cdist _euclidean_dist _standard_gamma_grad _dirichlet_grad", matrices)
by("_masked_fill _normal_mean _normal_std _normal_both", aligned)


def filled_where(sliced):
    """A value, perhaps of each slice, where a mask says so."""
    if not sliced.has[2]:
        return aligned(sliced)
    input, mask, value = [sliced.wide(at, len(sliced.entry.outs[0].shape)) for at in range(3)]
    return declared["_where"](mask, value.to(input.dtype), input)


by("_masked_fill_tensor", filled_where)


def solved(sliced):
    """A system of equations: its right side may be vectors, which is told from the dimensions."""
    if len(sliced.shapes[0]) - bool(sliced.op is declared["_solve"] and sliced.args[3]) == len(sliced.shapes[1]):
        return leading(sliced)
    ndim = max(map(len, sliced.shapes[:2]))
    if sliced.op is declared["_solve"] and sliced.args[3]:
        return leading(sliced) if len(sliced.shapes[1]) == 1 == len(sliced.shapes[0]) - 1 else slice_by_slice(sliced)
    return fitted(sliced, sliced.run((sliced.wide(0, ndim), sliced.wide(1, ndim), *sliced.args[2:])))


by("_solve _solve_triangular", solved)


def folded(core):
    """The rule of what takes a batch of things of `core` dimensions: slices and batch become one."""
    def rule(sliced):
        args = list(sliced.args)
        for at, shape in enumerate(sliced.shapes):
            if shape is not None:
                args[at] = sliced.whole(at)
                if len(shape) > core:
                    args[at] = args[at].flatten(0, len(shape) - core)
        return fitted(sliced, sliced.run(args))
    return rule


def in_front(sliced):
    """What takes a batch in the first dimension of every tensor: slices and batch become one."""
    return fitted(sliced, sliced.run([sliced.whole(at).flatten(0, 1) if shape is not None else a
                                      for at, (a, shape) in enumerate(zip(sliced.args, sliced.shapes, strict=True))]))


by("_pick _drop _drop_weighted _sampled _sampled_drop _sampled_slopes", in_front)
by("_im2col", folded(3))
by("_col2im", folded(2))
by("channel_shuffle", lambda sliced: folded(len(sliced.shapes[0]) - 1)(sliced))
by("_max_unpool _max_unpool2d_by_index _max_unpool3d_by_index",
   lambda sliced: folded(len(sliced.args[2]) + 1)(sliced))


def copied(sliced):
    """A copy, in a layout that may be one of four dimensions."""
    args = list(sliced.args)
    at = at_of(sliced, "memory_format")
    if args[at] is not None and args[at].name.startswith("channels_last"):
        args[at] = None
    return sliced.run(args)


by("clone _to_copy", copied)
by("trace", lambda sliced: sliced.args[0].diagonal(0, 1, 2).sum(-1))

# --- views ------------------------------------------------------------------------------------------------------------


def reshaped(sliced):
    """Another shape: the slices stay apart."""
    value, size = sliced.args
    whole = (sliced.size, *shapes.fill_in(tuple(size), shapes.numel(sliced.shapes[0])))
    op = sliced.op
    if op is declared["_view"] and shapes.view_strides(value._spec.shape, value._spec.strides, whole) is None:
        raise Unbatchable("vmap: view size is not compatible with how the slices lie in memory. Use .reshape(...) "
                          "instead.")
    return sliced.run((value, whole))


by("_view _unsafe_view _reshape_alias", reshaped)
by_values.update([declared["_view"], declared["_reshape_alias"]])
by("_unfolded", lambda sliced: sliced.args[0].reshape(sliced.shape()))
by("_unfolded_row", lambda sliced: sliced.args[0].select(1, 0))
by("t", lambda sliced: sliced.args[0].transpose(1, 2) if len(sliced.shapes[0]) == 2 else sliced.args[0].view_as(
    sliced.args[0]))
by("_squeeze", lambda sliced: invoke(declared["_squeeze_dims"], (sliced.args[0], tuple(
    [d + 1 for d, n in enumerate(sliced.shapes[0]) if n == 1]))))
by("_permute", lambda sliced: invoke(sliced.op, (sliced.args[0], (0, *shifted(sliced.args[1], len(sliced.shapes[0]))))))
by("_view_dtype", lambda sliced: sliced.args[0].view(sliced.args[1]))
by("_as_strided", lambda sliced: invoke(sliced.op, (
    sliced.args[0], (sliced.size, *sliced.args[1]), (sliced.args[0].stride(0), *sliced.args[2]), sliced.args[3])))


def expanded(sliced):
    """Dimensions of one, and new ones in front of the slice's own, made larger."""
    return sliced.run((sliced.wide(0, len(sliced.args[1])), (sliced.size, *sliced.args[1])))


by("_expand", expanded)


def repeated(sliced):
    value, repeats = sliced.args
    return sliced.run((sliced.wide(0, len(repeats)), (1, *repeats)))


by("_repeat", repeated)

# --- products ---------------------------------------------------------------------------------------------------------


class _products(Composite):
    """The product of each pair of matrices in two batches. One that is the same matrix all along, expanded, is
    multiplied with all others at once; its gradients are one for each pair all the same."""

    def of(input, other):
        if same_throughout(other):
            rows, inner = input.shape[:2], input.shape[2]
            return (input.reshape(rows[0] * rows[1], inner) @ other[0]).reshape(*rows, other.shape[2])
        if same_throughout(input):
            return _products.of(other.transpose(1, 2), input.transpose(1, 2)).transpose(1, 2)
        return declared["bmm"](input, other)

    def d_input(g, other):  return _products(g, other.transpose(1, 2).conj())
    def d_other(g, input):  return _products(input.transpose(1, 2).conj(), g)


def same_throughout(batch):
    """Whether a batch is one thing, expanded."""
    spec = batch._spec
    return spec.strides[0] == 0 and spec.shape[0] > 1


def pairs(sliced, left, right):
    """The products of two (value, whether it has slices), each a matrix, over all slices; the one product, if neither
    has."""
    (a, own_a), (b, own_b) = left, right
    if not own_a and not own_b:
        return a @ b
    if own_a and own_b:
        return _products(a, b)
    if own_a:
        size, rows, inner = a.shape
        return (a.reshape(size * rows, inner) @ b).reshape(size, rows, b.shape[1])
    return pairs(sliced, (b.transpose(1, 2), True), (a.t(), False)).transpose(1, 2)


def column(value):
    return value.unsqueeze(-1)


def operand(sliced, at):
    return sliced.args[at], sliced.has[at]


def product(sliced):
    return pairs(sliced, operand(sliced, 0), operand(sliced, 1))


def product_with_vector(sliced):
    value, own = operand(sliced, 1)
    return pairs(sliced, operand(sliced, 0), (column(value), own)).squeeze(-1)


def affine(sliced):
    """A product that something is added to, perhaps with factors; each may be the same in all slices."""
    op, args = sliced.op, sliced.args
    if op is declared["_affine"] and not sliced.has[0] and not sliced.has[2]:
        value = args[1]
        return invoke(op, (args[0], value.reshape(-1, value.shape[2]) if value.numel() else value.flatten(0, 1),
                           args[2])).reshape(sliced.shape())
    vector = op is declared["addmv"]
    right = (column(args[2]), sliced.has[2]) if vector else operand(sliced, 2)
    made = pairs(sliced, operand(sliced, 1), right)
    made = made.squeeze(-1) if vector else made
    beta, alpha = args[3:] if len(args) > 3 else (1, 1)
    added = sliced.wide(0, 1 if vector else 2)
    made = made if alpha == 1 else made * alpha
    return made if beta == 0 else made + (added if beta == 1 else added * beta)


def batches(sliced):
    """The same of batches: slices and batch become one."""
    (a, own_a), (b, own_b) = operand(sliced, 0), operand(sliced, 1)
    return of_batches(sliced.size, (a, own_a), (b, own_b))


def of_batches(size, left, right):
    (a, own_a), (b, own_b) = left, right
    if not own_a and not own_b:
        return declared["bmm"](a, b)
    count = a.shape[1 if own_a else 0]
    if own_a and own_b:
        return declared["bmm"](a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, (size, count))
    if own_a:                                             # slices become rows
        rows = a.transpose(0, 1).reshape(count, size * a.shape[2], a.shape[3])
        return declared["bmm"](rows, b).reshape(count, size, a.shape[2], b.shape[2]).transpose(0, 1)
    return of_batches(size, (b.transpose(-1, -2), True), (a.transpose(-1, -2), False)).transpose(-1, -2)


def added_batches(sliced):
    args = sliced.args
    made = of_batches(sliced.size, operand(sliced, 1), operand(sliced, 2))
    if sliced.op is declared["addbmm"]:
        made = made.sum(-3)
    made = made if args[4] == 1 else made * args[4]
    added = sliced.wide(0, len(sliced.entry.outs[0].shape))
    return made if args[3] == 0 else made + (added if args[3] == 1 else added * args[3])


def as_it_lies(sliced):
    return declared["matmul"](*[sliced.wide(at, max(map(len, sliced.shapes))) for at in (0, 1)])


def dotted(sliced):
    a, b = sliced.args
    return ((a.conj() if sliced.op is declared["vdot"] else a) * b).sum(-1)


by("mm", product)
by("mv", product_with_vector)
by("_affine addmm addmv", affine)
by("bmm", batches)
by("baddbmm addbmm", added_batches)
by("_bmm_as_it_lies", as_it_lies)
by("dot vdot", dotted)
by("_addr", lambda sliced: (sliced.wide(0, 2) * sliced.args[3] if sliced.args[3] else 0)
   + column(sliced.whole(1)) * sliced.whole(2).unsqueeze(1) * sliced.args[4])
