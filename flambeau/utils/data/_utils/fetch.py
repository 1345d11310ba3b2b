"""Fetch what one entry of the sampler asks for, and put it together."""
import numpy as np

from ....tensor.tensor import Tensor
from ..dataset import samples
from ..sampler import listed
from . import collate
from .gather import gather, gather_form, integers


def gathers(dataset, collate_fn):
    """Whether batches of `dataset` can be taken whole: it is made of tensors, and nobody has a say in the collating."""
    return collate_fn is collate.default_collate and gather_form(dataset) is not None \
        and collate.default_collate_fn_map.get(Tensor) is collate.collate_tensor_fn


class _BaseDatasetFetcher:
    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index):
        """What the loader gives for one entry of its sampler."""
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """The next samples of an iterable dataset; StopIteration when there are no more."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index):
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        data = []
        for _ in possibly_batched_index:
            try:
                data.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not data or self.drop_last and len(data) < len(possibly_batched_index):
            raise StopIteration
        return self.collate_fn(data)


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
        if self.auto_collation:
            return self.collate_fn(samples(self.dataset, index))
        return self.collate_fn(self.dataset[index])


def plain(index):
    """An entry of the sampler as positions to gather: a range or an int64 array; None where it is not that simple."""
    kind = index.__class__
    if kind is list:
        index = integers(index)
    elif kind is range:
        index = index if index.step == 1 and index.start >= 0 else None
    elif kind is not np.ndarray or index.dtype != np.int64 or index.ndim != 1:
        return None
    return index if index is not None and len(index) else None
