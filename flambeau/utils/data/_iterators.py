"""The iterators of a `DataLoader`, with and without workers."""
import itertools
import queue
import weakref

from ...backends.devices import accelerator, types
from ...base.deferred_signals import when_gone
from ...base.errors import warn
from ._utils import kept_generators
from ._utils.epochs import Epoch, WorkerProgress
from ._utils.fetch import SampleAddress, _IterableDatasetFetcher, _MapDatasetFetcher, gathers
from ._utils.global_generators import seed_all
from ._utils.pin_memory import pin_memory
from ._utils.slots import SPARE_SLOTS
from ._utils.threads import Threads
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
)
from .sampler import BatchSampler, fresh_seed

THREAD_CONTEXT = "thread"     # what stands for threads in the place of a start method of processes


class _DatasetKind:
    Map = 0
    Iterable = 1
    Batches = 2               # gives whole batches by itself: see `gives_batches` in dataloader.py

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        maker = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return maker(dataset, auto_collation, collate_fn, drop_last)


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
        found = accelerator() if loader.pin_memory else None
        self._pin_memory = found is not None and types[found].backend().copies_ahead
        if loader.pin_memory:
            if loader.pin_memory_device:
                warn("pin_memory_device is deprecated, the current accelerator will be used as the device, "
                     f"ignore pin_memory_device={loader.pin_memory_device!r}.")
            if not self._pin_memory:
                why = "no accelerator is found, then" if found is None else f"not supported on {found.upper()} now,"
                warn(f"'pin_memory' argument is set as true but {why} device pinned memory won't be used.")
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
