"""Writing in place to a view: the base gets a new history, made of its old one and of what was written.

The base after the write is the old base with one slice replaced. Its gradient goes to the old base with the slice
blanked out, and, cut to the slice, to what was written. The view, and every other view of that base, takes its history
anew from the base when next asked (`node.refresh`).
"""
from ..base.errors import here
from ..base.op import door
from ..base.spec import spec
from .base_node import Node
from .edges import edge_of
from .node import second_error


class CopySlices(Node):
    """The node of a base after one of its views was written."""

    def __init__(self, base_edge, written_edge, base, view):
        super().__init__()
        self.edges = (base_edge, written_edge)
        self.input_specs = (base._spec, view._spec)
        self.start = start_in(base, view)
        self.site = here()
        self._tell_made()

    def name(self):
        return "torch::autograd::CopySlices"

    def differentiable_out(self, nr):
        return True

    def release(self, site):
        self.released = site

    def backward(self, grads):
        if self.released is not None:
            raise second_error(self)
        base, view = self.input_specs
        g = grads[0]
        if g._spec.strides != base.strides or g._offset or not g._spec.dense:
            g = laid_like(base, g)
        rest = None
        if self.edges[0] is not None:
            rest = g.clone() if base.dense else laid_like(base, g)
            look(rest, view, self.start).zero_()
        return rest, None if self.edges[1] is None else look(g, view, self.start)


class SharedCells(Node):
    """Where a write read the old contents of a view whose elements share cells: the gradient of these, for the base.

    Elements of one cell have one gradient between them, nothing if any of them was overwritten. The node of the view
    itself would add them up.
    """

    def __init__(self, base, view):
        super().__init__()
        self.edges = (edge_of(base),)
        self.input_specs = (base._spec,)
        self.view, self.start = view._spec, start_in(base, view)
        self.site = here()
        self._tell_made()

    def name(self):
        return "AsStridedBackward0"

    def backward(self, grads):
        g, base = grads[0], self.input_specs[0]
        made = g.new_empty_strided(base.shape, base.strides).zero_()
        cells, there = look(made, self.view, self.start), g != 0
        cells.index_put_((there,), g[there])
        cells.masked_fill_(there.logical_not(), 0)
        return (made,)


def laid_like(base, tensor):
    """A copy of `tensor` with the strides of the spec `base`, gaps included: looks at a base fit it too."""
    return tensor.new_empty_strided(base.shape, base.strides).copy_(tensor)


def look(tensor, view, start):
    """`tensor` seen as `view`, `start` elements after its own beginning; complex memory as its parts where asked."""
    have, want = tensor._spec.dtype, view.dtype
    if have is not want:
        if have.is_complex and not want.is_complex:
            tensor = tensor.view_as_real()
        elif want.is_complex and not have.is_complex:
            pairs = spec(have, (*view.shape, 2), (*[2 * s for s in view.strides], 1))
            return tensor.as_strided(pairs.shape, pairs.strides, tensor._offset + 2 * start).view_as_complex()
        else:
            return tensor.view(want).as_strided(view.shape, view.strides, start)
    return tensor.as_strided(view.shape, view.strides, tensor._offset + start)


def look_again(base, view):
    """A fresh view of `base` with the geometry of `view`, history included."""
    return look(base, view._spec, start_in(base, view))


def start_in(base, view):
    """How many elements after the beginning of `base` its view `view` starts."""
    return view._offset - base._offset * base._spec.dtype.itemsize // view._spec.dtype.itemsize


def rebase(view, written, base_edge):
    """After `written` was put into `view`: give the base its new history."""
    base = view._base
    node = CopySlices(base_edge, edge_of(written), base, view)
    base._node, base._nr = node, 0
    base._requires_grad = False
    if base._retains:
        base.retain_grad()


door.look_again = look_again
