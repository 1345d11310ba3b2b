"""Sparse tensors beside PyTorch's: what they hold, how they print, what they give when made dense."""
import pytest

import flambeau

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")
PLACES, NUMBERS = [[0, 1, 1, 1], [2, 0, 0, 2]], [3.0, 4.0, 5.0, -1.0]

MADE = {
    "several at one place": lambda t: t.sparse_coo_tensor(t.tensor(PLACES), t.tensor(NUMBERS), (2, 3)),
    "without a size": lambda t: t.sparse_coo_tensor(PLACES, NUMBERS),
    "more room": lambda t: t.sparse_coo_tensor(PLACES, NUMBERS, (4, 5), dtype=t.float64),
    "rows": lambda t: t.sparse_coo_tensor([[1, 0, 1]], [[1, 2], [3, 4], [5, 6]]),
    "integers": lambda t: t.sparse_coo_tensor(t.tensor(PLACES), t.ones(4, dtype=t.int64), (2, 3)),
    "bools": lambda t: t.sparse_coo_tensor(t.tensor(PLACES), t.tensor([True, False, True, False]), (2, 3)),
    "one dimension": lambda t: t.sparse_coo_tensor(t.tensor([[3, 1]]), t.tensor([1.0, 2.0]), (5,)),
    "one element": lambda t: t.sparse_coo_tensor([[1]], [2.0], (3,)),
    "half": lambda t: t.sparse_coo_tensor(PLACES, NUMBERS, (2, 3), dtype=t.float16),
    "nothing": lambda t: t.sparse_coo_tensor((2, 3)),
    "said to be coalesced": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), is_coalesced=True),
    "that learns": lambda t: t.sparse_coo_tensor(PLACES, NUMBERS, (2, 3), requires_grad=True),
}


def facts(library, made):
    """What both libraries are asked of a sparse tensor."""
    s = made(library)
    whole = s.coalesce()
    return [repr(s), repr(whole.detach() if library is torch else whole) if not s.requires_grad else "",
            s.to_dense().tolist(), tuple(s.shape), s.size(0), s.dim(), s.numel(), s._nnz(), whole._nnz(),
            s.sparse_dim(), s.dense_dim(), s.is_coalesced(), whole.is_coalesced(), str(s.dtype), str(s.layout),
            s.is_sparse, s.requires_grad, s._indices().tolist(), s._values().tolist(), whole.indices().tolist(),
            whole.values().tolist()]


@pytest.mark.parametrize("name", MADE)
def test_the_same_is_held(name):
    assert facts(flambeau, MADE[name]) == facts(torch, MADE[name])


def test_gradients_go_to_the_values():
    found = []
    for library in (flambeau, torch):
        values = library.tensor(NUMBERS, requires_grad=True)
        s = library.sparse_coo_tensor(library.tensor(PLACES), values, (2, 3))
        (s.to_dense() * library.arange(6.0).reshape(2, 3)).sum().backward()
        found.append((s.requires_grad, values.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("wrong", [
    lambda t: t.sparse_coo_tensor(PLACES, NUMBERS, (2, 3)).indices(),
    lambda t: t.sparse_coo_tensor(PLACES, NUMBERS, (2, 3)).values(),
    lambda t: t.sparse_coo_tensor(t.tensor(PLACES), t.ones(3), (2, 3)),
    lambda t: t.sparse_coo_tensor(t.tensor(PLACES), t.ones(4), (2,)),
    lambda t: t.sparse_coo_tensor(t.tensor(PLACES), t.ones(4), (2, 2), check_invariants=True),
], ids=["indices", "values", "count", "size", "outside"])
def test_the_same_is_refused(wrong):
    errors = []
    for library in (flambeau, torch):
        with pytest.raises(RuntimeError) as raised:
            wrong(library)
        errors.append(str(raised.value).partition("\n")[0])
    assert errors[0].startswith(errors[1])
