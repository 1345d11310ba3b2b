"""Find the Entry of a call like one before.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.

Note [Keys]: what of its arguments decides what a call gives. Of a tensor it is the spec; of a number that takes part in
arithmetic its class, so that a changing learning rate is one entry; of any other number the class and the number, since
True, 1 and 1.0 are equal to Python. An instance of a class derived from a number or a word, a member of an enum or a
NumPy scalar, is made the plain one here. A list counts as a tuple, and a tuple of whole numbers as itself; in any other
the classes count too, and tensors in it are the whole numbers they hold. A list of tensors is the tuple of their specs.
Everything else counts as itself.

`find` makes the key. The operation's `given` has it from the arguments as they were given, so that a call like one
before need not be bound; its `entries` has it from all arguments: Note [What a call gives] in base/entry.py.
"""
from ..base import dtypes
from ..base.arguments import (
    DERIVED_BASES,
    LEAST_INT,
    MOST_INT,
    any_derived,
    beyond_64_bits,
    underived,
    underived_all,
)
from ..base.op import NUMBER_CLASSES
from ..base.spec import device
from ..trace.value import TensorBase
from .messages import call_words
from .overrides import tensor_types
from .tensor import Tensor

number_types = frozenset(NUMBER_CLASSES)
plain_types = {*NUMBER_CLASSES, type(None), str, dtypes.dtype, device}
UNKNOWN_KEY = (None, None, None, None)


def find(op, facts, args, kwargs, bound=False):
    """(key, entry, all arguments, tensors) of a call like one before; the entry is None if there was none.

    The one place that says what counts of an argument: see Note [Keys]. The arguments are as the caller gave them, and
    those of a call like one before are bound as they were then. What may belong to a `__torch_function__`, and
    what is rare, is not looked for: the key is None then. With `bound` they are all there, in the order of the
    signature, no `__torch_function__` is asked any more, and everything has a key.
    """
    # No variable of this function may stand in a comprehension's inside: Python would keep it in a cell, and read it
    # more slowly everywhere.
    parts, inputs, typed, at = [], [], facts.typed, 0
    for a in args:
        c = a.__class__
        if c is Tensor or c in tensor_types:
            tensor: TensorBase = a
            inputs.append(a)
            parts.append(tensor._spec)
        elif c in number_types:
            parts.append(c)
            if not typed[at]:
                parts.append(a)
            elif c is int and not LEAST_INT <= a <= MOST_INT:
                beyond_64_bits(a)
        elif c in plain_types:
            parts.append(a)
        elif c is tuple or c is list or bound and isinstance(a, (tuple, list)):
            if c is not tuple:
                a = tuple(a)
                args = (*args[:at], a, *args[at + 1:])
            if facts.lists and _any_tensor(a):
                for i, b in enumerate(a):
                    if b.__class__ in tensor_types or bound and isinstance(b, Tensor):
                        inputs.append(b)
                    elif b is not None:
                        if not bound:
                            return UNKNOWN_KEY
                        raise TypeError(f"{op.__name__.strip('_')}(): expected Tensor as element {i} in argument {at}, "
                                        f"but got {type(b).__name__}")
                parts.append(tuple([None if b is None else b._spec for b in a]))
            else:
                parts.append(a)
                for b in a:
                    if b.__class__ is not int:
                        if not bound:
                            return UNKNOWN_KEY
                        if _any_tensor(a):     # its contents count, and they may change
                            return find(op, facts, (*args[:at], numbers_in(a, op, at), *args[at + 1:]), None, True)
                        if any_derived(a):
                            return find(op, facts, (*args[:at], underived_all(a), *args[at + 1:]), None, True)
                        parts.append(classes(a))
                        break
        elif not bound:
            return UNKNOWN_KEY
        elif isinstance(a, Tensor):                       # of a class that overrides: its overrides are set aside
            inputs.append(a)
            parts.append(a._spec)
        elif isinstance(a, DERIVED_BASES):                # a NumPy scalar or a member of an enum: as what it holds
            return find(op, facts, (*args[:at], underived(a), *args[at + 1:]), None, True)
        else:
            parts.append(c)                               # float is not what 1.0 is, in arithmetic, which is float too
            parts.append(a)
        at += 1
    if bound:
        key = tuple(parts)
        try:
            return key, facts.entries.get(key), args, inputs
        except TypeError:
            raise TypeError(call_words(op, args) + ": an argument of a type it cannot take") from None
    if kwargs:
        parts.append(UNKNOWN_KEY)                                # from here on there are names
        for name, a in kwargs.items():
            c = a.__class__
            if c not in plain_types or name == "out":
                return UNKNOWN_KEY
            parts.append(name)
            parts.append(c)
            if name not in facts.typed_names or c not in number_types:
                parts.append(a)
            elif c is int and not LEAST_INT <= a <= MOST_INT:
                beyond_64_bits(a)
    key = tuple(parts)
    found = facts.given.get(key)
    if found is None:
        return key, None, None, None
    entry, binder = found
    if binder.__class__ is not tuple:
        args = binder((*args, *kwargs.values(), *facts.defaults))
    elif binder:
        args = args + binder
    return key, entry, args, inputs


def _any_tensor(group):
    return any(isinstance(b, Tensor) for b in group)


def classes(a):
    """The classes of what is in a tuple, by which it is kept apart from others that are equal to it."""
    return tuple([classes(b) if b.__class__ is tuple else b.__class__ for b in a])


def number_in(tensor, name, at):
    """The whole number that a tensor stands for."""
    if tensor._spec.numel != 1 or tensor._spec.dtype.category > 1:
        raise TypeError(f"argument '{name}' (position {at + 1}) must be int, not Tensor: it is {tensor._spec}")
    return int(tensor.item())


def numbers_in(group, op, at):
    """A tuple at place `at`, with the whole numbers that tensors in it stand for."""
    return tuple([number_in(b, op.arg_names[at], at) if isinstance(b, Tensor) else b for b in group])
