"""Neural networks: modules, their parameters, the functions they call, and how weights are initialised."""
from ..base.names import attribute_error
from . import attention, common_types, functional, init, modules, parallel, parameter, utils
from .modules import *
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter


def factory_kwargs(kwargs):
    """Those of `kwargs` that say how tensors are made (device, dtype, memory_format), for a module to hand on.

    What stands in `kwargs["factory_kwargs"]` is joined with them.

    >>> torch.nn.factory_kwargs({"factory_kwargs": {"device": "cpu"}, "dtype": torch.float64})
    {'device': 'cpu', 'dtype': torch.float64}
    """
    given = dict(kwargs or {})
    made = dict(given.pop("factory_kwargs", {}))
    simple = {"device", "dtype", "memory_format"}
    if not given.keys() <= simple:
        raise TypeError(f"unexpected kwargs {given.keys() - simple}")
    for name, value in given.items():
        if name in made:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        made[name] = value
    return made


def __getattr__(name):
    raise attribute_error("torch.nn", name, globals().keys)
