"""The thread on which LLVM works.

Note [Undisturbed]: an interrupt between two calls of LLVM would leave a library half made, or free one that is in use,
and a signal handler may compute. So LLVM works on a thread of its own, where neither comes: the asking thread waits,
and if an interrupt ends the waiting, the work is finished all the same and found by the next that asks.

There is one such thread, started when LLVM is loaded and kept: later there may be no memory for another. Python's own
`Thread.start` waits for ever for a thread that found no memory to begin with, so `_thread` is used, and the waiting
thread looks now and then whether the thread is still there.

What no thread waits for yet (`beforehand`) is done one piece at a time, when nothing else is asked for; and what would
only be better (`when_idle`), when nothing was asked for in a while.

Work in several pieces is shared with helpers (`side_by_side`), threads that last as long as it does. The lock of this
thread is held meanwhile, so that a fork waits for them too.
"""
import _thread
import atexit
import queue
import time
import weakref
from collections import deque
from contextlib import suppress

from ...base import observers
from ...base.locks import in_child, new_lock

THREAD_CHECK_SECONDS = 1.0    # seconds after which to look whether the thread is still there
QUIET_SECONDS = 1.0           # seconds without a task after which there is time for what would only be better
PAUSE_SECONDS = 0.001         # between two pieces of work that no thread waits for: the program may want to fork

lock = new_lock(finish=True)  # held while LLVM works
_tasks = None                 # where the thread takes its tasks from
_life = None                  # a weak reference to its Life
_later: deque = deque()       # what is to be done beforehand: (work, args)
_idle: deque = deque()        # what is to be done when there is time, in the same form
_doing = False                # whether some of `_later` is being done
_closed = False               # whether Python is on its way out


class Life:
    """Held by the thread, and by errors from it. It is gone, or over, when the thread has ended."""

    over = False


def undisturbed(work, *args):
    """What `work(*args)` gives. No interrupt and no signal handler comes in the middle; see Note [Undisturbed]."""
    if observers.compiled is None:
        return _undisturbed(work, args)
    with observers.timed("compiled"):
        return _undisturbed(work, args)


def _undisturbed(work, args):
    if lock._is_owned():                                          # a finaliser, in the middle of such work
        return work(*args)
    if not _started():                                            # no more threads, or Python is on its way out
        with lock:
            return work(*args)
    answers, life = queue.SimpleQueue(), _life
    _tasks.put((work, args, answers))
    while True:
        try:
            made, error = answers.get(timeout=THREAD_CHECK_SECONDS)
            break
        except queue.Empty:
            if not _lives(life) and answers.empty():
                raise MemoryError("the thread on which LLVM works has ended for want of memory") from None
    try:
        if error is not None:
            raise error
    finally:
        error = None                          # a frame that holds its own error would keep the tensors in it alive
    return made


def beforehand(work, *args):
    """Have `work(*args)` done soon, without waiting for it; where there is no thread for that, it is not done at all.

    What it gives or raises is dropped: code that needs it asks for it, and finds it done or does it.
    """
    if _started():
        _later.append((work, args))
        _tasks.put((_nothing, (), queue.SimpleQueue()))           # the thread may be asleep


def when_idle(work, *args):
    """Have `work(*args)` done when there is time for it, or not at all; what it gives or raises is dropped."""
    _idle.append((work, args))
    if _started():
        _tasks.put((_nothing, (), queue.SimpleQueue()))           # from now on it does not wait for ever


def side_by_side(works, threads):
    """What each function of `works` gives, on this thread and so many as make `threads` with it; the first error of
    theirs is raised, when all are through. For work on the thread that LLVM has, and what waits for C code alone."""
    left, done = deque(enumerate(works)), queue.SimpleQueue()
    helpers = []
    while left and len(helpers) + 1 < min(threads, len(works)):
        life = Life()
        try:
            _thread.start_new_thread(_help, (left, done, life))
        except (RuntimeError, MemoryError):                       # no more threads: there is this one
            break
        helpers.append(weakref.ref(life))
        del life                                                  # else it would not be gone when its thread is
    _take(left, done)
    found, answer = {}, None
    while len(found) < len(works):
        try:
            number, *answer = done.get(timeout=THREAD_CHECK_SECONDS)
            found[number] = answer
        except queue.Empty:
            if not any(map(_lives, helpers)) and done.empty():
                raise MemoryError("a thread that helps LLVM has ended for want of memory") from None
    made, errors = zip(*(found[number] for number in range(len(works))), strict=True) if works else ((), ())
    error = next((one for one in errors if one is not None), None)
    try:
        if error is not None:
            raise error
    finally:
        error = errors = found = answer = None    # a frame that holds its own error would keep the tensors in it alive
    return list(made)


def _help(left, done, life):
    """What a helper does."""
    try:
        _take(left, done)
    finally:
        life.over = True


def _take(left, done):
    """Do what is left, (number, work) of each piece, one by one; (number, what it gave, its error) goes to `done`."""
    while True:
        try:
            number, work = left.popleft()
        except IndexError:
            return
        try:
            answer = number, work(), None
        except BaseException as error:                            # raised again in the threads that share the work
            answer = number, None, error
        done.put(answer)


def do_idle_work():
    """Do now, on this thread, what was left for when there is time."""
    while _idle:
        _do_one(_idle)


def _nothing():
    pass


def is_through():
    """Whether nothing is being done beforehand any more."""
    return not (_later or _doing) or not _lives(_life)


def _do_one(pieces):
    """One piece of what no thread waits for."""
    global _doing
    _doing = pieces is _later
    try:
        work, args = pieces.popleft()
        with lock, suppress(Exception):                           # a caller that needs it will be told
            if observers.compiled is None:
                work(*args)
            else:
                with observers.timed("compiled"):
                    work(*args)
    finally:
        _doing = False
    time.sleep(PAUSE_SECONDS)


def _started():
    """Whether the thread is there; starts it if it is not."""
    global _tasks, _life
    if _lives(_life):
        return True
    with lock:
        if not _lives(_life):
            if _closed:
                return False
            tasks, life = queue.SimpleQueue(), Life()
            try:
                _thread.start_new_thread(_serve, (tasks, life))
            except (RuntimeError, MemoryError):
                return False
            _tasks, _life = tasks, weakref.ref(life)
    return True


def _lives(life):
    found = life() if life is not None else None
    return found is not None and not found.over


def _serve(tasks, life):
    """What the thread does."""
    try:
        while True:
            while _later and not _closed and tasks.empty():
                _do_one(_later)
            try:
                task = tasks.get(timeout=QUIET_SECONDS if _idle and not _closed else None)
            except queue.Empty:
                _do_one(_idle)
                continue
            if task is None:
                break
            work, args, answers = task
            try:
                with lock:
                    answer = work(*args), None
            except BaseException as error:                        # raised again in the thread that asked
                answer = None, error
            answers.put(answer)
            task = work = args = answers = answer = None          # not while waiting: they may be large
    finally:
        life.over = True


@atexit.register
def _close():
    """Let the thread end before Python does, after what it is doing."""
    global _closed
    _closed = True
    if _lives(_life):
        _tasks.put(None)
        while _lives(_life):
            time.sleep(0.001)


@in_child
def _forget():
    """The thread did not come along."""
    global _life, _doing
    _life, _doing = None, False
    _later.clear()
