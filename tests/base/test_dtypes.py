"""Dtypes: promotion as PyTorch's documentation states it ("Tensor Attributes"), limits, conversions from NumPy."""
import copy
import itertools
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch
from flambeau.base import dtypes
from flambeau.base.dtypes import ALL, COMMON, can_cast, promote_types, result_of

CATEGORY = {d: "bool" if d is torch.bool else "complex" if d.is_complex else "float" if d.is_floating_point else "int"
            for d in ALL}
RANK = ["bool", "int", "float", "complex"]


@pytest.mark.parametrize("a, b", list(itertools.combinations_with_replacement(COMMON, 2)), ids=str)
def test_promotion(a, b):
    """Of one category: the smallest that holds both, as NumPy says. Of two: the higher, wide enough for its parts."""
    got = promote_types(a, b)
    assert got is promote_types(b, a)
    low, high = sorted((a, b), key=lambda d: RANK.index(CATEGORY[d]))
    if CATEGORY[a] != CATEGORY[b]:
        wide = high is torch.complex64 and low is torch.float64
        assert got is (torch.complex128 if wide else high)
    elif {a, b} == {torch.float16, torch.bfloat16}:
        assert got is torch.float32
    elif torch.bfloat16 in (a, b):
        assert got is max(a, b, key=lambda d: d.itemsize)
    else:
        assert got.np == np.promote_types(a.np, b.np)


# From the documentation ("Tensor Attributes"): dimensioned tensors outrank zero-dimensional ones, which outrank
# numbers, unless the lower rank has the higher category.
@pytest.mark.parametrize("operands, expected", [
    ([(torch.int32, 2), (torch.float32, 0)], torch.float32), ([(torch.int32, 2), (torch.int64, 0)], torch.int32),
    ([(torch.uint8, 2), (torch.int64, 1)], torch.uint8), ([(torch.float32, 2), (torch.float64, 1)], torch.float32),
    ([(torch.int64, 2), (torch.float16, 1)], torch.float16), ([(torch.bool, 2), (torch.int64, 0)], torch.int64),
    ([(torch.float16, 2), (torch.complex64, 0)], torch.complex64),
    ([(torch.float64, 2), (torch.complex64, 0)], torch.complex128),
    ([(torch.float32, 1), (torch.float64, 1)], torch.float64), ([(torch.uint8, 2), (torch.int8, 2)], torch.int16),
    ([(torch.int16, 1), (torch.float32, 0)], torch.float32),
    ([(torch.bfloat16, 2), (torch.float32, 1), (torch.float64, 0)], torch.bfloat16),
])
def test_ranks(operands, expected):
    for order in itertools.permutations(operands):
        assert result_of(order) is expected


def test_the_documentations_examples():
    float_tensor, double_tensor = torch.ones(1), torch.ones(1, dtype=torch.float64)
    int_tensor, bool_tensor = torch.ones(1, dtype=torch.int32), torch.ones(1, dtype=torch.bool)
    zerodim, complex_zerodim = torch.tensor(1), torch.tensor(1j)
    assert (int_tensor + zerodim).dtype is torch.int32 and (int_tensor + 5.0).dtype is torch.float32
    assert (float_tensor + double_tensor).dtype is torch.float64 and (bool_tensor + 5).dtype is torch.int64
    assert (double_tensor + complex_zerodim).dtype is torch.complex128
    assert (float_tensor + complex_zerodim).dtype is torch.complex64
    assert torch.result_type(torch.tensor([1, 2], dtype=torch.int32), 1.0) is torch.float32
    assert torch.promote_types(torch.int32, torch.float32) is torch.float32
    assert torch.can_cast(torch.double, torch.float) and not torch.can_cast(torch.float, torch.int)


def test_casting_goes_up_the_categories():
    for a, b in itertools.product(ALL, repeat=2):
        assert can_cast(a, b) == (RANK.index(CATEGORY[a]) <= RANK.index(CATEGORY[b]))


def test_limits():
    for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        ours, theirs = torch.finfo(d), ml_dtypes.finfo(d.np)
        assert (ours.eps, ours.max, ours.min, ours.tiny, ours.bits) == tuple(
            float(v) for v in (theirs.eps, theirs.max, theirs.min, theirs.smallest_normal)) + (theirs.bits,)
        assert ours.resolution == float(f"1e-{theirs.precision}")          # as written, not as the dtype rounds it
    for d in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        assert (torch.iinfo(d).min, torch.iinfo(d).max) == (np.iinfo(d.np).min, np.iinfo(d.np).max)
    with pytest.raises(TypeError, match="requires a floating point input type"):
        torch.finfo(torch.int32)
    with pytest.raises(TypeError, match="requires an integer input type"):
        torch.iinfo(torch.float32)


def test_default_dtype():
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.tensor(1.5).dtype is torch.float64 and torch.zeros(1).dtype is torch.float64
        assert (torch.tensor([1]) / 2).dtype is torch.float64 and torch.tensor([1]).sqrt().dtype is torch.float64
        assert torch.tensor(1j).dtype is torch.complex128
    finally:
        torch.set_default_dtype(torch.float32)
    assert (torch.tensor([1]) / 2).dtype is torch.float32
    with pytest.raises(TypeError, match="only floating-point types"):
        torch.set_default_dtype(torch.int64)


def test_a_dtype_is_one_object():
    for d in ALL:
        assert copy.deepcopy(d) is d and pickle.loads(pickle.dumps(d)) is d and dtypes.from_numpy(d.np) is d
        assert repr(d) == f"torch.{d.name}" and getattr(torch, d.name) is d
    assert torch.float is torch.float32 and torch.long is torch.int64 and torch.half is torch.float16
    with pytest.raises(TypeError, match="can't convert np.ndarray of type numpy.str_"):
        dtypes.from_numpy(np.dtype("U3"))


def test_the_page_names_every_dtype():
    page = Path(__file__).parents[2].joinpath("docs", "dtypes.md").read_text(encoding="utf-8")
    missing = [d.name for d in ALL if f"`{d.name}`" not in page]
    assert not missing, f"the table of docs/dtypes.md does not name {', '.join(missing)}"


def test_real_and_complex_counterparts():
    assert torch.complex64.to_real() is torch.float32 and torch.float64.to_complex() is torch.complex128
    assert torch.int8.to_real() is torch.int8 and torch.complex128.to_complex() is torch.complex128


# --- dtypes of few operations -----------------------------------------------------------------------------------------

FLOAT8 = [d for d in ALL if d.family == "float8"]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_number_of_eight_bits_comes_back(dtype):
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    wide = every.float().numpy()
    assert np.array_equal(wide, every.numpy().astype(np.float32), equal_nan=True)           # as ml_dtypes decodes it
    back = every.float().to(dtype).view(torch.uint8).numpy()
    assert (back == np.arange(256))[~np.isnan(wide)].all()


@pytest.mark.parametrize("dtype, given, expected", [
    # The largest is 448; beyond it PyTorch stays there, and infinities too.
    (torch.float8_e4m3fn, [448, 460, 1e9, float("-inf"), 2**-10, 2**-11, 17, 19], [448, 448, 448, -448, 0, 0, 16, 20]),
    # With infinities of its own: half-way beyond 57344 and further is one. Ties go to the even neighbour.
    (torch.float8_e5m2, [57344, 61439, 61440, -1e9, 9, 11], [57344, 57344, float("inf"), float("-inf"), 8, 12]),
    # No infinities and no negative zero: too large is nan.
    (torch.float8_e4m3fnuz, [240, 247, 249, -0.0], [240, 240, float("nan"), 0]),
    # Powers of two alone, halves upwards; no zero, no sign.
    (torch.float8_e8m0fnu, [1.4, 1.5, 3, 5.9, 6, -4, 0, float("inf")], [1, 2, 4, 4, 8, 4, 2.0**-127, float("nan")]),
])
def test_rounding_to_eight_bits(dtype, given, expected):
    got = torch.tensor(given).to(dtype).float().numpy()
    assert np.array_equal(got, np.array(expected, np.float32), equal_nan=True)
    assert np.array_equal(torch.tensor(given, dtype=dtype).float().numpy(), got, equal_nan=True)


def test_promotion_that_is_refused():
    for a, b in [(torch.uint16, torch.int64), (torch.uint16, torch.uint32), (torch.uint64, torch.bool),
                 (torch.float8_e5m2, torch.float32), (torch.float8_e5m2, torch.float8_e4m3fn)]:
        with pytest.raises(RuntimeError, match=f"not supported, attempted to promote {a.cname} and {b.cname}"):
            promote_types(a, b)
    for a in UNSIGNED:
        assert promote_types(a, torch.bfloat16) is torch.bfloat16 and promote_types(a, a) is a


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_numbers(dtype):
    top = 2 ** (8 * dtype.itemsize) - 1
    x = torch.tensor([0, 1, top], dtype=dtype)
    assert x.tolist() == [0, 1, top] and x[2].item() == top and torch.iinfo(dtype).max == top
    assert (x * x).tolist() == [0, 1, 1] and (x == top).tolist() == [False, False, True]
    assert torch.equal(x, torch.from_numpy(x.numpy().copy())) and x.numpy().dtype == dtype.np
    assert torch.cat([x, x])[3:].tolist() == x.tolist() and x.sort(descending=True).values.tolist() == [top, 1, 0]
    with pytest.raises(NotImplementedError, match=f"not implemented for '{dtype.cname}'"):
        x + 1
    with pytest.raises((RuntimeError, OverflowError)):
        torch.tensor([top + 1], dtype=dtype)


@pytest.mark.parametrize("dtype", dtypes.NAMES_ONLY, ids=str)
def test_names_without_tensors(dtype):
    assert getattr(torch, dtype.name) is dtype and repr(dtype) == f"torch.{dtype.name}"
    assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype
    for make in (lambda: torch.zeros(2, dtype=dtype), lambda: torch.ones(4).to(dtype),
                 lambda: torch.tensor([1], dtype=dtype)):
        with pytest.raises(NotImplementedError, match=f"torch.{dtype.name}: "):
            make()


@pytest.mark.parametrize("wide", [np.int32, np.int64])
@pytest.mark.parametrize("float_dtype", [np.float16, np.float32, np.float64])
def test_floats_are_truncated_as_x86_does_on_every_processor(float_dtype, wide):
    """Intel's manual, CVTTSD2SI: towards zero, and what is not representable is the integer indefinite value."""
    ends = np.iinfo(wide)
    given = np.array([0.0, -0.0, 1.9, -1.9, 300.5, -300.5, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 1e30, -1e30,
                      np.inf, -np.inf, np.nan, 2.0**31 - 128, 2.0**63 - 2.0**40]).astype(float_dtype)
    expected = [int(x) if np.isfinite(x) and ends.min <= int(x) <= ends.max else ends.min for x in given.tolist()]
    made = dtypes.truncated(given, wide)
    assert made.dtype == wide and made.tolist() == expected
