"""Helpers around the core: checkpointing, DLPack, and data loading (`utils.data`, imported when asked for)."""
import weakref

from ..base.lazy import import_when_asked, names_there
from ..base.names import attribute_error
from ..tensor.user_attributes import swap_fields
from . import checkpoint, dlpack

__all__ = ["checkpoint", "data", "dlpack", "swap_tensors"]


def swap_tensors(t1, t2):
    """Exchange all that two tensors are, but for their identity: who holds `t1` has what was `t2`.

    >>> a, b = torch.zeros(2), torch.ones(3)
    >>> torch.utils.swap_tensors(a, b)
    >>> a, b
    (tensor([1., 1., 1.]), tensor([0., 0.]))
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
        if tensor._accumulator is not None and tensor._accumulator() is not None:
            raise RuntimeError(f"Cannot swap {name} while a graph that leads to it is alive: its gradient would go to "
                               "the other tensor. Run backward, or let go of the results, before.")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    swap_fields(t1, t2)


# Modules that `import torch` has loaded, in PyTorch, or that this package has beside it: imported when asked for.
_UTILITY_MODULES = ("_contextlib", "_foreach_utils", "_python_dispatch", "_pytree", "benchmark", "data", "flop_counter",
                    "hooks", "module_tracker", "weak")
__getattr__ = import_when_asked(__name__, {name: f"utils.{name}" for name in _UTILITY_MODULES},
                                lambda name: attribute_error("torch.utils", name, lambda: names_there(__name__)))
