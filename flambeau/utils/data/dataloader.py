"""`DataLoader`: batches of a dataset in the order of a sampler, made here or by workers.

Random numbers are drawn from the default generator where PyTorch draws them, so that a program's numbers after an epoch
are the same: a base seed for the workers when an iterator is made, a seed for the sampler with its first position.

What PyTorch has not: epochs are counted, and a loader says where it stands (`state_dict`), how long it was waited for
(`waiting`), who its workers are (`worker_type`), what a random number belongs to (`randomness`) and which rank's part
it gives (`split_by_rank`).
"""
import itertools
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ...base.errors import warn
from ...base.op import door
from ...compat.missing import missing
from ._iterators import (
    THREAD_CONTEXT,
    _BaseDataLoaderIter,
    _DatasetBatchesIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
    process_context,
)
from ._utils.collate import default_collate, default_convert
from ._utils.epochs import Epoch, epoch_from, state_of, states_now
from ._utils.waiting import Waiting
from ._utils.worker import get_worker_info
from .dataset import Dataset, IterableDataset
from .distributed import DistributedSampler, rank_and_ranks
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

for _cls in (_BaseDataLoaderIter, _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter):
    _cls.__module__ = __name__       # as PyTorch's, which are written there

# For annotations; opacus borrows the second.
_worker_init_fn_t = Callable[[int], None]
_collate_fn_t = Callable[[list], Any]

_T_co = TypeVar("_T_co", covariant=True)
FIXED_ATTRIBUTES = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _InfiniteConstantSampler(Sampler):
    """None, again and again: an iterable dataset knows its order itself."""

    def __iter__(self):
        return itertools.repeat(None)


class _DatasetOrder(Sampler):
    """Stands for the order of a dataset that gives whole batches by itself."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)


def gives_batches(dataset):
    """Whether `dataset` gives whole batches by itself: it says so by `__batches__ = True` and has

        batches(batch_size, shuffle=, seed=, epoch=, workers=, start=, rank=, ranks=, drop_last=)

    which gives an iterator over the batches from number `start` on, to be closed by `close()`.
    """
    return bool(getattr(dataset, "__batches__", False))


class DataLoader(Generic[_T_co]):
    """Iterate over `dataset` in batches.

    >>> data = torch.utils.data.TensorDataset(torch.arange(6.0).view(3, 2), torch.arange(3))
    >>> for x, y in DataLoader(data, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [[0.0, 1.0], [2.0, 3.0]] [0, 1]
    [[4.0, 5.0]] [2]

    With `num_workers` batches are made ahead, by threads where only tensors are gathered and by processes where code of
    yours runs. `worker_type` asks for one or the other: "thread", or "process", which are then started by `spawn`,
    unless `multiprocessing_context` names another way.

    With `randomness="sample"` the random numbers of a sample follow from its index, the epoch and the loader's seed, so
    that they are the same with any number of workers; with "worker" generators are seeded as in PyTorch, once for each
    worker. `split_by_rank` gives the part of one of several processes: True, as the environment says, or a pair
    (rank, ranks). `state_dict` says where the loader stands, `epoch` and `waiting` what it has counted.
    """

    dataset: Dataset
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Any
    batch_sampler: Any
    pin_memory_device: str
    prefetch_factor: int | None
    _iterator: Any = None
    __initialized = False

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device="", in_order=True, worker_type=None, randomness=None, split_by_rank=None):
        prefetch_factor = checked_prefetch(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.worker_type = checked_worker_type(worker_type, self.multiprocessing_context)
        self.randomness = checked_randomness(randomness, dataset)
        self._ranks = None if split_by_rank is None or split_by_rank is False else rank_and_ranks(split_by_rank)
        whole = gives_batches(dataset) and batch_size is not None and sampler is batch_sampler is collate_fn is None
        self._dataset_kind = _DatasetKind.Batches if whole else \
            _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        if self._dataset_kind == _DatasetKind.Iterable:
            check_unordered(None if self._ranks is None else split_by_rank, shuffle=shuffle or None, sampler=sampler,
                            batch_sampler=batch_sampler)
        self._shuffle = shuffle               # a dataset that gives batches may know several ways
        shuffle = bool(shuffle)
        if self._ranks is not None and not (sampler is batch_sampler is None):
            raise ValueError(f"split_by_rank={split_by_rank!r} makes the sampler; give no sampler or batch_sampler")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                                 "drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        self._counted = None                  # a sampler that is told the number of each epoch
        if sampler is None:
            sampler = self._make_sampler(shuffle, generator, drop_last)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.persistent_workers = persistent_workers
        self._IterableDataset_len_called = None
        self.check_worker_number_rationality()
        self._epoch = self._resumed = None    # the epoch that was begun last; one that the next iteration goes on with
        self._epochs_begun = 0
        self._seed = shared_seed(generator) if self._ranks is not None else None      # else drawn with the first epoch
        self._waiting = Waiting()
        self._iterator = None
        self.__initialized = True

    def _make_sampler(self, shuffle, generator, drop_last):
        if self._dataset_kind == _DatasetKind.Iterable:
            return _InfiniteConstantSampler()
        if self._dataset_kind == _DatasetKind.Batches:
            return _DatasetOrder(self.dataset)
        if self._ranks is not None:
            rank, ranks = self._ranks
            self._counted = DistributedSampler(self.dataset, ranks, rank, shuffle, shared_seed(generator), drop_last)
            return self._counted
        return RandomSampler(self.dataset, generator=generator) if shuffle else SequentialSampler(self.dataset)

    @property
    def multiprocessing_context(self):
        """How workers are started: a context of `multiprocessing`, "thread", or None for the rule in docs/data.md."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if self.num_workers == 0:
                raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > "
                                 f"0), but got num_workers={self.num_workers}")
            if context != THREAD_CONTEXT:
                context = process_context(context)
        self.__multiprocessing_context = context

    def __setattr__(self, name, value):
        if self.__initialized and name in FIXED_ATTRIBUTES:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self):
        if self._dataset_kind == _DatasetKind.Batches:
            return _DatasetBatchesIter(self)
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self):
        if not self.persistent_workers or self.num_workers == 0 or self._dataset_kind == _DatasetKind.Batches:
            return self._get_iterator()
        if self._iterator is None or self._iterator._shutdown:       # never made, or its workers have come to harm
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    # --- epochs, and where the loader stands

    @property
    def epoch(self):
        """The number of the epoch that is being given, or that will be next: the first is 0."""
        now = self._resumed or self._epoch
        return self._epochs_begun if now is None or now.finished else now.number

    @property
    def waiting(self):
        """How much of the last epoch's time went by in waiting for batches: a `Waiting`, with `share` and `last`."""
        return self._waiting

    def state_dict(self):
        """Where the loader stands: `load_state_dict` lets another one like it go on with the next batch.

        It is a dictionary of numbers and tensors. What a program draws itself, be it in the loop, is not in it.
        """
        if self.num_workers and not self.in_order:
            raise NotImplementedError("with in_order=False batches come as they are ready, and which were given cannot "
                                      "be said by a number; state_dict needs in_order=True")
        epoch = self._resumed or self._epoch
        if epoch is None or epoch.finished:
            epoch = Epoch(self._epochs_begun, self._seed)
            epoch.generators = states_now(self)
        return state_of(self, epoch, self._known_length())

    def load_state_dict(self, state_dict):
        """Let the next iteration go on where `state_dict()` was taken: it gives the rest of that epoch."""
        self._resumed = epoch_from(state_dict, self, self._known_length())

    def _known_length(self):
        """How many samples there are, of a dataset with positions; None for others, which may have to count them."""
        known = self._dataset_kind == _DatasetKind.Map and hasattr(self.dataset, "__len__")
        return len(self.dataset) if known else None

    def _begin_epoch(self):
        """The Epoch that an iteration which begins now gives: the next one, or one to go on with."""
        epoch, self._resumed = self._resumed, None
        if epoch is None:
            epoch = Epoch(self._epochs_begun, self._seed)
            epoch.generators = states_now(self)
        self._epoch, self._epochs_begun = epoch, epoch.number + 1
        self._waiting = Waiting()
        door.noticed("loader_started", self)
        if self._counted is not None:
            self._counted.set_epoch(epoch.number)
        return epoch

    def __len__(self):
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        if self._dataset_kind == _DatasetKind.Batches:
            return batch_count(self)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self):
        """Warn where there will be more workers than processors."""
        if not self.num_workers:
            return
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if processors is not None and self.num_workers > processors:
            warn(f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number "
                 f"of worker in current system is {processors}, which is smaller than what this DataLoader is going to "
                 "create. Please be aware that excessive worker creation might get DataLoader running slow or even "
                 "freeze, lower the worker number to avoid potential slowness/freeze if necessary.")


_sharding_worker_init_fn = missing("torch.utils.data.dataloader._sharding_worker_init_fn")       # torchdata imports it


def checked_prefetch(num_workers, timeout, prefetch_factor, persistent_workers):
    """How many batches each worker makes ahead, if what is asked of workers goes together."""
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing. "
                         f"It is {num_workers}")
    if timeout < 0:
        raise ValueError(f"timeout option should be non-negative, but got {timeout}")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing. Let num_workers > 0 "
                         "to enable multiprocessing, otherwise set prefetch_factor to None; it is "
                         f"{prefetch_factor}")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"prefetch_factor option should be non-negative, but got {prefetch_factor}")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    return 2 if num_workers and prefetch_factor is None else prefetch_factor


def check_unordered(split_by_rank, **given):
    """Refuse what asks for an order of an IterableDataset."""
    for name, one in given.items():
        if one is not None:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                             f"{name}={one}")
    if split_by_rank is not None:
        raise ValueError(f"split_by_rank={split_by_rank!r}: an IterableDataset has no positions to split; let "
                         "its __iter__ give the part of its rank")


def checked_worker_type(worker_type, context):
    """`worker_type`, if it is one and no other is asked for by `multiprocessing_context`."""
    if worker_type not in (None, "thread", "process"):
        raise ValueError(f"worker_type is 'thread', 'process' or None (as the dataset asks for), and got "
                         f"{worker_type!r}")
    if worker_type is not None and context is not None and (context == THREAD_CONTEXT) != (worker_type == "thread"):
        raise ValueError(f"worker_type={worker_type!r} and multiprocessing_context={context!r} say different things; "
                         "give one of them")
    return worker_type


def checked_randomness(randomness, dataset):
    """What random numbers belong to: as it was given, or as the dataset asks for by its `randomness`, or "worker"."""
    if randomness is None:
        randomness = getattr(dataset, "randomness", None)
        return randomness if isinstance(randomness, str) and randomness == "sample" else "worker"
    if randomness not in ("worker", "sample"):
        raise ValueError("randomness is 'worker' (generators are seeded once for each worker, as in PyTorch) or "
                         f"'sample' (for each sample), and got {randomness!r}")
    return randomness


def shared_seed(generator):
    """A seed that all ranks agree on: that of the generator given, or 0."""
    return 0 if generator is None else generator.initial_seed()


def batch_count(loader):
    """How many batches a dataset that gives them by itself will give."""
    rank, ranks = loader._ranks or (0, 1)
    if hasattr(loader.dataset, "batch_count"):
        return loader.dataset.batch_count(loader.batch_size, rank=rank, ranks=ranks, drop_last=loader.drop_last)
    length = len(range(rank, len(loader.dataset), ranks))
    return length // loader.batch_size if loader.drop_last else -(-length // loader.batch_size)
