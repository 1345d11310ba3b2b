"""What stands around every optimizer's step: it is counted, and the loss and a gradient of its backward are looked at;
step_hooks.pyx has these names in C. What is done where there is something to look at, or to tell, is in steps.py.

This is done in every step of a training, from cold caches, where to call NumPy takes as long as to record an operation.
See Note [One source, two speeds] in base/core.py.
"""
from ..autograd.engine import recent_roots
from ..base import observers
from ..base.spec import CPU
from ..trace.finite import is_finite, largest
from ..trace.recording.record import _local
from .finding import in_force

FIRST_STEPS = 64              # of an optimizer, after each of which everything is looked at
STEPS_PER_LOOK = 8            # afterwards; what is not finite is looked for in every step
SMALL_GRADIENT = 1 << 9       # elements: the first gradient that has no more is looked at after a step

_taken = 0
records: dict = {}            # number of an optimizer → OptimizerRecord
tellers: list = []            # of steps.py: look before a step, look after one, tell what is not finite


class OptimizerRecord:
    """What is remembered of an optimizer: its steps, the latest backwards, the module whose parameters it was given.

    `looks`: whether what the last step has left is looked at before the next.
    """

    __slots__ = ("optimizer", "steps", "looks", "roots", "module", "told_graphs", "unseen")


def steps_taken():
    """How many steps were taken, by all optimizers."""
    return _taken


def before_step(number):
    """The optimizer of this number is about to take a step. (A number, since a step is replayed with nothing else of
    the optimizer's being looked at.)"""
    record = records.get(number)
    if record is None:
        return
    if record.looks or observers.step_began is not None:
        _tell(record, 0, observers.step_began)
    recording = _local.trace.backward
    if recording is not None and recording.large and not in_force:
        _check(_local.trace, record)      # what has run already; the step can then write in place


def after_step(number):
    """The optimizer of this number has taken a step."""
    global _taken
    record = records.get(number)
    if record is None:
        return
    _taken += 1
    record.steps += 1
    record.looks = record.steps < FIRST_STEPS or record.steps % STEPS_PER_LOOK == 0
    if record.looks or observers.step_ended is not None:
        _tell(record, 1, observers.step_ended)
    if not record.looks:
        recent_roots.clear()
    trace = _local.trace
    if trace.backward is not None and not in_force:
        _check(trace, record)


def _tell(record, which, tell):
    optimizer = record.optimizer()
    if optimizer is None:
        return
    if record.looks:
        tellers[which](optimizer, record)
    if tell is not None:
        tell(optimizer)


def _check(trace, record):
    bad = find_nonfinite(trace, record)
    if bad is not None:
        tellers[2](bad)


# --- what is kept of the backward ------------------------------------------------------------------------------------


def find_nonfinite(trace, record):
    """Look at the loss of the backward that a trace holds, and at the first small gradient of an optimizer's
    parameters; (recording, tensor that is not finite), or None where all is well, or not computed yet.

    What was looked at is kept no longer. What is not a number in the middle of a backward is so in all that comes
    behind it, in the first layers too.
    """
    recording = trace.backward
    root = recording.root()
    if root is not None:
        value = root._storage.value
        if value.trace is not None:
            return None
        if root._spec.numel == 1 and not is_finite(value):
            trace.backward = None
            return recording, root
    g = _small_gradient(record)
    if g is not None:
        value = g._storage.value
        if value.trace is not None:
            return None
        if not is_finite(value):
            trace.backward = None
            return recording, g
    trace.backward = None
    return None


def _small_gradient(record):
    optimizer = record.optimizer()
    for group in optimizer.param_groups if optimizer is not None else ():
        for p in group["params"]:
            if (g := p._grad) is not None and (spec := g._spec).numel <= SMALL_GRADIENT and spec.device is CPU:
                return g if g._storage is not None else None
    return None


# --- all gradients, for the full watch -------------------------------------------------------------------------------


def unusual_gradients(groups, bounds, zeros):
    """The parameters in `groups` whose gradient is not what it nearly always is: computed, on the CPU, of single or
    double precision, finite, not zero throughout, and none of it above the parameter's of `bounds`, {id: number}.

    Parameters in `zeros`, by their id, had a gradient of zeros before, and are among them.
    """
    found = []
    for group in groups:
        for p in group["params"]:
            if (g := p._grad) is not None and p._requires_grad:
                size = largest(g)
                if not 0 < size <= bounds.get(id(p), 0) or zeros and id(p) in zeros:
                    found.append(p)
    return found
