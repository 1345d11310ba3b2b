"""Orthogonal polynomials, element by element. They have no gradients, as in PyTorch."""
from ..base import orthogonal_polynomials as polynomials
from ..base.op import Pointwise


class _chebyshev_polynomial_t(Pointwise):
    """The Chebyshev polynomial of the first kind of degree `n` at `x`, elementwise.

    >>> torch.special.chebyshev_polynomial_t(torch.tensor([0.5, 2.0]), 2)
    tensor([-0.5000,  7.0000])
    """

    names, forms = "special.chebyshev_polynomial_t", "function out"
    result, refuses, cname = "float", "complex half", "chebyshev_polynomial_t"

    def ref(xp, x, n): return polynomials.chebyshev_polynomial_t(xp, x, n)


class _chebyshev_polynomial_u(Pointwise):
    """The Chebyshev polynomial of the second kind of degree `n` at `x`, elementwise.

    >>> torch.special.chebyshev_polynomial_u(torch.tensor([0.5, 2.0]), 2)
    tensor([ 0., 15.])
    """

    names, forms = "special.chebyshev_polynomial_u", "function out"
    result, refuses, cname = "float", "complex half", "chebyshev_polynomial_u"

    def ref(xp, x, n): return polynomials.chebyshev_polynomial_u(xp, x, n)


class _chebyshev_polynomial_v(Pointwise):
    """The Chebyshev polynomial of the third kind of degree `n` at `x`, elementwise.

    >>> torch.special.chebyshev_polynomial_v(torch.tensor([0.5, 2.0]), 2)
    tensor([-1., 11.])
    """

    names, forms = "special.chebyshev_polynomial_v", "function out"
    result, refuses, cname = "float", "complex half", "chebyshev_polynomial_v"

    def ref(xp, x, n): return polynomials.chebyshev_polynomial_v(xp, x, n)


class _chebyshev_polynomial_w(Pointwise):
    """The Chebyshev polynomial of the fourth kind of degree `n` at `x`, elementwise.

    >>> torch.special.chebyshev_polynomial_w(torch.tensor([0.5, 2.0]), 2)
    tensor([ 1., 19.])
    """

    names, forms = "special.chebyshev_polynomial_w", "function out"
    result, refuses, cname = "float", "complex half", "chebyshev_polynomial_w"

    def ref(xp, x, n): return polynomials.chebyshev_polynomial_w(xp, x, n)


class _shifted_chebyshev_polynomial_t(Pointwise):
    """The Chebyshev polynomial of the first kind, moved to [0, 1], of degree `n` at `x`, elementwise.

    >>> torch.special.shifted_chebyshev_polynomial_t(torch.tensor([0.5, 2.0]), 2)
    tensor([-1., 17.])
    """

    names, forms = "special.shifted_chebyshev_polynomial_t", "function out"
    result, refuses, cname = "float", "complex half", "shifted_chebyshev_polynomial_t"

    def ref(xp, x, n): return polynomials.shifted_chebyshev_polynomial_t(xp, x, n)


class _shifted_chebyshev_polynomial_u(Pointwise):
    """The Chebyshev polynomial of the second kind, moved to [0, 1], of degree `n` at `x`, elementwise.

    >>> torch.special.shifted_chebyshev_polynomial_u(torch.tensor([0.5, 2.0]), 2)
    tensor([-1., 35.])
    """

    names, forms = "special.shifted_chebyshev_polynomial_u", "function out"
    result, refuses, cname = "float", "complex half", "shifted_chebyshev_polynomial_u"

    def ref(xp, x, n): return polynomials.shifted_chebyshev_polynomial_u(xp, x, n)


class _shifted_chebyshev_polynomial_v(Pointwise):
    """The Chebyshev polynomial of the third kind, moved to [0, 1], of degree `n` at `x`, elementwise.

    >>> torch.special.shifted_chebyshev_polynomial_v(torch.tensor([0.5, 2.0]), 2)
    tensor([-1., 29.])
    """

    names, forms = "special.shifted_chebyshev_polynomial_v", "function out"
    result, refuses, cname = "float", "complex half", "shifted_chebyshev_polynomial_v"

    def ref(xp, x, n): return polynomials.shifted_chebyshev_polynomial_v(xp, x, n)


class _shifted_chebyshev_polynomial_w(Pointwise):
    """The Chebyshev polynomial of the fourth kind, moved to [0, 1], of degree `n` at `x`, elementwise.

    >>> torch.special.shifted_chebyshev_polynomial_w(torch.tensor([0.5, 2.0]), 2)
    tensor([-1., 41.])
    """

    names, forms = "special.shifted_chebyshev_polynomial_w", "function out"
    result, refuses, cname = "float", "complex half", "shifted_chebyshev_polynomial_w"

    def ref(xp, x, n): return polynomials.shifted_chebyshev_polynomial_w(xp, x, n)


class _hermite_polynomial_h(Pointwise):
    """The physicist's Hermite polynomial of degree `n` at `x`, elementwise.

    >>> torch.special.hermite_polynomial_h(torch.tensor([0.5, 2.0]), 2)
    tensor([-1., 14.])
    """

    names, forms = "special.hermite_polynomial_h", "function out"
    result, refuses, cname = "float", "complex half", "hermite_polynomial_h"

    def ref(xp, x, n): return polynomials.hermite_polynomial_h(xp, x, n)


class _hermite_polynomial_he(Pointwise):
    """The probabilist's Hermite polynomial of degree `n` at `x`, elementwise.

    >>> torch.special.hermite_polynomial_he(torch.tensor([0.5, 2.0]), 2)
    tensor([-0.7500,  3.0000])
    """

    names, forms = "special.hermite_polynomial_he", "function out"
    result, refuses, cname = "float", "complex half", "hermite_polynomial_he"

    def ref(xp, x, n): return polynomials.hermite_polynomial_he(xp, x, n)


class _laguerre_polynomial_l(Pointwise):
    """The Laguerre polynomial of degree `n` at `x`, elementwise.

    >>> torch.special.laguerre_polynomial_l(torch.tensor([0.5, 2.0]), 2)
    tensor([ 0.1250, -1.0000])
    """

    names, forms = "special.laguerre_polynomial_l", "function out"
    result, refuses, cname = "float", "complex half", "laguerre_polynomial_l"

    def ref(xp, x, n): return polynomials.laguerre_polynomial_l(xp, x, n)


class _legendre_polynomial_p(Pointwise):
    """The Legendre polynomial of degree `n` at `x`, elementwise.

    >>> torch.special.legendre_polynomial_p(torch.tensor([0.5, 2.0]), 2)
    tensor([-0.1250,  5.5000])
    """

    names, forms = "special.legendre_polynomial_p", "function out"
    result, refuses, cname = "float", "complex half", "legendre_polynomial_p"

    def ref(xp, x, n): return polynomials.legendre_polynomial_p(xp, x, n)
