"""The threads on which LLVM works.

Note [Undisturbed]: an interrupt between two calls of LLVM would leave a library half made, or free one that is in use,
and a signal handler may compute. So LLVM works on a thread of its own, where neither comes: the asking thread waits,
and if an interrupt ends the waiting, the work is finished all the same and found by the next that asks.

There is one such thread, started when LLVM is loaded and kept: later there may be no memory for another. Python's own
`Thread.start` waits for ever for a thread that found no memory to begin with, so `_thread` is used, and the waiting
thread looks now and then whether the thread is still there.

Note [In the background]: what no thread waits for yet (`beforehand`) is done on another thread, one piece at a time,
and so is what would only be better (`when_idle`), when nothing was asked for in a while. A thread that asks for code
which is there, or only has to be put in memory, must not wait for a kernel that LLVM is generating for later: it would
wait longer than its own work takes. So a piece holds `background_lock` from its beginning to its end, which a fork
waits for and so does a thread that needs just what the piece compiles, and takes `lock` only where it reads or changes
what both threads share. No thread that holds `lock` waits for `background_lock`.

Work in several pieces is shared with helpers (`side_by_side`), threads that last as long as it does. The lock of the
thread that shares it is held meanwhile, so that a fork waits for them too.
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

lock = new_lock(finish=True)  # held while LLVM works, or what it has made is looked for
background_lock = new_lock(finish=True)       # held during a piece of work that no thread waits for
_tasks = None                 # where the thread takes its tasks from
_life = None                  # a weak reference to its Life
_asked = 0.0                  # when it was last asked for something
_wakes = None                 # what wakes the thread of the background is put here
_background_life = None       # a weak reference to the Life of that thread
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
    global _asked
    if lock._is_owned():                                          # a finaliser, in the middle of such work
        return work(*args)
    _asked = time.monotonic()
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
    if _background_started():
        _later.append((work, args))
        _wakes.put(True)


def when_idle(work, *args):
    """Have `work(*args)` done when there is time for it, or not at all; what it gives or raises is dropped."""
    _idle.append((work, args))
    if _background_started():
        _wakes.put(True)                                          # from now on it does not wait for ever


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
    while True:
        try:
            work, args = _idle.popleft()
        except IndexError:
            return
        _do(work, args)


def is_through():
    """Whether nothing is being done beforehand any more."""
    return not (_later or _doing) or not _lives(_background_life)


def wait_for_piece():
    """Wait until what is being done in the background now is done."""
    with background_lock:
        pass


def _do_one(pieces):
    """One piece of what no thread waits for."""
    global _doing
    _doing = pieces is _later
    try:
        with background_lock:
            _do(*pieces.popleft())
    except IndexError:                                            # `do_idle_work` has taken it
        pass
    finally:
        _doing = False
    time.sleep(PAUSE_SECONDS)


def _do(work, args):
    with suppress(Exception):                                     # a caller that needs it will be told
        if observers.compiled is None:
            work(*args)
        else:
            with observers.timed("compiled"):
                work(*args)


def _started():
    """Whether the thread is there; starts it if it is not."""
    global _tasks, _life
    if not _lives(_life):
        with lock:
            if not _lives(_life):
                found = _new_thread(_serve)
                if found is None:
                    return False
                _tasks, _life = found
    return True


def _background_started():
    """Whether the thread of the background is there; starts it if it is not."""
    global _wakes, _background_life
    if not _lives(_background_life):
        with lock:
            if not _lives(_background_life):
                found = _new_thread(_serve_background)
                if found is None:
                    return False
                _wakes, _background_life = found
    return True


def _new_thread(serve):
    """(the queue that a new thread serves, a weak reference to its Life); None where there is no thread to be had."""
    if _closed:
        return None
    tasks, life = queue.SimpleQueue(), Life()
    try:
        _thread.start_new_thread(serve, (tasks, life))
    except (RuntimeError, MemoryError):
        return None
    return tasks, weakref.ref(life)


def _lives(life):
    found = life() if life is not None else None
    return found is not None and not found.over


def _serve(tasks, life):
    """What the thread does."""
    try:
        while True:
            task = tasks.get()
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


def _serve_background(wakes, life):
    """What the thread of the background does."""
    try:
        while not _closed:
            if _later:
                _do_one(_later)
            elif _idle and time.monotonic() - _asked > QUIET_SECONDS:
                _do_one(_idle)
            else:
                with suppress(queue.Empty):
                    wakes.get(timeout=QUIET_SECONDS if _idle else None)
    finally:
        life.over = True


@atexit.register
def _close():
    """Let the threads end before Python does, after what they are doing."""
    global _closed
    _closed = True
    for tasks, life in ((_tasks, _life), (_wakes, _background_life)):
        if _lives(life):
            tasks.put(None)
            while _lives(life):
                time.sleep(0.001)


@in_child
def _forget():
    """The threads did not come along."""
    global _life, _background_life, _doing
    _life, _background_life, _doing = None, None, False
    _later.clear()
