# cython: boundscheck=False
"""A program bound to where its inputs come from and where its results go, and the one run that there is of it.

Note [One run]: traces, segments of them, replays of what `compile` has recorded, on the CPU and on other devices,
observed or not: all of them run here. Working memory, inputs, results and numbers get their places in a table
(table.py), program.py runs all but the last native stretch, then that is called, and the results are handed out. Until
that call nothing has changed: whatever fails before it, want of memory above all, leaves everything as it was. From its
beginning on there is no way back: an interrupt that comes meanwhile is raised when the stretch has come to its end and
everything is handed out.

A run that is one call of the CPU's (`direct`) is all C where the core is compiled, and no interrupt comes in between.
A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
import struct
from array import array

from ...backends.backend import DeviceFailed
from ...backends.cpu.memory.address import address
from ...backends.cpu.memory.allocator import class_of
from ...backends.cpu.memory.array_pool import LARGE_SPARE_BYTES
from ...base import dtypes, observers
from ...base.core import COMPILED
from ...base.spec import CPU
from ..planning.lower import HALVES, NumberPart, cell
from .table import AddressTable, WorkingMemory, fill, new_value, taken_spare

FLOAT, INTEGER, FITTED = 0, 1, 2  # how a number comes to its cell: as it is, if it fits, by the rule of its dtype


class InputPlace:
    """Where an input stands: its place in the `values` of a run, and its index in the table."""

    __slots__ = ("at", "index")

    def __init__(self, at, index):
        self.at, self.index = at, index


class MovingPlace:
    """A place that begins elsewhere at every run (Note [Moving offsets] in key.py): its index in the table. It lies
    `nbytes` behind the address at index `base`, and as many elements of `itemsize` bytes as the offset of an operand of
    an `instruction` says."""

    __slots__ = ("index", "base", "nbytes", "instruction", "operand", "itemsize")

    def __init__(self, index, base, nbytes, offset, itemsize):
        self.index, self.base, self.nbytes, self.itemsize = index, base, nbytes, itemsize
        self.instruction, self.operand = offset.index, offset.operand

    def begins_at(self, addresses, code):
        """Its address, for a run of these instructions."""
        return addresses[self.base] + self.nbytes + code[self.instruction].offsets[self.operand] * self.itemsize


class ResultPlace:
    """Where a result goes: its place in `made`, and the index in the table of its memory.

    That is allocated, as a spare array where there is a `size_class`, or is that of the input in place `source` of
    `values`, or comes from a step of the reference executor.
    """

    __slots__ = ("at", "spec", "index", "size_class", "source")

    def __init__(self, at, spec, index, size_class=None, source=-1):
        self.at, self.spec, self.index, self.size_class, self.source = at, spec, index, size_class, source


class NumberPlace:
    """Where a number stands: its cell, and its place in `numbers`, or in the parameters of an `instruction` there."""

    __slots__ = ("cell", "instruction", "at", "way", "dtype")

    def __init__(self, cell, instruction, at, dtype):
        self.cell, self.instruction, self.at, self.dtype = cell, instruction, at, dtype
        self.way = FITTED if dtype is dtypes.bool or dtype in HALVES or dtype.__class__ is NumberPart else \
            FLOAT if dtype.is_floating_point else INTEGER


class BoundProgram:
    """A program, with the places of what it reads and gives.

    It runs over `values`, a list or tuple, and `numbers`. Results go to a list `made`: where None stands, a new Value
    is put, a pending Value is made ready, and the memory of one that is ready is written over. `made` is `values` for a
    trace, whose slots are the places; a replay says which slot stands where.

    `outputs` are the results that are allocated, `takes` those in the memory of an input, `givens` those of steps of
    the reference executor. Offsets of the places in `moving` are in the code of the run, or in that of a replay, which
    is `fixed`; there `moved` says for each where in the numbers of a run the bytes stand that it lies further on, -1
    where it stays. `numbers` are given at every run, and `cells` hold the others. `table` is there while no run uses
    it: two threads, or a look amid another, may run one program at once.
    """

    __slots__ = ("program", "is_native", "direct", "inputs", "moving", "moved", "fixed", "outputs", "takes", "givens",
                 "numbers", "cells", "memory", "table")

    def __init__(self, program, positions=None, results=None, numbers=None, code=None, moved=None):
        """`positions`, `results`: {slot: position} in `values` and `made`. `numbers`: {(instruction, parameter):
        position} of those that are given at every run; the others are taken from `code` now. `moved`: {(instruction,
        operand): position} of how many bytes it lies further on. Without these, all is as in a trace."""
        def place(found, slot):
            return slot if found is None else found[slot]

        self.program = program
        self.is_native = program.native and not program.has_effects
        self.direct = program.native and not program.before and hasattr(program.last.program, "direct") \
            and all(spec.device is CPU for _, spec, _ in (*program.outputs, *program.takes))
        self.inputs = [InputPlace(place(positions, slot), index) for slot, index in program.inputs]
        self.moving, self.fixed = program.moving, code
        self.moved = [(moved or {}).get((place.instruction, place.operand), -1) for place in program.moving]
        self.outputs = [ResultPlace(place(results, slot), spec, index, _spare_class(spec))
                        for slot, spec, index in program.outputs]
        self.takes = [ResultPlace(place(results, slot), spec, -1, None, place(positions, source))
                      for slot, spec, source in program.takes]
        self.givens = [ResultPlace(place(results, slot), spec, index) for slot, spec, index in program.givens]
        self.memory = WorkingMemory(program.blocks) if program.blocks else None
        self.numbers, self.table = [], None
        self.cells = array("q", bytes(8 * len(program.numbers))) + program.constants
        for at, (index, parameter, dtype) in enumerate(program.numbers):
            if numbers is None:
                self.numbers.append(NumberPlace(at, index, parameter, dtype))
            elif (index, parameter) in numbers:
                self.numbers.append(NumberPlace(at, -1, numbers[index, parameter], dtype))
            else:
                self.cells[at] = bits_of(code[index].params[parameter], dtype)

    def use_spares(self, wanted):
        """Whether results may be made in spare arrays, and become some: not those of sizes that never come again."""
        for place in self.outputs:
            place.size_class = _spare_class(place.spec) if wanted else None

    def new_table(self):
        """An AddressTable for a run, with the numbers that are always the same."""
        program = self.program
        return AddressTable(array("q", bytes(8 * program.table_size)), self.cells[:], program.last, self.direct)

    def run_trace(self, trace, observed, keeps_turn=False, perform=None):
        """Run the trace whose instructions the program was made of, and empty it. Returns True if it ran."""
        values, code = trace.values, trace.code
        return self.run(values, values, code, code, observed, trace, None, perform, keeps_turn)

    def run_segment(self, segment, observed):
        """Run a Segment of a trace, and note there that it has run."""
        values = segment.values
        self.run(values, values, segment.code, segment.recorded, observed, None, segment)

    def run(self, values, made, numbers, code, observed, trace=None, segment=None, perform=None, keeps_turn=False):
        """Run the instructions `code` over `values`, which are ready. Returns True if it ran.

        `numbers` are those of a replay, or the instructions that have them. `observed`: what observers.during_runs
        says. With the results a trace, or a segment of one, is emptied; without either, True is put into the last place
        of `made`. `perform(index, arrays)` has an effect happen. `keeps_turn`: no other thread is let in meanwhile, so
        that only what is `direct` runs.
        """
        direct = self.direct and not observed
        if keeps_turn and not direct:
            return False
        table, self.table = self.table, None      # another thread that comes now finds none
        if table is None:
            table = self.new_table()
        table.keeps_turn = keeps_turn
        try:
            self._run(table, direct, values, made, numbers, code, trace, segment, perform)
        finally:
            self.table = table
        return True

    def _run(self, table, direct, values, made, numbers, code, trace, segment, perform):
        program, makers, blocks = self.program, None, None
        if direct:
            if self.memory is not None:
                blocks = self.memory.take(table)
        else:
            if observers.during_runs and observers.gathering():
                makers = program.makers(code, code if segment is None else segment.code)
            blocks = program.working_memory(table.addresses, makers)
        self._put_inputs(table, direct, values)
        found = self._put_results(table, made) if direct else self._put_results_of_devices(table, made, makers)
        if self.moving:
            self._put_moving(table, numbers)
        taken = self._taken(values) if self.takes else None
        if self.numbers:
            self._put_numbers(table, numbers)
        last = run = times = arrays = None
        started = False
        try:                                      # its loops stand in functions: see test_interrupts.py
            if not direct:
                last = program.last
                arrays = program.run_before_last(table, values, code, blocks, found, perform, makers is not None)
                self._add_givens(found, arrays)   # all of `arrays` have to stay until the end
                if last is not None:
                    times = None if makers is None else last.times()
                    run = table.again if table.again is not None and times is None else \
                        last.bound(table.addresses, table.numbers, times)
            if trace is not None:
                trace.found = None                # from here on it must not be run again
            started = True                        # no interrupt comes between this and the end of the call
            if direct:
                table.call()
            elif run is not None:
                run()
            self._hand_out(direct, values, made, found, taken, trace, segment)
        except DeviceFailed as error:
            if started:
                last.explain(error, code)
            if self.is_native and trace is None and segment is None:     # what it has overwritten by then is not known
                self._hand_out(direct, values, made, found, taken, trace, segment)
            raise
        except BaseException:
            if started:
                if hasattr(run, "resume"):
                    run.resume()
                self._hand_out(direct, values, made, found, taken, trace, segment)
            raise
        if direct:
            if self.memory is not None:
                self.memory.give(blocks)
        elif last is not None:
            last.has_run(times, code)

    def _put_inputs(self, table, direct, values):
        words = table.words
        for place in self.inputs:
            value = values[place.at]
            try:
                where = value._address            # most know it: a call would cost more than all of this
            except AttributeError:                # interpreted, one that was not set
                where = None
            if where is None:
                where = value._address = address(value.array) if direct else value.address()
            words[place.index] = where

    def _put_moving(self, table, numbers):
        words, at = table.words, 0
        code = numbers if self.fixed is None else self.fixed
        for place in self.moving:
            instruction = code[place.instruction]
            offset = instruction.offsets[place.operand]
            words[place.index] = words[place.base] + place.nbytes + offset * place.itemsize
            number = self.moved[at]
            if number >= 0:
                words[place.index] += numbers[number]
            at += 1

    def _put_results(self, table, made):
        """(array, address) of each output, on the CPU while memory is not observed."""
        words, found = table.words, []
        for place in self.outputs:
            value = made[place.at]
            one = taken_spare(place.spec, place.size_class) if value is None or value.trace is not None else \
                (value.array, value._address)
            found.append(one)
            words[place.index] = one[1]
        return found

    def _put_results_of_devices(self, table, made, makers):
        """The same in general. What no observer asks about, `makers`, is asked of each device in one go."""
        found, wanted = [None] * len(self.outputs), {}
        for number, place in enumerate(self.outputs):
            value, spec = made[place.at], place.spec
            if value is not None and value.trace is None:
                found[number] = value.array, value._address
            elif makers is not None:
                observers.begin(makers[self.program.outputs[number][0]])
                found[number] = spec.device.backend.blank(spec)
            else:
                wanted.setdefault(spec.device.backend, []).append((number, spec))
        for backend, rows in wanted.items():
            for (number, _), one in zip(rows, backend.blanks([spec for _, spec in rows]), strict=True):
                found[number] = one
        for one, place in zip(found, self.outputs, strict=True):
            table.addresses[place.index] = one[1]
        return found

    def _taken(self, values):
        """(array, address) of each result that takes over an input's memory."""
        found = []
        for place in self.takes:
            value = values[place.source]
            found.append((value.array if value.spec is place.spec else value.look(place.spec, 0), value._address))
        return found

    def _put_numbers(self, table, numbers):
        cells, reals = table.cells, table.reals
        for place in self.numbers:
            if place.instruction < 0:
                number = numbers[place.at]
            else:
                instruction = numbers[place.instruction]
                params = instruction.params
                number = params[place.at]
            if place.way == FLOAT:
                reals[place.cell] = number
                continue
            try:
                cells[place.cell] = number if place.way == INTEGER and type(number) is int else \
                    bits_of(number, place.dtype)
            except OverflowError:
                cells[place.cell] = bits_of(number, place.dtype)

    def _add_givens(self, found, arrays):
        for place in self.givens:
            found.append((arrays[place.index], None))

    def _hand_out(self, direct, values, made, found, taken, trace, segment):
        """Hand out the results; an interrupted run does it twice."""
        number = 0
        for place in self.outputs:
            _give(made, place, found[number], direct)
            number += 1
        if self.givens:
            for place in self.givens:
                _give(made, place, found[number], False)
                number += 1
        if self.takes:
            self._hand_out_taken(values, made, taken)
        if trace is not None:
            trace.clear()
        elif segment is not None:
            segment.clear()
        else:
            made[-1] = True

    def _hand_out_taken(self, values, made, taken):
        number = 0
        for place in self.takes:
            value = values[place.source]
            if made is values:
                _give(made, place, taken[number], False)
            elif value.spec is place.spec:
                value.on_host = value.bounds = None     # what it was
                made[place.at] = value
            else:
                made[place.at] = new_value(place.spec, taken[number], False)
            number += 1


def _give(made, place, one, may_be_spare):
    """Put `one`, (array, address), where the result goes, unless what stands there was written over."""
    value = made[place.at]
    if value is None:
        made[place.at] = new_value(place.spec, one, may_be_spare and place.size_class is not None)
    elif value.trace is not None:
        fill(value, one, may_be_spare and place.size_class is not None)
    else:
        value.on_host = value.bounds = None             # what it was


def _spare_class(spec):
    """The size class of a result that may be made in a spare array: Note [Spare arrays] in cpu/memory/array_pool.py."""
    return class_of(spec) if COMPILED and spec.device is CPU and spec.nbytes <= LARGE_SPARE_BYTES else None


def bits_of(number, dtype):
    """The word of a number that stands in a cell."""
    letter = "d" if dtype.is_floating_point else "q"
    return struct.unpack("q", struct.pack(letter, cell(number, dtype)))[0]
