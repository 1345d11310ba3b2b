"""The scalar mathematics of kernels: exp, log, sin and the rest, written in the arithmetic of `emit`.

    exp(e, x) → the Term of e to the x, where x is a Term of float32 or float64 with any number of lanes

Every lane takes the same steps and what differs is selected; only huge arguments of sin, cos and tan have a block of
their own. Results are within 2 units in the last place (ulp) of the correctly rounded ones over the whole range,
denormal numbers, infinities, NaN and signed zeros included, unless said. Functions that few programs spend their time
in compute float32 in float64.

Where the polynomials come from: they are our own minimax fits (Remez exchange in 40 digits, the coefficients then
rounded to the type, for float32 with a search among their neighbours). Beside each stands what is fitted, where, and
the greatest relative error that it adds to the result. Coefficients start at the lowest power. Constants in several
parts are the number rounded, then what is left of it rounded.

Note [Without fma]: `e.fma` rounds twice on a processor that has no such instruction, which costs a polynomial a
fraction of a unit. Where a result hangs on the one rounding, the constant's first part is short enough that its product
is exact, or it is said which exact thing is meant: `e.product_error`, `residue`, `minus_multiple`, `e.fma_exact`.
"""
from .error_function import erf, erfc, erfinv
from .exponential import cosh, exp, exp2, expm1, sigmoid, sinh, tanh
from .gamma import digamma, lgamma
from .logarithm import acosh, asinh, atanh, log, log1p, log2, log10
from .power import pow, rsqrt
from .special import erfcx, i0, i0e, i1, i1e, ndtri
from .trigonometry import acos, asin, atan, atan2, cos, sin, tan

SCALAR_FUNCTIONS = {function.__name__: function for function in (
    exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh, asinh, acosh,
    atanh, erf, erfc, erfinv, sigmoid, pow, rsqrt, lgamma, digamma)}
SPECIAL_FUNCTIONS = {function.__name__: function for function in (erfcx, ndtri, i0, i0e, i1, i1e)}
WORD_FUNCTIONS = {**SCALAR_FUNCTIONS, **SPECIAL_FUNCTIONS}       # all that the words of functions say
