"""In which order a reduction goes through its elements.

Note [One order]: rounding makes a sum depend on its order, and a program that repeats an expression must see one
answer. So the order follows from the operation alone: from the shape, the layout and the dimensions that its operand
has by its Spec. What it is fused with, how costly that is, who runs it and on how many threads does not show. The fuser
lets a reduction into a group only where the group's loops can follow its order; `interpret` follows the same one over
arrays.

A reduction goes along rows or down columns.

    along rows      the last run of its dimensions lies side by side in memory. Its elements are dealt out to lanes, one
                    after the other, round and round; every lane adds its own, and in the end the upper half of the
                    lanes is added to the lower half until one is left. Other reduced dimensions are walked outside of
                    that, in order, with the lanes beginning anew.
    down columns    every result adds its elements one after the other.

Few results over many elements are cut into blocks of the first run; the blocks are reduced, and then what they gave.
"""
from collections import namedtuple
from functools import lru_cache
from math import prod

from ...base.shapes import contiguous_strides

# dims: the reduced dimensions in the order they are walked, outermost first; `first` of them make up the first run, and
# `inner` the last one, along which the lanes go. vectors: how many vectors of the device the lanes fill. blocks: how
# many, of `block` positions of the first run each; 0 for none. lane_multiple: see `Reductions` in backends/backend.py.
Order = namedtuple("Order", "along_rows vectors dims first inner blocks block lane_multiple")


@lru_cache(4096)
def order_of(shape, dims, strides, reductions, gives_index=False):
    """The Order of a reduction over `dims` of an operand that lies in memory as `strides` say, on a device with these
    `reductions`; `gives_index`: it gives the index of an extreme, for which any order is right."""
    moving = [d for d, n in enumerate(shape) if n != 1]
    over = sorted((d for d in moving if d in dims), key=lambda d: -strides[d])
    long = prod(shape[d] for d in over)
    few = prod(shape[d] for d in moving if d not in dims)
    beside = [d for d in over if strides[d] == 1]
    along_rows = bool(beside) or not any(strides[d] == 1 for d in moving)
    fills_vectors = over == beside and long and long % reductions.whole_vectors == 0 and not gives_index
    if long <= reductions.max_short and few >= reductions.many_columns and not fills_vectors:
        along_rows = False
    if along_rows and beside:
        over.remove(beside[-1])
        over.append(beside[-1])
    runs = []
    for d in over:
        if runs and strides[runs[-1][-1]] == strides[d] * shape[d]:
            runs[-1].append(d)
        else:
            runs.append([d])
    size = prod(shape[d] for d in runs[-1])
    vectors = 1 if size <= 16 else 2 if size <= 32 else 4
    blocks = 0 if gives_index else _blocks(long, few, along_rows, reductions)
    if along_rows:
        runs = _rows(runs, shape, blocks, reductions.min_row_elements)
    block = 0
    if blocks:
        unit = (reductions.lane_multiple if along_rows else reductions.column_multiple) if len(runs) == 1 else 1
        block = -(-prod(shape[d] for d in runs[0]) // (blocks * unit)) * unit
    return Order(along_rows, vectors, tuple(over), len(runs[0]), len(runs[-1]), blocks, block,
                 reductions.lane_multiple)


def _blocks(long, few, along_rows, reductions):
    """Into how many blocks a reduction is cut, so that all threads have work; 0 for not at all."""
    block = reductions.block_elements
    if along_rows:
        blocks = min(-(-long // block), reductions.max_row_blocks) \
            if few <= reductions.max_cut_rows and long >= 2 * block else 0
    else:
        blocks = min(-(-long * few // block), reductions.max_column_blocks, reductions.max_column_parts // few) \
            if few <= reductions.max_cut_columns and long * few >= 4 * block and long >= 256 else 0
    return max(blocks // reductions.block_multiple * reductions.block_multiple, min(blocks, reductions.block_multiple))


def _rows(runs, shape, blocks, long_row):
    """The runs, the last one parted where its inner dimensions make up a long row.

    It costs next to nothing to begin anew there, and what is broadcast along or across the rows can follow.
    """
    *others, last = runs
    at, size = len(last), 1
    while at > 1 and size < long_row:
        at -= 1
        size *= shape[last[at]]
    if size < long_row or not others and blocks > prod(shape[d] for d in last[:at]):
        return runs
    return [*others, last[:at], last[at:]]


@lru_cache(4096)
def dense(shape, strides):
    """Strides without holes, in the order of `strides`: how a result lies that follows such an operand."""
    out, step = [0] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        if shape[d] != 1 and strides[d] == 0:                 # it repeats itself: no order to follow
            return contiguous_strides(shape)
        out[d] = step
        step *= shape[d]
    return tuple(out)


# --- in the loops of a group ------------------------------------------------------------------------------------------


class Walk(namedtuple("Walk", "along_rows vectors dims first inner blocks block lane_multiple")):
    """An Order in the dimensions of a group: `first` and `inner` are dimensions too."""

    __slots__ = ()

    def split(self, dim, parts):
        """The same walk, with `parts` in the place of a dimension."""
        def replaced(dims):
            return tuple(p for d in dims for p in (parts if d == dim else (d,)))
        return self._replace(dims=replaced(self.dims), first=replaced(self.first), inner=replaced(self.inner))

    def renamed(self, to):
        """The same walk in another group, whose dimensions `to` gives."""
        return self._replace(**{name: tuple(to.get(d) for d in getattr(self, name))
                                for name in ("dims", "first", "inner")})

    def pieces(self, sizes, reads, fixed=()):
        """The dimensions, those together that memory with the strides `reads` goes through as one."""
        out = []
        for d in self.dims:
            if out and self._together(out[-1][-1], d) and d not in fixed and out[-1][-1] not in fixed and all(
                    r.get(out[-1][-1], 0) == r.get(d, 0) * sizes[d] for r in reads):
                out[-1].append(d)
            else:
                out.append([d])
        return out

    def _together(self, outer, inner):
        return (not self.along_rows or (outer in self.inner) == (inner in self.inner)) \
            and (not self.blocks or (outer in self.first) == (inner in self.first))

    def first_block(self, sizes, pieces):
        """How many positions of the first piece a block has; None where it ends inside one."""
        rest = prod(sizes[d] for piece in pieces[1:] for d in piece if d in self.first)
        return self.block // rest if self.block % rest == 0 else None

    def follows(self, sizes, pieces):
        """Whether loops over `pieces`, one inside the other, go through the elements in this order."""
        if self.along_rows and not set(self.inner) <= set(pieces[-1]) \
                and prod(sizes[d] for d in pieces[-1]) % self.lane_multiple:
            return False
        return not self.blocks or self.first_block(sizes, pieces) is not None


def walk_of(order, axes):
    """The Walk of an Order whose operand's dimensions the group walks as `axes` say."""
    dims = [axes[d] for d in order.dims]

    def flat(parts):
        return tuple(d for part in parts for d in part)

    return Walk(order.along_rows, order.along_rows and order.vectors, flat(dims),
                flat(dims[:order.first]) if order.blocks else (),
                flat(dims[len(dims) - order.inner:]) if order.along_rows else (), order.blocks, order.block,
                order.lane_multiple)
