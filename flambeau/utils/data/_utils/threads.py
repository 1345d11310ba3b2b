"""Workers that are threads of this process: no copy of the dataset, and batches come over as they are."""
import queue
import random
import threading

import numpy as np

from ....tensor.generators import Generator
from .global_generators import seeder_of
from .worker import _RNG, WorkerInfo, _local, serve


class Threads:
    """The workers of one iteration. They know the queues, not this object, so that it goes when the iteration is
    dropped."""

    method = "thread"

    def __init__(self, job):
        self._answers = queue.SimpleQueue()
        self._tasks = [queue.SimpleQueue() for _ in range(job.num_workers)]
        self.workers = [threading.Thread(target=run_thread, args=(job, worker, tasks, self._answers), daemon=True,
                                         name=f"DataLoader worker {worker}")
                        for worker, tasks in enumerate(self._tasks)]
        for thread in self.workers:
            thread.start()

    def put(self, worker, number, index):
        self._tasks[worker].put((number, index))

    def get(self, timeout=None):
        """The next answer (number, data), from whichever worker; `queue.Empty` after `timeout` seconds."""
        number, data = self._answers.get(timeout=timeout)
        if number is None:
            raise data
        return number, data

    def stop(self, worker):
        """There will be no more tasks for this one."""
        self._tasks[worker].put(None)

    def close(self, grace=None):
        """There will be no more tasks. A thread that is in the middle of one ends after it; there is no wait for
        that."""
        for tasks in self._tasks:
            tasks.put(None)


def run_thread(job, worker, tasks, answers):
    """The life of a worker thread."""
    seed = job.base_seed + worker
    rng = _RNG(random.Random(seed), Generator().manual_seed(seed), np.random.default_rng(seed))
    _local.info = WorkerInfo(worker, job.num_workers, seed, job.dataset, rng, "thread")
    try:
        serve(job, worker, f"in DataLoader worker thread {worker}", tasks.get,
              lambda number, data: answers.put((number, data)), seeder_of(rng))
    except BaseException as error:            # SystemExit, say: it would be lost otherwise
        answers.put((None, RuntimeError(f"DataLoader worker thread {worker} exited unexpectedly: "
                                        f"{type(error).__name__}: {error}")))
