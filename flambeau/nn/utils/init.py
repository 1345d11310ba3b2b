"""Modules whose weights are left as the memory is."""
from ..modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls, *args, **kwargs):
    """A module of class `module_cls` whose parameters are allocated and not initialised.

    >>> torch.nn.utils.skip_init(torch.nn.Linear, 5, 3)
    Linear(in_features=5, out_features=3, bias=True)
    """
    from inspect import signature
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in signature(module_cls).parameters:
        raise RuntimeError(f"Module must support a 'device' arg to skip initialization; {module_cls.__name__} has none")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
