"""Complex numbers in native kernels: what NumPy's formulas give, in all ways that they may lie."""
import numpy as np
import pytest

import flambeau as torch

pytestmark = pytest.mark.pinned
PARTS = {"complex64": ("float32", 2e-6), "complex128": ("float64", 5e-15)}
ENDS = [0.0, -0.0, 1.0, -2.5, 1e-30, 3e37, np.inf, -np.inf, np.nan]


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def given(array):
    """The array as a tensor whose operations wait."""
    out = torch.from_numpy(np.ascontiguousarray(array)).clone()
    torch.cpu.synchronize()
    return out


def native(function, *arrays):
    """(the result, the plan) of what has to run natively as a whole."""
    with torch.config.using(executor="native"):
        out = function(*map(given, arrays))
        plan = torch.plans.of(out)
        assert "reference" not in str(plan), plan
        return out.numpy(), plan


FORMULAS = {
    "add": lambda m, a, b: a + b, "sub": lambda m, a, b: a - 2 * b, "mul": lambda m, a, b: a * b,
    "div": lambda m, a, b: a / b, "by a number": lambda m, a, b: a * 2.5 + (1 - 2j) * b - b / (0.5 + 1j),
    "neg": lambda m, a, b: -a, "conj": lambda m, a, b: a.conj() * b, "abs": lambda m, a, b: abs(a * b),
    "exp": lambda m, a, b: m.exp(a - b), "parts": lambda m, a, b: a.real * b.imag - b.real,
    "eq": lambda m, a, b: (a == b) | (a != b.conj()), "where": lambda m, a, b: m.where(a.real > 0, a, b),
    "angle": lambda m, a, b: m.angle(a * b), "reciprocal": lambda m, a, b: 1 / a, "square": lambda m, a, b: a * a,
    "finite": lambda m, a, b: m.isfinite(a) & ~m.isnan(b) | m.isinf(a),
    "total": lambda m, a, b: (a * b).sum(), "total down": lambda m, a, b: (a + b).sum(0),
    "total along": lambda m, a, b: (a - b).sum(-1), "mean": lambda m, a, b: (a * b).mean(-1),
    "spread": lambda m, a, b: a + b[:1] * 2j, "turned": lambda m, a, b: a.T * b.T,
    "parts of rows": lambda m, a, b: a[..., 1::2] * b[..., :-1:2] if a.shape[-1] % 2 == 0 else a[..., 2:] + b[..., :-2],
}


@pytest.mark.parametrize("dtype", PARTS)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name, dtype):
    part, tolerance = PARTS[dtype]
    for shape in ((1, 3), (3, 5), (7, 33), (2, 64), (40, 130)):
        a, b = numbers(shape, dtype), numbers(shape, dtype, 1)
        got, _ = native(lambda x, y: FORMULAS[name](torch, x, y), a, b)
        want = FORMULAS[name](np, a.astype(np.complex128), b.astype(np.complex128))
        assert got.dtype in (dtype, part, bool)
        assert np.allclose(got, want, rtol=tolerance * max(shape), atol=tolerance * shape[0] * shape[1]), shape
        with torch.config.using(executor="auto"):             # no plan the first time, and the same bits
            alone = FORMULAS[name](torch, given(a), given(b)).numpy()
        assert alone.tobytes() == got.tobytes()


@pytest.mark.parametrize("dtype", PARTS)
def test_infinities_and_nan(dtype):
    """As NumPy's formulas have them, which are the reference; products may be rounded once there, so that infinity less
    infinity is none: they are written out."""
    ends = np.array([complex(a, b) for a in ENDS for b in ENDS]).astype(dtype)
    a, b = [x.ravel() for x in np.meshgrid(ends, ends)]
    for name in ("add", "mul", "div", "neg", "conj", "eq", "where", "finite"):
        got, _ = native(lambda x, y, name=name: FORMULAS[name](torch, x, y), a, b)
        with np.errstate(all="ignore"), torch.config.using(executor="reference"):
            want = FORMULAS[name](torch, given(a), given(b)).numpy()
            if name in ("mul", "conj"):
                im = -a.imag if name == "conj" else a.imag
                want.real, want.imag = a.real * b.real - im * b.imag, a.real * b.imag + im * b.real
        assert np.allclose(got.real, want.real, rtol=1e-5, equal_nan=True), name
        assert np.allclose(got.imag, want.imag, rtol=1e-5, equal_nan=True), name
    for function in (torch.abs, torch.angle, torch.exp, torch.sgn):
        got, _ = native(function, ends)
        with np.errstate(all="ignore"), torch.config.using(executor="reference"):
            want = function(given(ends)).numpy()
        some = np.isfinite(ends) if function is torch.sgn else slice(None)      # an infinite one over itself
        assert np.allclose(got[some], want[some], rtol=1e-5, equal_nan=True), function


@pytest.mark.parametrize("source", "bool uint8 int64 float16 float32 float64 complex64 complex128".split())
@pytest.mark.parametrize("target", PARTS)
def test_conversions(source, target):
    x = (numbers((3, 21), "complex128") * 3)
    x = (x if source.startswith("complex") else x.real.round()).astype(source)
    got, _ = native(lambda t: t.to(getattr(torch, target), copy=True), x)
    assert got.dtype == target and np.array_equal(got, x.astype(target))
    got, _ = native(lambda t: t.bool(), x.astype(target))
    assert np.array_equal(got, x.astype(target) != 0)


@pytest.mark.parametrize("dtype", PARTS)
def test_memory_is_written_in_part(dtype):
    z, w = numbers((6, 35), dtype), numbers((6, 35), dtype, 1)

    def write(x, y):
        x[1:3, ::2] = y[1:3, ::2] * 2
        x.real[4] = y.imag[4]
        x[5] += y[5] * 1j
        x.imag[0].zero_()
        return x

    got, _ = native(write, z, w)
    want = z.copy()
    want[1:3, ::2] = w[1:3, ::2] * 2
    want.real[4] = w.imag[4]
    want[5] += w[5] * 1j
    want.imag[0] = 0
    assert np.allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", PARTS)
def test_moves(dtype):
    z, w = numbers((6, 35), dtype), numbers((2, 35), dtype, 1)
    index = np.array([3, 0, 5, 5])
    assert np.array_equal(native(lambda x, i: x[i] * 1, z, index)[0], z[index])
    assert np.array_equal(native(lambda x, y: torch.cat([x, y * 2]), z, w)[0], np.concatenate([z, w * 2]))
    assert np.array_equal(native(lambda x: torch.view_as_real(x * 2), z)[0], np.stack([z.real, z.imag], -1) * 2)
    pairs = np.ascontiguousarray(np.stack([z.real, z.imag], -1))
    assert np.array_equal(native(lambda x: torch.view_as_complex(x * 2), pairs)[0], z * 2)
    assert np.array_equal(native(torch.complex, z.real, z.imag)[0], z)
    assert np.allclose(native(torch.polar, abs(z), np.angle(z))[0], z, rtol=1e-5)


@pytest.mark.parametrize("dtype", PARTS)
def test_products_of_matrices(dtype):
    a, b = numbers((4, 9, 17), dtype), numbers((4, 17, 12), dtype, 1)
    assert np.allclose(native(torch.matmul, a, b)[0], a @ b, rtol=1e-5, atol=1e-5)
    weight = numbers((9, 5, 17), dtype, 2)
    got, _ = native(lambda x, y: torch.einsum("bix,iox->box", x, y), a, weight)
    want = np.einsum("bix,iox->box", a, weight)
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_chain_is_one_kernel():
    _, plan = native(lambda a, b: ((a * b + a) * b.conj()).abs().sum(1), *[numbers((50, 60), "complex64")] * 2)
    assert len(plan.kernels) == 1
    assert "p0: c64[s, 1]" in str(plan.kernels[0].loop)


def test_what_is_kept_is_read_again_as_it_lies():
    """A result that is wanted and used later is stored once, not once more for each part."""
    a, b = given(numbers((4, 1000), "complex64")), given(numbers((4, 1000), "complex64", 1))
    with torch.config.using(executor="native"):
        product = a * b
        total = (product.sum(1, keepdim=True) + product).abs()
        plan = torch.plans.of(total)
        assert not any(name.startswith("w") and plan.working > 4 * 1000 * 8
                       for step in plan.steps for name in step.keeps)
        assert np.allclose(total.numpy(), abs(product.numpy().sum(1, keepdims=True) + product.numpy()), rtol=1e-4)


def test_gradients():
    z = given(numbers((3, 4), "complex128")).requires_grad_()
    w = given(numbers((3, 4), "complex128", 1)).requires_grad_()
    for function in (lambda a, b: a * b / (b + 3), lambda a, b: (a * b.conj()).abs(), lambda a, b: (a.exp() + b).sum(0),
                     lambda a, b: torch.polar(a.abs(), b.imag), lambda a, b: torch.fft.irfft(torch.fft.fft(a) * b, 6)):
        with torch.config.using(executor="native"):
            assert torch.autograd.gradcheck(function, (z, w))
