"""What stands around every optimizer's step; what is done where there is something to look at, or to tell, is in
steps.py.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..autograd.engine import recent_roots
from ..base import observers
from ..trace.held import check_held
from ..trace.record import _local
from .finding import in_force

FIRST_STEPS = 64              # of an optimizer, after each of which everything is looked at
STEPS_PER_LOOK = 8            # afterwards; what is not finite is looked for in every step
SMALL_GRADIENT = 1 << 9       # elements: the first gradient that has no more is looked at after a step

taken = [0]                   # how many steps were taken, by all optimizers
records: dict = {}            # number of an optimizer → OptimizerRecord
tellers: list = []            # of steps.py: look before a step, look after one, tell what is not finite


class OptimizerRecord:
    """What is remembered of an optimizer: its steps, the latest backwards, the module whose parameters it was given.

    `looks`: whether what the last step has left is looked at before the next.
    """

    __slots__ = ("optimizer", "steps", "looks", "roots", "module", "told_graphs", "unseen")


def before_step(number):
    """The optimizer of this number is about to take a step. (A number, since a step is replayed with nothing else of
    the optimizer's being looked at.)"""
    record = records.get(number)
    if record is None or (optimizer := record.optimizer()) is None:
        return
    if record.looks:
        tellers[0](optimizer, record)
    if (tell := observers.step_began) is not None:
        tell(optimizer)
    trace = _local.trace
    recording = trace.backward                       # of what has run already; the step can then write in place
    if recording is not None and recording.large and not in_force:
        bad = check_held(trace, optimizer.param_groups, SMALL_GRADIENT)
        if bad is not None:
            tellers[2](bad)


def after_step(number):
    """The optimizer of this number has taken a step."""
    record = records.get(number)
    if record is None or (optimizer := record.optimizer()) is None:
        return
    taken[0] += 1
    record.steps += 1
    record.looks = record.steps < FIRST_STEPS or not record.steps % STEPS_PER_LOOK
    if record.looks:
        tellers[1](optimizer, record)
    else:
        recent_roots.clear()
    if (tell := observers.step_ended) is not None:
        tell(optimizer)
    trace = _local.trace
    if trace.backward is not None and not in_force:
        bad = check_held(trace, optimizer.param_groups, SMALL_GRADIENT)
        if bad is not None:
            tellers[2](bad)
