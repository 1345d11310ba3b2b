"""Sparse tensors: what is there computes, what is not says what to call instead."""
import numpy as np
import pytest

import flambeau as torch


def test_what_falls_on_one_place_is_summed():
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, 4, (2, 50)), rng.standard_normal(50)
    expected = np.zeros((4, 4))
    np.add.at(expected, tuple(places), values)
    made = torch.sparse_coo_tensor(places, values, (4, 4))
    np.testing.assert_allclose(made.to_dense().numpy(), expected)
    whole = made.coalesce()
    assert not made.is_coalesced() and whole.is_coalesced() and whole.coalesce() is whole
    assert len({tuple(place) for place in whole.indices().t().tolist()}) == whole._nnz() <= 16
    np.testing.assert_allclose(whole.to_dense().numpy(), expected)


def test_the_rest_says_what_to_call():
    made = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,))
    with pytest.raises(NotImplementedError, match=r"has no sum .*test_sparse.py:\d+\): call to_dense"):
        made.sum()
    with pytest.raises(AttributeError, match="has no attribute 'nothing_like_it'"):
        _ = made.nothing_like_it
    assert not isinstance(made, torch.Tensor) and not hasattr(made, "__array__")
    with pytest.raises(TypeError):
        torch.ones(2) + made
    with pytest.raises(NotImplementedError, match="torch.sparse.mm"):
        torch.sparse.mm(made, torch.ones(2, 2))


def test_places_outside_are_refused_at_the_call():
    with pytest.raises(RuntimeError, match="for dim 1, size is 2 but found index 2"):
        torch.sparse_coo_tensor([[0], [2]], [1.0], (2, 2))
    with pytest.raises(RuntimeError, match="negative index"):
        torch.sparse_coo_tensor([[0], [-1]], [1.0], (2, 2))
