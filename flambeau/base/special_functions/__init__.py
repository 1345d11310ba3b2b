"""The special functions that NumPy lacks, as array code for NumPy or CuPy.

Every function takes the array module `xp` first, then arrays of float32 or float64 that broadcast, and
gives an array of their common dtype. All arithmetic is float64; a float32 result is rounded once, at the end.
Infinities, nan, signed zeros, poles and domain errors come out as PyTorch has them. Only where its kernels
overflow early or return rounding noise (`i0(712)`, `trigamma(-1)`, `zeta(1e30, 2)`), the true value does.

Float64 results are good to a few units in the last place, with two exceptions. Next to a zero at negative x
(`lgamma`, `digamma`, `polygamma`) the error is small beside the terms that cancel, not beside the result.
And an incomplete gamma function that is as small as e^-E is good to about 20 + 3 E units.

The tables are the published ones, named where they stand; polynomials list the highest power first.
"""
from .bessel import i0, i0e, i1, i1e
from .elementary import entr, sinc, spherical_bessel_j0, xlog1py
from .error_functions import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from .gamma import EULER_MACLAURIN_COEFFICIENTS, digamma, lgamma, polygamma, trigamma, zeta
from .incomplete_gamma import igamma, igammac
from .tools import BLOCK_ELEMENTS, SQRT_HALF, elementwise, quiet
