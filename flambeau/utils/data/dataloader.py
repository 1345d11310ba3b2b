"""`DataLoader`: batches of a dataset in the order of a sampler, made here or by workers.

Random numbers are drawn from the default generator where PyTorch draws them, so that a program's numbers after an epoch
are the same: a base seed for the workers when an iterator is made, a seed for the sampler with its first position.

What PyTorch has not: epochs are counted, and a loader says where it stands (`state_dict`), how long it was waited for
(`waiting`), who its workers are (`worker_type`), what a random number belongs to (`randomness`) and which rank's part
it gives (`split_by_rank`).
"""
import itertools
import os
import queue
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ...backends.devices import has_cuda
from ...base.deferred_signals import when_gone
from ...base.errors import warn
from ...base.op import door
from ...missing import missing
from ._utils import kept_generators
from ._utils.collate import default_collate, default_convert
from ._utils.epochs import Epoch, WorkerProgress, epoch_from, state_of, states_now
from ._utils.fetch import SampleAddress, _IterableDatasetFetcher, _MapDatasetFetcher, gathers
from ._utils.global_generators import seed_all
from ._utils.pin_memory import pin_memory
from ._utils.slots import SPARE_SLOTS
from ._utils.waiting import Waiting
from ._utils.worker import (
    RESUME_TASK,
    SHUTDOWN_SECONDS,
    START_TASK,
    ExceptionWrapper,
    WithProgress,
    WorkerJob,
    WorkerPart,
    _IterableDatasetStopIteration,
    get_worker_info,
)
from .dataset import Dataset, IterableDataset
from .distributed import DistributedSampler, rank_and_ranks
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, fresh_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

# For annotations; opacus borrows the second.
_worker_init_fn_t = Callable[[int], None]
_collate_fn_t = Callable[[list], Any]

_T_co = TypeVar("_T_co", covariant=True)
FIXED_ATTRIBUTES = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
THREAD_CONTEXT = "thread"     # what stands for threads in the place of a start method of processes


class _DatasetKind:
    Map = 0
    Iterable = 1
    Batches = 2               # gives whole batches by itself: see `gives_batches`

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        maker = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return maker(dataset, auto_collation, collate_fn, drop_last)


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


def process_context(context):
    """The context of `multiprocessing` that `context`, such a thing or its name, says."""
    import multiprocessing
    if isinstance(context, str):
        known = multiprocessing.get_all_start_methods()
        if context not in known:
            raise ValueError(f"multiprocessing_context option should specify a valid start method in {known}, but got "
                             f"multiprocessing_context={context!r}; or {THREAD_CONTEXT!r}, for threads")
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the "
                        f"start method, but got multiprocessing_context={context}")
    return context


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


# --- iterators --------------------------------------------------
# A loader is asked for PyTorch's attributes alone: fastai hands in an object of its own that has no others.


def gathers_whole(loader):
    """Whether batches are gathered whole, and no code of the user's takes part in making them."""
    return loader._dataset_kind == _DatasetKind.Map and loader._auto_collation \
        and gathers(loader.dataset, loader.collate_fn)


def uses_threads(loader):
    """Whether workers are threads: because that was asked for, or because processes would have nothing to gain."""
    context, asked = loader.multiprocessing_context, getattr(loader, "worker_type", None)
    if asked is not None or context is not None:
        return asked == "thread" or context == THREAD_CONTEXT
    return loader.worker_init_fn is None and gathers_whole(loader)


def harm_of_kept_generators(loader):
    """What a generator that the dataset keeps does there, in words; None where it is as good as any."""
    if getattr(loader, "randomness", "worker") == "sample":
        return "what it gives a sample depends on how many were made before, and by which worker"
    if not loader.num_workers or loader.worker_init_fn is not None or loader._dataset_kind != _DatasetKind.Map:
        return None
    if uses_threads(loader):
        return "which worker thread draws which number from it is a matter of chance"
    return "each worker process has a copy of it, so that all of them draw the same numbers"


class _BaseDataLoaderIter:
    """What iterating with and without workers has in common."""

    def __init__(self, loader):
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._gathers = gathers_whole(loader)
        self._num_yielded = 0
        self._pin_memory = loader.pin_memory and has_cuda()
        if loader.pin_memory:
            if loader.pin_memory_device:
                warn("pin_memory_device is deprecated, the current accelerator will be used as the device, "
                     f"ignore pin_memory_device={loader.pin_memory_device!r}.")
            if not self._pin_memory:
                warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
                     "won't be used.")
        harm = harm_of_kept_generators(loader)
        if harm is not None:
            kept_generators.report(self._dataset, harm)
        self._begin(loader)

    _base_seed = None          # what workers are seeded from, until it is drawn
    _shared_seed = None        # of pipes, which are not here: torchdata keeps it
    _orders = 1                # how often PyTorch asks the sampler for its order; only the last one is used

    def _begin(self, loader):
        """Begin an epoch: its order, a seed for the workers with the first one, and the way to where it is resumed."""
        # A loader of another make has not counted epochs, be it of a class that derives from ours (torchdata).
        begin = loader._begin_epoch if hasattr(loader, "_epochs_begun") else None
        epoch = self._epoch = Epoch(0, None) if begin is None else begin()
        self._waiting = getattr(loader, "_waiting", None) or Waiting()
        with epoch.replaying(loader):
            self._sampler_iter = self._order()
            if epoch.resumed and epoch.base_seed is not None and not epoch.drew_base_seed:
                self._base_seed = epoch.base_seed            # workers were persistent then, and seeded long before
            elif self._base_seed is None:
                self._base_seed = fresh_seed(loader.generator)
                epoch.drew_base_seed = True
            for _ in range(self._orders - 1):
                self._sampler_iter = self._order()
            self._orders = 1
            if epoch.seed is None:
                epoch.seed = self._base_seed
            epoch.base_seed = self._base_seed
            self._go_to(epoch)
        if begin is not None:
            loader._seed = epoch.seed         # that of all epochs from now on
        self._num_yielded = epoch.given

    def _go_to(self, epoch):
        """Pass over what the epoch has given before."""
        if epoch.resumed and self._dataset_kind == _DatasetKind.Map:
            self._sampler_iter = passed_over(self._sampler_iter, epoch.given)

    def _order(self):
        """An iterator over the sampler: ranges and arrays where batches are gathered, else what the sampler gives."""
        sampler = self._index_sampler
        if self._gathers and isinstance(sampler, BatchSampler) and type(sampler).__iter__ is BatchSampler.__iter__:
            cut = sampler._cut()
            if cut is not None:
                return cut
        return iter(sampler)

    def _reset(self, loader, first_iter=False):
        if not first_iter:
            self._begin(loader)
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def __iter__(self):
        return self

    def __next__(self):
        self._waiting.asks()
        try:
            data = self._next_data()
        except StopIteration:
            self._epoch.finished = True
            self._waiting.ends()
            raise
        self._waiting.gets()
        if self._pin_memory:
            data = pin_memory(data)
        self._num_yielded += 1
        told = self._IterableDataset_len_called
        if told is not None and self._num_yielded > told and self._dataset_kind == _DatasetKind.Iterable:
            hint = "" if not self._num_workers else (
                " For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker: torch.utils.data.get_worker_info() tells its __iter__ which "
                "part to give.")
            warn(f"Length of IterableDataset {self._dataset} was reported to be {told} (when accessing "
                 f"len(dataloader)), but {self._num_yielded} samples have been fetched.{hint}")
        return data

    def _next_data(self):
        raise NotImplementedError

    def _next_index(self):
        """The next of the sampler: iterators of another make ask for it."""
        return next(self._sampler_iter)

    def __len__(self):
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Makes each batch when it is asked for."""

    def __init__(self, loader):
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0, but it is "
                                 f"{self._timeout}: there are no workers to wait for")

    def _begin(self, loader):
        self._seeds_samples = getattr(loader, "randomness", "worker") == "sample"
        super()._begin(loader)

    def _go_to(self, epoch):
        super()._go_to(epoch)
        fetcher = self._dataset_fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)
        fetcher.address = SampleAddress(epoch.seed, epoch.number, reseed=seed_all if self._seeds_samples else None)
        fetcher.keeps_generators = self._seeds_samples
        if isinstance(fetcher, _IterableDatasetFetcher):
            if epoch.resumed and epoch.workers:
                fetcher.go_to(epoch.workers[0], next(self._sampler_iter))
            else:
                epoch.workers = [WorkerProgress()]
            self._own_states = fetcher.state() is not None

    def _next_data(self):
        index = next(self._sampler_iter)
        fetcher, epoch = self._dataset_fetcher, self._epoch
        try:
            data = fetcher.fetch(index)
        except StopIteration:
            raise
        except Exception:                     # that was the batch: the next one can be asked for
            epoch.given += 1
            raise
        epoch.given += 1
        if self._dataset_kind == _DatasetKind.Iterable:
            epoch.workers[0] = WorkerProgress(epoch.given, fetcher.given, fetcher.state() if self._own_states else None)
        return data


class _DatasetBatchesIter(_BaseDataLoaderIter):
    """The batches that a dataset gives by itself, from workers of its own."""

    def __init__(self, loader):
        self._shuffle, self._ranks, self._batch_size = loader._shuffle, loader._ranks or (0, 1), loader.batch_size
        self._length = weakref.WeakMethod(loader.__len__)
        super().__init__(loader)

    def _order(self):
        return None

    def _go_to(self, epoch):
        rank, ranks = self._ranks
        self._batches = self._dataset.batches(
            self._batch_size, shuffle=self._shuffle or False, seed=epoch.seed, epoch=epoch.number,
            workers=self._num_workers, start=epoch.given, rank=rank, ranks=ranks, drop_last=self._drop_last)

    def _next_data(self):
        data = next(self._batches)
        self._epoch.given += 1
        return data

    def __len__(self):
        return self._length()()

    def close(self):
        """There will be no more: let the dataset's workers end."""
        batches, self._batches = getattr(self, "_batches", None), iter(())
        if hasattr(batches, "close"):
            batches.close()

    def __del__(self):
        self.close()


def passed_over(order, count):
    """`order` without its first `count` entries. The first of all is asked for even so, since that draws the order."""
    if count == 0:
        first = list(itertools.islice(order, 1))
        return itertools.chain(first, order)
    next(itertools.islice(order, count - 1, count), None)
    return order


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Hands tasks to workers ahead of time, and gives their answers in the order of the tasks (or as they come).

    A worker has at most `prefetch_factor` tasks on average; a new one is handed out when an answer has come. When the
    sampler is asked, and which worker gets what, is as in PyTorch.
    """

    _shutdown = True           # until there are workers
    _grace = SHUTDOWN_SECONDS  # how long they may take to end
    _orders = 2

    def __init__(self, loader):
        super().__init__(loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._persistent_workers = loader.persistent_workers
        job = WorkerJob(self._dataset, self._auto_collation, self._collate_fn, self._drop_last, self._base_seed,
                        loader.worker_init_fn, self._num_workers, getattr(loader, "randomness", "worker") == "sample",
                        self._prefetch_factor + SPARE_SLOTS)
        if uses_threads(loader):
            from ._utils.threads import Threads
            self._crew = Threads(job)
        else:
            from ._utils.processes import Processes
            context = loader.multiprocessing_context
            if context is None and getattr(loader, "worker_type", None) == "process":
                context = process_context("spawn")
            self._crew = Processes(job, context)
        when_gone(self, self._crew.close)
        self._shutdown = False
        self._workers = self._crew.workers
        self._reset(loader, first_iter=True)

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._numbers = itertools.count()
        self._tasks = {}                      # number → worker, of every task that has not been answered or handed out
        self._arrived = {}                    # number → answer that has come before its turn
        workers, first = range(self._num_workers), self._epoch.turn
        self._turn = itertools.cycle([*workers[first:], *workers[:first]])
        self._load = [0] * self._num_workers                  # how many tasks each worker has
        self._active = [True] * self._num_workers
        self._start_workers(START_TASK if first_iter else RESUME_TASK)
        if not first_iter:
            waiting = self._num_workers
            while waiting:                    # what else comes belongs to the iteration before
                waiting -= self._answer()[0] == RESUME_TASK
        for _ in range(self._prefetch_factor * self._num_workers):
            self._hand_out()

    def _start_workers(self, task):
        """Tell the workers which epoch it is, and where to go on with a stream."""
        epoch, entry = self._epoch, None
        going_on = epoch.resumed and bool(epoch.workers)
        if self._dataset_kind == _DatasetKind.Iterable:
            if going_on:
                entry = next(self._sampler_iter)              # they are all alike
            else:
                epoch.workers = [WorkerProgress() for _ in range(self._num_workers)]
        for worker in range(self._num_workers):
            progress = epoch.workers[worker] if going_on else None
            self._crew.put(worker, task, WorkerPart(epoch.number, epoch.seed, progress, entry))

    def _hand_out(self):
        """Give the next entry of the sampler to the worker whose turn it is."""
        try:
            index = next(self._sampler_iter)
        except StopIteration:
            return
        active = sum(self._active)
        most = self._prefetch_factor * self._num_workers // active if active else 0
        for worker in itertools.islice(self._turn, self._num_workers):
            if self._active[worker] and (self._in_order or self._load[worker] < most):
                number = next(self._numbers)
                self._crew.put(worker, number, index)
                self._tasks[number] = worker
                self._load[worker] += 1
                return

    def _answer(self):
        """The next answer that comes in: (number, data)."""
        try:
            return self._crew.get(self._timeout or None)
        except queue.Empty:
            self._grace = 0.0                 # it has had time enough
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        except BaseException:                 # a worker is gone, or an interrupt came in the middle
            self._grace = 0.0
            self._shutdown_workers()
            raise

    def _next_data(self):
        while self._tasks and not self._shutdown:
            first = next(iter(self._tasks))
            if first in self._arrived:
                return self._given(first, self._arrived.pop(first))
            number, data = self._answer()
            self._load[self._tasks[number]] -= 1
            if isinstance(data, _IterableDatasetStopIteration):
                self._end(data.worker_id)
                self._hand_out()
            elif number == first or not self._in_order:
                return self._given(number, data)
            else:
                self._arrived[number] = data
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _given(self, number, data):
        worker = self._tasks.pop(number)
        self._hand_out()
        epoch = self._epoch
        epoch.given += 1
        if self._dataset_kind == _DatasetKind.Iterable:
            batches = epoch.workers[worker].batches + 1
            if isinstance(data, WithProgress):
                epoch.workers[worker], data = data.progress, data.data
            epoch.workers[worker].batches = batches
            epoch.turn = (worker + 1) % self._num_workers
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    def _end(self, worker):
        """The dataset of `worker` has come to its end; it will not answer the tasks that it still has."""
        self._active[worker] = False
        self._tasks = {number: owner for number, owner in self._tasks.items()
                       if owner != worker or number in self._arrived}
        if not self._persistent_workers:
            self._crew.stop(worker)

    def _shutdown_workers(self):
        """Let the workers end, and wait until they have."""
        if not self._shutdown:
            self._shutdown = True
            self._tasks, self._arrived = {}, {}
            self._crew.close(self._grace)
