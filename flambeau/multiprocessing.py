"""`torch.multiprocessing`: Python's `multiprocessing`, and `spawn`.

A tensor that is sent to another process, through a queue, a pipe or as an argument, is moved to memory that both see:
trace/shared_memory.py.
"""
import multiprocessing
from multiprocessing import *  # noqa: F403  # as PyTorch does: the names of the processes' platform

from .tensor.protocol import tell_multiprocessing

__all__ = ["set_sharing_strategy", "get_sharing_strategy", "get_all_sharing_strategies", *multiprocessing.__all__]

tell_multiprocessing()
__path__: list = []           # what PyTorch has below it can be imported, and is missing


def get_all_sharing_strategies():
    """PyTorch's names for the ways in which memory is shared. Here it is one way: files in memory without a name."""
    return {"file_descriptor", "file_system"}


_strategy = "file_descriptor"


def get_sharing_strategy():
    """The way that `set_sharing_strategy` has chosen. It changes nothing: memory never has a name."""
    return _strategy


def set_sharing_strategy(new_strategy):
    """Choose a way of sharing. It changes nothing: memory never has a name, so that none is left behind."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"sharing strategy {new_strategy!r}: must be one of {get_all_sharing_strategies()}")
    _strategy = new_strategy


# --- spawn ----------------------------------------------------------------------------------------------------------


class ProcessException(Exception):
    """A process that `spawn` started has failed."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """A process that `spawn` started has raised an error; the text holds its traceback."""

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessExitedException(ProcessException):
    """A process that `spawn` started has ended with an exit code other than 0, or by a signal."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Call `fn(i, *args)` in `nprocs` processes. If one fails the others are ended and its error is raised here.

    With `join=False` the processes run on, and what is returned waits for them: `context.join()`.
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """`spawn` by any start method."""
    made = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        error = made.SimpleQueue()
        process = made.Process(target=_run, args=(fn, i, args, error), daemon=daemon)
        process.start()
        processes.append(process)
        errors.append(error)
    context = ProcessContext(processes, errors)
    if not join:
        return context
    while not context.join():
        pass
    return None


def _run(fn, i, args, error):
    """What a process of `spawn` runs: `fn`, with the traceback of an error sent home."""
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass                                                  # the parent got it too
    except Exception:
        import sys
        import traceback
        error.put(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes that `spawn` has started."""

    def __init__(self, processes, errors):
        self.processes, self.error_queues = processes, errors
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self):
        """The ids of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait for processes to end: True when all have, False while some run. Raises what a failed one raised.

        The others then get `grace_period` seconds to end by themselves, and are ended after it.
        """
        from multiprocessing.connection import wait
        if not self.sentinels:
            return True
        failed = None
        for sentinel in wait(self.sentinels, timeout):
            i = self.sentinels.pop(sentinel)
            self.processes[i].join()
            if self.processes[i].exitcode:
                failed = i
                break
        if failed is None:
            return not self.sentinels
        for process in self.processes:
            process.join(grace_period or 0)
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
        self.sentinels.clear()
        raise self._error(failed)

    def _error(self, i):
        """What process `i` has failed with."""
        process = self.processes[i]
        if not self.error_queues[i].empty():
            text = self.error_queues[i].get()
            return ProcessRaisedException(f"\n\n-- Process {i} terminated with the following error:\n{text}", i,
                                          process.pid)
        if process.exitcode < 0:
            import signal
            name = signal.Signals(-process.exitcode).name
            return ProcessExitedException(f"process {i} terminated with signal {name}", i, process.pid,
                                          process.exitcode, name)
        return ProcessExitedException(f"process {i} terminated with exit code {process.exitcode}", i, process.pid,
                                      process.exitcode)


SpawnContext = ProcessContext
