"""Looking at and steering the graph: saved-tensor hooks, gradient edges, multi-tensor hooks, anomaly detection."""
import weakref
from collections import namedtuple

from ..base.op import door
from .base_node import Node
from .edges import accumulator, edge_of, requires
from .modes import modes, update_recorder

# The last field keeps PyTorch's graph alive where only its C++ side holds it; a node of ours is held by the edge.
BACKWARDS_AT_ONCE = 10_000        # how many may have started since one that is still running
GradientEdge = namedtuple("GradientEdge", ["node", "output_nr", "ownership_token"], defaults=(None,))


class saved_tensors_hooks:
    """Inside, what autograd keeps is `pack_hook(tensor)`, and what backward sees is `unpack_hook` of that."""

    def __init__(self, pack_hook, unpack_hook):
        self.hooks = (pack_hook, unpack_hook)

    def __enter__(self):
        if modes.saved_refusal is not None:
            raise RuntimeError(modes.saved_refusal)
        modes.saved_hooks = (*modes.saved_hooks, self.hooks)
        update_recorder()

    def __exit__(self, *exc):
        modes.saved_hooks = modes.saved_hooks[:-1]
        update_recorder()


class save_on_cpu(saved_tensors_hooks):
    """Keep what autograd saves in the CPU's memory; here it is there already."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks:
    """Refuse `saved_tensors_hooks` inside, with `error_message`."""

    def __init__(self, error_message):
        self.message = error_message

    def __enter__(self):
        self.before, modes.saved_refusal = modes.saved_refusal, self.message

    def __exit__(self, *exc):
        modes.saved_refusal = self.before


def get_gradient_edge(tensor):
    """The place in the graph that a gradient for `tensor` flows into."""
    edge = edge_of(tensor) if requires(tensor) else None
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(edge[0].shown(), edge[1])


def increment_version(tensor):
    """Count a write that Flambeau could not see."""
    for t in (tensor,) if isinstance(tensor, door.tensor) else tensor:
        t._storage.version += 1
        if t._data_version is not None:
            door.hide_write(t)


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Call `fn` with the gradients of all `tensors` when the last is complete (or, mode="any", with the first)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        called: set = set()               # the backwards that it was called in; several may run, in threads or nested

        def first(g):
            number = modes.backward_pass.number
            if number not in called:
                called.difference_update([n for n in called if n < number - BACKWARDS_AT_ONCE])
                called.add(number)
                fn(g)
        return _Handles([t.register_hook(first) for t in tensors if requires(t)])

    ends = [weakref.ref(t if t.grad_fn is None else t.grad_fn) for t in tensors]      # weakly: the hook hangs on them
    got: dict = {}                        # backward → (gradients so far, how many will come)

    def on(i):
        def hook(g):
            number, reached = modes.backward_pass.number, modes.backward_pass.reached
            if number not in got:
                alive = [end() for end in ends]
                nodes = [accumulator(end) if isinstance(end, door.tensor) else end for end in alive]
                got[number] = [None] * len(ends), sum(node in reached for node in nodes)
            grads, count = got[number]
            grads[i] = g
            if sum(g is not None for g in grads) == count:
                del got[number]
                fn(grads)
        return hook
    return _Handles([t.register_hook(on(i)) for i, t in enumerate(tensors)])


class _Handles:
    def __init__(self, handles):
        self.handles = handles

    def remove(self):
        """Take all the hooks out."""
        for h in self.handles:
            h.remove()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


class detect_anomaly:
    """Name the operation whose gradient fails or gives NaN."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan

    def __enter__(self):
        self.before = modes.anomaly, modes.check_nan
        modes.anomaly, modes.check_nan = True, self.check_nan

    def __exit__(self, *exc):
        modes.anomaly, modes.check_nan = self.before


class set_detect_anomaly(detect_anomaly):
    """Switch anomaly detection, at once and until the end of the context if used as one."""

    def __init__(self, mode, check_nan=True):
        self.before = modes.anomaly, modes.check_nan
        modes.anomaly, modes.check_nan = mode, check_nan

    def __enter__(self):
        pass


def is_anomaly_enabled():
    """Whether anomaly detection is on."""
    return modes.anomaly


def is_anomaly_check_nan_enabled():
    """Whether anomaly detection looks for NaN."""
    return modes.check_nan


__all__ = ["GradientEdge", "Node", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
           "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]
