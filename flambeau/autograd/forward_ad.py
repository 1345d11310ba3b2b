"""Forward mode: tensors that carry a tangent, propagated beside every call.

No operation declares a forward rule. A derivative rule is linear in the incoming gradient, so differentiating it with
respect to that gradient gives the tangent of the result ("double backward"): if vjp(u) = J^T u, then
d(vjp(u) . t)/du = J t: the adjoint of the adjoint, for complex numbers too. It costs two backward steps a call, and
holds for every operation that has a gradient.

A view carries no tangent of its own: it looks at that of its base, and a write in place to it goes there too.

In inference mode forward mode takes no part, as in PyTorch: no tensor has a tangent there, none is given one, and a
write in place leaves the tangent that the tensor has outside.
"""
from collections import namedtuple

from ..base.errors import here
from ..base.op import door
from ..trace.running.effects import standing_in
from ..trace.running.runner import numbering
from .accumulate import match_spec
from .edges import edge_of, requires
from .engine import grad
from .modes import modes, update_recorder
from .node import LIST, TENSOR, BackwardRecipe, Kept, OpNode, flat, keep
from .slices import laid_like, look, start_in

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])
_levels = 0                       # how many levels were ever entered: a tangent of an older one is stale


class dual_level:
    """The extent in which tensors may carry tangents; they are forgotten at its end."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exc):
        exit_dual_level()


def enter_dual_level():
    """Open the forward-mode level."""
    global _levels
    if modes.level >= 0:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels += 1
    modes.level = _levels
    update_recorder()
    return 0


def exit_dual_level(*, level=None):
    """Close the forward-mode level."""
    if modes.level < 0:
        raise RuntimeError("Trying to exit a forward AD level that was not entered: no dual level is open.")
    modes.level = -1
    update_recorder()


def make_dual(tensor, tangent, *, level=None):
    """`tensor` carrying `tangent` through everything computed from it."""
    if modes.level < 0:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to "
                           "enter_dual_level() first.")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"Expected primal to be floating point or complex, but got: {tensor.dtype}")
    if not (tangent.is_floating_point() or tangent.is_complex()):
        raise ValueError(f"Expected tangent to be floating point or complex, but got: {tangent.dtype}")
    if tensor._spec.shape != tangent._spec.shape:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original "
                           f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the given "
                           f"forward gradient is of size {list(tangent.shape)}.")
    if tensor._spec.dtype is not tangent._spec.dtype:
        raise RuntimeError("Trying to set a forward gradient that has a different dtype than that of the original "
                           f"Tensor: {tensor.dtype} and {tangent.dtype}.")
    if tangent_of(tensor) is not None:
        raise RuntimeError("Making a dual Tensor based on a Tensor that already has a forward gradient at the same "
                           "level 0 is not supported: unpack_dual() gives one without.")
    if tangent_of(tangent) is not None:
        raise RuntimeError("Setting a forward grad that itself has a forward gradient at the same level 0 is not "
                           "supported: unpack_dual() gives a tensor without.")
    dual = tensor.view_as(tensor)
    if modes.inference or tensor.is_inference() and tangent.is_inference():
        return dual                                # as every call of inference tensors alone
    dual._dual_of = dual_itself
    set_tangents((dual,), (tangent,))
    return dual


def unpack_dual(tensor, *, level=None):
    """The tensor without its tangent, and the tangent (None if it carries none)."""
    if not isinstance(tensor, door.tensor):
        return UnpackedDualTensor(tensor, None)
    t = tangent_of(tensor)
    if t is None:
        return UnpackedDualTensor(tensor, None)
    before, modes.level = modes.level, -1
    try:
        primal = tensor.view_as(tensor)
    finally:
        modes.level = before
    primal._dual_of = dual_itself                  # a view that does not look at the tangent
    return UnpackedDualTensor(primal, t)


dual_itself = object()            # in place of a base: a dual tensor is a view, but its tangent is its own


def base_of(tensor):
    """The tensor at whose tangent that of the view `tensor` looks; None if it has its own."""
    if tensor._dual_of is None:
        return tensor._base
    return None if tensor._dual_of is dual_itself else tensor._dual_of


def tangent_of(tensor):
    """The tangent of the open level, or None."""
    if modes.inference:
        return None
    base = base_of(tensor)
    pair = (tensor if base is None else base)._tangent
    if pair is None or pair[0] != modes.level:
        return None
    if base is None or pair[1] is None:
        return pair[1]
    level, modes.level = modes.level, -1
    try:
        return look(pair[1], tensor._spec, start_in(base, tensor))
    finally:
        modes.level = level


def write_tangent(tensor, result):
    """After `result` was written into `tensor`: its tangent (zero if it has none) is now in that of `tensor`."""
    base = base_of(tensor)
    whole = tensor if base is None else base
    old, new = tangent_of(whole), tangent_of(result)
    if old is None and new is None:
        return
    level, modes.level = modes.level, -1
    try:
        spec, part = whole._spec, new
        if base is not None or new is None:
            old = door.operations["_full"](spec.shape, 0, spec.dtype, spec.device) if old is None else old
            new = laid_like(spec, old)
            there = new if base is None else look(new, tensor._spec, start_in(base, tensor))
            there.zero_() if part is None else there.copy_(part)
        whole._tangent = (level, _laid_out_like(new, spec))
    finally:
        modes.level = level


def _laid_out_like(tangent, spec):
    """`tangent` with the strides of `spec`, so that views find their part of it."""
    same = tangent._spec.strides == spec.strides and tangent._offset == 0
    return tangent if same or spec.contiguous and tangent._spec.contiguous else laid_like(spec, tangent)


def tangents_of(args):
    """For a custom Function: one tangent (or None) per argument; None if no argument has one."""
    found = [tangent_of(a) if isinstance(a, door.tensor) else None for a in args]
    return found if any(t is not None for t in found) else None


def set_tangents(outs, tangents):
    """Hang the tangents that a Function's jvp gave on its results."""
    tangents = tangents if isinstance(tangents, (tuple, list)) else (tangents,)
    for out, t in zip(outs, tangents, strict=True):
        if t is not None:
            if t._spec.shape != out._spec.shape:
                raise RuntimeError(f"jvp returned a tangent of size {list(t.shape)} for a result of size "
                                   f"{list(out.shape)}")
            level, modes.level = modes.level, -1
            try:
                out._tangent = (level, _laid_out_like(t, out._spec))
                if out._base is not None and out._dual_of is None:
                    out._dual_of = dual_itself         # what jvp says is its tangent, not that of what it looks at
            finally:
                modes.level = level


def propagate(op, entry, args, inputs, outs):
    """Give the results of one call their tangents."""
    if op.is_view:
        for out in outs:
            if inputs[0]._dual_of is not None:
                out._dual_of = inputs[0] if inputs[0]._dual_of is dual_itself else inputs[0]._dual_of
        return
    tangents = [tangent_of(t) for t in inputs]
    live = [t is not None and spec.dtype.category >= 2 for t, spec in zip(tangents, entry.input_specs, strict=True)]
    if not any(live) or not op.differentiable:
        return
    level, modes.level = modes.level, -1
    before, copies = modes.grad, modes.copies_inference
    try:
        modes.copies_inference = True
        node = _node(op, entry, args, inputs, outs, live)
        modes.grad = True
        _push(node, op, tangents, outs, level, before)
    finally:
        modes.grad, modes.level, modes.copies_inference = before, level, copies


def _push(node, op, tangents, outs, level, tracked):
    """Take the `tangents` of a node's inputs to those of its results `outs`; `tracked`: with a history of their own."""
    real = [nr for nr, o in enumerate(outs) if o._spec.dtype.category >= 2 and nr not in op.nondiff]
    probes = [o.new_zeros(o.shape).requires_grad_() if nr in real else None for nr, o in enumerate(outs)]
    with standing_in():
        made = node.backward(tuple(probes))
    pairs = [(match_spec(g, spec), tangents[i].to(spec.dtype)) for g, spec, i in
             zip(made, node.input_specs, node.recipe.inputs, strict=True) if g is not None and requires(g)]
    wanted = [probes[nr] for nr in real]
    if pairs:
        got = grad([g for g, _ in pairs], wanted, [t for _, t in pairs], create_graph=tracked, allow_unused=True)
    else:
        got = [None] * len(wanted)
    for nr, t in zip(real, got, strict=True):
        modes.grad = tracked
        t = outs[nr].new_zeros(outs[nr].shape) if t is None else t
        outs[nr]._tangent = (level, _laid_out_like(t, outs[nr]._spec))
        _keep_tangent(outs[nr])


def _keep_tangent(out):
    """Let the node that keeps `out` as its own result know the tangent it has now."""
    if isinstance(out._node, OpNode) and out._node.recipe.keep_out:
        for kept in flat(out._node.kept[-1:]):
            if kept.__class__ is Kept and kept.own and kept.nr == out._nr:
                kept.tangent = out._tangent


def _node(op, entry, args, inputs, outs, live):
    """A node like the one a call makes, for all inputs with a tangent, whether or not they require grad."""
    node = OpNode()
    asked = sum(1 << i for i, use in enumerate(live) if use)
    node.recipe = BackwardRecipe(op, entry.input_specs, entry.template, asked)
    node.edges = tuple(edge_of(t) or (None, 0) for t, use in zip(inputs, live, strict=True) if use)
    kept = []
    for at, how in node.recipe.asked:
        a = args[at]
        kept.append(keep(a) if how == TENSOR else tuple(b if b is None else keep(b) for b in a) if how == LIST else a)
    results = tuple(keep(o) for o in outs)
    kept.append(results[0] if len(results) == 1 else results)
    kept = kept if node.recipe.only_kept is None else kept[0]
    node.kept, node.outs, node.n_outputs = kept, tuple(o._spec for o in outs), len(outs)
    node.site, node.seq = here(), next(numbering)
    return node


door.tangent_of = tangent_of


def __getattr__(name):
    if name == "_current_level":                      # PyTorch's name for it; tensordict asks. Levels do not nest
        return min(modes.level, 0)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
