"""Samplers: in which order the samples of a dataset are visited.

The ones here say it in blocks, a range or an array of positions at a time: a whole permutation is never a list of
Python numbers, and the loader can cut a batch out of it. A block is drawn when its first position is asked for,
so that a generator that is used elsewhere too gives the numbers that it gives in PyTorch.
"""
import itertools
from collections.abc import Iterable, Sized
from typing import Generic, TypeVar

import numpy as np

from ...backends.cpu.random.draws import MersenneTwister
from ...base import dtypes
from ...tensor.create import as_tensor
from ...tensor.generators import stream
from ...tensor.reading import array_of

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler",
           "WeightedRandomSampler"]

_T_co = TypeVar("_T_co", covariant=True)
POSITIONS_PER_DRAW = 32       # how many positions PyTorch draws at a time where a position may come again
POSITIONS_PER_LIST = 4096     # how many positions become Python numbers at a time


def fresh_seed(generator=None):
    """A seed drawn from `generator` (the default one, if None), as PyTorch draws it: any int64 that is not negative."""
    return int(stream(generator).random_((), np.int64))


def positive(number, name):
    """Refuse what is no positive integer."""
    if not isinstance(number, int) or number <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={number}")


class Sampler(Generic[_T_co]):
    """Gives positions in the order in which to visit them: a subclass has `__iter__`, and may have `__len__`."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not say in which order: it has no __iter__")


class _BlockSampler(Sampler[int]):
    """A sampler whose order is known in blocks: `_blocks` gives ranges or int64 arrays."""

    def __iter__(self):
        for block in self._blocks():
            for start in range(0, len(block), POSITIONS_PER_LIST):
                yield from listed(block[start:start + POSITIONS_PER_LIST])


class SequentialSampler(_BlockSampler):
    """From the first sample to the last."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def _blocks(self):
        yield range(len(self.data_source))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(_BlockSampler):
    """In random order; `num_samples` of them, drawn with `replacement` or as one permutation after the other."""

    def __init__(self, data_source: Sized, replacement=False, num_samples=None, generator=None):
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        positive(self.num_samples, "num_samples")

    @property
    def num_samples(self):
        """How many positions are given; by default as many as there are samples, now."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _blocks(self):
        n, wanted, source = len(self.data_source), self.num_samples, self.generator
        private = source is None
        source = MersenneTwister().manual_seed(fresh_seed()) if private else stream(source)
        size = POSITIONS_PER_DRAW if self.replacement else n
        for left in range(wanted, -1, -size):
            if left == 0 and private:         # PyTorch draws once more at the end; that of a private stream is not seen
                return
            if self.replacement:
                yield source.integers(0, n, (min(left, size),), np.int64)
            else:
                yield source.permutation(n)[:left]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given `indices` in random order."""

    def __init__(self, indices, generator=None):
        self.indices = indices
        self.generator = generator

    def __iter__(self):
        for i in stream(self.generator).permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(_BlockSampler):
    """`num_samples` positions, each with a probability in proportion to its entry of `weights`."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        if isinstance(num_samples, bool):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        positive(num_samples, "num_samples")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        weights = as_tensor(weights, dtype=dtypes.float64)
        if weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(weights.shape)}")
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def _blocks(self):
        if not self.replacement and self.num_samples > len(self.weights):
            raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
                               f"{self.num_samples} of {len(self.weights)}")
        yield stream(self.generator).multinomial(array_of(self.weights), self.num_samples, self.replacement)

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Lists of `batch_size` positions each from another sampler; a last one that is shorter may be dropped.

    >>> list(BatchSampler(SequentialSampler(range(7)), batch_size=3, drop_last=False))
    [[0, 1, 2], [3, 4, 5], [6]]
    """

    def __init__(self, sampler: Iterable, batch_size, drop_last):
        if isinstance(batch_size, bool):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        positive(batch_size, "batch_size")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        cut = self._cut()
        if cut is not None:
            for positions in cut:
                yield listed(positions)
            return
        order = iter(self.sampler)
        while batch := list(itertools.islice(order, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def _cut(self):
        """The batches as ranges and arrays, where the sampler is one of ours; else None."""
        if getattr(type(self.sampler), "__iter__", None) is not _BlockSampler.__iter__:
            return None
        return cut(self.sampler._blocks(), self.batch_size, self.drop_last)

    def __len__(self):
        whole = len(self.sampler) // self.batch_size
        return whole if self.drop_last else whole + (len(self.sampler) % self.batch_size > 0)


def cut(blocks, size, drop_last):
    """Batches of `size` positions out of `blocks`; a block is taken when it is needed, not before."""
    parts, have = [], 0
    for block in blocks:
        parts.append(block)
        have += len(block)
        if have >= size:
            whole, used = joined(parts), have - have % size
            for start in range(0, used, size):
                yield whole[start:start + size]
            parts, have = [whole[used:]], have - used
    if have and not drop_last:
        yield joined(parts)


def joined(parts):
    """One range or array of several."""
    parts = [part for part in parts if len(part)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def listed(positions):
    """A range or array of positions as a list of Python numbers."""
    return list(positions) if positions.__class__ is range else positions.tolist()
