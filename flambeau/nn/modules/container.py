"""Modules that hold other modules, or parameters, as lists and dictionaries do."""
import operator
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import groupby

from ...base.errors import warn
from ...base.spec import openers
from ...tensor.about import typename
from ...tensor.tensor import Tensor
from ..parameter import Parameter
from .module import Module, _addindent

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """Modules under the names they are given with. Deprecated: any Module can hold others."""

    def __init__(self, **kwargs):
        warn("`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that "
             "instead.", FutureWarning)
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(index, size):
    """`index`, which may count from the end, as one from the start."""
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range")
    return index % size


class _Row(Module):
    """What Sequential and ModuleList share: modules one after the other, each under its position as a name."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return self._part(list(self._modules.items())[idx])
        return list(self._modules.values())[_position(idx, len(self))]

    def __setitem__(self, idx, module):
        setattr(self, list(self._modules)[_position(idx, len(self))], module)

    def __delitem__(self, idx):
        names = list(self._modules)
        for name in names[idx] if isinstance(idx, slice) else [names[_position(idx, len(self))]]:
            delattr(self, name)
        self._modules = {str(at): module for at, module in enumerate(self._modules.values())}

    def append(self, module):
        """Add `module` at the end."""
        self.add_module(str(len(self)), module)
        return self

    def _add_all(self, modules):
        for module in list(modules):            # itself, perhaps
            self.add_module(str(len(self)), module)
        return self

    def _put(self, index, module):
        self.add_module(str(len(self)), module)
        modules = list(self._modules.values())
        modules.insert(index, modules.pop())
        for name, moved in zip(list(self._modules), modules, strict=True):
            self._modules[name] = moved

    def pop(self, key):
        """Take out the module at `key` and return it; a slice takes out several."""
        found = self[key]
        del self[key]
        return found


class Sequential(_Row):
    """Modules called one after the other, each with what the one before gave.

    It takes modules, or an OrderedDict of them, and is indexed, sliced, added and multiplied as a list is.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    >>> net(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    >>> net[:1]
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
    )
    """

    def __init__(self, *args):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def _part(self, items):
        return type(self)(OrderedDict(items))

    def insert(self, index, module):
        """Put `module` before the one at `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        self._put(index, module)
        return self

    def extend(self, sequential):
        """Add modules at the end."""
        return self._add_all(sequential)

    def __add__(self, other):
        return Sequential()._add_all(self)._add_all(_sequential(other))

    def __iadd__(self, other):
        return self._add_all(_sequential(other))

    def __mul__(self, other):
        return Sequential()._add_all([*self] * _factor(self, other))

    __rmul__ = __mul__

    def __imul__(self, other):
        return self._add_all([*self] * (_factor(self, other) - 1))


def _sequential(other):
    if not isinstance(other, Sequential):
        raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
    return other


def _factor(row, factor):
    if not isinstance(factor, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(row)} and {type(factor)}")
    if factor <= 0:
        raise ValueError(f"Non-positive multiplication factor {factor} for {type(row)}")
    return factor


class ModuleList(_Row):
    """A list of modules.

    >>> torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    ModuleList(
      (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    )
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self += modules

    def _part(self, items):
        return type(self)(module for _, module in items)

    def insert(self, index, module):
        """Put `module` before the one at `index`."""
        self._put(index, module)

    def extend(self, modules):
        """Add modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        return self._add_all(modules)

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList()._add_all(self)._add_all(other)

    def __repr__(self):
        lines, at = [], 0
        for text, equal in groupby(map(repr, self)):         # equal neighbours are told once
            n = len(list(equal))
            lines.append(f"({at}): {text}" if n == 1 else f"({at}-{at + n - 1}): {n} x {text}")
            at += n
        if not lines:
            return f"{self._get_name()}()"
        return "\n  ".join([f"{self._get_name()}(", *(_addindent(line, 2) for line in lines)]) + "\n)"


def _pairs(given, what, in_order):
    """The (key, value) pairs of what `update` of the container `what` was given."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{what}.update should be called with an iterable of key/value pairs, but got "
                        f"{type(given).__name__}")
    if isinstance(given, (Mapping, ModuleDict, ParameterDict)):
        return given.items() if in_order(given) else sorted(given.items())
    pairs = []
    for at, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{what} update sequence element #{at} should be Iterable; is {type(pair).__name__}")
        pair = list(pair)
        if len(pair) != 2:
            raise ValueError(f"{what} update sequence element #{at} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs


class ModuleDict(Module):
    """A dictionary of modules by names.

    >>> choices = torch.nn.ModuleDict({"relu": torch.nn.ReLU(), "tanh": torch.nn.Tanh()})
    >>> choices["tanh"]
    Tanh()
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Take everything out."""
        self._modules.clear()

    def pop(self, key):
        """Take out the module under `key` and return it."""
        return self._modules.pop(key)

    def keys(self):
        """The names."""
        return self._modules.keys()

    def values(self):
        """The modules."""
        return self._modules.values()

    def items(self):
        """The (name, module) pairs."""
        return self._modules.items()

    def update(self, modules):
        """Add the modules of a mapping, or of (name, module) pairs; those of the same name are replaced."""
        for key, module in _pairs(modules, "ModuleDict", lambda _: True):
            self[key] = module


class _Values(Module):
    """What the containers of parameters share: a tensor becomes a parameter, anything else is kept as it is."""

    def _keep(self, name, value):
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, name, value)

    def _line(self, name, value, type_shown):
        if not isinstance(value, Tensor):
            return f"  ({name}): Object of type: {type(value).__name__}"
        what = "Parameter" if isinstance(value, Parameter) else "Tensor"
        where = f" ({value.device})" if value.device.type in openers else ""
        return f"  ({name}): {what} containing: [{type_shown} of size {'x'.join(map(str, value.size()))}{where}]"

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self).__name__} should not be called.")


class ParameterList(_Values):
    """A list of parameters. Tensors become parameters; other things are held as they are.

    >>> torch.nn.ParameterList([torch.ones(2, 3), torch.ones(1)])
    ParameterList(
        (0): Parameter containing: [torch.float32 of size 2x3]
        (1): Parameter containing: [torch.float32 of size 1]
    )
    """

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __len__(self):
        return self._size

    def __iter__(self):
        return (self[at] for at in range(len(self)))

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return type(self)(self[at] for at in range(len(self))[idx])
        return getattr(self, str(_position(idx, len(self))))

    def __setitem__(self, idx, param):
        self._keep(str(_position(idx, len(self))), param)

    def append(self, value):
        """Add `value` at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values):
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def extra_repr(self):
        return "\n".join(self._line(at, value, getattr(value, "dtype", None)) for at, value in enumerate(self))


class ParameterDict(_Values):
    """A dictionary of parameters by names. Tensors become parameters; other things are held as they are."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key):
        return getattr(self, _name(key))

    def __setitem__(self, key, value):
        self._keep(_name(key), value)
        self._keys[key] = None

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, key)

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """A new dictionary of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def get(self, key, default=None):
        """What stands under `key`, or `default`."""
        return self[key] if key in self else default

    def setdefault(self, key, default=None):
        """What stands under `key`, which is `default` from now on if there was nothing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self):
        """Take everything out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Take out what stands under `key` and return it."""
        found = self[key]
        del self[key]
        return found

    def popitem(self):
        """Take out the last (key, value) pair and return it."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def fromkeys(self, keys, default=None):
        """A new dictionary with `default` under each of `keys`."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        """The names."""
        return self._keys.keys()

    def values(self):
        """What is held."""
        return (self[key] for key in self._keys)

    def items(self):
        """The (name, value) pairs."""
        return ((key, self[key]) for key in self._keys)

    def update(self, parameters):
        """Add what a mapping or (name, value) pairs hold. Of a plain dictionary, by sorted names as in PyTorch."""
        for key, value in _pairs(parameters, "ParameterDict", lambda d: isinstance(d, (OrderedDict, ParameterDict))):
            self[key] = value

    def __or__(self, other):
        return ParameterDict(self.copy())._merge(other)

    def __ror__(self, other):
        return ParameterDict(other)._merge(self)

    def __ior__(self, other):
        return self._merge(other)

    def _merge(self, other):
        self.update(other)
        return self

    def extra_repr(self):
        return "\n".join(self._line(key, value, typename(value)) for key, value in self.items())


def _name(key):
    if not isinstance(key, str):
        raise TypeError("Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                        f"'{type(key).__name__}').")
    return key
