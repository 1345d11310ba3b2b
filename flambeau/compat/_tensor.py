"""`torch._tensor`: how pickles rebuild tensors of subclasses. lightning reads them itself."""
from ..tensor.tensor import Tensor

__all__ = ["Tensor", "_rebuild_from_type_v2"]


def _rebuild_from_type_v2(func, new_type, args, state):
    """What `func(*args)` gives, as a `new_type`, with the attributes in `state`."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if getattr(type(made), "__setstate__", None) not in (None, getattr(Tensor, "__setstate__", None)):
        made.__setstate__(state)
        return made
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, held in {**(attributes or {}), **(slots or {})}.items():
        setattr(made, name, held)
    return made
