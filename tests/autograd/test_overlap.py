"""Writes to views whose elements share memory: a cell is written or it is not, and its gradient counts once."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch

from ..thorough import THOROUGH

CELLS = 9


@st.composite
def looks(draw):
    """(size, strides) of a look at CELLS cells, and for each of its elements whether it is written."""
    size = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    strides = [draw(st.integers(0, (CELLS - 1) // (2 * len(size)))) for _ in size]
    return tuple(size), tuple(strides), draw(st.lists(st.booleans(), min_size=27, max_size=27))


@settings(max_examples=300 if THOROUGH else 100, deadline=None, derandomize=True)
@given(looks(), st.sampled_from(["mask", "positions", "fill", "fill a tensor", "set item"]))
def test_a_cell_is_written_or_not(look, how):
    size, strides, marks = look
    written = np.array(marks[:int(np.prod(size))]).reshape(size)
    cells = np.unique(np.lib.stride_tricks.as_strided(np.arange(CELLS), size, [8 * s for s in strides])[written])

    x = torch.arange(1.0, CELLS + 1).requires_grad_()
    value = torch.tensor(0.5, requires_grad=True)
    base = x * 2
    view, mask = base.as_strided(size, strides), torch.tensor(written)
    if how == "mask":
        view.index_put_((mask,), value)
    elif how == "positions":
        view.index_put_(tuple(mask.nonzero().t()), value)
    elif how == "fill":
        view.masked_fill_(mask, 0.5)
    elif how == "fill a tensor":
        view.masked_fill_(mask, value)
    else:
        view[mask] = value

    expected = np.arange(2.0, 2 * CELLS + 2, 2)
    expected[cells] = 0.5
    assert base.tolist() == expected.tolist()
    weight = torch.arange(3.0, CELLS + 3)
    (base * weight).sum().backward()
    through = 2 * weight.numpy()
    through[cells] = 0
    assert x.grad.tolist() == through.tolist()


def test_sums_into_shared_cells_are_refused():
    view = torch.zeros(4).as_strided((3, 2), (1, 1))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        view.index_put_((torch.tensor([0, 1]), torch.tensor([1, 0])), torch.tensor([5.0, 6.0]), accumulate=True)
    assert view.eq(0).all()
