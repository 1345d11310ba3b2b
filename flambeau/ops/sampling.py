"""Samples that follow the parameters they were drawn for, and the check of values that distributions make."""
import numpy as np

from ..base import dtypes, implicit_gradients, shapes
from ..base.op import Op
from ..base.regions import EXACT, REGIONS, inside
from ..base.spec import spec


class _standard_gamma_grad(Op):
    """How fast gamma samples `output` of unit scale grow with their shape parameters `input`."""

    forms = ""

    def meta(input, output):    return like(input, output)
    def ref(xp, input, output): return implicit_gradients.gamma_slope(xp, input, output)
    def d_input(g):             return no_second_derivative("_standard_gamma_grad")
    def d_output(g):            return no_second_derivative("_standard_gamma_grad")


class _dirichlet_grad(Op):
    """How fast the components `x` of Dirichlet samples grow with their own concentration, over 1 - `x`."""

    forms = ""

    def meta(x, alpha, total):    return like(x, alpha, total)
    def ref(xp, x, alpha, total): return implicit_gradients.dirichlet_slope(xp, x, alpha, total)
    def d_x(g):                   return no_second_derivative("_dirichlet_grad")
    def d_alpha(g):               return no_second_derivative("_dirichlet_grad")
    def d_total(g):               return no_second_derivative("_dirichlet_grad")


def like(*specs):
    """The spec of a number for each position of these, which have one dtype."""
    first = specs[0]
    return spec(first.dtype, shapes.broadcast(*[s.shape for s in specs]), None, first.device)


def no_second_derivative(name):
    raise NotImplementedError(f"the derivative for '{name}' is not implemented: a sample of a gamma, beta or Dirichlet "
                              "distribution can be differentiated once")


class _standard_gamma(Op):
    """The gamma samples `drawn` for the shape parameters `input`, which they follow."""

    exact = True

    def meta(input, drawn):       return drawn
    def ref(xp, input, drawn):    return drawn
    def d_input(g, input, out):   return g * _standard_gamma_grad(input, out)
    def body(k, input, drawn):    return drawn


class _sample_dirichlet(Op):
    """The Dirichlet samples `drawn` for the concentrations `input`, which they follow."""

    exact = True
    node = "_DirichletBackward"

    def meta(input, drawn):    return drawn
    def ref(xp, input, drawn): return drawn

    def d_input(g, input, out):
        # where one component grows, all shrink in proportion to their size
        return _dirichlet_grad(out, input, input.sum(-1, True)) * (g - (out * g).sum(-1, True))

    def body(k, input, drawn): return drawn


class Outside(ValueError):
    """A value lies outside the region that it was checked for."""


class _must_hold(Op):
    """The check of values that distributions make: the tensors `values` lie in the `regions`, one for each, by its name
    in base/regions.py; `bounds` are those of all regions, one after the other.

    It is never recorded. As an operation's check of data it is one that a compiled function can repeat.
    """

    forms = ""
    lists = True
    refusal = Outside

    def meta(values, regions, bounds): return spec(dtypes.bool, ())

    def verify(values, regions, bounds):
        at = 0
        with np.errstate(all="ignore"):
            for value, region in zip(values, regions, strict=True):
                count = REGIONS[region][0]
                if not inside(region, value, bounds[at:at + count]).all():
                    raise Outside("Expected the parameters and values of a distribution to satisfy their constraints, "
                                  f"but one does not lie in {region}{tuple(bounds[at:at + count]) or ''}")
                at += count

    def holds(values, regions, bounds):
        at, found = 0, None
        for value, region in zip(values, regions, strict=True):
            count = REGIONS[region][0]
            if region not in EXACT:
                return None
            here = inside(region, value, bounds[at:at + count]).all()
            found = here if found is None else found & here
            at += count
        return found
