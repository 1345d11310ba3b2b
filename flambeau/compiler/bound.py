# cython: boundscheck=False
"""A plan bound to what a replay gives it: addresses and numbers are put where native code finds them, and it is called.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. What is rare (steps of the reference
executor, a second thread, a check that does not hold) stands in replay.py, head.py and runtime.py.
"""
from functools import partial

from ..backends.backend import DeviceFailed
from ..base import observers, settings
from ..base.spec import CPU
from ..trace.exclusive import are_sole
from ..trace.planning.lower import cell
from ..trace.running.one_call import new_value, taken_spare
from .rebuild import in_memory_of

events, switches = vars(observers), vars(settings)


class BoundBase:
    """The fields of a BoundPlan (replay.py), and the run that is one native call, with what comes before it.

    `free`: places of the inputs that are donated; `read`: (place of an input, index in the table of addresses);
    `outputs`: (place of a result, spec, index, what makes an array of it, and its size class where that may be a spare
    one); `takes`: (place of a result, spec, place of the input whose memory it takes); `floats`, `halves`, `others`:
    (cell, place of a number), with a dtype where it is to be converted. `memory` is what is needed meanwhile. `call`
    runs all of a program of the CPU's; `again` serves for every run of another device's, where there is such.
    """

    __slots__ = ("plan", "program", "runner", "free", "read", "at", "outputs", "takes", "floats", "halves", "others",
                 "memory", "words", "table", "scalars", "cells", "native", "call", "again", "lock")

    def run(self, values, numbers, made, happened):
        """Run, unless what would be donated is held elsewhere. Returns True if it ran."""
        if self.native is None or self.lock._is_owned() or not self.lock.acquire(False):             # it is in use
            return self._run_step_by_step(values, numbers, made, happened)
        try:
            return self.run_alone(values, numbers, made)
        finally:
            self.lock.release()

    def run_alone(self, values, numbers, made):
        """The same, while no other thread does. (Loops stand outside of the `try`: see test_interrupts.py.)"""
        for value in values:
            if value.trace is not None:
                value.ready()
        value, table, cells = None, self.table, self.cells
        for at, index in self.read:
            value = values[at]
            try:
                address = value._address
            except AttributeError:                       # interpreted, one that was not set
                address = None
            table[index] = value.address() if address is None else address
        value = None                                     # who holds the contents is asked by counting
        if self.free and not are_sole(values, self.free):
            return False
        for index, at in self.floats:
            cells[index] = numbers[at]
        for index, at, dtype in self.halves:
            cells[index] = cell(numbers[at], dtype)
        for index, at, dtype in self.others:
            self.scalars[index] = cell(numbers[at], dtype)
        if events["during_runs"] or self.call is None:
            self._run_program(values, made)
            return True
        blocks = self.memory.take(table)
        for at, spec, index, blank, size_class in self.outputs:
            value = made[at]
            if value is None:                            # otherwise memory that may be written over
                value = made[at] = new_value(spec, blank(spec) if size_class is None else
                                             taken_spare(spec, size_class), size_class is not None)
            table[index] = value._address
        for at, spec, index in self.takes:
            made[at] = in_memory_of(values[index], spec)
        made[-1] = True                       # no interrupt comes between this and the end of the call
        self.call()
        self.memory.give(blocks)
        return True

    def _run_program(self, values, made):
        """The rest of a run that is observed, or of one that is more than one call."""
        code, program, table = self.runner.code, self.program, self.words
        makers = program.makers(code, code) if events["during_runs"] and observers.gathering() else None
        blocks = program.working_memory(table, makers)
        for at, spec, index, blank, _ in self.outputs:
            value = made[at]
            if value is None:
                if makers is not None:
                    observers.begin(makers[self.runner.wanted[at]])
                value = made[at] = new_value(spec, blank(spec), False)
            elif spec.device is not CPU:
                value.on_host = None                         # what it was
            table[index] = value._address
        for at, spec, index in self.takes:
            made[at] = in_memory_of(values[index], spec)
        try:
            program.run_native(table, self.scalars, code, makers is not None, partial(made.__setitem__, -1, True),
                               self.again)
        except DeviceFailed:
            made[-1] = True                      # what it has overwritten by then is not known
            raise
        del blocks                               # which had to stay until here


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
                if bound.run(values, numbers, made, None):
                    return
            except MemoryError:                              # nothing has changed
                pass
        self._run(values, numbers, made)


class HeadBase:
    """A Head (head.py), as far as it is asked at every replay."""

    __slots__ = ("runner", "fixed", "kept", "answers", "places")

    def __call__(self, values):
        made, self.kept = self.kept, None         # another thread that comes now finds nothing
        if made is None or not are_sole(tuple(made), self.places):           # the list holds them, and the tuple
            made = [None] * len(self.places)
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
