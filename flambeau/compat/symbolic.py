"""`torch.SymInt` and its kin: sizes that PyTorch's compiler leaves open. Here every size is a number.

So nothing is a SymInt, and the functions that take one or a number (transformers calls them in its models) take
numbers.
"""
import math

import numpy as np

from .missing import refusal

__all__ = ["SymBool", "SymFloat", "SymInt", "sym_float", "sym_fresh_size", "sym_int", "sym_ite", "sym_max", "sym_min",
           "sym_not", "sym_sqrt", "sym_sum"]


class _Symbol:
    """A number that is not known yet: there are none."""

    def __new__(cls, node):
        raise refusal(f"torch.{cls.__name__}")


class SymInt(_Symbol):
    """A whole number that is not known yet."""


class SymFloat(_Symbol):
    """A real number that is not known yet."""


class SymBool(_Symbol):
    """A condition that is not known yet."""


def sym_not(a):
    """`not a`."""
    return not a


def sym_float(a):
    """`float(a)`."""
    return float(a)


def sym_int(a):
    """`int(a)`."""
    return int(a)


def _chosen(choose, a, b):
    """The larger or smaller number; as a float if one of them is, whichever it is."""
    for number in (a, b):
        if not isinstance(number, int | float | np.integer | np.floating):
            raise AssertionError(f"expected a number, got {type(number)}")
    found = choose(a, b)
    return float(found) if isinstance(a, float | np.floating) or isinstance(b, float | np.floating) else found


def sym_max(a, b):
    """The larger of two numbers; a float if one of them is."""
    return _chosen(max, a, b)


def sym_min(a, b):
    """The smaller of two numbers; a float if one of them is."""
    return _chosen(min, a, b)


def sym_sum(*args):
    """The sum of numbers, given one by one or in a list."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args)


def sym_ite(b, t, f):
    """`t if b else f`."""
    return t if b else f


def sym_sqrt(a):
    """`math.sqrt(a)`."""
    return math.sqrt(a)


def sym_fresh_size(expr):
    """Refused, as in PyTorch outside of its compiler."""
    raise NotImplementedError("sym_fresh_size is not supported")
