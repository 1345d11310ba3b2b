"""Convolutions on a GPU: what cuDNN is asked for each layout and shape, computed by a cuDNN of the tests."""
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flambeau.backends import library_switches
from flambeau.backends.cuda import library, vendor
from flambeau.base import dtypes
from flambeau.ops import conv

from .fake_dnn import SCRATCH_BYTES, FakeDNN

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True, scope="module")
def dnn():
    patch = pytest.MonkeyPatch()
    patch.setattr(vendor, "on", lambda index: nullcontext())
    with vendor.substitute("cudnn", FakeDNN()) as fake:
        library.forget()
        yield fake
    library.forget()
    patch.undo()


def placed(array):
    return array.shape, tuple(s // array.itemsize for s in array.strides)


def arranged(array, last):
    """The array with its channels last in memory, or contiguous."""
    if not last:
        return np.ascontiguousarray(array)
    order = (0, *range(2, array.ndim), 1)
    return np.ascontiguousarray(array.transpose(order)).transpose(0, array.ndim - 1, *range(1, array.ndim - 1))


def run(name, dtype, args, out, params):
    call, = library.ask(name, dtype, [placed(a) for a in args], [placed(out)], params)
    scratch = np.empty(SCRATCH_BYTES, np.uint8)
    assert call.scratch == SCRATCH_BYTES                      # the second, which is deterministic, of two that it has
    call.fn([*[a.ctypes.data for a in (*args, out)], scratch.ctypes.data], 5)
    return out.astype(np.float64)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_all_three_maps_are_those_of_the_reference(data):
    draw = data.draw
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16]))
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    last = rank > 1 and draw(st.booleans())
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    stride, dilation, padding = (tuple(draw(st.integers(low, 2)) for _ in range(rank)) for low in (1, 1, 0))
    size = [draw(st.integers(d * (k - 1) + 1, 6)) for d, k in zip(dilation, kernel, strict=True)]
    blocks = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1
                   for n, p, d, k, s in zip(size, padding, dilation, kernel, stride, strict=True))
    batch, channels, filters = (each * draw(st.integers(1, 2)) for each in (1, groups, groups))

    def drawn(*shape):
        return arranged(rng.integers(-2, 3, shape).astype(dtype.np), last)

    x, w, y = drawn(batch, channels, *size), drawn(filters, channels // groups, *kernel), drawn(batch, filters, *blocks)
    blank = lambda like: arranged(np.full(like.shape, 99, dtype.np), last)
    wide = [a.astype(np.float64) for a in (x, w, y)]
    how = stride, padding, dilation, groups
    np.testing.assert_array_equal(run("convolve", dtype, [x, w], blank(y), (*how, False)),
                                  conv.convolve(np, wide[0], wide[1], blocks, *how))
    np.testing.assert_array_equal(run("convolve", dtype, [y, w], blank(x), (*how, True)),
                                  conv.convolve_back(np, wide[2], wide[1], tuple(size), *how))
    np.testing.assert_array_equal(run("convolve_weight", dtype, [x, y], blank(w), how),
                                  conv._convolution_weight.ref(np, wide[0], wide[2], w.shape, *how))


PICTURE, FILTER, MADE = ((1, 2, 5, 5), (50, 25, 5, 1)), ((3, 2, 3, 3), (18, 9, 3, 1)), ((1, 3, 3, 3), (27, 9, 3, 1))
PLAIN = (1, 1), (0, 0), (1, 1), 1


def test_operands_that_lie_otherwise_are_copied():
    turned = ((1, 2, 5, 5), (50, 25, 1, 5))
    assert library.ask("convolve", dtypes.float32, [PICTURE, FILTER], [MADE], (*PLAIN, False)) is not None
    assert library.ask("convolve", dtypes.float32, [turned, FILTER], [MADE], (*PLAIN, False)) is None


def test_windows_that_are_left_out_at_the_end_go_to_the_reference():
    few = ((1, 3, 2, 3), (18, 6, 3, 1))
    assert library.ask("convolve", dtypes.float32, [PICTURE, FILTER], [few], (*PLAIN, False)) is None


def test_integers_are_left_to_the_reference():
    assert library.ask("convolve", dtypes.int64, [PICTURE, FILTER], [MADE], (*PLAIN, False)) is None


def test_tf32_is_cudnns_unless_it_is_switched_off(dnn, monkeypatch):
    monkeypatch.setattr(library_switches.cudnn, "allow_tf32", True)          # comparisons with PyTorch switch it off
    def math(dtype):
        dnn.log.clear()
        library.ask("convolve", dtype, [PICTURE, FILTER], [MADE], (*PLAIN, False))
        return {how for what, how in dnn.log if what == "math"}
    library.forget()
    assert (math(dtypes.float32), math(dtypes.float16), math(dtypes.float64)) == ({0}, {1}, {0})
    with library_switches.cudnn.flags(allow_tf32=False):
        assert math(dtypes.float32) == {3}
