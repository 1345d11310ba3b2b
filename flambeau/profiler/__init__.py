"""`torch.profiler`: there is none here. The names that a program gives to stretches of itself do nothing."""
import contextlib
from enum import Enum

from ..base.errors import warn
from ..missing import rest_of

__getattr__ = rest_of("torch.profiler",
                      profile="use cProfile for the Python side; flambeau.plans shows what runs natively")


class ProfilerActivity(Enum):
    """What PyTorch's profiler can watch. accelerate and lightning name it in their settings."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(Enum):
    """What PyTorch's profiler does at a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def kineto_available():
    """Whether PyTorch's newer profiler can be used: it is not here."""
    return False


def supported_activities():
    """What can be watched: nothing."""
    return set()


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """A function that says what a profiler does at each step: `wait` steps nothing, `warmup`, then `active`."""
    def action(step):
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:                                   # the first cycle does not wait
            step += wait
        length = wait + warmup + active
        if 0 < repeat <= step // length:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need "
                             f">= 0), active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} "
                             "(need >= 0).")
    if warmup == 0:
        warn("Profiler won't be using warmup, this can skew profiler results")
    return action


def _default_schedule_fn(_):
    """lightning: record every step."""
    return ProfilerAction.RECORD


class record_function(contextlib.ContextDecorator):
    """A name for a stretch of the program in a profiler's table; without one, a context that does nothing."""

    def __init__(self, name, args=None):
        self.name, self.args = name, args

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False
