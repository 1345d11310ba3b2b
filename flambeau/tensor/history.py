"""History beside a call: the autograd node that results came from, what it keeps, and where a graph was cut.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from functools import cache

from ..autograd.base_node import refresh
from ..autograd.edges import edge_of, requires
from ..autograd.forward_ad import propagate
from ..autograd.modes import modes
from ..autograd.node import NUMBER, TENSOR, BackwardRecipe, OpNode, keep
from ..autograd.slots import NodeBase
from ..base import observers
from ..trace.recording import new
from ..trace.recording.record import _local
from ..trace.running.runner import numbering
from .messages import called_as, said
from .overrides import tensor_types
from .tensor import Tensor

events = vars(observers)          # the module's dict: saves one attribute lookup per call


def add_history(op, entry, args, inputs, outs, site):
    """Give `outs` their history: the autograd node, and in forward mode the tangents."""
    _attach(op, entry, args, inputs, outs, site)
    if modes.level >= 0:
        propagate(op, entry, args, inputs, outs)


def _attach(op, entry, args, inputs, outs, site):
    """Make the node that `outs` came from, where gradients are on and an input needs one."""
    if modes.inference:
        cut = any(requires(t) for t in inputs)
        for out in outs:
            if not any(out._storage is t._storage for t in inputs):          # a view is what it looks at
                out._storage.inference = True
            if cut:
                out._cut = ("torch.inference_mode()", site)
        return
    wanted = 0
    cut = None
    bit = 1
    for t in inputs:
        if t._node is not None or t._requires_grad or (t._base is not None and requires(t)):
            wanted |= bit
        elif t._cut is not None:
            cut = t._cut
        bit += bit
    if not wanted:
        if cut is not None:
            for out in outs:
                out._cut = cut
        return
    if not modes.grad or not op.differentiable:
        cut = ("torch.no_grad()" if not modes.grad else f"{called_as(op)}(), which has no gradient", site)
        for out in outs:
            out._cut = cut
        return
    make_node(entry, args, inputs, outs, site, wanted, _local.trace.special)


def make_node(entry, args, inputs, outs, site, wanted, special):
    """Make the node. `wanted`: a bit for each input that wants a gradient; `special`: whether modes must be asked."""
    recipe = entry.recipes.get(wanted)
    if recipe is None:
        op = entry.op
        if not op.differentiable:
            for out in outs:
                out._cut = (f"{called_as(op)}(), which has no gradient", site)
            return
        recipe = BackwardRecipe(op, entry.input_specs, entry.template, wanted)
        recipe.has_float_result = entry.outs is not None and len(entry.outs) == 1 and not entry.many \
            and entry.outs[0].dtype.category >= 2
        entry.recipes[wanted] = recipe
    if recipe.only_kept is not None:
        kept = _kept(args[recipe.only_kept], special)
    elif not recipe.asked and not recipe.keep_out:
        kept = ()
    else:
        kept = []
        for at, how in recipe.asked:
            arg = args[at]
            kept.append(arg if how == NUMBER else _kept(arg, special) if how == TENSOR else
                        tuple([b if b is None else keep(b) for b in arg]))
    if len(recipe.inputs) == 1:
        t = inputs[recipe.inputs[0]]
        edges = ((t._node, t._nr) if t._base is None and t._node is not None else edge_of(t),)
    else:
        edges = []
        for i in recipe.inputs:
            t = inputs[i]
            edges.append((t._node, t._nr) if t._base is None and t._node is not None else edge_of(t))
    node = new.instance(NodeBase, OpNode)
    node.recipe = recipe
    node.n_outputs = 1
    node.hooked = False
    node.edges = edges
    node.kept = kept
    node.outs = entry.outs if entry.outs is not None else tuple([o._spec for o in outs])
    node.site = site
    node.seq = next(numbering)
    if len(outs) == 1:
        out = outs[0]
        storage = out._storage
        if recipe.keep_out:
            if special or storage.exported:
                kept.append(keep(out, True))
            else:
                storage.saved_at = storage.version
                kept.append((storage, storage.version, out._spec, out._offset))
        if recipe.has_float_result or out._spec.dtype.category >= 2:
            out._node = node
            out._nr = 0
        else:
            out._cut = (f"{called_as(entry.op)}(), whose result is {out._spec.dtype.name} and so has no gradient", site)
        if events["node_made"] is not None:
            node._tell_made()
        return
    node.n_outputs, op = len(outs), entry.op
    if recipe.keep_out:
        kept.append(tuple([keep(o, True, i) if i in recipe.keep_out else None for i, o in enumerate(outs)]))
    for nr, out in enumerate(outs):
        if out._spec.dtype.category >= 2 and nr not in op.nondiff:
            out._node = node
            out._nr = nr
        else:
            out._cut = (without_gradient(op, nr), site)
    if observers.node_made is not None:
        node._tell_made()


@cache
def without_gradient(op, nr):
    """That result `nr` of an operation has no gradient, in words."""
    return f"{called_as(op)}(), whose result {nr} has no gradient"


def _kept(tensor, special):
    """An argument of an operation as its node keeps it; see Note [What is kept] in node.py."""
    storage = tensor._storage
    if storage.inference:
        tensor = _tracked(tensor)
        storage = tensor._storage
    if special or storage.exported or type(tensor) is not Tensor and type(tensor) not in tensor_types:
        return keep(tensor)
    storage.saved_at = version = storage.version
    if tensor._base is not None and tensor._seen != version:
        refresh(tensor)
    return (tensor, storage, version, tensor._node)


def _tracked(tensor):
    """What a node keeps of an inference tensor, whose writes are not counted: a copy in a transform, else nothing."""
    if modes.copies_inference:
        return tensor.clone()
    raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in inference "
                       "mode in computation tracked by autograd. To work around this, you can make a clone to get a "
                       "normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
                       "`torch.inference_mode()`." + said(tensor))
