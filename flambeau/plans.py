"""What was recorded, and what becomes of it: for users who want to look.

    torch.plans.recorded()     the instructions of this thread that wait to run, as text
    torch.plans.of(y)          the plan by which they would run natively, made now and not run
    torch.plans.last()         the plan that ran last

A plan prints as its steps. `plan.steps` has each of them with its `kind`, `words`, `sizes` and the memory it touches;
`plan.kernels` are those that are generated code, each with its `loop`, `llvm` and `assembly`. See docs/native.md.
"""
from .trace.planning.lower import Unfusable as _Unfusable
from .trace.planning.steps import Text as _Text
from .trace.recording.record import current as _current


def recorded():
    """The instructions that this thread has recorded and that have not run yet, as text.

    >>> torch.cpu.synchronize()                  # what was recorded before has run
    >>> x = torch.tensor([1.0, 4.0])
    >>> y = x.sqrt() + 1
    >>> torch.plans.recorded()
    %1: float32[2] = sqrt(%0)
    %2: float32[2] = add(%1, 1, 1)
    """
    return _Text(_current())


def of(*tensors):
    """The plan by which everything that waits in this thread would run natively now; it is made, and not run.

    Looking at one pending tensor runs all that is recorded and reachable, so `tensors` only say that they have to be
    part of it. They may be left out. Making the plan changes nothing: not even whether the trace will run natively.
    """
    trace = _current()
    for tensor in tensors:
        if tensor._storage.value.trace is not trace:
            raise ValueError("this tensor does not wait to be computed in this thread: it is there already, or another "
                             f"thread has recorded it: {tensor._spec}")
    if not trace.code:
        raise ValueError("nothing waits to run in this thread")
    from .trace.planning.plan import made_for
    try:
        return made_for(trace)
    except _Unfusable as reason:
        raise ValueError(f"what is recorded is left to the reference executor as a whole: {reason}") from None


def last():
    """The plan that this thread's last trace ran by; None if it had none as a whole, or none has run yet.

    Functions made by `flambeau.compile` have plans of their own; their `explain()` shows them.
    """
    return _current().ran
