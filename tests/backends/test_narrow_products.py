"""Products of matrices of 16 and 8 bits by the units of this processor, against products in float64 and whole numbers.

Where the processor has no such unit there is nothing to run; tests/loops/test_targets.py writes them for others.
"""
import itertools
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import machine_code, threads
from flambeau.backends.cpu.library import gemm_narrow, gemm_units
from flambeau.backends.cpu.processor import choose

from .test_library import execute, strides

NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "int8": np.int8}
HALF_ULP = {"bfloat16": 2.0 ** -8, "float16": 2.0 ** -11}
SHAPES = [(1, 1, 1), (3, 5, 7), (16, 16, 32), (33, 17, 31), (64, 64, 64), (1, 100, 64), (100, 1, 65), (130, 270, 96),
          (40, 50, 0), (20, 300, 2500), (300, 30, 4130)]


def units():
    """(dtype, its unit) of all that this processor can run."""
    on = machine_code.processor().on
    return [(dtype, unit) for dtype, known in gemm_units.DOT_UNITS.items() for unit, needed in known
            if needed <= on and (unit.name != "amx" or gemm_units.may_use_tiles())]


@pytest.fixture(params=["bfloat16-amx", "bfloat16-avx512", "bfloat16-neon", "float16-amx", "int8-amx"])
def dtype(request, monkeypatch):
    """A dtype whose products go by one of the units."""
    dtype, _, name = request.param.partition("-")
    unit = next((unit for of, unit in units() if (of, unit.name) == (dtype, name)), None)
    if unit is None:
        pytest.skip(f"this processor has no {name} for {dtype}")
    monkeypatch.setattr(gemm_narrow, "unit_of", lambda asked: unit if asked == dtype else None)
    return dtype


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def laid(x, how):
    """`x` by rows, by columns, or with every element apart."""
    if how == "rows":
        return np.ascontiguousarray(x)
    if how == "columns":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    wide = np.zeros((*x.shape[:-2], 2 * x.shape[-2], 3 * x.shape[-1]), x.dtype)
    wide[..., ::2, ::3] = x
    return wide[..., ::2, ::3]


def drawn(rng, dtype, *shape):
    return rng.integers(-128, 128, shape, np.int8) if dtype == "int8" else \
        rng.standard_normal(shape).astype(NUMPY[dtype])


def product(dtype, a, b, out=None, added=(), how="rows"):
    """a @ b by native steps, into what was something else; `added` is (a row, what is done with it)."""
    kind = {"int8": "i32"}.get(dtype, out or "narrow")
    c = laid(np.full((*a.shape[:-1], b.shape[-1]), 77,
                     {"i32": np.int32, "float": np.float32, "narrow": a.dtype}[kind]), how)
    steps = gemm_narrow.gemm(a.shape[-2], b.shape[-1], a.shape[-1], dtype, strides(a), strides(b), strides(c),
                             a.shape[:-2], kind, *added[1:])
    execute(steps, [a, b, *added[:1], c])
    return c


def check(dtype, made, exact, k):
    """Rounded once from a float32 sum whose error is that of `k` roundings at worst, in the mean of their root."""
    if dtype == "int8":
        np.testing.assert_array_equal(made, exact.astype(np.int64).astype(np.int32))
        return
    own = 0 if made.dtype == np.float32 else HALF_ULP[dtype] * 1.01
    error = np.abs(made.astype(np.float64) - exact)
    assert (error <= np.abs(exact) * own + 2.0 ** -24 * 32 * (k + 4)).all(), error.max()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_layout(rng, dtype, shape):
    M, N, K = shape
    a, b = drawn(rng, dtype, M, K), drawn(rng, dtype, K, N)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    first = None
    for way in itertools.product(("rows", "columns", "apart"), ("rows", "columns", "apart"), ("rows", "columns")):
        made = product(dtype, laid(a, way[0]), laid(b, way[1]), how=way[2])
        check(dtype, made, exact, K)
        first = made if first is None else first
        np.testing.assert_array_equal(made, first, str(way))       # see Note [Bits of a unit]
    if dtype != "int8":
        wide = product(dtype, a, b, "float")
        check(dtype, wide, exact, K)
        np.testing.assert_array_equal(wide.astype(NUMPY[dtype]), first)


@pytest.mark.parametrize("shape", [(7, 9, 12), (1, 40, 64), (50, 1, 33), (64, 48, 96)], ids=str)
def test_a_row_is_added_before_the_one_rounding(rng, dtype, shape):
    if dtype == "int8":
        pytest.skip("whole numbers have no bias")
    M, N, K = shape
    a, b, row = drawn(rng, dtype, M, K), drawn(rng, dtype, K, N), drawn(rng, dtype, N)
    exact = a.astype(np.float64) @ b.astype(np.float64) + row.astype(np.float64)
    for how in ("rows", "columns"):
        check(dtype, product(dtype, a, laid(b, how), added=(row, "bias")), exact, K)
        check(dtype, product(dtype, a, laid(b, how), added=(row, "relu")), np.maximum(exact, 0), K)


def test_batches_share_and_skip(rng, dtype):
    a, b = drawn(rng, dtype, 2, 3, 20, 40), drawn(rng, dtype, 1, 3, 40, 10)
    b = np.broadcast_to(b, (2, 3, 40, 10))[:, ::-1]
    check(dtype, product(dtype, a, b), a.astype(np.float64) @ b.astype(np.float64), 40)


def test_any_number_of_threads_gives_the_same_bits(rng, dtype):
    before, made = threads.get_num_threads(), []
    a, b = drawn(rng, dtype, 300, 700), drawn(rng, dtype, 700, 260)
    try:
        for number in (1, 2, 5):
            threads.set_num_threads(number)
            made.append(product(dtype, a, b))
    finally:
        threads.set_num_threads(before)
    assert all(one.tobytes() == made[0].tobytes() for one in made)


def test_infinities_and_nan_stay_where_they_belong(rng, dtype):
    if dtype == "int8":
        pytest.skip("whole numbers are finite")
    a, b = drawn(rng, dtype, 18, 33), drawn(rng, dtype, 33, 19)
    a[2, 5], a[17, 32], b[1, 18] = np.inf, np.nan, -np.inf
    made, exact = product(dtype, a, b).astype(np.float64), a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(made), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(made), np.isinf(exact))


def test_numbers_too_small_to_be_normal(dtype):
    if dtype == "int8":
        pytest.skip("whole numbers have none")
    least = {"bfloat16": 2.0 ** -133, "float16": 2.0 ** -24}[dtype]
    a, b = np.full((1, 2), least, NUMPY[dtype]), np.array([[2.0], [1.0]], NUMPY[dtype])
    made = float(product(dtype, a, b)[0, 0])
    # those of float16 are normal in float32; those of bfloat16 are not, and the units of x86-64 take them for zero
    assert made == 3 * least if dtype == "float16" or gemm_narrow.unit_of(dtype).name == "neon" else made == 0


def test_a_feature_less_is_another_unit():
    processor = machine_code.processor()
    if "x86_64" not in processor.triple or "avx512bf16" not in processor.on:
        pytest.skip("of an x86-64 processor with AVX512-BF16")
    host, found = machine_code.host(), {}
    for text in ("native", "native,-amx-tile", "native,-avx512bf16", "x86-64-v4"):
        goal = choose(text, processor.triple, processor.cpu, host.features)
        found[text] = [unit and unit.name for unit in (gemm_units.best_unit(dtype, goal) for dtype in NUMPY)]
        assert "amx-tile" in goal.on or not {"amx-bf16", "amx-int8", "amx-fp16"} & goal.on
    assert found["native,-amx-tile"] == ["avx512", None, None]
    assert found["native,-avx512bf16"] == found["x86-64-v4"] == [None, None, None]


def test_threads_and_forks_may_use_what_the_process_may():
    """A thread from before the permission was asked for, a thread from after, and a child."""
    code = """
import os, threading
go, done = threading.Event(), []
def multiply():
    x = torch.full((64, 64), 0.5, dtype=torch.bfloat16)
    return (x @ x).float().sum().item() == 64 ** 3 / 4
early = threading.Thread(target=lambda: (go.wait(), done.append(multiply())))
early.start()
import flambeau as torch
torch.set_num_threads(2)
done.append(multiply())
go.set()
late = threading.Thread(target=lambda: done.append(multiply()))
late.start()
early.join(); late.join()
child = os.fork()
if not child:
    os._exit(0 if multiply() else 1)
done.append(os.waitpid(child, 0)[1] == 0)
print(done)
"""
    if not hasattr(os, "fork"):
        pytest.skip("there are no forks here")
    said = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True,
                          env={**os.environ, "FLAMBEAU_EXECUTOR": "native"}, timeout=300)
    assert said.stdout.strip() == "[True, True, True, True]", said.stderr


@pytest.mark.pinned
def test_a_product_is_one_step_that_reads_16_bits():
    """Nothing is widened first; a sum with a bias is rounded once, as addmm's reference rounds it."""
    if gemm_units.unit_of("bfloat16") is None:
        pytest.skip("this processor has no unit for bfloat16")
    with torch.config.using(executor="native"):
        a, b, c = [torch.randn(n, m).bfloat16() for n, m in ((40, 50), (50, 60), (40, 60))]
        torch.cpu.synchronize()
        assert [step.words for step in torch.plans.of(a @ b).steps] == [("gemm",)]
        assert [step.words for step in torch.plans.of(torch.nn.functional.linear(a, b.mT, c[0])).steps] == [("affine",)]
        made = torch.addmm(c, a, b, beta=0.5, alpha=3)
        exact = 0.5 * c.double() + 3 * (a.double() @ b.double())
        assert ((made.double() - exact).abs() <= exact.abs() * 2.0 ** -7.9 + 1e-4).all()


def test_a_thread_of_its_own_gives_the_same(rng):
    x = torch.tensor(rng.standard_normal((70, 70))).bfloat16()
    here, there = (x @ x).tolist(), []
    thread = threading.Thread(target=lambda: there.append((x @ x).tolist()))
    thread.start()
    thread.join()
    assert there == [here]
