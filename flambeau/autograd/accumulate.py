"""Add gradients up: those that meet at a node, those of operands that were broadcast, and those of leaves.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..base.errors import line_of
from ..base.layout import contiguous_format
from ..base.locks import new_lock
from ..base.op import door
from ..trace.recording.record import current
from ..trace.value import Storage
from .edges import requires
from .modes import modes

_accumulate_lock = new_lock()


def add(buffers, node, nr, g):
    """Add `g` to what has come for output `nr` of a node."""
    grads = buffers.get(node)
    if grads is None:
        grads = buffers[node] = [None] * node.n_outputs
    grads[nr] = g if grads[nr] is None else grads[nr] + g


def match_spec(g, wanted):
    """`g` summed to the shape and cast to the dtype of the input it is for."""
    spec = g._spec
    if spec.shape != wanted.shape:
        g = _summed(g, spec.shape, wanted.shape)
        spec = g._spec
    if spec.dtype is not wanted.dtype:
        if spec.dtype.is_complex and not wanted.dtype.is_complex:
            g = g.real
        if g.dtype is not wanted.dtype:
            g = g.to(wanted.dtype)
    return g


_broadcast_dims: dict = {}    # (shape, smaller shape that broadcasts to it) → (dimensions to sum, whether they stay)


def _summed(g, shape, wanted):
    """`g` of `shape` summed to the shape `wanted`, from which its operand was broadcast."""
    way = _broadcast_dims.get((shape, wanted))
    if way is None:
        lead = len(shape) - len(wanted)
        dims = tuple([d for d, n in enumerate(shape) if d < lead or wanted[d - lead] != n])
        if lead < 0 or any(wanted[d - lead] != 1 for d in dims if d >= lead):
            return g.sum_to_size(wanted)                 # which refuses
        if len(_broadcast_dims) > 10_000:
            _broadcast_dims.clear()
        way = _broadcast_dims[shape, wanted] = dims, len(dims) != lead
    dims, stay = way
    g = door.operations["_sum_dim"](g, dims, stay, None)
    return door.operations["_view"](g, wanted) if stay and len(shape) != len(wanted) else g


def accumulate(node, g, create_graph):
    """Add `g` to the gradient of the leaf that a node stands for, and call the leaf's hooks."""
    leaf = node.leaf
    if leaf._node is not None:
        raise RuntimeError("leaf variable has been moved into the graph interior: it was written in place by "
                           f"{leaf._node.name()} at {line_of(leaf._node.site)}, after the forward pass had read it as "
                           "a leaf. Write to a clone() of it, or under torch.no_grad().")
    if not requires(leaf):                            # no longer: requires_grad_(False) after the forward pass
        return
    with _accumulate_lock:
        grad = leaf._grad
        if grad is None:
            leaf._grad = _copy_like(g, leaf) if create_graph else detached_copy(g, leaf)
        elif create_graph:
            leaf._grad = grad + g
        else:
            before, modes.grad = modes.grad, False
            _add_to(grad, g)
            modes.grad = before
    if leaf._post_hooks:
        for hook in list(leaf._post_hooks.values()):
            given = hook(leaf)
            if given is not None:
                _refuse_given(given)
    if node.hooks:
        for hook in list(node.hooks.values()):
            hook((), (g,))


def _add_to(grad, g):
    """Add to a gradient that is there, and note if nothing was written to it since a step used it.

    See Note [Stale gradients] in watch/steps.py.
    """
    storage, stale = grad._storage, grad._stale
    version = storage.version
    if stale is not None and stale[0] != version:
        stale = None
    grad._passes = 2 if storage.writer is not None and storage.writer[1] == "zero_" else grad._passes + 1
    grad.add_(g)
    if stale is not None or grad._stepped == version:
        grad._stale = (storage.version, current().site)


def _refuse_given(given):
    """A hook that runs after the gradient was added cannot change it any more."""
    if isinstance(given, door.tensor):
        raise RuntimeError("Tensor post accumulate grad hooks should return None. To change a gradient before it is "
                           "added, use register_hook(); afterwards, write to tensor.grad inside of the hook.")
    raise TypeError(f"expected Variable, but hook returned '{type(given).__name__}': a post accumulate grad hook "
                    "returns None")


def detached_copy(g, like):
    """`g` without history, in a storage of its own, laid out like the tensor `like`.

    Others may hold `g`: another leaf, a hook, the caller. Where it fills its storage the contents are shared until
    one is written; an expanded or strided gradient is copied.
    """
    s, storage = g._spec, g._storage
    whole = s.dense and g._offset == 0 and storage.nbytes == s.nbytes and not storage.exported
    if whole and s.strides == like._spec.strides:
        made = door.wrap(Storage.of(storage.value, s.nbytes, s.device), s)
        made._site = g._site
        return made
    g = g.detach()
    return g.clone(memory_format=contiguous_format) if like._spec.contiguous else _copy_like(g, like)


def _copy_like(g, like):
    """A copy of `g`, history included, laid out like the tensor `like`."""
    if like._spec.dense:
        return g.new_empty_strided(like._spec.shape, like._spec.strides).copy_(g)
    return g.clone(memory_format=contiguous_format)
