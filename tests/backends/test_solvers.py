"""Linear algebra through LAPACK and our own kernels, held against NumPy's, and against what defines it."""
import itertools

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu import lapack, threads
from flambeau.backends.cpu.library import solvers, triangular

L = torch.linalg
DTYPES = {"float32": 2e-3, "float64": 1e-9, "complex64": 2e-3, "complex128": 1e-9}
found = pytest.mark.skipif(not lapack.integer_bytes(), reason="NumPy's library shows no LAPACK here")


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def definite(a):
    return a @ np.conj(a).swapaxes(-1, -2) + np.eye(a.shape[-2], dtype=a.dtype)


def columns(t):
    return t.mT.contiguous().mT


def spread(t):
    return torch.stack([t, t * 0], -1)[..., 0]


def swapped(t):
    if t.ndim == 4:
        return t.transpose(0, 1).contiguous().transpose(0, 1)
    return t[:1].expand(t.shape) if t.ndim == 3 else t


LAYOUTS = {"rows": lambda t: t, "columns": columns, "spread": spread, "swapped": swapped}
CASES = {
    "cholesky": lambda a, s, b: (L.cholesky(s), L.cholesky(s, upper=True), *L.cholesky_ex(s)),
    "solve": lambda a, s, b: (L.solve(s, b), L.solve(s, b.mT, left=False), L.solve(s, b[..., 0])),
    "inv": lambda a, s, b: tuple(L.inv_ex(s)),
    "det": lambda a, s, b: (L.slogdet(s)[0], L.slogdet(s)[1], L.det(s[..., :2, :2])),
    "lu": lambda a, s, b: (*L.lu_factor_ex(a), *L.lu(a)),
    "qr": lambda a, s, b: (*L.qr(a), *L.qr(a, mode="complete"), *L.qr(a, mode="r")),
    "eigh": lambda a, s, b: (L.eigvalsh(s), L.eigvalsh(s, UPLO="U"), L.eigh(s)[0]),
    "svd": lambda a, s, b: (L.svdvals(a), L.svd(a)[1], L.svd(a, full_matrices=False)[1]),
    "pinv": lambda a, s, b: (L.pinv(a), L.pinv(s, hermitian=True), L.matrix_rank(a), L.matrix_rank(s, hermitian=True)),
    "lstsq": lambda a, s, b: tuple(x for driver in ("gelsy", "gels", "gelsd") for x in L.lstsq(a, b, driver=driver)),
    "triangular": lambda a, s, b: (L.solve_triangular(s, b, upper=True), L.solve_triangular(
        s, b.mT, upper=False, left=False), L.solve_triangular(s.mH, b, upper=True, unitriangular=True)),
}


def made(case, *arrays, executor, **switches):
    with torch.config.using(executor=executor, **switches):
        return [x.numpy() for x in CASES[case](*arrays)]


@found
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_what_numpy_says(case, dtype, layout):
    for (m, n), batch in itertools.product(((1, 1), (9, 9), (20, 20), (20, 12), (5, 8)), ((), (3,), (2, 3), (0,))):
        a = numbers((*batch, m, n), dtype)
        given = [LAYOUTS[layout](torch.tensor(x)) for x in (a, definite(a), numbers((*batch, m, 4), dtype, 1))]
        ours, reference = [made(case, *given, executor=executor) for executor in ("native", "reference")]
        for one, other in zip(ours, reference, strict=True):
            assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
            np.testing.assert_allclose(one, other, rtol=DTYPES[dtype], atol=DTYPES[dtype] * max(m, n))


@found
@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_are_what_defines_them(dtype):
    tolerance = DTYPES[dtype] * 10
    for batch in ((), (4,)):
        a = torch.tensor(numbers((*batch, 12, 12), dtype))
        s = (a + a.mH) / 2
        values, vectors = L.eigh(s)
        assert torch.dist(s @ vectors, vectors * values.unsqueeze(-2)) < tolerance
        values, vectors = L.eig(a)
        assert torch.dist(a.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2)) < tolerance
        assert torch.dist(torch.linalg.vector_norm(vectors, dim=-2), torch.ones(*batch, 12)) < tolerance
        for full, wide in ((True, a[..., :5]), (False, a[..., :5, :])):
            U, S, Vh = L.svd(wide, full_matrices=full)
            k = S.shape[-1]
            assert torch.dist(U[..., :k] * S.unsqueeze(-2) @ Vh[..., :k, :], wide) < tolerance
            assert torch.dist(U.mH @ U, torch.eye(U.shape[-1], dtype=a.dtype).expand(*batch, -1, -1)) < tolerance


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_triangles_of_every_size_and_shape(dtype):
    blocks = triangular.BLOCK_ROWS, triangular.NARROW_BLOCK_ROWS
    sizes = [(1, 1), (7, 3), (16, 40), (33, 17),
             (3 * blocks[1] // 2 + 1, 1), (blocks[1] * 3 + 5, 2), (2 * blocks[0] + 9, 21)]
    for (n, cols), upper, left, unit, turn in itertools.product(sizes, *[(False, True)] * 4):
        a = numbers((2, n, n), dtype) / n + 2 * np.eye(n, dtype=dtype)
        b = numbers((2, n, cols) if left else (2, cols, n), dtype, 1)
        triangle = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
        triangle = triangle + np.eye(n) if unit else triangle
        want = np.linalg.solve(triangle, b) if left else \
            np.linalg.solve(triangle.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)
        given = [columns(torch.tensor(x)) if turn else torch.tensor(x) for x in (a, b)]
        with torch.config.using(executor="native"):
            x = L.solve_triangular(*given, upper=upper, left=left, unitriangular=unit)
            assert [step.kind for step in torch.plans.of(x).steps] and all(
                step.kind in ("library", "kernel") for step in torch.plans.of(x).steps)
            np.testing.assert_allclose(x.numpy(), want, rtol=1e-3 if dtype == "float32" else 1e-9, atol=1e-5)


def test_a_zero_on_the_diagonal_divides_and_a_nan_goes_on():
    a, b = torch.eye(40, dtype=torch.float64), torch.ones(40, 20, dtype=torch.float64)
    a[3, 3] = 0
    x = L.solve_triangular(a, b, upper=True)
    assert torch.isinf(x[3]).all() and (x[4:] == 1).all()
    b[5, 2] = torch.nan
    x = L.solve_triangular(torch.tril(torch.ones(40, 40, dtype=torch.float64)), b, upper=False)
    assert torch.isnan(x[5:, 2]).all() and not torch.isnan(x[:5]).any() and not torch.isnan(x[:, 3:]).any()


@found
def test_the_other_triangle_is_not_read():
    s = torch.tensor(definite(numbers((9, 9), "float64")))
    dirty = s.tril() + torch.full((9, 9), torch.nan, dtype=torch.float64).triu(1)
    assert torch.equal(L.cholesky(dirty), L.cholesky(s)) and torch.equal(L.eigvalsh(dirty), L.eigvalsh(s))
    b = torch.ones(9, 2, dtype=torch.float64)
    assert torch.equal(L.solve_triangular(dirty, b, upper=False), L.solve_triangular(s, b, upper=False))


@found
@pytest.mark.parametrize("case", CASES)
def test_thread_counts_give_the_same_bits(case):
    a = numbers((300, 9, 9), "float64")
    given = [torch.tensor(x) for x in (a, definite(a), numbers((300, 9, 4), "float64", 1))]
    one, three = [made(case, *given, executor="native", num_threads=count) for count in (1, 3)]
    assert all(np.array_equal(x, y) for x, y in zip(one, three, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_without_lapack_the_references_compute(case, monkeypatch):
    a = numbers((2, 6, 6), "float64")
    given = [torch.tensor(x) for x in (a, definite(a), numbers((2, 6, 4), "float64", 1))]
    reference = made(case, *given, executor="reference")
    monkeypatch.setattr(lapack, "integer_bytes", lambda: 0)
    solvers.forget()
    try:
        for one, other in zip(made(case, *given, executor="auto"), reference, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    finally:
        solvers.forget()


REFUSED = {
    "cholesky": lambda a: L.cholesky(a), "inv": lambda a: L.inv(a), "solve": lambda a: L.solve(a, a),
    "lu_factor": lambda a: L.lu_factor(a), "eigh": lambda a: L.eigh(a), "eig": lambda a: L.eig(a),
    "svd": lambda a: L.svd(a),
    "eigvals": lambda a: L.eigvals(a), "pinv": lambda a: L.pinv(a), "gels": lambda a: L.lstsq(a, a, driver="gels"),
}


@pytest.mark.parametrize("fault", ("singular", "nan"))
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_in_the_same_words(name, fault):
    a = torch.tensor(definite(numbers((3, 4, 4), "float64")))
    a[1] = 0 if fault == "singular" else torch.nan

    def said(executor):
        with torch.config.using(executor=executor):
            try:
                REFUSED[name](a)
            except Exception as error:
                return type(error).__name__, str(error)
        return None

    assert said("auto") == said("reference")


@found
def test_the_number_of_threads_of_the_library_is_put_back():
    switch = lapack.thread_switch()
    if switch is None:
        pytest.skip("NumPy's library is not OpenBLAS")
    before = switch[0]()
    lapack.compute_on(3)
    lapack.compute_on(1)
    assert switch[0]() == 1
    lapack.computed()
    lapack.compute_on(2)
    assert switch[0]() == 1                                  # the fewest that any caller wants
    lapack.computed()
    lapack.computed()
    assert switch[0]() == before
    L.inv(torch.tensor(definite(numbers((64, 32, 32), "float64"))))
    assert switch[0]() == before and threads.get_num_threads() >= 1
