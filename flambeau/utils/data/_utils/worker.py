"""What a worker does, be it a thread or a process: answer tasks, one after the other, until there are none.

A task is (number, entry of the sampler); its answer is (number, batch). An exception is an answer too: it is raised
where the loader is iterated over, with the worker's own traceback in its message.
"""
import sys
import threading
import traceback

import numpy as np

from ....compat.missing import missing
from ..dataset import IterableDataset
from .epochs import WorkerProgress
from .fetch import SampleAddress, _IterableDatasetFetcher, _MapDatasetFetcher

SHUTDOWN_SECONDS = 5.0        # seconds that a worker gets to come to an end by itself
RESUME_TASK = -1              # the number of the task that starts the dataset over: the loader is iterated over again
START_TASK = -2               # and of the one before all others, whose answer is not waited for
EPOCH_TASKS = (RESUME_TASK, START_TASK)
_worker_info = None           # this process is a worker: who it is
_local = threading.local()    # this thread is a worker: who it is, as `info`


class WorkerInfo:
    """Who a worker is: `id` of `num_workers`, its random `seed`, and its `dataset`.

    A worker that is a thread shares Python's, NumPy's and the default generator with all threads; `rng` then holds a
    generator of each kind that is its own: `random_generator`, `torch_generator`, `numpy_generator`.
    """

    __slots__ = ("id", "num_workers", "seed", "dataset", "rng", "worker_method")

    def __init__(self, id, num_workers, seed, dataset, rng=None, worker_method="multiprocessing"):
        for name, value in zip(self.__slots__, (id, num_workers, seed, dataset, rng, worker_method)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, *value):
        from dataclasses import FrozenInstanceError
        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")

    __delattr__ = __setattr__

    def __repr__(self):
        return f"WorkerInfo({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class _RNG:
    """Random generators of a worker thread's own."""

    def __init__(self, random_generator, torch_generator, numpy_generator=None):
        self.random_generator = random_generator
        self.torch_generator = torch_generator
        self.numpy_generator = numpy_generator


def get_worker_info():
    """Who the worker is that calls this: id, num_workers, seed, dataset. None outside of a worker."""
    return getattr(_local, "info", _worker_info)


class WorkerJob:
    """All that a worker needs to know."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last, base_seed, worker_init_fn, num_workers,
                 seeds_samples=False, slots=0):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.base_seed = base_seed
        self.worker_init_fn = worker_init_fn
        self.num_workers = num_workers
        self.slots = slots                    # how many places for batches a worker process may have
        self.seeds_samples = seeds_samples    # the global generators are seeded for each sample

    def fetcher(self, worker, part, reseed):
        """What makes the batches of `worker` in the epoch that `part` says; `reseed` seeds generators for a sample."""
        cls = _IterableDatasetFetcher if isinstance(self.dataset, IterableDataset) else _MapDatasetFetcher
        made = cls(self.dataset, self.auto_collation, self.collate_fn, self.drop_last)
        made.address = SampleAddress(part.seed, part.epoch, worker, self.num_workers,
                                     reseed if self.seeds_samples else None)
        if part.progress is not None:
            made.go_to(part.progress, part.entry)
        return made


class WorkerPart:
    """What a worker has to know of an epoch before its first task."""

    def __init__(self, epoch, seed, progress=None, entry=None):
        self.epoch, self.seed = epoch, seed
        self.progress, self.entry = progress, entry           # of a stream that is resumed: WorkerProgress, sampler's


# PyTorch's own protocol between a loader and its workers, which torchdata writes anew.
ManagerWatchdog = missing("torch.utils.data._utils.worker.ManagerWatchdog")
_ResumeIteration = missing("torch.utils.data._utils.worker._ResumeIteration")


class WithProgress:
    """A batch of a stream whose dataset has a word for where it stands."""

    def __init__(self, data, progress):
        self.data, self.progress = data, progress


class _IterableDatasetStopIteration:
    """The answer of a worker whose iterable dataset has come to its end."""

    def __init__(self, worker_id):
        self.worker_id = worker_id


class ExceptionWrapper:
    """An exception on its way from a worker to the thread that iterates: its type, and its traceback as text."""

    def __init__(self, exc_info=None, where="in background"):
        exc_info = exc_info or sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self):
        """Raise an exception of the type it was; a RuntimeError, where that type takes more than a message."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)       # a KeyError shows the repr of its message: keep the lines lines
        try:
            error = self.exc_type(message)
        except Exception:                     # it wants other arguments
            error = RuntimeError(message)
        try:
            raise error
        finally:
            del error                         # a frame that holds its own error would keep the workers alive


class KeyErrorMessage(str):
    """A message whose lines stay lines where its repr is shown."""

    def __repr__(self):
        return str(self)


def serve(job, worker, where, receive, send, reseed, opened=None):
    """Answer what `receive()` gives by `send(number, data)`, until it gives None; `opened` unpacks what is asked.

    The first task, and the first of every epoch after it, says what the epoch is: a WorkerPart.
    """
    fetcher = problem = None
    try:
        if job.worker_init_fn is not None:
            job.worker_init_fn(worker)
    except Exception:
        problem = ExceptionWrapper(where=where)
    ended = False
    while (task := receive()) is not None:
        number, index = task
        if number in EPOCH_TASKS:
            ended = False
            try:
                index = index if opened is None else opened(index)
                fetcher = job.fetcher(worker, index, reseed) if problem is None else None
            except Exception:
                problem = ExceptionWrapper(where=where)
            if number == RESUME_TASK:
                send(RESUME_TASK, None)
            continue
        if ended:
            continue
        data = problem
        if data is None:
            try:
                data = fetcher.fetch(index if opened is None else opened(index))
            except StopIteration:
                ended = isinstance(job.dataset, IterableDataset)
                data = _IterableDatasetStopIteration(worker) if ended else ExceptionWrapper(where=where)
            except Exception:
                data = ExceptionWrapper(where=where)
            else:
                data = with_progress(fetcher, data)
        send(number, data)
        data = None                           # not while waiting: it may be large


def with_progress(fetcher, data):
    """`data`, and how far the stream has come where only the dataset can say it."""
    if not isinstance(fetcher, _IterableDatasetFetcher):
        return data
    state = fetcher.state()
    return data if state is None else WithProgress(data, WorkerProgress(0, fetcher.given, state))


def _generate_state(base_seed, worker_id):
    """What a worker's NumPy is seeded with: four numbers. tensordict seeds workers of its own with it."""
    return np.random.SeedSequence([worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4).tolist()
