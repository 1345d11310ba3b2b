"""A plan bound to what a replay gives it: addresses and numbers are put where native code finds them, and it is called.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. What is rare (steps of the reference
executor, a second thread) stands in replay.py.
"""
from ..backends.backend import DeviceFailed
from ..base import observers
from ..base.spec import CPU
from ..trace.lower import cell
from ..trace.program import handed
from ..trace.sole import are_sole
from ..trace.value import Value
from .made import in_memory_of

events = vars(observers)


class BoundBase:
    """The fields of a BoundPlan (replay.py), and the run that is one native call, with what comes before it.

    `free`: places of the inputs that are donated; `read`: (place of an input, index in the table of addresses);
    `outputs`: (place of a result, spec, index, what makes an array of it); `takes`: (place of a result, spec, place of
    the input whose memory it takes); `floats`, `halves`, `others`: (cell, place of a number), with a dtype where it is
    to be converted.
    """

    __slots__ = ("plan", "program", "runner", "free", "read", "at", "outputs", "takes", "floats", "halves", "others",
                 "words", "table", "scalars", "cells", "native", "call", "lock")

    def run(self, values, numbers, made, happened):
        """Run, unless somebody else holds what would be donated; whether it did."""
        if self.native is None or self.lock._is_owned() or not self.lock.acquire(False):             # it is in use
            return self._run_step_by_step(values, numbers, made, happened)
        try:
            for value in values:
                if value.trace is not None:
                    value.ready()
            value, table = None, self.table
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
            makers = self.program.makers(self.runner.code) if events["during_runs"] and observers.gathering() else None
            blocks = []
            for device, nbytes, index in self.program.blocks:
                if makers is not None:
                    observers.begin(*makers[None])
                block = device.backend.block(nbytes)
                blocks.append(block)
                table[index] = block.address
            for at, spec, index, blank in self.outputs:
                value = made[at]
                if value is None:                            # otherwise memory that may be written over
                    if makers is not None:
                        observers.begin(makers[self.runner.wanted[at]])
                    value = made[at] = Value()
                    value.array, value._address = blank(spec)
                    value.spec, value.trace, value._memory = spec, None, None
                elif spec.device is not CPU:
                    value.on_host = None                     # what it was
                table[index] = value._address
            for at, spec, index in self.takes:
                made[at] = in_memory_of(values[index], spec)
            for index, at in self.floats:
                self.cells[index] = numbers[at]
            for index, at, dtype in self.halves:
                self.cells[index] = cell(numbers[at], dtype)
            for index, at, dtype in self.others:
                self.scalars[index] = cell(numbers[at], dtype)
            for stretch in self.program.before:
                self.program.run_stretch(stretch, self.words, self.scalars, self.runner.code, makers is not None)
            times = self.native.times() if makers is not None else None
            run = self.call if times is None else None
            if run is None:
                run = self.native.bound(self.words, self.scalars, times)
            try:
                made[-1] = True                   # no interrupt comes between this and the end of the call
                run()
            except DeviceFailed as error:
                self.native.explain(error, self.runner.code)
                raise
            except BaseException:
                if made[-1] and hasattr(run, "resume"):
                    run.resume()
                raise
            if self.native.runs_ahead:
                handed.append((self.native, self.runner.code))
            if times is not None:
                self.native.tell(times, self.runner.code)
            return True
        finally:
            self.lock.release()
