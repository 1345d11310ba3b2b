"""Fetch what one entry of the sampler asks for, and put it together.

While samples are made, and while they are put together, their random numbers are the ones to be drawn: see
`sample_random.py`. For a stream the number of a sample is its position in it, where the workers deal it out in turn.
"""
from contextlib import nullcontext

import numpy as np

from ....tensor.tensor import Tensor
from ..dataset import samples
from ..sample_random import addressing
from ..sampler import listed
from . import collate, global_generators
from .differences import explain
from .gather import gather, gather_form, integers


def gathers(dataset, collate_fn):
    """Whether batches of `dataset` can be taken whole: it is made of tensors, and no `collate_fn` of the program's is
    given."""
    return collate_fn is collate.default_collate and gather_form(dataset) is not None \
        and collate.default_collate_fn_map.get(Tensor) is collate.collate_tensor_fn


class SampleAddress:
    """What the random numbers of samples follow from besides their index, and who makes them."""

    def __init__(self, seed, epoch, worker=0, num_workers=1, reseed=None):
        self.seed, self.epoch = seed, epoch
        self.worker, self.num_workers = worker, num_workers
        self.reseed = reseed                  # seeds the global generators; None: they are left alone

    def batch(self, indices):
        return addressing(self.seed, self.epoch, indices, self.reseed)

    def in_stream(self, start, count):
        """The numbers of the next `count` samples of a stream, after `start` of this worker's."""
        first = start * self.num_workers + self.worker
        return range(first, first + count * self.num_workers, self.num_workers)


class _BaseDatasetFetcher:
    address = SampleAddress(0, 0)
    keeps_generators = False                  # what is seeded for samples is put right after each batch

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index):
        """What the loader gives for one entry of its sampler."""
        raise NotImplementedError

    def _kept(self):
        return global_generators.kept() if self.keeps_generators else nullcontext()

    def _collated(self, made, indices):
        try:
            return self.collate_fn(made)
        except Exception as error:
            explain(error, made, indices)
            raise


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """The next samples of an iterable dataset; StopIteration when there are no more."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False
        self.given = 0                        # samples

    def fetch(self, possibly_batched_index):
        if self.ended:
            raise StopIteration
        wanted = len(possibly_batched_index) if self.auto_collation else 1
        indices = self.address.in_stream(self.given, wanted)
        with self._kept(), self.address.batch(indices) as batch:
            if not self.auto_collation:
                batch.position = 0
                made = next(self.dataset_iter)
                self.given += 1
                return self.collate_fn(made)
            data = self._next_samples(batch)
            batch.all_at_once()
            if not data or self.drop_last and len(data) < wanted:
                raise StopIteration
            return self._collated(data, indices[:len(data)])

    def _next_samples(self, batch):
        data = []
        for _ in batch.one_by_one():
            try:
                data.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
            self.given += 1
        return data

    # --- where it stands, and going there

    def state(self):
        """The dataset's own word for where it stands: its iterator's, or its own; None if it has none."""
        for name, holder in ("iterator", self.dataset_iter), ("dataset", self.dataset):
            if has_state(holder):
                return {name: holder.state_dict()}
        return None

    def go_to(self, progress, entry):
        """Go to where a WorkerProgress says; without a word of the dataset's, by making `entry` after `entry` again."""
        if progress.state is None:
            for _ in range(progress.batches):
                try:
                    self.fetch(entry)
                except StopIteration:
                    return
                except Exception:             # it was raised in the run before, and that went on
                    continue
            return
        (name, state), = progress.state.items()
        if name == "dataset":
            self.dataset.load_state_dict(state)
            self.dataset_iter = iter(self.dataset)
        else:
            self.dataset_iter.load_state_dict(state)
        self.given = progress.samples


def has_state(thing):
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Samples by position, whole batches at once where that is possible."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.whole = auto_collation and gathers(dataset, collate_fn)

    def fetch(self, possibly_batched_index):
        index = possibly_batched_index
        if self.whole:
            positions = plain(index)
            found = gather(self.dataset, positions) if positions is not None else None
            if found is not None:
                return found
        if index.__class__ is np.ndarray or index.__class__ is range:
            index = listed(index)
        with self._kept():
            if not self.auto_collation:
                with self.address.batch([index]):
                    return self.collate_fn(self.dataset[index])
            if not hasattr(index, "__len__"):
                index = list(index)
            with self.address.batch(index):
                return self._collated(samples(self.dataset, index), index)


def plain(index):
    """An entry of the sampler as positions to gather: a range or an int64 array; None where it is not that simple."""
    cls = index.__class__
    if cls is list:
        index = integers(index)
    elif cls is range:
        index = index if index.step == 1 and index.start >= 0 else None
    elif cls is not np.ndarray or index.dtype != np.int64 or index.ndim != 1:
        return None
    return index if index is not None and len(index) else None
