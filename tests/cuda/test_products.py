"""Products on a GPU: which call of cuBLAS is made for which layout, computed by a cuBLAS of the tests.

Small ones, which are kernels, are in test_library.py.
"""
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

import flambeau as torch
from flambeau.backends import library_switches
from flambeau.backends.cuda import library, vendor
from flambeau.backends.cuda.library import products
from flambeau.base import dtypes

from .fake_blas import FakeBLAS

pytestmark = pytest.mark.pinned

DTYPES = [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def blas():
    patch, block = pytest.MonkeyPatch(), np.empty(4096, np.uint8)
    address = (block.ctypes.data + 255) & ~255
    patch.setattr(products, "MAX_SMALL", 0)                  # these are for cuBLAS, too
    patch.setattr(vendor, "workspace", lambda index, nbytes: SimpleNamespace(address=address, block=block))
    with vendor.substitute("cublas", FakeBLAS()) as fake:
        library.forget()
        yield fake
    library.forget()
    patch.undo()


def laid_out(draw, shape, dtype, rng):
    """An array of `shape` of small numbers, in some order of its dimensions, with gaps, or shared."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from((0, 0, 0, 1, 3))) for _ in shape]
    whole = rng.integers(-4, 5, [shape[d] + gaps[d] for d in order]).astype(dtype.np)
    array = whole.transpose([order.index(d) for d in range(len(shape))])[tuple(slice(n) for n in shape)]
    if draw(st.booleans()) and len(shape) > 2:
        array = np.broadcast_to(array[:1], array.shape)
    return array


def strides(array):
    return tuple(s // array.itemsize for s in array.strides)


def placed(array):
    return array.shape, strides(array)


@given(st.data())
def test_products_of_any_layout(blas, data):
    draw, dtype = data.draw, data.draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=3))
    lead = [draw(st.integers(0, len(batch))) for _ in range(2)]
    a = laid_out(draw, (*batch[lead[0]:], m, k), dtype, rng)
    b = laid_out(draw, (*[draw(st.sampled_from((1, size))) for size in batch[lead[1]:]], k, n), dtype, rng)
    c = np.full((*batch, m, n), 99, dtype.np)
    if draw(st.booleans()):
        c = np.full((*batch, n, m), 99, dtype.np).swapaxes(-1, -2)
    calls = library.ask("gemm", dtype, [placed(a), placed(b)], [placed(c)], ())
    wide = np.matmul(a.astype(np.float64), b.astype(np.float64))
    if calls is None:                                         # the plan copies, and asks again
        a, b = np.array(a, order="C"), np.array(b, order="C")
        calls = library.ask("gemm", dtype, [placed(a), placed(b)], [placed(c)], ())
    for call in calls:
        call.fn([a.ctypes.data, b.ctypes.data, c.ctypes.data], 7)
    np.testing.assert_array_equal(c.astype(np.float64), np.broadcast_to(wide, c.shape))


def evenly(rng, rows, cols, turned):
    """A matrix of 16-bit elements whose rows begin at multiples of 16 bytes, or whose columns do."""
    whole = rng.integers(-1, 2, (cols, rows + -rows % 8) if turned else (rows, cols + -cols % 8)).astype(np.float16)
    return whole.T[:rows] if turned else whole[:, :cols]


@given(*[st.integers(1, 40)] * 3, *[st.booleans()] * 3, st.integers(0, 2**32 - 1))
def test_odd_sizes_are_cut(blas, m, n, k, turn_a, turn_b, turn_c, seed):
    rng = np.random.default_rng(seed)
    a, b, c = evenly(rng, m, k, turn_a), evenly(rng, k, n, turn_b), evenly(rng, m, n, turn_c)
    beside = c.base.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "MIN_CUT", 0)
        patch.setattr(products, "MIN_CUT_SIZE", 8)
        call = products.lay_out(placed(a), placed(b), placed(c))
        parts = products.parts_of(call, 2)
        fn = products._bound(call, dtypes.float16, 0)
    fn([a.ctypes.data, b.ctypes.data, c.ctypes.data], 7)
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))
    c[...] = 0
    where = np.lib.stride_tricks.as_strided(beside, c.shape, c.strides)
    where[...] = 0
    np.testing.assert_array_equal(c.base, beside)               # nothing was written beside the result
    along = {"m" if call.a.way == products.AS_IT_IS else "k", "k" if call.b.way == products.AS_IT_IS else "n", "m"}
    if len(parts) == 2:
        assert all(getattr(parts[0], way) % 8 == 0 for way in along)
    else:
        odd = [way for way in along if getattr(call, way) % 8]
        single = any(side.ld % 8 for side in (call.a, call.b, call.c))       # of one row, whose distance is its length
        assert len(odd) != 1 or getattr(call, odd[0]) < 8 or single


@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("turn_b", [False, True])
def test_transposed_operands_are_not_copied(turn_a, turn_b):
    a, b, c = ((5, 7), (1, 5) if turn_a else (7, 1)), ((7, 3), (1, 7) if turn_b else (3, 1)), ((5, 3), (3, 1))
    call = products.lay_out(a, b, c)
    assert call.turned and (call.m, call.n, call.k) == (3, 5, 7)
    assert (call.a.way, call.b.way) == (int(turn_b), int(turn_a))


def test_what_cublas_cannot_see_is_copied():
    assert products.lay_out(((5, 7), (14, 2)), ((7, 3), (3, 1)), ((5, 3), (3, 1))) is None
    assert products.lay_out(((5, 7), (0, 1)), ((7, 3), (3, 1)), ((5, 3), (3, 1))) is None


def test_heads_of_attention_are_one_call_for_each_sample():
    heads = ((8, 12, 64, 32), (64 * 12 * 32, 32, 12 * 32, 1))              # [samples, steps, heads, features] permuted
    call = products.lay_out(heads, ((8, 12, 32, 64), (64 * 12 * 32, 32, 1, 12 * 32)),
                            ((8, 12, 64, 64), (12 * 4096, 4096, 64, 1)))
    assert call.count == 12 and len(call.outer) == 8


def test_integers_are_left_to_the_reference():
    assert library.ask("gemm", dtypes.int64, [((2, 2), (2, 1))] * 2, [((2, 2), (2, 1))], ()) is None


def test_tf32_is_asked_for_and_read_at_every_call(blas):
    x = np.ones((2, 2), np.float32)
    call, = library.ask("gemm", dtypes.float32, [placed(x)] * 2, [placed(x)], ())
    run = lambda: call.fn([x.ctypes.data, x.ctypes.data, np.empty_like(x).ctypes.data], 7)
    blas.log.clear()
    run()
    with library_switches.cuda.matmul.flags(allow_tf32=True):
        run()
    run()
    torch.set_float32_matmul_precision("high")
    assert library_switches.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "high"
    run()
    torch.set_float32_matmul_precision("highest")
    run()
    assert [how for what, how in blas.log if what == "gemm"] == [68, 77, 68, 77, 68]


def test_sums_in_sixteen_bits_can_be_ruled_out(blas):
    x = np.ones((2, 2), np.float16)
    call, = library.ask("gemm", dtypes.float16, [placed(x)] * 2, [placed(x)], ())
    blas.log.clear()
    with library_switches.cuda.matmul.flags(allow_fp16_reduced_precision_reduction=False):
        call.fn([x.ctypes.data, x.ctypes.data, np.empty_like(x).ctypes.data], 7)
    call.fn([x.ctypes.data, x.ctypes.data, np.empty_like(x).ctypes.data], 7)
    assert [how for what, how in blas.log if what == "math"] == [16, 0]
