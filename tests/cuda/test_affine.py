"""Products with a bias on a GPU: what is asked of cuBLASLt, computed by one of the tests.

Small ones, which are kernels, are in test_epilogues.py.
"""
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from flambeau.backends import library_switches
from flambeau.backends.cuda import library, vendor
from flambeau.backends.cuda.library import affine, products
from flambeau.base import dtypes

from .fake_blas import FakeBLAS, FakeLt
from .test_products import laid_out, placed

pytestmark = pytest.mark.pinned

F32, F64, BF16 = dtypes.float32, dtypes.float64, dtypes.bfloat16
STREAM = 7


@pytest.fixture(scope="module")
def lt():
    patch, block = pytest.MonkeyPatch(), np.empty(4096, np.uint8)
    address = (block.ctypes.data + 255) & ~255
    patch.setattr(products, "MAX_SMALL", 0)                  # these are for the libraries, too
    patch.setattr(vendor, "workspace", lambda index, nbytes: SimpleNamespace(address=address, block=block))
    patch.setattr(vendor, "on", lambda index: pytest.MonkeyPatch.context())
    with vendor.substitute("cublas", FakeBLAS()), vendor.substitute("cublasLt", FakeLt()) as fake:
        library.forget()
        yield fake
    library.forget()
    patch.undo()


def multiplied(dtype, a, b, bias, c):
    """Have c computed where there is a call for it as it lies; whether there was."""
    calls = library.ask("affine", dtype, [placed(a), placed(b), placed(bias)], [placed(c)], ("bias",))
    for call in calls or ():
        call.fn([x.ctypes.data for x in (a, b, bias, c)], STREAM)
    return calls is not None


@given(st.data())
def test_products_of_any_layout(lt, data):
    draw, dtype = data.draw, data.draw(st.sampled_from([F32, dtypes.float16, BF16]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    a, b = laid_out(draw, (m, k), dtype, rng), laid_out(draw, (k, n), dtype, rng)
    start = draw(st.integers(0, 8))                          # an odd address is one that few kernels take
    bias = rng.integers(-4, 5, n + start).astype(dtype.np)[start:]
    c = np.full((m, n), 99, dtype.np)
    wide = a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)
    if not multiplied(dtype, a, b, bias, c):                 # the plan copies, and asks again
        assert multiplied(dtype, np.array(a, order="C"), np.array(b, order="C"), bias, c)
    np.testing.assert_array_equal(c.astype(np.float64), wide)


def test_a_kernel_that_refuses_an_address_gives_way_to_another(lt):
    a, whole, c = np.ones((3, 5), np.float32), np.arange(5, dtype=np.float32), np.empty((3, 4), np.float32)
    b = np.ones((5, 4), np.float32)
    for bias in (whole[1:], whole[:4], whole[1:]):
        lt.log.clear()
        call, = library.ask("affine", F32, [placed(a), placed(b), placed(bias)], [placed(c)], ("bias",))
        call.fn([x.ctypes.data for x in (a, b, bias, c)], STREAM)
        np.testing.assert_array_equal(c, 5 + np.broadcast_to(bias, (3, 4)))
        even = all(x.ctypes.data % 16 == 0 for x in (a, b, bias, c))
        assert lt.log == [("affine", products.COMPUTE_FLOAT, 16 if even else 1)]


def test_what_is_proposed_and_then_refused_is_not_tried_again(lt, monkeypatch):
    refused, real = [], lt.cublasLtMatmul

    def refuse_first(*given):
        status = 15 if not refused else real(*given)
        refused.append(status)
        return status

    monkeypatch.setattr(lt, "cublasLtMatmul", refuse_first)
    a, b, bias, c = np.ones((2, 48), np.float32), np.ones((48, 32), np.float32), np.ones(32, np.float32), \
        np.empty((2, 32), np.float32)
    call, = library.ask("affine", F32, [placed(a), placed(b), placed(bias)], [placed(c)], ("bias",))
    for _ in range(2):
        call.fn([x.ctypes.data for x in (a, b, bias, c)], STREAM)
    assert refused == [15, 0, 0] and (c == 49).all()
    monkeypatch.setattr(lt, "cublasLtMatmul", lambda *given: 15)
    with pytest.raises(vendor.VendorError, match="cublasLtMatmul gave status 15"):
        call.fn([x.ctypes.data for x in (a, b, bias, c)], STREAM)


def test_tf32_is_asked_for_and_read_at_every_call(lt):
    x, bias = np.ones((2, 2), np.float32), np.ones(2, np.float32)
    call, = library.ask("affine", F32, [placed(x), placed(x), placed(bias)], [placed(x)], ("bias",))
    run = lambda: call.fn([x.ctypes.data, x.ctypes.data, bias.ctypes.data, np.empty_like(x).ctypes.data], STREAM)
    lt.log.clear()
    run()
    with library_switches.cuda.matmul.flags(allow_tf32=True):
        run()
    assert [one[1] for one in lt.log] == [products.COMPUTE_FLOAT, products.COMPUTE_TF32]


def test_what_it_makes_goes_with_it():
    fake = FakeLt()
    with vendor.substitute("cublasLt", fake):
        call = products.lay_out(((4, 8), (8, 1)), ((8, 6), (6, 1)), ((4, 6), (6, 1)))
        made = affine.AffineProduct(call, F32, 0)
        assert made.is_possible() and len(fake.things) > 4
        del made
        assert not fake.things
    affine.forget()


def test_what_there_is_none_for(lt):
    laid = [((4, 8), (8, 1)), ((8, 6), (6, 1)), ((6,), (1,))], [((4, 6), (6, 1))]
    assert library.ask("affine", F64, *laid, ("bias",)) is None                 # cuBLASLt has no bias of float64
    assert library.ask("affine", dtypes.int64, *laid, ("bias",)) is None
    assert library.ask("affine", F32, *laid, ("relu",)) is None                 # which would lose NaNs
    assert library.ask("affine", F32, laid[0][:2] + [((1,), (1,))], laid[1], ("bias",)) is None
    with vendor.substitute("cublasLt", None):
        library.forget()
        assert library.ask("affine", F32, *laid, ("bias",)) is None
    library.forget()
