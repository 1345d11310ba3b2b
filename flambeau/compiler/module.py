"""What `torch.compile(module)` gives: a module whose calls are replayed, around the one that was compiled."""
from ..nn import Module
from .compiled import Compiled

OWN = ("_compiled_module", "_modules", "_parameters", "_buffers")


class OptimizedModule(Module):
    """The module in `_orig_mod`, compiled. Its parameters and attributes are those of that module.

    >>> model = torch.compile(torch.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['_orig_mod.weight', '_orig_mod.bias']
    >>> model.in_features
    2
    """

    def __init__(self, module, fullgraph=False):
        super().__init__()
        del self.__dict__["training"]                        # the module's own
        self._modules["_orig_mod"] = module
        self.__dict__["_compiled_module"] = Compiled(module, fullgraph)

    def __call__(self, *args, **kwargs):
        if "_has_hooks" in self.__dict__:                    # hooks on this one run around the replay
            return self._call_impl(*args, **kwargs)
        return self._compiled_module(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self._compiled_module(*args, **kwargs)

    def explain(self):
        """What was recorded, what is guarded, and why calls could not be replayed."""
        return self._compiled_module.explain()

    @property
    def recordings(self): return self._compiled_module.recordings

    @property
    def reasons(self): return self._compiled_module.reasons

    @property
    def gave_up(self): return self._compiled_module.gave_up

    def __getattr__(self, name):
        if name == "_orig_mod" or "_modules" not in self.__dict__:
            return super().__getattr__(name)
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name, value):
        if name in OWN or name.startswith("_") and name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._modules["_orig_mod"], name, value)

    def __delattr__(self, name):
        delattr(self._modules["_orig_mod"], name)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._modules["_orig_mod"])})

    def __reduce__(self):                                    # a copy has recordings of its own
        return OptimizedModule, (self._orig_mod, self._compiled_module._fullgraph)
