"""Whether numbers are finite, and gradients as usual, for every dtype, size and layout: as NumPy says of the same."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import flambeau as torch
from flambeau.trace.finite import is_finite
from flambeau.watch.step_hooks import unusual_gradients

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64,
          torch.uint8, torch.bool]
NUMBERS = [0.0, -0.0, 1.0, -3.5, 1e30, -1e30, 3.4e38, 1e-40, 1.7e308, float("inf"), float("-inf"), float("nan")]


def says(tensor):
    return is_finite(tensor._storage.value.ready())


@given(st.data(), st.sampled_from(DTYPES), st.lists(st.integers(0, 13), max_size=3), st.booleans())
def test_it_is_what_numpy_says(data, dtype, shape, transposed):
    size = int(np.prod(shape))
    numbers = np.array(data.draw(st.lists(st.sampled_from(NUMBERS[:8] if data.draw(st.booleans()) else NUMBERS),
                                          min_size=min(size, 3), max_size=min(size, 3))) or [0.0])
    at = np.zeros(size)
    at[:len(numbers[:size])] = numbers[:size]
    data.draw(st.randoms(use_true_random=False)).shuffle(at)
    with np.errstate(all="ignore"):
        whole = dtype.category <= 1
        array = np.where(np.isfinite(at) & (abs(at) < 100), at, 7).astype(dtype.np) if whole else at.astype(dtype.np)
    x = torch.tensor(array.reshape(shape)) if dtype.np.isbuiltin != 2 else torch.tensor(at.reshape(shape), dtype=dtype)
    if transposed and len(shape) > 1:
        x = x.transpose(0, -1).clone()                        # dense, in another order
    plain = array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array
    assert says(x) == bool(np.isfinite(plain).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 1000])
def test_one_number_anywhere(dtype, count):
    for place in {0, count // 2, count - 1}:
        for wrong in ("nan", "inf", "-inf"):
            array = np.full(count, np.finfo(dtype.np).max)
            assert says(torch.tensor(array))                  # the sum of them is infinite
            array[place] = float(wrong)
            assert not says(torch.tensor(array, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000])
def test_a_usual_gradient_is_finite_and_not_zero_and_in_its_bounds(dtype, count):
    for place in {0, count // 2, count - 1}:
        for number, usual in ((0.0, False), (-0.0, False), (1e-40 if dtype is torch.float32 else 5e-324, True),
                              (-2.0, True), (2.0, True), (2.5, False), (-2.5, False), (np.nan, False),
                              (np.inf, False), (-np.inf, False)):
            p = torch.zeros(count, dtype=dtype, requires_grad=True)
            array = np.zeros(count)
            array[place] = number
            p.grad = torch.tensor(array, dtype=dtype)
            groups = [{"params": [torch.zeros(3), p]}]
            found = unusual_gradients(groups, {id(p): 2.0}, {})
            assert [one is p for one in found] == [True] * (not usual), (number, place)
            assert unusual_gradients(groups, {id(p): 2.0}, {id(p): 1})          # it was zero before


@pytest.mark.parametrize("gradient", [
    lambda: torch.ones(4, dtype=torch.float16), lambda: torch.ones(4, dtype=torch.bfloat16),
    lambda: torch.ones(8)[4:], lambda: torch.ones(4) + 1, lambda: torch.ones(0)],
    ids=["float16", "bfloat16", "a view", "not computed", "empty"])
def test_what_is_not_plain_is_looked_at_by_somebody_else(gradient):
    g = gradient()
    p = torch.zeros(g.shape, dtype=g.dtype, requires_grad=True)
    p.grad = g
    assert unusual_gradients([{"params": [p]}], {id(p): 1e9}, {}) == [p]


def test_what_needs_no_gradient_is_not_looked_at():
    p = torch.zeros(2, requires_grad=True)
    groups = [{"params": [p]}]
    assert not unusual_gradients(groups, {}, {})
    p.grad = torch.ones(2)
    assert unusual_gradients(groups, {}, {}) == [p]                             # of which nothing is known yet
    p.requires_grad_(False)
    assert not unusual_gradients(groups, {}, {})
