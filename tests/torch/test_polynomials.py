"""Orthogonal polynomials where PyTorch stops: degrees that are huge, below zero or no numbers, and Bessel functions
that overflow."""
import numpy as np
import pytest
import torch

import flambeau

X = [0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 10.0, float("inf"), float("-inf"), 1e30, 0.999, -0.9]
DEGREES = [-1.0, -0.5, 0.0, 1.0, 2.7, 6.0, 7.0, 9.0, 20.0, 128.0, 129.0, 512.0, 513.0, 3000.0, 1e19,
           3e38, float("nan"), float("inf")]
KINDS = [*[f"{moved}chebyshev_polynomial_{kind}" for moved in ("", "shifted_") for kind in "tuvw"],
         "hermite_polynomial_h",
         "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KINDS)
def test_degrees(name, dtype):
    for n in DEGREES:
        theirs, ours = [getattr(m.special, name)(m.tensor(X, dtype=getattr(m, dtype)), n).numpy()
                        for m in (torch, flambeau)]
        tol = 2e-3 if dtype == "float32" else 1e-8
        atol = max(n, 1) * 2e-6 if dtype == "float32" and n < 1e5 else 1e-10          # of angles, times the degree
        np.testing.assert_allclose(ours, theirs, rtol=tol, atol=atol, err_msg=str(n))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"])
def test_edges_of_bessel_functions(name, dtype):
    x = [88.7, 88.8, 89.0, -89.0, 700.0, 712.0, -713.0,
         float("inf"), float("-inf"), float("nan"), 0.0, 0.4999, 0.5, 1e-4]
    theirs, ours = [getattr(m.special, name)(m.tensor(x, dtype=getattr(m, dtype))).numpy() for m in (torch, flambeau)]
    tol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(ours, theirs, rtol=tol, atol=tol / 100)
