"""Datasets by themselves: what is at a position, how many there are, and what is refused."""
import itertools

import pytest

import flambeau as torch
from flambeau.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Numbers(Dataset):
    """The numbers from `first` on."""

    def __init__(self, length, first=0):
        self.length, self.first = length, first

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if not 0 <= i < self.length:
            raise IndexError(i)
        return self.first + i


class Together(Numbers):
    """The same, many at a time, and it remembers what it was asked."""

    def __init__(self, length):
        super().__init__(length)
        self.asked = []

    def __getitems__(self, indices):
        self.asked.append(indices)
        return [-i for i in indices]


class Stream(IterableDataset):
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def test_tensor_dataset_gives_rows():
    x, y = torch.arange(6).view(3, 2), torch.tensor([5, 6, 7])
    data = TensorDataset(x, y)
    assert len(data) == 3 and data.tensors == (x, y)
    assert [(a.tolist(), b.item()) for a, b in (data[i] for i in range(3))] == [([0, 1], 5), ([2, 3], 6), ([4, 5], 7)]
    assert [part.tolist() for part in data[1:]] == [[[2, 3], [4, 5]], [6, 7]]
    data[0][0][1] = 100                               # a row is a view, as in PyTorch
    assert x[0, 1].item() == 100


def test_concatenation_finds_the_dataset_and_the_place_in_it():
    data = Numbers(3) + Numbers(0, 100) + Numbers(4, 50)
    expected = [0, 1, 2, 50, 51, 52, 53]
    assert isinstance(data, ConcatDataset) and len(data) == 7
    assert [data[i] for i in range(7)] == expected
    assert [data[i] for i in range(-7, 0)] == expected
    assert ConcatDataset([Numbers(3), Numbers(0), Numbers(4)]).cumulative_sizes == [3, 3, 7]
    with pytest.raises(IndexError):
        data[7]
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        data[-8]
    with pytest.warns(FutureWarning, match="renamed to `cumulative_sizes`"):
        assert data.cummulative_sizes == data.cumulative_sizes


def test_streams_are_chained():
    data = Stream(1, 2) + Stream() + Stream(3)
    assert isinstance(data, ChainDataset) and list(data) == [1, 2, 3] == list(data)
    with pytest.raises(TypeError):                    # a stream without a length has none in a chain either
        len(data)
    with pytest.raises(AssertionError, match="ChainDataset only supports IterableDataset"):
        list(ChainDataset([Numbers(3)]))


def test_a_stack_gives_tuples_or_dictionaries():
    pair, named = StackDataset(Numbers(3), Numbers(3, 10)), StackDataset(a=Numbers(3), b=Numbers(3, 10))
    assert len(pair) == len(named) == 3
    assert pair[2] == (2, 12) and named[2] == {"a": 2, "b": 12}
    assert pair.__getitems__([2, 0]) == [(2, 12), (0, 10)]
    assert named.__getitems__([1]) == [{"a": 1, "b": 11}]


def test_many_samples_are_asked_for_together_where_that_is_possible():
    inner = Together(10)
    assert Subset(inner, [7, 8, 9]).__getitems__([2, 0]) == [-9, -7]
    assert StackDataset(inner, Numbers(10)).__getitems__([3]) == [(-3, 3)]
    assert inner.asked == [[9, 7], [3]]
    inner.__class__.__getitems__, kept = lambda self, indices: [], inner.__class__.__getitems__
    try:
        with pytest.raises(ValueError, match="output size mismatch. Expected 2, got 0"):
            StackDataset(inner).__getitems__([0, 1])
    finally:
        inner.__class__.__getitems__ = kept


def test_a_subset_may_be_asked_by_a_list():
    x = torch.arange(10) * 10
    part = Subset(TensorDataset(x), [5, 1, 9])
    assert len(part) == 3 and part[-1][0].item() == 90
    assert part[[0, 2]][0].tolist() == [50, 90]


@pytest.mark.parametrize("length, lengths, expected", [
    (10, [3, 7], [3, 7]),
    (10, [0, 10], [0, 10]),
    (10, [0.5, 0.5], [5, 5]),
    (10, [0.33, 0.33, 0.34], [4, 3, 3]),              # 3, 3, 3 by rounding down, and the one that is left goes first
    (11, [0.5, 0.25, 0.25], [6, 3, 2]),               # 5, 2, 2 and two are left
    (1, [1], [1]),                                    # a fraction, or a length: the same here
    (7, [1.0], [7]),
])
def test_random_split_covers_everything_once(length, lengths, expected):
    parts = random_split(Numbers(length), lengths, torch.Generator().manual_seed(3))
    assert [len(part) for part in parts] == expected
    assert sorted(itertools.chain(*(part.indices for part in parts))) == list(range(length))
    again = random_split(Numbers(length), lengths, torch.Generator().manual_seed(3))
    assert [part.indices for part in again] == [part.indices for part in parts]


def test_random_split_is_random_and_draws_from_the_default_generator():
    torch.manual_seed(5)
    one, other = (random_split(Numbers(100), [50, 50])[0].indices for _ in range(2))
    torch.manual_seed(5)
    assert random_split(Numbers(100), [50, 50])[0].indices == one != other
    assert one != list(range(50))


def test_random_split_warns_of_an_empty_part():
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        assert [len(part) for part in random_split(Numbers(2), [0.75, 0.25])] == [2, 0]


@pytest.mark.parametrize("make, error, words", [
    (lambda: TensorDataset(torch.zeros(2), torch.zeros(3)), AssertionError, "Size mismatch between tensors.* 2, 3"),
    (lambda: StackDataset(), ValueError, "At least one dataset should be passed"),
    (lambda: StackDataset(Numbers(2), Numbers(3)), ValueError, "Size mismatch between datasets.* 2, 3"),
    (lambda: StackDataset(Numbers(2), b=Numbers(2)), ValueError, "both types are given"),
    (lambda: ConcatDataset([]), AssertionError, "should not be an empty iterable"),
    (lambda: ConcatDataset([Stream()]), AssertionError, "does not support IterableDataset"),
    (lambda: random_split(Numbers(10), [3, 8]), ValueError, "Sum of input lengths does not equal .* 11, .* 10"),
    (lambda: random_split(Numbers(10), [-0.5, 1.5]), ValueError, "Fraction at index 0 is not between 0 and 1: -0.5"),
    (lambda: Dataset()[0], NotImplementedError, "should implement __getitem__"),
    (lambda: IterableDataset(), TypeError, "abstract"),
    (lambda: len(Dataset()), TypeError, "has no len"),
])
def test_refusals(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_subset_that_would_be_passed_over_is_refused():
    class Half(Subset):
        def __getitem__(self, i):
            return super().__getitem__(i) / 2

    class Whole(Half):
        def __getitems__(self, indices):
            return [self[i] for i in indices]
    with pytest.raises(NotImplementedError, match="Half overrides __getitem__ but not __getitems__"):
        Half(Numbers(3), [0])
    assert Whole(Numbers(3), [2, 0]).__getitems__([0]) == [1]


def test_datasets_take_a_type_in_brackets():
    class Texts(Dataset[str]):
        pass
    assert issubclass(Texts, Dataset) and issubclass(Stream, Dataset)
