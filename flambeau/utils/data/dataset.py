"""Datasets: what has samples, by position or one after the other, and how to put several together or take a part.

Where a `TensorDataset` is at the bottom, `DataLoader` takes a batch out of any of these in one go, unless a subclass
has its own `__getitem__`; see `_utils/gather.py`.
"""
import bisect
import itertools
import math
from collections.abc import Iterable
from typing import Generic, TypeVar

from ...base.errors import warn
from ...tensor.generators import default_generator, stream
from .sample_random import being_made

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
           "random_split"]

_T_co = TypeVar("_T_co", covariant=True)


class Dataset(Generic[_T_co]):
    """Samples by position: a subclass has `__getitem__`, and for most samplers `__len__`.

    One that can fetch many samples at once has `__getitems__(positions)`, which gives a list of them.

    >>> class Squares(Dataset):
    ...     def __len__(self): return 4
    ...     def __getitem__(self, i): return i * i
    >>> list(torch.utils.data.DataLoader(Squares(), batch_size=3))
    [tensor([0, 1, 4]), tensor([9])]
    """

    def __getitem__(self, index) -> _T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__. "
                                  f"{type(self).__name__} has none.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T_co], Iterable[_T_co]):
    """Samples one after the other: a subclass has `__iter__`.

    With several workers each iterates over the dataset for itself; `get_worker_info()` tells `__iter__` which part to
    give.
    """

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple]):
    """Sample i is the tuple of row i of every tensor.

    >>> TensorDataset(torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([0, 1]))[1]
    (tensor([3., 4.]), tensor(1))
    """

    def __init__(self, *tensors):
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors: their first dimensions are "
                                 f"{', '.join(str(tensor.size(0)) for tensor in tensors)}")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self):
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Sample i is sample i of every dataset: a tuple of them, or a dictionary where they were given by name."""

    def __init__(self, *args, **kwargs):
        if args and kwargs:
            raise ValueError("Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like "
                             "input/output, but both types are given.")
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = [len(dataset) for dataset in self._all()]
        self._length = lengths[0]
        if any(length != self._length for length in lengths):
            raise ValueError(f"Size mismatch between datasets: they have {', '.join(map(str, lengths))} samples")

    def _all(self):
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _sample(self, parts):
        return dict(zip(self.datasets, parts)) if isinstance(self.datasets, dict) else tuple(parts)

    def __getitem__(self, index):
        return self._sample([dataset[index] for dataset in self._all()])

    def __getitems__(self, indices):
        columns = []
        for dataset in self._all():
            column = samples(dataset, indices)
            if len(column) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)} "
                                 f"from {type(dataset).__name__}.__getitems__")
            columns.append(column)
        return [self._sample(parts) for parts in zip(*columns)]

    def __len__(self):
        return self._length


class ConcatDataset(Dataset[_T_co]):
    """The samples of several datasets, those of the first one first. `a + b` makes one of two datasets."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset; ChainDataset does")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence):
        """How many samples the first one has, the first two, and so on."""
        return list(itertools.accumulate(len(dataset) for dataset in sequence))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx):
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"absolute value of index should not exceed dataset length: {idx} of {len(self)}")
            idx = len(self) + idx
        nth = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[nth][idx - (self.cumulative_sizes[nth - 1] if nth else 0)]

    @property
    def cummulative_sizes(self):
        """The old spelling of `cumulative_sizes`."""
        warn("`cummulative_sizes` attribute is renamed to `cumulative_sizes`", FutureWarning)
        return self.cumulative_sizes


class ChainDataset(IterableDataset):
    """The samples of several iterable datasets, those of the first one first."""

    def __init__(self, datasets):
        super().__init__()
        self.datasets = datasets

    def _each(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(f"ChainDataset only supports IterableDataset, not {type(dataset).__name__}")
            yield dataset

    def __iter__(self):
        for dataset in self._each():
            yield from dataset

    def __len__(self):
        return sum(len(dataset) for dataset in self._each())


class Subset(Dataset[_T_co]):
    """The samples of `dataset` at the positions `indices`."""

    def __init__(self, dataset, indices):
        cls = type(self)
        if cls.__getitem__ is not Subset.__getitem__ and cls.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(f"{cls.__name__} overrides __getitem__ but not __getitems__, which the "
                                      "DataLoader calls where there is one. Write both; this one does for the second:\n"
                                      "def __getitems__(self, indices): return [self[i] for i in indices]")
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx):
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices):
        return samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


def samples(dataset, indices):
    """The samples of `dataset` at `indices`, together where it can give them together."""
    if callable(getattr(dataset, "__getitems__", None)):
        return dataset.__getitems__(indices)
    return single_samples(dataset, indices)


def single_samples(dataset, indices):
    """The samples of `dataset` at `indices`, one by one."""
    batch = being_made()
    if batch is None or batch.position is not None or len(batch.indices) != len(indices):
        return [dataset[i] for i in indices]
    return batch.each(dataset, indices)       # each with its own random numbers


def random_split(dataset, lengths, generator=default_generator):
    """Random parts of `dataset` that do not overlap, of the given lengths, or fractions of the whole.

    What fractions leave over goes to the parts in turn, one sample each.

    >>> parts = random_split(range(10), [0.75, 0.25], generator=torch.Generator().manual_seed(0))
    >>> [part.indices for part in parts]
    [[4, 1, 7, 5, 3, 9, 0, 8], [6, 2]]
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1: {fraction}")
        lengths = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(lengths)):
            lengths[i % len(lengths)] += 1
        for i, length in enumerate(lengths):
            if length == 0:
                warn(f"Length of split at index {i} is 0. This might result in an empty dataset.")
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset! "
                         f"The lengths {list(lengths)} make {sum(lengths)}, the dataset has {total} samples")
    order = stream(generator).permutation(total).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - length:end]) for end, length in zip(ends, lengths)]
