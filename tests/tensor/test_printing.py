"""Printed text, by eye: examples as PyTorch's documentation shows them, then what has no example there.

The documentation's older pages pad every number for a sign and put `dtype` before `device`; the ones
here are those that PyTorch 2.13 still prints. tests/torch/test_printing.py compares everything else
with PyTorch itself.
"""

import math
import time
import warnings

import ml_dtypes
import numpy as np
import pytest

from flambeau.tensor.printing import (
    format_array,
    format_tensor,
    format_with_spec,
    get_printoptions,
    kept_positions,
    printoptions,
    set_printoptions,
)

A = np.arange(4.0).reshape(2, 2) * (1 + 1j)
VIEWED = np.array([[0.0047 - 0.0310j, 1.4999 - 0.5316j], [-0.1520 + 0.7472j, 0.5617 - 0.8649j]])
LEFTOVERS = np.array([[5.8182e-18, 4.5765e-41, -1.0545e30], [3.0949e-41, 4.4842e-44, 0]], np.float32)

FROM_THE_DOCUMENTATION = {
    "torch.tensor(3.14159)":
        (format_tensor(np.float32(3.14159), "float32"), "tensor(3.1416)"),
    "torch.tensor([])":
        (format_tensor(np.empty(0), "float32"), "tensor([])"),
    "torch.adjoint":
        (format_tensor(A, "complex64"), """\
tensor([[0.+0.j, 1.+1.j],
        [2.+2.j, 3.+3.j]])"""),
    "torch.adjoint, its result":
        (format_tensor(A.conj().T, "complex64"), """\
tensor([[0.-0.j, 2.-2.j],
        [1.-1.j, 3.-3.j]])"""),
    "Tensor.view, as complex":
        (format_tensor(VIEWED, "complex64"), """\
tensor([[ 0.0047-0.0310j,  1.4999-0.5316j],
        [-0.1520+0.7472j,  0.5617-0.8649j]])"""),
    "torch.isin":
        (format_tensor(np.array([[False, True], [True, False]]), "bool"), """\
tensor([[False,  True],
        [ True, False]])"""),
    "torch.bitwise_not":
        (format_tensor(np.array([0, 1, -4], np.int8), "int8"), "tensor([ 0,  1, -4], dtype=torch.int8)"),
    "torch.hash_tensor":
        (format_tensor(np.uint64(13822780554648485888), "uint64"),
         "tensor(13822780554648485888, dtype=torch.uint64)"),
    "torch.asarray, a gradient function":
        (format_tensor(np.array([3.0, 4, 5]), "float32", requires_grad=True, grad_fn_name="AddBackward0"),
         "tensor([3., 4., 5.], grad_fn=<AddBackward0>)"),
    "torch.hsplit, nothing left":
        (format_tensor(np.empty((4, 0)), "float32"), "tensor([], size=(4, 0))"),
    "torch.nan_to_num":
        (format_tensor(np.array([0, 3.4028e38, -3.4028e38, 3.14], np.float32), "float32"),
         "tensor([ 0.0000e+00,  3.4028e+38, -3.4028e+38,  3.1400e+00])"),
    "torch.empty_like, what was in memory":
        (format_tensor(LEFTOVERS, "float32"), """\
tensor([[ 5.8182e-18,  4.5765e-41, -1.0545e+30],
        [ 3.0949e-41,  4.4842e-44,  0.0000e+00]])"""),
    "the meta device":
        (format_tensor(None, "float32", device="meta", is_meta=True, shape=(2,)),
         "tensor(..., device='meta', size=(2,))"),
    "nn.Module.apply, a weight":
        (format_tensor(np.ones((2, 2)), "float32", requires_grad=True, parameter=True), """\
Parameter containing:
tensor([[1., 1.],
        [1., 1.]], requires_grad=True)"""),
}


@pytest.mark.parametrize("page", FROM_THE_DOCUMENTATION)
def test_documentation(page):
    printed, expected = FROM_THE_DOCUMENTATION[page]
    assert printed == expected


def test_set_printoptions():
    before = get_printoptions()
    set_printoptions(precision=2, sci_mode=True)
    assert format_tensor(np.array([1.12345]), "float32") == "tensor([1.12e+00])"
    set_printoptions(threshold=5)                                   # and sci_mode goes back to automatic
    assert format_tensor(np.array([1.12345]), "float32") == "tensor([1.12])"
    assert format_tensor(np.arange(10), "int64") == "tensor([0, 1, 2,  ..., 7, 8, 9])"
    set_printoptions(profile="default")
    assert format_tensor(np.array([1.12345]), "float32") == "tensor([1.1235])"
    assert get_printoptions() == before


def test_printoptions_end_with_the_block():
    before = get_printoptions()
    with pytest.raises(ZeroDivisionError), printoptions(edgeitems=1, linewidth=20):
        assert get_printoptions() == {**before, "edgeitems": 1, "linewidth": 20}
        raise ZeroDivisionError
    assert get_printoptions() == before
    with pytest.raises(TypeError), printoptions(width=3):
        pass
    assert get_printoptions() == before


def test_matrices_are_set_apart_and_dots_stand_for_the_rest():
    with printoptions(threshold=10, edgeitems=1):
        assert format_tensor(np.arange(60, dtype=np.int32).reshape(3, 4, 5), "int32") == """\
tensor([[[ 0,  ...,  4],
         ...,
         [15,  ..., 19]],

        ...,

        [[40,  ..., 44],
         ...,
         [55,  ..., 59]]], dtype=torch.int32)"""


def test_rows_and_notes_wrap():
    values = np.arange(12).astype(ml_dtypes.bfloat16) / 4
    assert format_tensor(values, "bfloat16", requires_grad=True) == """\
tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,
        2.2500, 2.5000, 2.7500], dtype=torch.bfloat16, requires_grad=True)"""
    assert format_tensor(values[:6], "bfloat16", device="cuda:0", grad_fn_name="DivBackward0",
                         prefix="Mine(") == """\
Mine([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500], device='cuda:0',
     dtype=torch.bfloat16, grad_fn=<DivBackward0>)"""


def test_numbers_that_are_not():
    nan, inf = math.nan, math.inf
    assert format_array(np.array([nan, inf, -inf, -0.0, 0.0]), "float64") == "[nan, inf, -inf, -0., 0.]"
    assert format_array(np.array([nan, inf, -12.0]), "float64") == "[ nan,  inf, -12.]"
    assert format_array(np.array([nan, 0.5, 0.0]), "float16") == "[   nan, 0.5000, 0.0000]"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        signalling = np.array([0x7F81, 0x3F80], np.uint16).view(ml_dtypes.bfloat16)
        assert format_array(signalling, "bfloat16") == "[nan, 1.]"


def test_only_the_edges_are_read():
    vast = np.broadcast_to(np.arange(9.0), (10**6, 10**6, 9))        # 72 terabytes, were they there
    start = time.process_time()
    text = format_tensor(vast, "float64")
    assert time.process_time() - start < 1
    assert text.startswith("tensor([[[0., 1., 2.,  ..., 6., 7., 8.],\n") and text.count("0.") == 36


def test_the_edges_alone_print_the_same():
    whole = np.random.default_rng(0).normal(size=(20, 3, 50))
    edges = whole[np.ix_(*kept_positions(whole.shape))]
    assert edges.shape == (6, 3, 6)
    assert format_tensor(edges, "float64", shape=whole.shape) == format_tensor(whole, "float64")
    assert kept_positions((10, 100)) is None


def test_format_with_spec():
    class Stub:
        is_meta = False

        def __init__(self, value, dims):
            self.value, self.dims = value, dims

        def dim(self):
            return self.dims

        def item(self):
            return self.value

    assert format_with_spec(Stub(3.14159, 0), ".2f") == "3.14"
    with pytest.raises(TypeError, match="unsupported format string passed to Stub.__format__"):
        format_with_spec(Stub(3.14159, 1), ".2f")
    with pytest.raises(TypeError, match="unsupported format string passed to Stub.__format__"):
        format_with_spec(Stub(3.14159, 0), ".2f", plain=False)
