"""Grad mode, inference mode and their switches: thread-local state, set by contexts, decorators or calls."""
import functools
import threading

from ..base.errors import warn
from ..base.op import door
from ..trace.recording.record import current

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class _Modes(threading.local):
    grad = True               # whether calls record autograd nodes
    inference = False         # whether new tensors are marked as inference tensors for good
    anomaly = False
    check_nan = True
    multithreading = True
    level = -1                # forward-mode level, -1: none
    copies_inference = False  # whether a node keeps a copy of an inference tensor instead of refusing it
    saved_hooks = ()          # the innermost (pack, unpack) last
    saved_refusal = None      # why saved-tensor hooks are not allowed here
    other_slices = False      # whether `vmap` calls this function again, for slices that need the same graph
    backward_pass = None      # the BackwardPass that runs now; see engine.py
    levels = ()               # the `vmap`s that run, the outermost first; see tensor/batched.py
    autocast = None           # {type of device: dtype that autocast computes in}, None: off; see tensor/autocast.py


modes = _Modes()
door.records = lambda: modes.grad


def update_recorder():
    """Let the recorder know whether it must ask for modes at every call: inference, forward mode, saved-tensor hooks.

    Reading thread-local state costs as much as recording an input does, and these modes are off nearly always.
    """
    current().special = modes.inference or modes.level >= 0 or modes.saved_hooks != ()


class _Switch:
    """A context that is also a decorator; a decorated generator runs each of its steps inside."""

    def __call__(self, fn):
        if isinstance(fn, type):
            warn(f"Decorating classes is deprecated and will be disabled in future versions. {fn.__name__} is now a "
                 "function that makes one with gradients switched; decorate its methods, or `__init__`, instead.",
                 FutureWarning)
        code = getattr(fn, "__code__", None)
        if code is not None and code.co_flags & 0x20:                # a generator function

            @functools.wraps(fn)
            def steps(*args, **kwargs):
                gen, send, value = fn(*args, **kwargs), None, None
                try:
                    while True:
                        with self._again():
                            value = gen.send(send)
                        try:
                            send = yield value
                        except GeneratorExit:
                            with self._again():
                                gen.close()
                            raise
                        except BaseException as error:
                            with self._again():
                                value = gen.throw(error)
                            send = yield value
                except StopIteration as end:
                    return end.value
            return steps

        @functools.wraps(fn)
        def inside(*args, **kwargs):
            with self._again():
                return fn(*args, **kwargs)
        return inside

    def _again(self):
        return self.__class__()


class no_grad(_Switch):
    """Record no gradients inside.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     y = x * 2
    ...
    >>> y.requires_grad
    False
    """

    def __new__(cls, orig_func=None):
        made = object.__new__(cls)
        return made(orig_func) if orig_func is not None else made

    def __enter__(self):
        self.before, modes.grad = modes.grad, False

    def __exit__(self, *exc):
        modes.grad = self.before


class enable_grad(no_grad):
    """Record gradients inside, even within `no_grad`."""

    def __enter__(self):
        self.before, modes.grad = modes.grad, True


class set_grad_enabled(_Switch):
    """Switch gradient recording, at once and until the end of the context if used as one."""

    def __init__(self, mode):
        self.before, self.mode = modes.grad, bool(mode)
        modes.grad = self.mode

    def __call__(self, fn):
        modes.grad = self.before             # as a decorator it acts at the calls only
        return super().__call__(fn)

    def __enter__(self):
        modes.grad = self.mode

    def __exit__(self, *exc):
        modes.grad = self.before

    def _again(self):
        return set_grad_enabled(self.mode)

    def __repr__(self):
        return f"set_grad_enabled(mode={self.mode})"


class inference_mode(_Switch):
    """No gradients and no version tracking inside; tensors made here can never take part in autograd."""

    def __new__(cls, mode=True):
        made = object.__new__(cls)
        if callable(mode) and not isinstance(mode, bool):
            made.mode = True
            return made(mode)
        return made

    def __init__(self, mode=True):
        self.mode = bool(mode)

    def __enter__(self):
        self.before = modes.grad, modes.inference
        modes.inference = self.mode
        modes.grad = False if self.mode else modes.grad
        update_recorder()

    def __exit__(self, *exc):
        modes.grad, modes.inference = self.before
        update_recorder()

    def _again(self):
        return inference_mode(self.mode)


class differentiating(_Switch):
    """Out of inference mode while a derivative is taken that was asked for there, or at an inference tensor."""

    def __enter__(self):
        self.before = modes.inference, modes.copies_inference
        modes.inference, modes.copies_inference = False, True
        update_recorder()

    def __exit__(self, *exc):
        modes.inference, modes.copies_inference = self.before
        update_recorder()


class set_multithreading_enabled(_Switch):
    """Whether backward may use several threads for several devices. It is kept and changes nothing: there is one."""

    def __init__(self, mode):
        self.before, self.mode = modes.multithreading, bool(mode)
        modes.multithreading = self.mode

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        modes.multithreading = self.before

    def _again(self):
        return set_multithreading_enabled(self.mode)


def is_grad_enabled():
    """Whether calls record gradients now."""
    return modes.grad


def is_inference_mode_enabled():
    """Whether inference mode is on now."""
    return modes.inference
