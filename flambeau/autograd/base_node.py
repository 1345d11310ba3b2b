"""What every autograd node is: edges, hooks, a name; the end of the graph at a leaf; and views that look again."""
import itertools
import weakref

from ..base import observers
from ..base.op import door
from ..trace.running.runner import numbering
from .modes import modes
from .slots import NodeBase

LEAF_SEQUENCE_NUMBER = 1 << 62        # above all others: AccumulateGrad nodes run as soon as they are ready


class Node(NodeBase):
    """One step of the graph. `edges[i]` is (node, output number) or None for each differentiable input."""

    pre_hooks = None
    hooks = None
    tensor_hooks = None       # output number → hooks of the tensor that it is
    retained = None           # output number → weak reference to a tensor that keeps its gradient
    _metadata = None
    input_specs = None        # of each input, where gradients are to be brought to it
    takes_none = False        # whether it runs even where no gradient came

    def __init__(self):
        self.seq = next(numbering)

    def _tell_made(self):
        """Tell observers that it was made, once it is complete."""
        if (tell := observers.node_made) is not None:
            tell(self)

    def name(self):
        """The node's name as PyTorch writes it."""
        return self.__class__.__name__

    def shown(self):
        """The node as the user sees it."""
        return self

    @property
    def next_functions(self):
        """(node, output number) of each input; (None, 0) where no gradient goes."""
        return tuple((None, 0) if e is None else (e[0].shown(), e[1]) for e in self.edges)

    @property
    def metadata(self):
        """A dictionary for the user's own notes."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def _sequence_nr(self):
        return self.seq

    def register_hook(self, fn):
        """Call `fn(grad_inputs, grad_outputs)` after this node ran; what it returns replaces grad_inputs."""
        if self.hooks is None:
            self.hooks, self.hooked = {}, True
        return Handle(self.hooks, fn)

    def register_prehook(self, fn):
        """Call `fn(grad_outputs)` before this node runs; what it returns replaces grad_outputs."""
        if self.pre_hooks is None:
            self.pre_hooks, self.hooked = {}, True
        return Handle(self.pre_hooks, fn)

    def hook_output(self, nr, fn):
        """Call `fn(grad)` when the gradient of output `nr` is complete."""
        if self.tensor_hooks is None:
            self.tensor_hooks, self.hooked = {}, True
        return Handle(self.tensor_hooks.setdefault(nr, {}), fn)

    def __call__(self, *grads):
        if len(grads) != self.n_outputs:
            raise TypeError(f"expected {self.n_outputs} arguments, got {len(grads)} instead")
        return self.backward(grads)

    def backward(self, grads):
        raise NotImplementedError

    def release(self, site):
        """Forget what was kept."""

    def __repr__(self):
        return f"<{self.__class__.__name__} object at {hex(id(self))}>"


class Handle:
    """What registering a hook returns: `remove()` takes the hook out again; also a context."""

    _ids = itertools.count()

    def __init__(self, hooks, fn):
        self.id = next(Handle._ids)
        self._hooks = weakref.ref(hooks) if not isinstance(hooks, dict) else (lambda: hooks)
        hooks[self.id] = fn

    def remove(self):
        """Take the hook out."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


class AccumulateGrad(Node):
    """The end of the graph at a leaf: adds into its `.grad`. Held by the graph; the leaf knows it weakly. Made by
    `accumulator` in edges.py alone."""

    variable = property(lambda self: self.leaf)       # programs ask nodes whether they have it: no other may
    __init__ = object.__init__

    def name(self):
        return "torch::autograd::AccumulateGrad"


def refresh(view):
    """Give a view whose base was written in place its history anew: a strided look at the base as it is now."""
    base = view._base
    if view._node is None and base._node is None and not base._requires_grad:
        return                                # and should the base require grad later, its history is to be taken then
    if view._storage.hidden and view._storage.only_hidden(view._seen):
        view._seen = view._storage.version     # see Note [Writes through .data] in value.py
        return
    if view._view_of is not None and (view._node is not None or base._node is not None or base._requires_grad):
        door.refuse_view(view, "its base or another view of its base has been modified inplace")
    view._seen = view._storage.version
    if base._node is not None or base._requires_grad:
        before, modes.grad = modes.grad, True
        try:
            again = door.look_again(base, view)
        finally:
            modes.grad = before
        view._node, view._nr = again._node, again._nr
        if view._retains:
            view.retain_grad()
