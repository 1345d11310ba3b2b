"""Whether numbers are finite, for every dtype, size and layout: what NumPy says of the same numbers."""
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import flambeau as torch
from flambeau.trace.held import is_finite

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
