"""Subclasses of Tensor: `as_subclass`, and the part of `__torch_function__` that programs use.

A call with a subclass among its arguments goes to that class's `__torch_function__(func, types, args, kwargs)`, where
`func` is the public function or method. The one that every subclass inherits runs `func` with the overrides set aside
and gives the results the subclass's type.
"""
import functools
import inspect
import types

from ..base.op import Op
from .forms import declared
from .overrides import (
    DisableTorchFunctionSubclass,
    handle_torch_function,
    has_override,
    one_of_ours,
    opened,
    overloaded,
)
from .tensor import Tensor


def default_torch_function(cls, func, types, args, kwargs):
    """Run `func` on plain tensors and give its results the type `cls`."""
    if not all(issubclass(cls, tensor_type) for tensor_type in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        made = func(*args, **kwargs)
    if func in nowrap:
        return made
    ours = isinstance(func, Op) or hasattr(func, "op") or func is Tensor.detach
    return converted(made, cls, ours, tuple(opened(args)) if ours else ())


nowrap: set = {Tensor.grad.__get__}      # functions whose results stay as they are


def converted(made, cls, fresh, args):
    """`made` with its tensors as `cls`. What our own operations give is a `fresh` object, unless it is an argument."""
    if isinstance(made, Tensor):
        if isinstance(made, cls):
            return made
        if fresh and type(made) is Tensor and not any(made is a for a in args):
            made.__class__ = cls
            return made
        return as_subclass(made, cls)
    if isinstance(made, (tuple, list)):
        parts = [converted(part, cls, fresh, args) for part in made]
        return type(made)._make(parts) if hasattr(made, "_fields") else type(made)(parts)
    return made


def as_subclass(self, cls):
    """The same data and history as an object of class `cls`, a subclass of Tensor."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError("Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. "
                        f"Make sure your class inherits from Tensor: got {cls!r}")
    with DisableTorchFunctionSubclass():
        out = declared["_alias"](self)
    out.__class__ = cls
    return out


def opted_out(func, types, args=(), kwargs=None):
    """A `__torch_function__` that takes no part: the class is treated as a plain tensor, results included."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


opted_out.opted_out = True


# --- what is no operation --------------------------------------------------


# Left alone by PyTorch too: how an object is made, told from others, and kept.
UNASKED_ATTRIBUTES = frozenset("""__new__ __init__ __init_subclass__ __torch_function__ __hash__ __class__ __dict__
    __doc__ __module__ __weakref__ __getattr__ __getattribute__ __setattr__ __delattr__ __array_priority__
    as_subclass""".split())


PACKAGE_NAME = __package__.partition(".")[0]
FORMS_MODULE = f"{__package__}.forms"     # the module of operations' methods and operators, which ask for themselves


def ask(cls):
    """Have a class with a `__torch_function__` of its own asked about Tensor's attributes and methods, too.

    Operations ask for themselves. `shape`, `size()` or `len()` would pay for the question on every plain tensor, so it
    is the class that gets forms which ask, in the place of all that it has from Tensor. What others have put on Tensor
    (fastai does) is their own, and asks for itself if it wants to.
    """
    handler = getattr(cls.__torch_function__, "__func__", cls.__torch_function__)
    if handler is Tensor.__torch_function__.__func__ or not has_override(cls):
        return
    for name, plain in vars(Tensor).items():
        ours = name.startswith("_") and not name.endswith("__") and name not in ("_version", "_is_view", "_cdata")
        module = getattr(plain.fget if isinstance(plain, property) else plain, "__module__", None) or ""
        if ours or name in UNASKED_ATTRIBUTES or module == FORMS_MODULE or module.partition(".")[0] != PACKAGE_NAME:
            continue
        if inspect.getattr_static(cls, name) is plain:
            if isinstance(plain, property):
                setattr(cls, name, _asking_property(plain))
            elif isinstance(plain, types.FunctionType):
                setattr(cls, name, _asking_method(plain))


def _asking_method(plain):
    @functools.wraps(plain)
    def method(self, *args, **kwargs):
        if not overloaded((self,)):
            return plain(self, *args, **kwargs)
        return handle_torch_function(plain, (self, *args), self, *args, **kwargs)
    return method


def _asking_property(plain):
    """`func` is then `Tensor.shape.__get__`, or `__set__`, as in PyTorch."""
    def get(self):
        if not overloaded((self,)):
            return plain.__get__(self)
        return handle_torch_function(plain.__get__, (self,), self)

    def set(self, value):
        if not overloaded((self,)):
            return plain.__set__(self, value)
        return handle_torch_function(plain.__set__, (self,), self, value)

    return property(get, set if plain.fset is not None else None, plain.fdel, plain.__doc__)


plain_detach = Tensor.detach


def detach(self):
    """The same memory without history; writes through either are seen, and noticed at backward.

    >>> torch.detach(torch.ones(2, requires_grad=True)).requires_grad
    False
    """
    if self.__class__ is not Tensor and overloaded((self,)):
        return handle_torch_function(Tensor.detach, (self,), self)
    return self.detach() if self.__class__ in one_of_ours else plain_detach(self)


def __init_subclass__(cls, **kwargs):
    super(Tensor, cls).__init_subclass__(**kwargs)
    ask(cls)


def __torch_function__(cls, func, types, args=(), kwargs=None):
    """What a call on a subclass does unless it is overridden: run, and give results the subclass's type."""
    return default_torch_function(cls, func, types, args, kwargs or {})


Tensor.as_subclass, Tensor.detach = as_subclass, detach
Tensor.__init_subclass__ = classmethod(__init_subclass__)         # type: ignore[assignment]
Tensor.__torch_function__ = classmethod(__torch_function__)       # type: ignore[attr-defined]
