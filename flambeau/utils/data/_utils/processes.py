"""Workers that are processes: code of the user's runs side by side, each with a copy of the dataset.

Each worker has a pipe of its own, with tasks going one way and batches the other, so that one that is killed leaves the
others' pipes as they are. The end of a pipe says at once that the other side is gone; since a process that another
program forked meanwhile may hold on to it, both sides also look now and then whether the other one is still there.
"""
import multiprocessing
import os
import pickle
import queue
import random
import signal
import sys
import threading
import time
from collections import deque
from importlib import import_module
from multiprocessing import connection

import numpy as np

from ....backends.cpu import threads
from ....base import settings
from ....base.errors import warn
from ....base.spec import CPU
from ....tensor.generators import manual_seed
from ....trace.recording.record import run_all
from . import batch_transport, worker as workers
from .global_generators import seed_all
from .slots import Lender, Slots
from .worker import SHUTDOWN_SECONDS, ExceptionWrapper, WorkerInfo, _generate_state, serve


def load_what_compiles():
    """Load here, once, what plans and compiles. Each forked worker would do so for itself, in every epoch: a tenth of a
    second, as long as it takes to decode and augment some fifteen pictures."""
    if settings.executor != "reference":
        import_module("....trace.planning.plan", __package__)
        CPU.backend.load_compiler()


_open: set = set()            # those that are not closed; see Note [Held until closed]
PEER_CHECK_SECONDS = 1.0      # seconds after which to look whether the other side is still there


class Processes:
    """The workers of one iteration.

    Note [Held until closed]: an iterator may end as part of a cycle, and Python finalises the parts of one in any
    order. A pipe that is finalised first has closed its descriptor and not forgotten it, which may by then be another
    owner's. So this object, and with it the pipes and processes, is held in `_open` until `close`: what is held
    is no part of a cycle that ends.
    """

    method = "multiprocessing"

    def __init__(self, job, context):
        context = context or multiprocessing.get_context()
        forks = context.get_start_method() == "fork"
        run_all()                             # a forked worker has no use for what is recorded here
        if forks:
            load_what_compiles()
        self.workers, self._pipes, self._arrived, self._owner = [], [], deque(), os.getpid()
        self._lenders = [Lender() for _ in range(job.num_workers)]
        _open.add(self)
        try:
            for worker in range(job.num_workers):
                ours, theirs = context.Pipe()
                self._pipes.append(ours)
                inherited = tuple(self._pipes) if forks else ()
                process = context.Process(target=run_process, args=(job, worker, theirs, inherited), daemon=True)
                try:
                    process.start()
                except (TypeError, AttributeError, pickle.PicklingError):
                    if not forks:
                        warn(f"a DataLoader worker cannot be started by {context.get_start_method()!r}, the way of "
                             "Python on Linux since 3.14: something in the loader cannot be pickled, say a lambda, or "
                             "a class or a function made inside another. Define it at the top of a module, or ask for "
                             "multiprocessing_context='fork'.")
                    raise
                self.workers.append(process)
                theirs.close()
        except BaseException:
            self.close()
            raise

    def put(self, worker, number, index):
        index = bytes(batch_transport.BatchPickler.dumps(index))  # by itself: what it says is the worker's own business
        try:
            self._pipes[worker].send((number, index, self._lenders[worker].ended()))
        except OSError:                       # it is gone, and `get` will say so
            pass

    def get(self, timeout=None):
        """The next answer (number, data), from whichever worker; `queue.Empty` after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._arrived:
            left = PEER_CHECK_SECONDS if until is None else min(PEER_CHECK_SECONDS, until - time.monotonic())
            pipes = [pipe for pipe in self._pipes if pipe is not None]
            if not pipes:
                raise RuntimeError("the DataLoader's workers have been shut down")
            ready = connection.wait(pipes, max(left, 0))
            ended = [self._pipes.index(pipe) for pipe in ready if not self._read(pipe)]
            if not ready:
                ended = [worker for worker, process in enumerate(self.workers)
                         if self._pipes[worker] is not None and not process.is_alive()]
            if ended and not self._arrived:                   # else next time: what has come goes first
                self._gone(ended)
            if not ready and until is not None and time.monotonic() >= until:
                raise queue.Empty
        number, packed = self._arrived.popleft()
        try:
            return number, batch_transport.unpack(packed)
        except Exception:
            return number, ExceptionWrapper(where="while a batch of a DataLoader worker process was unpickled")

    def _read(self, pipe):
        """Take in one answer; False if there will be none."""
        try:
            self._arrived.append(batch_transport.receive(pipe, self._lenders[self._pipes.index(pipe)]))
        except (EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
                raise                         # no memory, or too many open files, on this side
            return False
        return True

    def _gone(self, gone):
        """Raise the error for workers that have ended before their time."""
        for worker in gone:
            self.workers[worker].join(PEER_CHECK_SECONDS)     # the pipe ends a moment before the process does
        pids = ", ".join(str(self.workers[worker].pid) for worker in gone)
        causes = ", ".join(cause(self.workers[worker].exitcode) for worker in gone)
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly: {causes}")

    def stop(self, worker):
        """There will be no more tasks for this one."""
        pipe, self._pipes[worker] = self._pipes[worker], None
        if pipe is not None:
            close_pipe(pipe)

    def close(self, grace=SHUTDOWN_SECONDS):
        """There will be no more tasks: wait `grace` seconds for the processes to end, and end those that do not."""
        _open.discard(self)
        if os.getpid() != self._owner or sys.is_finalizing():        # a forked copy of this: they are not its children
            return
        for worker in range(len(self._pipes)):
            self.stop(worker)
        self._arrived.clear()
        for act, patience in (None, grace), ("terminate", SHUTDOWN_SECONDS), ("kill", SHUTDOWN_SECONDS):
            alive = [process for process in self.workers if process.is_alive()]
            for process in alive:
                if act is not None:
                    getattr(process, act)()
            until = time.monotonic() + patience
            for process in alive:
                process.join(max(0.0, until - time.monotonic()))
        for process in self.workers:          # `multiprocessing` does this in a finaliser, where interrupts are lost
            popen = getattr(process, "_popen", None)
            if popen is not None and process.exitcode is not None:
                popen.close()


def close_pipe(pipe):
    """Say that there is no more, and hang up."""
    try:
        pipe.send(None)
    except OSError:                           # it is gone already
        pass
    pipe.close()


def cause(code):
    """In words, why a process has ended."""
    if code is None:
        return "it does not answer any more"
    if code < 0:
        return f"killed by signal: {signal.strsignal(-code)}" + (" (out of memory?)" if code == -9 else "")
    return f"exit code {code}"


# --- inside of a worker --------------------------------------------------


def run_process(job, worker, pipe, inherited):
    """The life of a worker process."""
    for other in inherited:                   # the loader's ends of the pipes: open here, they would hide
        other.close()                         # that the loader is gone
    where = f"in DataLoader worker process {worker}"
    slots = Slots(job.slots)

    def answer(number, data):
        try:
            packed = batch_transport.pack(data)
        except Exception:
            packed = batch_transport.pack(portable(data, where))
        batch_transport.send(pipe, number, packed, slots)

    try:
        seed = job.base_seed + worker
        threads.set_num_threads(1)
        random.seed(seed)
        manual_seed(seed)
        np.random.seed(_generate_state(job.base_seed, worker))
        workers._worker_info = WorkerInfo(worker, job.num_workers, seed, job.dataset)
        tasks = queue.SimpleQueue()
        threading.Thread(target=listen, args=(pipe, tasks, slots, os.getppid()), daemon=True).start()
        serve(job, worker, where, tasks.get, answer, seed_all, pickle.loads)
    except KeyboardInterrupt:                 # the loader's process has got it too, and says so
        pass
    except (BrokenPipeError, ConnectionResetError):          # this is no longer read
        pass


def portable(data, where):
    """What to send in place of data that cannot be pickled: the error that says so, as RuntimeError at the worst."""
    if not isinstance(data, ExceptionWrapper):
        data = ExceptionWrapper(where=where)
    try:
        batch_transport.pack(data)
    except Exception:                         # a type that the other side cannot find by its name
        data.exc_msg = f"{data.exc_msg}(raised as RuntimeError: {data.exc_type.__name__} cannot be pickled)"
        data.exc_type = RuntimeError
    return data


def listen(pipe, tasks, slots, parent):
    """Take tasks out of the pipe as they come, so that the loader never has to wait to send one.

    When the loader is gone, the worker gets a moment to come to its end, and is ended otherwise.
    """
    try:
        task = ()
        while task is not None:
            while not pipe.poll(PEER_CHECK_SECONDS):
                if os.getppid() != parent:
                    raise EOFError
            task = pipe.recv()
            if task is not None:
                *task, (freed, retired) = task
                slots.told(freed, retired)
            tasks.put(task)
    except Exception:                         # the end of the pipe, or nonsense in it, if the loader was interrupted
        tasks.put(None)
        time.sleep(SHUTDOWN_SECONDS)
        os._exit(1)
