"""Signals that wait until a fork is over.

Note [Signals during a fork]: Python runs its signal handlers at calls, loops and the beginning of functions; and what a
hook of `os.register_at_fork` raises it reports and forgets. So a Ctrl-C that comes while such a hook runs, or while the
system forks and a hook follows, would end the hook half-way and never reach the program. Instead:

- A hook is entered through C functions alone, into a generator that waits at a `yield` inside of a `try` (`stepping`).
  A handler that raises at the hook's first instruction, because its signal came before, raises into that `try`.
- Then `Deferral.begin` exchanges Python's handlers for one that notes the number, and from there to the end no handler
  of the program runs. What the system does with a signal stays as it was (`sigaction`): a library may have put its own
  handler before Python's, or asked for system calls that are restarted.
- The last hook is again a C function, which asks Python for a call in the main thread (`Py_AddPendingCall`). It comes
  when the fork has returned to the program; it puts the handlers back, raises what was caught, and calls the handlers
  whose signals were noted. (Hooks of other packages may come after ours, as those of `logging` do before Python 3.13;
  what is raised in them is lost, so inside of those the call is put off.)

Handlers run in the main thread alone, so no other is deferred.

What Python raises in a finaliser is lost in the same way, so whatever takes its time at the end of a thing, as waiting
for processes does, is given to `when_gone`, which has it done where the main thread goes on.
"""
import _signal
import ctypes
import functools
import sys
import threading
import weakref

from .weakbag import at_end

BYTES_OF_SIGACTION = 512      # more than a `struct sigaction` has anywhere

_add = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(("Py_AddPendingCall", ctypes.pythonapi))
_truth = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p).value
_call_soon = functools.partial(_add, _truth)      # of a thing: its `__bool__`, where the main thread goes on


def in_main_thread():
    """Whether this is the thread in which signal handlers run."""
    return threading.get_ident() == threading.main_thread().ident


class WhenLeft:
    """What a function holds whose end something waits for."""


class Deferral:
    """Signals that are noted instead of handled, from `begin` until the program goes on after `end`."""

    def __init__(self):
        self._handlers = {}                       # number → (the program's handler, the system's action)
        self._arrived = {}                        # number → the frame that it came to
        self._note = self._arrived.setdefault     # in C: noting cannot be interrupted by the next signal
        self._raised = self._forker = None        # an exception to raise when the fork is over; the frame that forked
        self._sigaction = ctypes.CDLL(None).sigaction
        self.deliver_soon = functools.partial(_call_soon, self)

    def begin(self):
        """Note signals from now on. Where one raises because it came before its handler was exchanged, call this
        again: it goes on where it was interrupted."""
        if in_main_thread():
            self._exchange_all()

    def _exchange_all(self):
        for number in _signal.valid_signals():
            handler = _signal.getsignal(number)
            if callable(handler):                 # neither the system's own nor of another language
                if handler is not self._note:
                    action = ctypes.create_string_buffer(BYTES_OF_SIGACTION)
                    self._sigaction(number, None, action)
                    self._handlers[number] = handler, action
                    _signal.signal(number, self._note)
                self._sigaction(number, self._handlers[number][1], None)

    def take(self):
        """The numbers of the signals that have arrived, which are forgotten here."""
        arrived = [*self._arrived]
        self._arrived.clear()
        return arrived

    def end(self, raised, arrived, forker):
        """All is done: with the next `deliver_soon`, the exception `raised` by a handler (or None), the signals
        `arrived` and those that came later reach the program, which goes on in the frame `forker`."""
        for number in arrived:
            self._arrived.setdefault(number)
        self._raised, self._forker = raised, forker

    def __bool__(self):
        frame = sys._getframe(1)
        if self._forker is None or not in_main_thread():
            return False
        if frame is not self._forker and self._came_from_forker(frame.f_back):
            # This is a hook of another library's, or the warning of forks beside threads. Asked from in here, Python
            # would see at its next instruction that it is calling already, and forget it (`make_pending_calls`).
            left = WhenLeft()
            at_end(left, self.deliver_soon)
            return False
        self._forker = None
        self._deliver(frame)
        return False

    def _came_from_forker(self, frame):
        while frame is not None and frame is not self._forker:
            frame = frame.f_back
        return frame is not None

    def _deliver(self, frame):
        try:
            self._restore_all()
        except BaseException:                     # a handler that is back has raised
            self._deliver(frame)
            raise
        try:
            if self._raised is not None:
                raised, self._raised = self._raised, None
                raise raised.with_traceback(None)
            if self._arrived:
                number, _ = self._arrived.popitem()
                handler = _signal.getsignal(number)
                if callable(handler):
                    handler(number, frame)
        finally:
            if self._arrived:
                self._deliver(frame)

    def _restore_all(self):
        for number, (handler, action) in list(self._handlers.items()):
            if _signal.getsignal(number) is self._note:
                _signal.signal(number, handler)
            self._sigaction(number, action, None)
            self._handlers.pop(number, None)


class Stepping(threading.local):
    """A generator for each thread that goes one step further with each call of `step`, a function of C's.

    `make` gives the generator. Its first `yield` is come by at once, and it makes the next one (`renew`) in time.
    """

    def __init__(self, make):
        self._make = make
        self.renew()

    def renew(self):
        """The next `step` of this thread begins a new generator."""
        steps = self._make()
        next(steps)
        self.steps = steps


def stepper(stepping):
    """A function that takes the next step of the thread's generator, with no instruction of Python's before that."""
    return map(next, iter(functools.partial(getattr, stepping, "steps"), None)).__next__


_endings: dict = {}           # id → Ending, of all that have not ended


class Ending(weakref.ref):
    """What there is to do when a thing is gone."""

    __slots__ = ("function",)

    def __bool__(self):
        # At Python's own end the names of modules are gone, after exit handlers have done what is left to do.
        if _endings is not None and _endings.pop(id(self), None) is not None:
            self.function()
        return False


def when_gone(thing, function):
    """Call `function()` in the main thread when `thing` is gone. What it raises, a KeyboardInterrupt say, reaches the
    program."""
    for ending in list(_endings.values()):
        if ending() is None:                      # Python holds back so many calls and no more; it is done now
            bool(ending)
    ending = Ending(thing, _call_soon)
    ending.function = function
    _endings[id(ending)] = ending
