"""`torch.utils.module_tracker`: which modules are being run, forward or backward, by their paths."""
import weakref

from ..autograd.graph import register_multi_grad_hook
from ..autograd.modes import modes
from ..base.pytree import tree_flatten
from ..nn import modules
from ..tensor.tensor import Tensor

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Inside, `parents` are the paths of the modules that run now, with "Global" always among them."""

    def __init__(self):
        self.parents = {"Global"}
        self._names: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet = weakref.WeakSet()
        self._hooks: list = []
        self._backward_pass = None        # the backward that `parents` speaks of

    @property
    def is_bw(self):
        """Whether a backward runs now."""
        return modes.backward_pass is not None

    def _name_of(self, module):
        todo = [module]
        self._names.setdefault(module, type(module).__name__)
        while todo:
            at = todo.pop()
            if at not in self._seen:
                self._seen.add(at)
                for name, inner in at.named_children():
                    self._names[inner] = f"{self._names[at]}.{name}"
                    todo.append(inner)
        return self._names[module]

    def _enter(self, name):
        def enter(*grads):
            if self.is_bw and self._backward_pass is not modes.backward_pass:    # a new one: nothing of the old runs
                self.parents, self._backward_pass = {"Global"}, modes.backward_pass
            self.parents.add(name)
        return enter

    def _leave(self, name):
        return lambda *grads: self.parents.discard(name)

    def _before(self, module, args):
        name = self._name_of(module)
        self.parents.add(name)
        needing = [a for a in tree_flatten(args)[0] if isinstance(a, Tensor) and a.requires_grad]
        if needing and modes.grad:
            self._hooks.append(register_multi_grad_hook(needing, self._leave(name)))

    def _after(self, module, args, output):
        name = self._name_of(module)
        self.parents.discard(name)
        needing = [a for a in tree_flatten(output)[0] if isinstance(a, Tensor) and a.requires_grad]
        if needing and modes.grad:
            self._hooks.append(register_multi_grad_hook(needing, self._enter(name), mode="any"))

    def __enter__(self):
        self._handles = (modules.hooks.register_module_forward_pre_hook(self._before),
                         modules.hooks.register_module_forward_hook(self._after, always_call=True))
        return self

    def __exit__(self, *exc):
        for handle in (*self._handles, *self._hooks):
            handle.remove()
        self._hooks.clear()
        self.parents = {"Global"}
