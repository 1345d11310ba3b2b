"""Images at free positions: the corners around each, weighted by how near they are, and the gradients of that.

`at` [N, dims, P] has a number of pixels for each dimension, slowest first; `input` [N, C, count] is an image of
`sizes`, flat. A corner outside of it reads as zero.
"""
import itertools
import math

from ..base import dtypes
from ..base.op import Op
from ..base.spec import spec
from .maxpool import NOWHERE, _drop_weighted, flat_positions, pick_inside
from .pieces import cat


def product(factors):
    made = factors[0]
    for f in factors[1:]:
        made = made * f
    return made


def corner_arrays(xp, at, sizes):
    """For each corner around `at`: (flat index [N, P], 0 outside; whether it is inside; weight; weights of slopes)."""
    before = xp.floor(at)
    share = at - before
    for sides in itertools.product((0, 1), repeat=len(sizes)):
        flat, inside, weights = 0, True, []
        for d, (side, size) in enumerate(zip(sides, sizes, strict=True)):
            index = before[:, d] + at.dtype.type(side)
            here = (index >= 0) & (index <= size - 1)
            flat = flat * size + xp.where(here, index, 0).astype("int64")
            inside = inside & here
            weights.append(share[:, d] if side else 1 - share[:, d])
        yield flat, inside, product(weights), slopes_of(sides, weights)


def slopes_of(sides, weights):
    """What the weight of a corner grows by with each of its positions."""
    made = []
    for d, side in enumerate(sides):
        slope = product([weights[e] for e in range(len(sides)) if e != d])
        made.append(slope if side else -slope)
    return made


def corner_words(k, at, sizes):
    """In a body: `corner_arrays`, with a dimension for the channels."""
    pixels = [k.gather(at, 1, k.reshape(k.const(d, dtypes.int64), (1, 1, 1))) for d in range(len(sizes))]
    before = [k.floor(x) for x in pixels]
    for sides in itertools.product((0, 1), repeat=len(sizes)):
        flat, inside, weights = None, None, []
        for x, low, side, size in zip(pixels, before, sides, sizes, strict=True):
            index = low + 1 if side else low
            here = (index >= 0) & (index <= size - 1)
            index = k.cast(k.where(here, index, 0), dtypes.int64)
            flat = index if flat is None else flat * size + index
            inside = here if inside is None else inside & here
            weights.append(x - low if side else 1 - (x - low))
        yield flat, inside, product(weights), slopes_of(sides, weights)


class _sampled(Op):
    """The elements of `input` [N, C, count] at the positions `at`: [N, C, P]."""

    def meta(input, at, sizes): return spec(input.dtype, (*input.shape[:2], at.shape[2]), None, input.device)

    def ref(xp, input, at, sizes):
        out = 0
        for flat, inside, weight, _ in corner_arrays(xp, at, sizes):
            out = out + found(xp, input, flat, inside) * weight[:, None]
        return out

    def d_input(g, at, sizes):     return _sampled_drop(g, at, sizes)
    def d_at(g, input, at, sizes): return _sampled_slopes(g, input, at, sizes)

    def body(k, input, at, sizes):
        made = k.library("sample", (input, at), [(input.dtype, (*input.shape[:2], at.shape[2]))], (sizes,))
        if made is not None:
            return made[0]
        out = None
        for flat, inside, weight, _ in corner_words(k, at, sizes):
            part = k.where(inside, k.gather(input, 2, flat), 0) * weight
            out = part if out is None else out + part
        return out


def found(xp, input, flat, inside):
    """The elements of `input` [N, C, count] at `flat` [N, P], and 0 where it is not `inside`."""
    position = flat_positions(xp, flat[:, None], input.shape[:2], input.shape[2])
    return xp.where(inside[:, None], xp.take(input.reshape(-1), position), input.dtype.type(0))


class _sampled_drop(Op):
    """Zeros [N, C, count] with the elements of `input` [N, C, P] added at the corners around `at`."""

    def meta(input, at, sizes): return spec(input.dtype, (*input.shape[:2], math.prod(sizes)), None, input.device)

    def ref(xp, input, at, sizes):
        lead, size = input.shape[:2], math.prod(sizes)
        total = xp.zeros(math.prod(lead) * (size + 1))
        for flat, inside, weight, _ in corner_arrays(xp, at, sizes):
            position = xp.where(inside, flat, size)[:, None]                    # one more, for what is left out
            position = flat_positions(xp, position, lead, size + 1).reshape(-1)
            total += xp.bincount(position, (input * weight[:, None]).reshape(-1), len(total))
        return total.reshape(*lead, size + 1)[..., :size]

    def d_input(g, at, sizes):      return _sampled(g, at, sizes)
    def d_at(g, input, at, sizes):  return _sampled_slopes(input, g, at, sizes)

    def body(k, input, at, sizes):
        outs = [(input.dtype, (*input.shape[:2], math.prod(sizes)))]
        made = k.library("sample_drop", (input, at), outs, (sizes,))
        if made is None:
            corners = [(k.where(inside, flat, NOWHERE), weight) for flat, inside, weight, _ in
                       corner_words(k, at, sizes)]
            index, weight = [k.concat(list(parts), 1) for parts in zip(*corners, strict=True)]
            made = k.library("drop_weighted", (input, index, weight), outs, (math.prod(sizes),))
        return NotImplemented if made is None else made[0]


class _sampled_slopes(Op):
    """How the sum of `_sampled(input, at)` times `g` [N, C, P] grows with each position: [N, dims, P]."""

    def meta(g, input, at, sizes): return spec(g.dtype, at.shape, None, g.device)

    def ref(xp, g, input, at, sizes):
        out = xp.zeros(at.shape, g.dtype)
        for flat, inside, _, slopes in corner_arrays(xp, at, sizes):
            pull = (found(xp, input, flat, inside) * g).sum(1)
            for d, slope in enumerate(slopes):
                out[:, d] += pull * slope
        return out

    def grads(h, needs, g, input, at, sizes):
        corners = list(corner_tensors(at, sizes))
        weights = [sum([h.narrow(1, d, 1) * slope for d, slope in enumerate(slopes_of(sides, weights))])
                   for _, sides, weights in corners]
        d_g = d_input = d_at = None
        if needs[0]:
            d_g = sum([pick_inside(input, index) * w for (index, _, _), w in zip(corners, weights, strict=True)])
        if needs[1]:
            d_input = _drop_weighted(g, cat([index for index, _, _ in corners], 1), cat(weights, 1), math.prod(sizes))
        if needs[2]:
            rows: list = [0] * len(sizes)
            for index, sides, weight in corners:
                pull = (pick_inside(input, index) * g).sum(1, keepdim=True)
                for e, side in enumerate(sides):
                    bent = list(weight)
                    bent[e] = weight[e] * 0 + (1 if side else -1)
                    slopes = slopes_of(sides, bent)
                    rows[e] = rows[e] + pull * sum([h.narrow(1, d, 1) * slopes[d] for d in range(len(sizes)) if d != e])
            d_at = cat(rows, 1)
        return d_g, d_input, d_at

    def body(k, g, input, at, sizes):
        made = k.library("sample_slopes", (g, input, at), [(g.dtype, at.shape)], (sizes,))
        if made is not None:
            return made[0]
        rows = None
        for flat, inside, _, slopes in corner_words(k, at, sizes):
            pull = k.sum(k.where(inside, k.gather(input, 2, flat), 0) * g, (1,))
            parts = [pull * slope for slope in slopes]
            rows = parts if rows is None else [row + part for row, part in zip(rows, parts, strict=True)]
        return k.concat(rows, 1)


def corner_tensors(at, sizes):
    """For each corner around `at`: (flat index [N, 1, P], NOWHERE outside; on which sides it is; weights by
    dimension), in operations on tensors."""
    before = at.detach().floor()
    share = at - before
    for sides in itertools.product((0, 1), repeat=len(sizes)):
        flat, inside, weights = 0, None, []
        for d, (side, size) in enumerate(zip(sides, sizes, strict=True)):
            index, part = before.narrow(1, d, 1) + side, share.narrow(1, d, 1)
            here = (index >= 0) & (index <= size - 1)
            flat = flat * size + index.masked_fill(~here, 0).to(dtypes.int64)
            inside = here if inside is None else inside & here
            weights.append(part if side else 1 - part)
        yield flat.masked_fill(~inside, NOWHERE), sides, weights
