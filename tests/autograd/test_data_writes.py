"""Writes through `.data`: the version that the user sees stays, and backward refuses exactly where it would compute
with what was overwritten."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.trace import value as values

from ..thorough import THOROUGH

CELLS = 24


@st.composite
def looks(draw):
    """(size, strides, offset) of a look at CELLS cells in which every element has its own."""
    size = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    strides, step = [], draw(st.integers(1, 2))
    for n in reversed(size):
        strides.insert(0, step)
        step *= n + draw(st.integers(0, 1))
    offset = draw(st.integers(0, max(CELLS - 1 - sum((n - 1) * s for n, s in zip(size, strides)), 0)))
    if offset + sum((n - 1) * s for n, s in zip(size, strides)) >= CELLS:
        return [1], [1], 0
    return size, strides, offset


def cells(look):
    size, strides, offset = look
    return set(np.lib.stride_tricks.as_strided(np.arange(CELLS)[offset:], size, [8 * s for s in strides]).ravel())


@settings(max_examples=300 if THOROUGH else 100, deadline=None, derandomize=True)
@given(looks(), looks(), st.booleans(), st.sampled_from(["view of data", "data of view", "detached"]))
def test_what_is_kept_and_what_is_written(kept, written, result, how):
    memory = torch.arange(1.0, CELLS + 1)
    w = torch.ones(tuple(kept[0]), requires_grad=True)
    if result:                                     # what is kept is the node's own result, seen through a base
        loss = (memory.as_strided(*kept) * w).exp().sum()
    else:
        loss = (memory.as_strided(*kept) * w).sum()
    before = memory.as_strided(*kept).clone()
    if how == "view of data":
        memory.data.as_strided(*written).mul_(3)
    elif how == "data of view":
        memory.as_strided(*written).data.mul_(3)
    else:
        memory.data.detach().as_strided(*written).mul_(3)
    assert memory._version == 0
    if cells(kept) & cells(written):
        with pytest.raises(RuntimeError, match="written through .data"):
            loss.backward()
    else:
        loss.backward()
        np.testing.assert_allclose(w.grad.tolist(), (before * before.exp() if result else before).tolist(), 1e-5)


def test_counts():
    x = torch.zeros(4)
    d = x.data
    d.add_(1)
    d[1:].mul_(2)
    d.view(2, 2)[0].zero_()
    d.detach().add_(1)
    assert (x._version, d._version, d[0]._version, x.detach()._version, x.data._version) == (0, 4, 4, 0, 0)
    x.add_(1)
    assert (x._version, d._version, x[0]._version) == (1, 4, 1)


def test_a_write_that_counts_is_told_from_one_that_does_not():
    x, w = torch.ones(4), torch.ones(2, requires_grad=True)
    loss = (x[:2] * w).sum()
    x.data[2:].mul_(5)
    x[2:].mul_(5)
    with pytest.raises(RuntimeError, match="is at version"):
        loss.backward()


def test_views_keep_their_history():
    x = torch.ones(4, requires_grad=True) * 1
    view, part = x[1:], x.unbind(0)[0]
    x.data.mul_(7)
    assert view.grad_fn.name() == "SliceBackward0" and part.grad_fn.name() == "UnbindBackward0"


def test_training_through_data_is_remembered_in_bounds():
    p = torch.ones(3, requires_grad=True)
    loss = None
    for step in range(3 * values.HIDDEN_STRETCHES):
        first = (p * p).sum()
        loss = loss or first
        if step % 500 == 0:
            first.backward(retain_graph=True)
        p.data.sub_(p.grad, alpha=0.0)
    assert p._version == 0 and len(p._storage.hidden_writes) <= values.HIDDEN_STRETCHES
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    (p * p).sum().backward()
