# cython: boundscheck=False
"""What a replay asks every time: whether its inputs may be donated, and then the one run of trace/running/bound.py.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. What is rare (steps of the reference
executor, a check that does not hold) stands in replay.py, head.py and runtime.py.
"""
from ..base import observers, settings
from ..trace.exclusive import are_sole

events, switches = vars(observers), vars(settings)


class BoundBase:
    """The fields of a BoundPlan (replay.py), and its run where all of it is native.

    `program` is the plan's, bound to the inputs, results and numbers of a replay; `free` are the places of the inputs
    that are donated.
    """

    __slots__ = ("plan", "program", "runner", "free")

    def run(self, values, numbers, made, happened, observed):
        """Run, unless what would be donated is held elsewhere. Returns True if it ran."""
        for value in values:
            if value.trace is not None:
                value.ready()
        value = None                                     # who holds the contents is asked by counting
        if self.free and not are_sole(values, self.free):
            return False
        if not self.program.is_native:
            return self._run_step_by_step(values, numbers, made, happened, observed)
        return self.program.run(values, made, numbers, self.runner.code, observed)


class RunnerBase:
    """A Runner (replay.py), as far as it is asked at every replay."""

    __slots__ = ("bound",)        # the BoundPlan that donates; None: there is none yet, or it is not enough

    def run(self, values, numbers, made):
        """Fill `made` with the Values of the wanted slots, and then True: what was donated has been overwritten.

        `values` are those of the inputs, a tuple; `numbers`, another, stand in the order of their places. A Value that
        stands in `made` already may be written over.
        """
        bound = self.bound
        if bound is not None and not events["during_runs"] and switches["executor"] != "reference":
            try:
                if bound.run(values, numbers, made, None, False):
                    return
            except MemoryError:                              # nothing has changed
                pass
        self._run(values, numbers, made)


class HeadBase:
    """A Head (head.py), as far as it is asked at every replay."""

    __slots__ = ("runner", "fixed", "kept", "answers", "positions")

    def __call__(self, values):
        made, self.kept = self.kept, None         # another thread that comes now finds nothing
        if made is None or not are_sole(tuple(made), self.positions):        # the list holds them, and the tuple
            made = [None] * len(self.positions)
        made.append(self.answers.pop() if self.answers else None)
        made.append(None)
        self.runner.run((*values, *self.fixed), (), made)
        made.pop()
        answer = made.pop()
        holds = bool(answer.array)
        self.answers.append(answer)               # it is not seen elsewhere
        if not holds and not self.holds(values):
            return None
        return made


class ChecksBase:
    """Checks (runtime.py) of contents, as far as they are asked for at every replay."""

    __slots__ = ("last",)         # (Value, version) of each storage that was looked at last; None: they are not kept

    def __call__(self, storages):
        """Whether all of them hold for the contents of these storages; asked again only if they have changed."""
        if self.last is None:
            return self.look(storages)
        at = 0
        for storage in storages:
            value, version = self.last[at]
            if storage.value is not value or storage.version != version or storage.exported:
                return self.look(storages)
            at += 1
        return True
