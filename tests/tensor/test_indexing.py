"""Indexing without PyTorch: NumPy where both agree, and by hand what NumPy does otherwise."""
import numpy as np
import pytest

import flambeau as fb

SHAPE = (3, 4, 5)
ARRAY = np.arange(60.0, dtype=np.float32).reshape(SHAPE)
ROWS = np.array([0, 2, 1, 0])
GRID = np.array([[0, 1], [2, 0]])
MASK = ARRAY % 3 == 0

# Read the same by NumPy and by PyTorch: one basic index of each kind, advanced ones next to each other or apart
ALL = slice(None)
SAME = [0, -1, (1, 2), (0, 1, 2), slice(1, None), slice(None, None, 2), slice(-2, 100), slice(5, 2), (ALL, 1),
        (Ellipsis, 0), Ellipsis, (), None, (None, 0), (0, None, Ellipsis), (slice(1), Ellipsis, slice(1, 3)),
        ROWS, GRID, [0, 2], [], (ROWS, ROWS), (ALL, ROWS), (ALL, ROWS, slice(1, 3)), (ROWS, ALL, ROWS),
        (GRID, ROWS[:2]), (ROWS[:2, None], ALL, ROWS), (slice(1, None), GRID, GRID), (GRID, None, 0),
        (-ROWS, Ellipsis), MASK, MASK[:, 0, 0], (ALL, MASK[0, :, 0]), (MASK[:, :, 0], slice(1, None)),
        (0, MASK[0]), (MASK[:, :, 1], 2), True, False, np.int64(1), (np.int32(2), ALL), range(2),
        (range(2), range(2)), np.array([True, False, True])]


def tensor(x):
    """Arrays inside an index as tensors."""
    if isinstance(x, tuple):
        return tuple(tensor(part) for part in x)
    return fb.tensor(x) if isinstance(x, np.ndarray) else x


def numpy_index(x):
    if isinstance(x, tuple):
        return tuple(numpy_index(part) for part in x)
    return np.array(x, int) if isinstance(x, (range, list)) else x


@pytest.mark.parametrize("index", SAME, ids=repr)
@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_read(index, as_tensors):
    got = fb.tensor(ARRAY)[tensor(index) if as_tensors else index]
    want = ARRAY[numpy_index(index)]
    assert tuple(got.shape) == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("index", SAME, ids=repr)
def test_write(index):
    want = ARRAY.copy()
    x = fb.tensor(ARRAY)
    if index is False:                                     # selects nothing
        x[index] = 1
        assert x._version == 0
    else:
        want[numpy_index(index)] = -1
        x[tensor(index)] = -1
        assert x._version == 1
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("index", [i for i in SAME if i is not True and i is not False], ids=repr)
def test_write_a_tensor(index):
    want = ARRAY.copy()
    part = want[numpy_index(index)]
    values = -np.arange(part.size, dtype=np.float32).reshape(part.shape)
    want[numpy_index(index)] = values
    x = fb.tensor(ARRAY)
    x[tensor(index)] = fb.tensor(values)[None]             # a leading dimension of one is no obstacle
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("index", SAME, ids=repr)
def test_gradient_is_where_it_was_read(index):
    x = fb.tensor(ARRAY).requires_grad_()
    y = x[tensor(index)]
    weight = np.arange(1.0, y.numel() + 1, dtype=np.float32).reshape(tuple(y.shape))
    (y * fb.tensor(weight)).sum().backward()
    want = np.zeros_like(ARRAY)
    np.add.at(want, numpy_index(index), weight)
    np.testing.assert_array_equal(x.grad.numpy(), want)


ADVANCED = (np.ndarray, list, range, bool)
BASIC = [i for i in SAME if not any(isinstance(p, ADVANCED) for p in (i if isinstance(i, tuple) else (i,)))]


@pytest.mark.parametrize("index", BASIC, ids=repr)
def test_numbers_and_slices_give_views(index):
    x = fb.tensor(ARRAY)
    part = x[index]
    assert part._storage is x._storage and part is not x
    part.fill_(7)
    want = ARRAY.copy()
    want[index] = 7
    np.testing.assert_array_equal(x.numpy(), want)


def test_zero_dimensional_tensors_are_numbers():
    x = fb.tensor(ARRAY)
    assert x[fb.tensor(1)]._storage is x._storage
    assert tuple(x[fb.tensor(1), :, fb.tensor([0, 1, 2])].shape) == (4, 3)         # NumPy would move the 3 to the front
    assert tuple(x[fb.tensor(True)].shape) == (1, 3, 4, 5)
    assert tuple(x[fb.tensor(False)].shape) == (0, 3, 4, 5)


def test_a_list_of_lists_is_a_tuple_for_now():
    x = fb.tensor(ARRAY)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        np.testing.assert_array_equal(x[[[0, 1], [1, 2]]].numpy(), ARRAY[[0, 1], [1, 2]])


def test_bytes_are_masks():
    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated"):
        got = fb.tensor([1, 2, 3])[fb.tensor([0, 1, 1], dtype=fb.uint8)]
    assert got.tolist() == [2, 3]


@pytest.mark.parametrize("index, kind, words", [
    (3, IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
    (-4, IndexError, "index -4 is out of bounds for dimension 0 with size 3"),
    ((0, 4), IndexError, "index 4 is out of bounds for dimension 1 with size 4"),
    ((0, 0, 0, 0), IndexError, "too many indices for tensor of dimension 3"),
    (np.array([0, 7]), IndexError, "index 7 is out of bounds for dimension 0 with size 3: it takes -3 to 2"),
    ((slice(None), np.array([0, -5])), IndexError, "index -5 is out of bounds for dimension 1 with size 4"),
    (np.array([True]), IndexError, r"The shape of the mask \[1\] at index 0 does not match the shape of the indexed "
                                   r"tensor \[3, 4, 5\] at index 0"),
    ((np.array([0, 1]), np.array([0, 1, 2])), IndexError, r"could not be broadcast together with shapes \[2\], \[3\]"),
    (np.array([0.5], np.float32), IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    (slice(None, None, -1), ValueError, "step must be greater than zero"),
    (1.0, IndexError, r"only integers, slices \(`:`\), ellipsis \(`...`\), None and long or byte Variables are valid "
                      r"indices \(got float\)"),
])
def test_refused_at_the_call(index, kind, words):
    x = fb.tensor(ARRAY)
    with pytest.raises(kind, match=words):
        x[tensor(index)]
    with pytest.raises(kind, match=words):
        x[tensor(index)] = 1


def test_refusals_name_the_tensor():
    weights = fb.zeros(2, 3)
    with pytest.raises(IndexError, match="weights is float32\\[2, 3\\], made at test_indexing.py:"):
        weights[2]


@pytest.mark.parametrize("value, kind, words", [
    (fb.zeros(2), RuntimeError, r"The expanded size of the tensor \(5\) must match the existing size \(2\)"),
    ([1, 2], TypeError, "can't assign a list to a torch.FloatTensor"),
    (None, TypeError, "can't assign a NoneType to a torch.FloatTensor"),
    (1j, RuntimeError, "value cannot be converted to type float without overflow"),
])
def test_values_that_do_not_fit(value, kind, words):
    x = fb.tensor(ARRAY)
    with pytest.raises(kind, match=words):
        x[0] = value
    np.testing.assert_array_equal(x.numpy(), ARRAY)


def test_index_put_does_not_convert():
    x = fb.zeros(3)
    with pytest.raises(RuntimeError, match="dtypes match, got Float for the destination and Double for the source"):
        x[fb.tensor([0])] = fb.ones(1, dtype=fb.float64)
    with pytest.raises(RuntimeError, match=r"of shape \[2\] cannot be broadcast to indexing result of shape \[3\]"):
        x[fb.tensor([True, True, True])] = fb.ones(2)


def test_arrays_may_be_assigned():
    x = fb.zeros(2, 3)
    x[0] = np.array([1, 2, 3])
    x[fb.tensor([1])] = np.array([4.0, 5.0, 6.0])
    x[1, 2] = np.float32(9)
    assert x.tolist() == [[1, 2, 3], [4, 5, 9]]


def test_a_write_is_seen_by_views_and_noticed_by_backward():
    x = fb.ones(3, requires_grad=True)
    y = x * 2
    row, z = y[1:], y * y
    y[fb.tensor([0, 2])] = 5.0
    assert row.tolist() == [2, 5]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_gradient_of_a_write():
    x, v = fb.ones(4, requires_grad=True), fb.tensor([3.0, 4.0], requires_grad=True)
    y = x * 2
    y[1:3] = v
    y[fb.tensor([0])] = v[:1]
    (y * fb.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 2000]
    assert v.grad.tolist() == [11, 100]


def test_a_large_tensor_is_written_in_its_own_memory():
    x = fb.zeros(1000, 1000)
    x.sum().item()
    address = x._storage.value.array.ctypes.data
    x[fb.tensor([3, 5])] = 1.0
    x[x > 0] = 2.0
    assert x.sum().item() == 4000
    assert x._storage.value.array.ctypes.data == address


def test_the_old_contents_stay_with_whoever_needs_them():
    x = fb.zeros(5)
    y, z = x.clone(), x + 1
    x[fb.tensor([0, 1])] = 1.0
    w = x * 1
    x[fb.tensor([2])] = 5.0
    assert (x.tolist(), y.tolist(), z.tolist(), w.tolist()) == ([1, 1, 5, 0, 0], [0] * 5, [1] * 5, [1, 1, 0, 0, 0])


def test_shared_memory_sees_writes_at_once():
    array = np.zeros(4, np.float32)
    x = fb.from_numpy(array)
    x[fb.tensor([1, 3])] = 2.0
    x[0] = 1.0
    assert array.tolist() == [1, 2, 0, 2]


def test_repeated_positions_all_count():
    x = fb.zeros(3, 2)
    x.index_put_((fb.tensor([0, 0, 2]),), fb.ones(3, 2), accumulate=True)
    assert x.tolist() == [[2, 2], [0, 0], [1, 1]]
    assert fb.zeros(3).scatter_add(0, fb.tensor([1, 1, 1]), fb.ones(3)).tolist() == [0, 3, 0]
    assert fb.zeros(3).index_add(0, fb.tensor([1, 1]), fb.ones(2), alpha=2).tolist() == [0, 4, 0]


@pytest.mark.parametrize("call, kind, words", [
    (lambda x, i: x.gather(0, i[None]), RuntimeError, "7 is out of bounds for dimension 0 with size 3: it takes 0 to"),
    (lambda x, i: x.scatter(0, i[None], 1.0), RuntimeError, "index 7 is out of bounds for dimension 0 with size 3"),
    (lambda x, i: x.index_select(0, i), IndexError, "index out of range in self: index 7"),
    (lambda x, i: x.index_add(0, i, fb.ones(2, 4)), RuntimeError, "index 7 is out of bounds for dimension 0"),
    (lambda x, i: x.index_copy(0, i, fb.ones(2, 4)), IndexError, "index 7 is out of bounds for dimension 0"),
    (lambda x, i: x.index_fill(0, i, 1), IndexError, "index 7 is out of bounds for dimension 0"),
    (lambda x, i: x.take(i * 10), IndexError, "tried to access index 70 on a tensor of 12 elements"),
    (lambda x, i: fb.nn.functional.embedding(i, x), IndexError, "out of range in self: index 7 for a table of 3 rows"),
    (lambda x, i: fb.nn.functional.one_hot(i, 5), RuntimeError, "must be smaller than num_classes: 7 with 5"),
])
def test_positions_are_checked_at_the_call(call, kind, words):
    with pytest.raises(kind, match=words):
        call(fb.ones(3, 4), fb.tensor([0, 7]))


def test_masks():
    x = fb.tensor(ARRAY)
    mask = x > 30
    np.testing.assert_array_equal(x.masked_fill(mask, 0).numpy(), np.where(ARRAY > 30, 0, ARRAY))
    np.testing.assert_array_equal(x.masked_select(mask).numpy(), ARRAY[ARRAY > 30])
    np.testing.assert_array_equal(fb.zeros(SHAPE).masked_scatter(mask, fb.arange(60.0))[mask].numpy(), np.arange(29))
    np.testing.assert_array_equal(x.nonzero().numpy(), np.argwhere(ARRAY))
    assert [t.tolist() for t in fb.tensor([[0, 1], [2, 0]]).nonzero(as_tuple=True)] == [[0, 1], [1, 0]]


def test_embedding_bag():
    table = fb.arange(12.0).reshape(6, 2).requires_grad_()
    numbers, starts = fb.tensor([0, 1, 2, 3, 4]), fb.tensor([0, 2, 2])
    bag = fb.nn.functional.embedding_bag
    assert bag(numbers, table, starts, mode="sum").tolist() == [[2, 4], [0, 0], [18, 21]]
    assert bag(numbers, table, starts, mode="mean").tolist() == [[1, 2], [0, 0], [6, 7]]
    best = bag(numbers, table, starts, mode="max")
    assert best.tolist() == [[2, 3], [0, 0], [8, 9]]
    best.sum().backward()
    assert table.grad.tolist() == [[0, 0], [1, 1], [0, 0], [0, 0], [1, 1], [0, 0]]


def test_adding_to_an_expanded_tensor_is_refused():
    """Its elements are one cell, which cannot take the sum of each."""
    x, i = fb.zeros(1).expand(6), fb.tensor([2, 1, 0])
    for call in (lambda: x.index_put_((i,), fb.ones(3), accumulate=True),
                 lambda: x.index_put_((i,), fb.ones(3), True)):
        with pytest.raises(RuntimeError, match="more than one element"):
            call()
    assert x.tolist() == [0.0] * 6


def test_what_a_mask_picks_lies_as_what_positions_pick():
    """torchani views such a result as a row, which takes elements that lie one after the other."""
    for x in (fb.rand(3, 4, 5), fb.rand(5, 3, 4).permute(1, 2, 0)):
        mask = fb.tensor([True, False, True, True])
        for kept, at in ((x[:, mask], x[:, mask.nonzero()[:, 0]]), (x[0, mask, 1:], x[0, mask.nonzero()[:, 0], 1:])):
            assert kept.stride() == at.stride() and fb.equal(kept, at)
    pairs = fb.arange(12).view(2, 6)[:, fb.arange(6) > 2]
    assert pairs.is_contiguous() and pairs.view(-1).tolist() == [3, 4, 5, 9, 10, 11]
