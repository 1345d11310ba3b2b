"""Parametrizations: a parameter that is computed, whenever it is read, from others that are trained.

A parametrized module gets a class of its own, with a property in the place of the tensor. What is trained stands in
`module.parametrizations.<name>` as `original`, or `original0`, `original1`, … if there are several.
"""
import copy
from contextlib import contextmanager

from ...autograd.modes import no_grad
from ...tensor.tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..parameter import Parameter

__all__ = ["cached", "ParametrizationList", "register_parametrization", "is_parametrized", "remove_parametrizations",
           "type_before_parametrizations", "transfer_parametrizations_and_params"]

_cache_enabled = 0
_cache: dict = {}                 # (id of a module, name) → the tensor, while caching is on


@contextmanager
def cached():
    """Within it, a parametrized tensor is computed once and then remembered.

    Worth it where a tensor is read often, as the weight of a recurrent cell is.
    """
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def put(module, name, tensor):
    """Register `tensor` as a parameter or a buffer, whichever it is."""
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def need_same(words, wanted_of, wanted, got_of, got):
    """Refuse a tensor of another dtype, device or shape than wanted."""
    if got != wanted:
        raise ValueError(f"{words}\n{wanted_of}: {wanted}\n{got_of}: {got}")


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied one after the other, and what it is computed from."""

    def __init__(self, modules, original, unsafe=False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            new = self._inverted(original)
        if not isinstance(new, (Tensor, list, tuple)):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                             f"{type(new).__name__}")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            for what in ("dtype", "device"):
                need_same(f"When `right_inverse` outputs one tensor, it may not change the {what}.",
                          f"original.{what}", getattr(original, what),
                          f"right_inverse(original).{what}", getattr(new, what))
            with no_grad():
                take_over(original, new)
            put(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                                     f"Got element {i} of the sequence with type {type(part).__name__}.")
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                put(self, f"original{i}", part)
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            for what in ("dtype", "shape"):
                need_same(f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` "
                          "flag is enabled.", f"unparametrized {what}", getattr(original, what),
                          f"parametrized {what}", getattr(made, what))

    def _inverted(self, original):
        """What the parametrizations make `original` of."""
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                try:
                    original = module.right_inverse(original)
                except NotImplementedError:             # it says itself that it has none: taken as the identity
                    pass
        return original

    def right_inverse(self, value):
        """Give the tensor the value `value`, by running the parametrizations backwards."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if value.dtype != self.original.dtype:
                    raise ValueError(f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` "
                                     f"has dtype {self.original.dtype}")
                take_over(self.original, value)
                return
            if not isinstance(value, (list, tuple)):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError(f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a "
                                 f"sequence of length {len(value)}.")
            for i, part in enumerate(value):
                original = getattr(self, f"original{i}")
                if not isinstance(part, Tensor):
                    raise ValueError("`right_inverse` must return a sequence of tensors. Got element "
                                     f"{i} of type {type(part).__name__}")
                if part.dtype != original.dtype:
                    raise ValueError(f"Tensor {i} returned by `right_inverse` has dtype {part.dtype} while "
                                     f"`original{i}` has dtype {original.dtype}")
                take_over(original, part)

    def forward(self):
        first, *rest = self
        if self.is_tensor:
            made = first(self.original)
        else:
            made = first(*[getattr(self, f"original{i}") for i in range(self.ntensors)])
        for module in rest:
            made = module(made)
        return made


def take_over(tensor, new):
    """Let `tensor`, which others know, have the contents and the shape of `new`."""
    if new is not tensor:
        tensor.set_(new.detach())


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Compute the parameter or buffer `tensor_name` by `parametrization` from now on; gives `module` back.

    A parametrization is a module from the trained tensor to the one that is used. Its `right_inverse`, if it has one,
    goes the other way, for the first value and for assignments.

    >>> class Symmetric(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = torch.nn.utils.parametrize.register_parametrization(torch.nn.Linear(3, 3), "weight", Symmetric())
    >>> torch.equal(layer.weight, layer.weight.mT)
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parametrizations = module.parametrizations[tensor_name]
        if not unsafe:
            check_next(module, tensor_name, parametrization)
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            give_class(module)
            module.parametrizations = ModuleDict()
        setattr(module.__class__, tensor_name, computed(tensor_name))
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")
    return module


def check_next(module, name, parametrization):
    """Refuse a further parametrization that would change the dtype or the shape, forwards or backwards."""
    now = getattr(module, name)
    made = parametrization(now)
    if not isinstance(made, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
    for what in ("dtype", "shape"):
        need_same(f"Registering a parametrization may not change the {what} of the tensor, unless the `unsafe` flag is "
                  "enabled.", f"module.{name}.{what}", getattr(now, what),
                  f"parametrization(module.{name}).{what}", getattr(made, what))
    if hasattr(parametrization, "right_inverse"):
        try:
            back = parametrization.right_inverse(made)
        except NotImplementedError:
            return
        if not isinstance(back, Tensor):
            raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
        for what in ("dtype", "shape"):
            need_same(f"The tensor returned by parametrization.right_inverse must have the same {what} as "
                      f"module.{name}, unless the `unsafe` flag is enabled.", f"module.{name}.{what}",
                      getattr(now, what), f"returned {what}", getattr(back, what))


def give_class(module):
    """Give `module` a class of its own, that can hold properties."""
    cls = module.__class__

    def __getstate__(self):
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(). Save "
                           "module.state_dict(), and load it into a module parametrized in the same way.")

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        twin = memo[id(self)] = self.__new__(self.__class__)
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        # the twin's properties must be its own: removing one of them must not remove the other's
        twin.__class__ = type(type(self).__name__, type(self).__bases__, dict(vars(type(self))))
        return twin

    body: dict = {"__getstate__": __getstate__}
    if not hasattr(cls, "__deepcopy__"):
        body["__deepcopy__"] = __deepcopy__
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), body)


def computed(name):
    """The property that stands for the parametrized tensor `name`."""

    def get(self):
        if not _cache_enabled:
            return self.parametrizations[name]()
        key = (id(self), name)
        found = _cache.get(key)
        if found is None:
            found = _cache[key] = self.parametrizations[name]()
        return found

    def set(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(get, set)


def is_parametrized(module, tensor_name=None):
    """Whether `module` (or its tensor `tensor_name`) is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Make `tensor_name` an ordinary tensor again: with the value it is computed to, or the trained one as it is."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with no_grad():
                take_over(original, getattr(module, tensor_name))
    elif leave_parametrized:
        made = getattr(module, tensor_name)
        original = Parameter(made) if made.requires_grad else made
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         f"terms of a sequence of tensors: '{tensor_name}' of {type(module).__name__}")
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]
    put(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = module.__class__.__bases__[0]
    return module


def type_before_parametrizations(module):
    """The class that `module` had before it was parametrized."""
    return module.__class__.__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Parametrize `to_module` as `from_module` is, sharing its parametrizations and what they are computed from."""
    if is_parametrized(from_module):
        names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
        for name in names:
            if not hasattr(to_module, name):
                setattr(to_module, name, Parameter(getattr(from_module, name)))
            parametrizations = from_module.parametrizations[name]
            for parametrization in parametrizations:
                register_parametrization(to_module, name, parametrization)
            target = to_module.parametrizations[name]
            for original in ["original"] if parametrizations.is_tensor else \
                    [f"original{i}" for i in range(parametrizations.ntensors)]:
                setattr(target, original, getattr(parametrizations, original))
    return to_module
