"""`torch.nn.utils._named_member_accessor`: the tensors of a module by their dotted names. tensordict swaps them."""
from ...tensor.tensor import Tensor
from ..modules.module import Module

__all__ = ["NamedMemberAccessor", "set_tensor", "swap_submodule", "swap_tensor"]

_MISSING: Tensor = object()                           # type: ignore[assignment]  # a mark, as PyTorch annotates it


def _checked(module, name, what):
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError(f'{what} name can\'t contain "."')
    if not name:
        raise KeyError(f'{what} name can\'t be empty string ""')


def set_tensor(module, name, tensor):
    """Put `tensor` where the module has a parameter, a buffer or an attribute of the name."""
    _checked(module, name, "tensor")
    if not isinstance(tensor, Tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if name in module._parameters:
        module._parameters[name] = tensor
    elif name in module._buffers:
        module._buffers[name] = tensor
    else:
        setattr(module, name, tensor)


def swap_tensor(module, name, tensor, allow_missing=False):
    """Put `tensor` in the place of the one of that name; the one that was there."""
    _checked(module, name, "tensor")
    if tensor is not _MISSING and not isinstance(tensor, Tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    for tensors in (module._parameters, module._buffers):
        if name in tensors:
            before = tensors[name]
            if tensor is _MISSING:
                del tensors[name]
            else:
                tensors[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and not isinstance(before, Tensor) and before is not None:
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before


def swap_submodule(module, name, submodule):
    """Put `submodule` in the place of the one of that name; the one that was there."""
    _checked(module, name, "submodule")
    if not isinstance(submodule, Module):
        raise TypeError(f"{submodule} is not an instance of torch.nn.Module")
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    before = module._modules[name]
    module._modules[name] = submodule
    return before


class NamedMemberAccessor:
    """The submodules, parameters and buffers of a module by dotted names."""

    def __init__(self, module):
        self.module = module

    def get_submodule(self, name):
        """The module at a dotted name; "" is the module itself."""
        return self.module.get_submodule(name)

    def _owner_of(self, name):
        prefix, _, last = name.rpartition(".")
        return self.get_submodule(prefix), last

    def swap_submodule(self, path, value):
        """Put a module at a dotted name; the one that was there."""
        return swap_submodule(*self._owner_of(path), value)

    def get_tensor(self, name):
        """The tensor at a dotted name."""
        owner, last = self._owner_of(name)
        if not hasattr(owner, last):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        found = getattr(owner, last)
        if not isinstance(found, Tensor) and found is not None:
            raise TypeError(f"{found} is not an instance of torch.Tensor")
        return found

    def set_tensor(self, name, value):
        """Put a tensor at a dotted name."""
        owner, last = self._owner_of(name)
        set_tensor(owner, last, value)

    def del_tensor(self, name):
        """Take the tensor at a dotted name away."""
        owner, last = self._owner_of(name)
        if not hasattr(owner, last):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        delattr(owner, last)

    def swap_tensor(self, name, value, allow_missing=False):
        """Put a tensor at a dotted name; the one that was there."""
        owner, last = self._owner_of(name)
        return swap_tensor(owner, last, value, allow_missing)

    def get_tensors(self, names):
        """The tensors at dotted names."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names, values):
        """Put tensors at dotted names."""
        self.set_tensors_dict(_paired(names, values))

    def set_tensors_dict(self, named_tensors):
        """Put tensors at dotted names."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names):
        """Take the tensors at dotted names away."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(self, names, values, allow_missing=False):
        """Put tensors at dotted names; those that were there."""
        return [self.swap_tensor(name, value, allow_missing) for name, value in _paired(names, values).items()]

    def swap_tensors_dict(self, named_tensors, allow_missing=False):
        """Put tensors at dotted names, all or none; (those that were there, the names that had none)."""
        before: dict = {}
        try:
            for name, tensor in named_tensors.items():
                before[name] = self.swap_tensor(name, tensor, allow_missing=True)
            lacking = [name for name, old in before.items() if old is _MISSING]
            if lacking and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, lacking))}.")
        except Exception:
            for name, old in before.items():
                self.swap_tensor(name, old, allow_missing=True)
            raise
        return before, lacking

    def check_keys(self, keys):
        """(names of the module's tensors that are not in `keys`, keys that name none of them)."""
        keys = set(keys)
        valid = {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(valid - keys), sorted(keys - valid)

    def named_parameters(self, remove_duplicate=True):
        """The parameters with their dotted names."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate=True):
        """The buffers with their dotted names."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate=True):
        """The parameters and buffers with their dotted names."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate=True):
        """The modules with their dotted names."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)


def _paired(names, values):
    names, values = list(names), list(values)
    if len(names) != len(values):
        raise AssertionError(f"names and values must have the same length, got {len(names)} names and {len(values)} "
                             "values")
    return dict(zip(names, values))
