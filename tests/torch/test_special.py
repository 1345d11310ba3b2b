"""The special functions against PyTorch's, over sweeps and over everything that is not an ordinary number."""
import numpy as np
import pytest

from flambeau.base import special_functions

torch = pytest.importorskip("torch")

UNARY = {
    "erf": "erf", "erfc": "erfc", "erfcx": "erfcx", "erfinv": "erfinv", "ndtri": "ndtri", "ndtr": "ndtr",
    "log_ndtr": "log_ndtr", "lgamma": "gammaln", "digamma": "digamma", "i0": "i0", "i0e": "i0e", "i1": "i1",
    "i1e": "i1e", "sinc": "sinc", "entr": "entr",
}
BINARY = {"zeta": "zeta", "igamma": "gammainc", "igammac": "gammaincc", "xlog1py": "xlog1py"}

# Relative and absolute differences allowed, the wide ones where mpmath says that it is PyTorch which is off: its
# incomplete gammas are good to 9 digits at (96.8, 79.7), its trigamma to 9, its erfcx exponentiates a rounded x^2, its
# float32 kernels compute in float32. The absolute ones are for the neighbourhood of zeros.
LIMITS = {
    np.float64: {"": (2e-14, 2e-15), "erfcx": (1e-12, 0.0), "ndtr": (2e-13, 1e-16), "digamma": (1e-12, 1e-13),
                 "zeta": (1e-13, 0.0), "polygamma": (1e-12, 2e-9), "igamma": (1e-8, 1e-300), "igammac": (1e-8, 1e-300)},
    np.float32: {"": (3e-6, 2e-6), "erfcx": (2e-5, 0.0), "digamma": (1e-5, 2e-3), "zeta": (1e-4, 0.0),
                 "polygamma": (3e-4, 1e-3), "igamma": (2e-4, 1e-6), "igammac": (2e-4, 1e-6)},
}


def sweep(dtype):
    """Numbers of every size, denormals among them, of both signs; half of them between -30 and 30."""
    small = np.geomspace(np.finfo(dtype).smallest_subnormal * 3, 1e3, 2_000)
    return np.concatenate([np.linspace(-30, 30, 4_001) + 0.0003, small, -small]).astype(dtype)


def odd_ones(dtype):
    tiny, least, most = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny, np.finfo(dtype).max
    half = [0.0, tiny, least, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf]
    return np.array(half + [-v for v in half] + [np.nan, most, -most], dtype)


def theirs(name, *args):
    return getattr(torch.special, name)(*map(torch.from_numpy, args)).numpy()


def compare(name, got, want, *args):
    dtype = got.dtype.type
    relative, absolute = LIMITS[dtype].get(name, LIMITS[dtype][""])
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= relative * np.abs(want) + absolute + 2 * np.finfo(dtype).smallest_subnormal
    fine = (got == want) | (np.isnan(got) & np.isnan(want)) | near
    worst = [(*(float(a[i]) for a in args), got[i], want[i]) for i in np.flatnonzero(~fine)[:8]]
    assert got.dtype == want.dtype and fine.all(), worst


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_sweep(name, dtype):
    x = sweep(dtype)
    if name in ("i0", "i1"):
        x = x[np.abs(x) < np.log(np.finfo(dtype).max)]     # PyTorch's overflow with exp(x), a little early
    compare(name, getattr(special_functions, name)(np, x), theirs(UNARY[name], x), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_odd_ones(name, dtype):
    x = odd_ones(dtype)
    if name == "sinc":
        x = x[np.abs(x) != np.finfo(dtype).max]            # PyTorch overflows in pi x and gives nan
    got, want = getattr(special_functions, name)(np, x), theirs(UNARY[name], x)
    compare(name, got, want, x)
    zero = (got == 0) & (want == 0)
    assert (np.signbit(got) == np.signbit(want))[zero].all(), x[zero]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_sweep_of_two(name, dtype):
    draw = np.random.default_rng(0)
    if name == "xlog1py":
        a, b = draw.normal(size=(2, 5_000)) * 3
    elif name == "zeta":
        a, b = 1 + np.exp(draw.normal(size=5_000)), np.exp(draw.normal(size=5_000))
    else:
        a = np.exp(draw.uniform(-6, 7, 5_000))
        b = a * np.exp(draw.normal(size=5_000) * draw.choice([0.02, 0.2, 1.0], 5_000))
    a, b = a.astype(dtype), b.astype(dtype)
    compare(name, getattr(special_functions, name)(np, a, b), theirs(BINARY[name], a, b), a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_odd_pairs(name, dtype):
    odd = odd_ones(dtype)
    a, b = (v.reshape(-1) for v in np.meshgrid(odd, odd))
    finite, most = np.isfinite(a) & np.isfinite(b), np.finfo(dtype).max
    if name == "zeta":         # PyTorch walks from a negative q up to 9, and divides 0 by 0 for a huge s
        keep = (b > -1e6) & ((np.abs(b) < most) | ~(a > 1)) & ((np.abs(a) < most) | ~(b > 1))
    elif name == "xlog1py":
        keep = np.ones_like(finite)
    else:                      # PyTorch's series do not reach the ends: P(tiny, 1) is 1, P(max, 1) is 0
        keep = ~finite | ((a != most) & (b != most) & ~((a > 0) & (a < 0.1)) & ~((b > 0) & (b < 0.1)))
    a, b = a[keep], b[keep]
    compare(name, getattr(special_functions, name)(np, a, b), theirs(BINARY[name], a, b), a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 6])
def test_polygamma(n, dtype):
    draw = np.random.default_rng(n)
    x = np.concatenate([draw.uniform(-8, 30, 3_000), np.exp(draw.normal(size=1_000) * 2), odd_ones(dtype)])
    x = x.astype(dtype)
    if n == 1:
        x = x[~((x < 0) & (x == np.floor(x)))]             # a pole: inf, where PyTorch divides by sin(pi) = 1e-16
    if n >= 2:
        x = x[np.isnan(x) | (np.abs(x) < 1e6) | np.isinf(x)]
    whole = np.rint(x)
    x = x[~((x < 0) & (x != whole) & np.isclose(x, whole, rtol=0, atol=0.01))]     # its sin(pi x) is poor near one
    want = torch.special.polygamma(n, torch.from_numpy(x)).numpy()
    compare("polygamma", special_functions.polygamma(np, n, x), want, x)
