"""Fourier transforms as native steps: against NumPy's in float64, by identities, and the same whatever runs them."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu.library.fft import radices_of

pytestmark = pytest.mark.pinned
SMOOTH = [1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 15, 16, 30, 49, 64, 77, 121, 143, 256, 360, 512, 1000, 2048]
LONG = [5000, 8192, 16384, 30030]                       # a line alone goes as columns
OTHERS = [17, 34, 289, 1021]                            # which no radix divides
DTYPES = {"complex64": 2.0**-24, "complex128": 2.0**-53}


def numbers(shape, dtype="complex128", seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def given(array):
    """The array as a tensor whose operations wait."""
    out = torch.from_numpy(np.ascontiguousarray(array)).clone()
    torch.cpu.synchronize()
    return out


def run(function, *arrays):
    with torch.config.using(executor="native"):
        out = function(*map(given, arrays))
        steps = str(torch.plans.of(out))
        return out.numpy(), steps


def error(got, want):
    """The root mean square of it, relative to that of what is wanted."""
    return np.sqrt(np.mean(np.abs(got - want) ** 2) / max(np.mean(np.abs(want) ** 2), 1e-300))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SMOOTH + LONG + OTHERS)
def test_transforms_are_as_exact_as_they_can_be(n, dtype):
    """The error of a fast transform grows with the root of the logarithm of its length; a bound of four of these units
    holds pocketfft too."""
    bound = 4 * DTYPES[dtype] * max(np.log2(n), 1)**0.5
    for lead in ((), (5,), (37,)) if n < 3000 else ((), (2,)):
        z = numbers((*lead, n), dtype)
        x, wide = z.real.copy(), z.astype(np.complex128)
        for got, want in [(run(torch.fft.fft, z), np.fft.fft(wide)), (run(torch.fft.ifft, z), np.fft.ifft(wide)),
                          (run(torch.fft.rfft, x), np.fft.rfft(wide.real)),
                          (run(torch.fft.fft, x), np.fft.fft(wide.real)),
                          (run(lambda t: torch.fft.irfft(t, 2 * n), z), np.fft.irfft(wide, 2 * n)),
                          (run(lambda t: torch.fft.hfft(t, 2 * n - 1), z), np.fft.hfft(wide, 2 * n - 1))]:
            assert got[0].shape == want.shape and error(got[0], want) < bound


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("n", [8, 15, 60])
def test_lines_may_lie_in_any_way(n, dim):
    shape = [7, 21, 18]
    shape[dim] = n
    z = numbers(shape)
    for turn in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        back = np.argsort(turn)
        got, steps = run(lambda t: torch.fft.fft(t.permute(*turn), dim=dim), z.transpose(back))
        assert error(got, np.fft.fft(z, axis=dim)) < 1e-15 and "reference" not in steps
        got, steps = run(lambda t: torch.fft.rfft(t.permute(*turn).real, dim=dim), z.transpose(back))
        assert error(got, np.fft.rfft(z.real, axis=dim)) < 1e-15 and "reference" not in steps
    got, _ = run(lambda t: torch.fft.fft(t[::2, 1:, ::3], dim=dim), z)
    assert error(got, np.fft.fft(z[::2, 1:, ::3], axis=dim)) < 1e-15
    got, _ = run(lambda t: torch.fft.fft(t[:1].expand(5, -1, -1), dim=dim), z)
    assert error(got, np.fft.fft(np.broadcast_to(z[:1], (5, *z.shape[1:])), axis=dim)) < 1e-15


@pytest.mark.parametrize("shape", [(16, 3, 32, 32), (48, 40), (5, 30, 7, 9)])
def test_several_dimensions(shape):
    z = numbers(shape)
    for dims in ((-1,), (-2, -1), (0, 1), tuple(range(len(shape)))):
        got, steps = run(lambda t: torch.fft.fftn(t, dim=dims, norm="ortho"), z)
        assert error(got, np.fft.fftn(z, axes=dims, norm="ortho")) < 1e-15 and "reference" not in steps
        got, _ = run(lambda t: torch.fft.ifftn(t, dim=dims), z)
        assert error(got, np.fft.ifftn(z, axes=dims)) < 1e-15
        got, _ = run(lambda t: torch.fft.rfftn(t, dim=dims), z.real)
        assert error(got, np.fft.rfftn(z.real, axes=dims)) < 1e-15
        got, _ = run(lambda t: torch.fft.irfftn(t, dim=dims), z)
        assert error(got, np.fft.irfftn(z, axes=dims)) < 1e-15


def test_identities():
    """Parseval's, that of a shift, and the transform of an impulse (A. Oppenheim, R. Schafer, Discrete-Time Signal
    Processing, 8.4)."""
    n, lines = 360, 20
    z = numbers((lines, n))
    spectrum, _ = run(torch.fft.fft, z)
    assert np.allclose((np.abs(spectrum)**2).sum(-1), n * (np.abs(z)**2).sum(-1), rtol=1e-13)
    shifted, _ = run(torch.fft.fft, np.roll(z, 7, -1))
    assert np.allclose(shifted, spectrum * np.exp(-2j * np.pi * 7 * np.arange(n) / n), rtol=0, atol=1e-12)
    impulse = np.zeros((lines, n))
    impulse[:, 1] = 1
    assert np.allclose(run(torch.fft.fft, impulse)[0], np.exp(-2j * np.pi * np.arange(n) / n), rtol=0, atol=1e-15)


@pytest.mark.parametrize("n", [64, 200, 1000])
def test_lines_have_nothing_to_do_with_each_other(n):
    """Not a number in one line, or a large one, shows in that line alone."""
    z = numbers((35, n), "complex64")
    clean = run(torch.fft.rfft, z.real)[0]
    z[3, 5], z[18] = np.nan, z[18] * 1e30
    for function in (torch.fft.fft, torch.fft.ifft, torch.fft.irfft):
        got = run(function, z)[0]
        assert np.isnan(got[3]).all() and np.isfinite(np.delete(got, 3, 0)).all()
    got = run(torch.fft.rfft, z.real)[0]
    assert np.array_equal(np.delete(got, [3, 18], 0), np.delete(clean, [3, 18], 0))


@pytest.mark.parametrize("shape", [(70, 64), (3, 1000), (16384,), (2, 33, 48)])
def test_bits_are_the_same_on_any_number_of_threads_and_without_a_plan(shape):
    z = numbers(shape, "complex64")
    first = run(torch.fft.fft, z)[0].tobytes()
    for count in (1, 2, 3):
        with torch.config.using(num_threads=count):
            assert run(torch.fft.fft, z)[0].tobytes() == first
    with torch.config.using(executor="auto"):
        assert torch.fft.fft(given(z)).numpy().tobytes() == first


def test_which_lengths_are_native():
    assert all(np.prod(radices_of(n), dtype=int) == n for n in SMOOTH if n > 1)
    assert not any(map(radices_of, OTHERS))
    for n in SMOOTH:
        assert "reference" not in run(torch.fft.fft, numbers((40, n)))[1]
    for n in OTHERS:
        assert "reference" in run(torch.fft.fft, numbers((40, n)))[1]


def test_columns_need_no_batch():
    assert run(torch.fft.fft, numbers((16384,)))[1].count("fft") == 2


def test_nothing_to_transform():
    assert torch.fft.fft(torch.empty(0, 8)).shape == (0, 8)
    assert torch.fft.rfft(torch.empty(3, 0, 8)).shape == (3, 0, 5)
