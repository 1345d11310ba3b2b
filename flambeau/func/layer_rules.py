"""Rules of convolutions, norms, losses and attention; see Note [Rules] in batching.py.

A layer whose weights are the same in all slices takes the slices as part of its batch. One with weights of its own for
each has the slices among its channels, in groups.
"""
from ..base.op import Composite
from ..tensor.forms import declared
from .batching import invoke, slice_by_slice
from .rules import by, fitted, same_throughout

# --- convolutions -----------------------------------------------------------------------------------------------------


def in_channels(value):
    """[slices, N, C, ...] as [N, slices * C, ...]."""
    return value.transpose(0, 1).flatten(1, 2)


def out_of_channels(value, size):
    """[N, slices * C, ...] as [slices, N, C, ...]."""
    return value.unflatten(1, (size, -1)).transpose(0, 1)


class _shared_convolution(Composite):
    """The convolution of all slices with a weight that is the same in each, expanded: as one batch. The gradient for
    the weight is one for each slice all the same."""

    def of(input, weight, stride, padding, dilation, transposed, output_padding, groups):
        rows = input.flatten(0, 1)
        if same_throughout(weight):
            made = invoke(declared["_convolution"], (rows, weight[0], None, stride, padding, dilation, transposed,
                                                     output_padding, groups))
            return made.unflatten(0, input.shape[:2])
        return grouped(input, weight, stride, padding, dilation, transposed, output_padding, groups)

    def d_input(g, input_spec, weight, stride, padding, dilation, transposed, groups):
        sizes, kernel = input_spec.shape[3:], weight.shape[3:]
        none = (0,) * len(sizes)
        if transposed:
            made = _shared_convolution(g, weight.conj(), stride, padding, dilation, False, none, groups)
            for d, n in enumerate(sizes, 3):
                made = made.narrow(d, 0, n)
            return made
        rest = tuple([n - ((b - 1) * s - 2 * p + d * (k - 1) + 1) for n, b, s, p, d, k in zip(
            sizes, g.shape[3:], stride, padding, dilation, kernel, strict=True)])
        return _shared_convolution(g, weight.conj(), stride, padding, dilation, True, rest, groups)

    def d_weight(g, input, weight_spec, stride, padding, dilation, transposed, groups):
        wide, narrow = (g, input.conj()) if transposed else (input.conj(), g)
        return weights_of(wide, narrow, weight_spec.shape, stride, padding, dilation, groups)


def grouped(input, weight, stride, padding, dilation, transposed, output_padding, groups):
    """The convolution of each slice with a weight of its own."""
    size = weight.shape[0]
    made = invoke(declared["_convolution"], (in_channels(input), weight.flatten(0, 1), None, stride, padding, dilation,
                                             transposed, output_padding, groups * size))
    return out_of_channels(made, size)


def weights_of(wide, narrow, shape, stride, padding, dilation, groups):
    """The sums of products that are the gradient of each slice's weight; `shape` has the slices in front."""
    size = shape[0]
    made = invoke(declared["_convolution_weight"], (in_channels(wide), in_channels(narrow),
                                                    (size * shape[1], *shape[2:]), stride, padding, dilation,
                                                    groups * size))
    return made.reshape(shape)


def convolved(sliced):
    input, weight, bias, *rest = sliced.args
    own_bias = sliced.has[2]
    if sliced.has[1]:
        if not sliced.entry.outs[0].numel or not sliced.size:
            return slice_by_slice(sliced)
        run = _shared_convolution if same_throughout(weight) else grouped
        made = run(sliced.whole(0), weight, *rest)
    elif not sliced.has[0]:
        made = invoke(sliced.op, (input, weight, None, *rest)).unsqueeze(0)
    else:
        made = invoke(sliced.op, (input.flatten(0, 1), weight, None if own_bias else bias, *rest))
        made = made.unflatten(0, input.shape[:2])
        if not own_bias:
            return made
    if bias is None:
        return made
    lay = (-1, *(1,) * (made.dim() - 3))
    return made + (bias.reshape(sliced.size, 1, *lay) if own_bias else bias.reshape(lay))


def convolved_weight(sliced):
    wide, narrow, shape, *rest = sliced.args
    return weights_of(sliced.whole(0), sliced.whole(1), (sliced.size, *shape), *rest)


by("_convolution", convolved)
by("_convolution_weight", convolved_weight)

# --- norms ------------------------------------------------------------------------------------------------------------


def scaled(made, weight, bias, shape):
    """`made` times a weight of each slice, plus a bias, both seen with a `shape`."""
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


def layer_norm(sliced):
    input, size, weight, bias, eps = sliced.args
    if not sliced.has[2] and not sliced.has[3]:
        return list(sliced.run(sliced.args))
    made = sliced.run((sliced.whole(0), size, None, None, eps))
    lay = (sliced.size, *(1,) * (len(sliced.shapes[0]) - len(size)), *size)
    return [scaled(made[0], sliced.whole(2), sliced.whole(3), lay), *made[1:]]


def group_norm(sliced):
    input, groups, weight, bias, eps = sliced.args
    own = sliced.has[2] or sliced.has[3]
    value = sliced.whole(0)
    made = sliced.run((value.flatten(0, 1), groups, *((None, None) if own else (weight, bias)), eps))
    made = fitted(sliced, made)
    if own:
        lay = (sliced.size, 1, -1, *(1,) * (len(sliced.shapes[0]) - 2))
        made[0] = scaled(made[0], sliced.whole(2), sliced.whole(3), lay)
    return made


def batch_norm(sliced):
    """Statistics of each slice: the slices are channels."""
    args = list(sliced.args)
    args[0] = in_channels(sliced.whole(0))
    for at in range(1, len(args) - 1):
        if args[at] is not None:
            args[at] = sliced.whole(at).reshape(-1)
    made = sliced.run(args)
    if sliced.op is declared["_fixed_norm"]:
        return out_of_channels(made, sliced.size)
    return [out_of_channels(made[0], sliced.size), *[one.reshape(sliced.shape(nth)) for nth, one in
                                                     enumerate(made[1:], 1)]]


by("_layer_norm", layer_norm)
by("_group_norm", group_norm)
by("_batch_norm _fixed_norm", batch_norm)

# --- losses of classes ------------------------------------------------------------------------------------------------


def class_loss(sliced):
    """A loss over class indices: the slices are rows, and reduced one by one."""
    input, target, weight, reduction, ignored = sliced.args
    if sliced.has[2]:
        return slice_by_slice(sliced)
    input, target = sliced.whole(0), sliced.whole(1)
    batch = len(sliced.shapes[0]) > 1
    if batch:
        input, target = input.flatten(0, 1), target.flatten(0, 1)
    made = sliced.run((input, target, weight, "none", ignored))
    loss = made[0].reshape(sliced.size, -1)
    used = sliced.whole(1).reshape(sliced.size, -1) != ignored
    total = sliced.entry.outs[1].dtype
    if weight is None:
        total = used.sum(1).to(total)
    else:
        total = (weight[sliced.whole(1).reshape(sliced.size, -1).long().where(used, 0)] * used).sum(1).to(total)
    if reduction == "none":
        loss = loss.reshape(sliced.shape())
    else:
        loss = loss.sum(1)
        loss = (loss / total).to(sliced.entry.outs[0].dtype) if reduction == "mean" else loss
    return [loss, total, *[one.reshape(sliced.shape(nth)) for nth, one in enumerate(made[2:], 2)]]


by("_nll _nll2d _class_entropy _class_entropy2d", class_loss)
