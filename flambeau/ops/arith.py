"""Arithmetic: sums, products, quotients, powers and remainders, element by element."""
from ..base.op import Pointwise


class add(Pointwise):
    """The sum of `input` and `alpha` times `other`, elementwise.

    >>> torch.add(torch.tensor([1, 2]), 10)
    tensor([11, 12])
    """

    def ref(xp, input, other, *, alpha=1): return xp.add(input, other if alpha == 1 else xp.multiply(alpha, other))
    def d_input(g):         return g
    def d_other(g, alpha):  return g if alpha == 1 else g * conj(alpha)


class sub(Pointwise):
    """`input` minus `alpha` times `other`, elementwise."""

    names = "subtract"
    refuses = "bool"

    def ref(xp, input, other, *, alpha=1): return xp.subtract(input, other if alpha == 1 else xp.multiply(alpha, other))
    def d_input(g):         return g
    def d_other(g, alpha):  return -g if alpha == 1 else -g * conj(alpha)


class mul(Pointwise):
    """The product of `input` and `other`, elementwise."""

    names = "multiply"

    def ref(xp, input, other): return xp.multiply(input, other)
    def d_input(g, other):     return g * conj(other)
    def d_other(g, input):     return g * conj(input)


class neg(Pointwise):
    """Minus `input`, elementwise."""

    names = "negative"
    refuses = "bool"

    def ref(xp, input): return xp.negative(input)
    def d_input(g):     return -g


def conj(x):
    """The conjugate of a number or tensor; itself where it is real."""
    if isinstance(x, (int, float)):
        return x
    if isinstance(x, complex):
        return x.conjugate()
    return x.conj() if x.is_complex() else x
