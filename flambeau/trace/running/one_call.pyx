"""The names of one_call.py in C.

A program of the CPU's is one call of C. Addresses and numbers stand on the stack, and nothing of Python's runs between
the native call and the end: an interrupt comes before it, and finds the trace as it was, or after everything was handed
out. Programs of other devices are called by Python, and what an interrupt leaves of them is brought to its end, as
`Program.run` does it.
"""
from functools import partial

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy, memset
from flambeau.backends.cpu.memory.address cimport address
from flambeau.backends.cpu.memory.array_pool cimport exceeds_peak, keep_spare, take_spare
from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.value cimport Value

from ...backends.backend import DeviceFailed
from ...backends.cpu.memory.allocator import blank, class_of, notice_peak
from ...backends.cpu.memory.array_pool import LARGE_SPARE_BYTES, SPARE_ROOM_BYTES
from ...base import dtypes
from ...base.spec import CPU, spec as make_spec

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*)

cdef enum:
    STACK_WORDS = 64              # of addresses, and of numbers; more of them are allocated

ctypedef void (*Runner)(size_t words, long long steps, long long* table, long long* cells) noexcept nogil


def one_call(program):
    """What runs the trace of a program that is all native, and empties it; None where that has to be `Program.run`."""
    if program.has_effects:
        return None
    direct = getattr(program.native.program, "direct", None)
    if direct is None:
        return DeviceCall(program)
    if program.before or not program.plain \
            or any(spec.device is not CPU for _, spec, *_ in (*program.outputs, *program.takes)):
        return None
    return OneCall(program, direct())


cpdef tuple taken_spare(spec, size_class):
    """An array of `spec` and its address; one that is spare, if there is one: see Note [Spare arrays] in
    backends/cpu/memory/array_pool.py."""
    cdef tuple found = take_spare(spec)
    if found is None:
        return blank(spec)
    size_class.calls += 1
    if exceeds_peak():
        notice_peak()
    return found


cdef class WorkingMemory:
    """Little blocks are taken from the spare arrays, and given back there: see Note [Spare arrays]."""

    def __init__(self, blocks):
        self.large = [(device, nbytes, index) for device, nbytes, index in blocks
                      if device is not CPU or nbytes > SPARE_ROOM_BYTES]
        self.little = [(spec, class_of(spec), index) for spec, index in
                       [(make_spec(dtypes.uint8, (nbytes,)), index) for device, nbytes, index in blocks
                        if device is CPU and nbytes <= SPARE_ROOM_BYTES]]

    cpdef list take(self, long long[::1] table):
        return self.taken(&table[0]) if self.little or self.large else []

    cdef list taken(self, long long* table):
        cdef list found = []
        cdef tuple one, spare
        for one in self.little:                       # first, as `give` finds them
            spare = taken_spare(one[0], one[1])
            found.append(spare)
            table[<Py_ssize_t>one[2]] = spare[1]
        for one in self.large:
            block = one[0].backend.block(one[1])
            found.append(block)
            table[<Py_ssize_t>one[2]] = block.address
        return found

    cpdef give(self, list taken):
        cdef Py_ssize_t i
        for i in range(len(self.little)):
            keep_spare((<tuple>self.little[i])[0], <tuple>taken[i])


cpdef Value new_value(spec, tuple made, bint whole_block):
    cdef Value value = Value.__new__(Value)
    value.array, value._address = made
    value.spec = spec
    value.whole_block = whole_block
    return value


cdef class BoundCall:
    """A program of the CPU's over words that stay where they are."""
    cdef object held
    cdef size_t runner, words, table, cells
    cdef long long steps

    def __init__(self, program, table, cells):
        self.runner, self.words, self.steps = program.direct()
        self.held = program, table, cells
        self.table, self.cells = table.buffer_info()[0], cells.buffer_info()[0]

    def __call__(self):
        cdef Runner runner = <Runner>self.runner
        with nogil:
            runner(self.words, self.steps, <long long*>self.table, <long long*>self.cells)


def bound_call(program, table, cells):
    return BoundCall(program, table, cells)


cdef class OneCall:
    """A program, read into fields of C."""

    def __init__(self, program, direct):
        cdef Py_ssize_t i = 0
        self.program = program
        self.runner, self.words, self.steps = direct
        self.specs = [spec for _, spec, _ in program.outputs]
        self.size_classes = [class_of(spec) if spec.nbytes <= LARGE_SPARE_BYTES else None for spec in self.specs]
        self.takes, self.numbers = program.takes, program.numbers
        self.memory = WorkingMemory(program.blocks)
        self.cells, self.constants = program.cells.encode(), program.constants.tobytes()
        self.table_size, self.n_inputs, self.n_outputs = program.table_size, len(program.inputs), len(program.outputs)
        self.n_numbers, self.n_constants = len(program.numbers), len(program.constants)
        self.places = <Py_ssize_t*>PyMem_Malloc(sizeof(Py_ssize_t) * (2 * (self.n_inputs + self.n_outputs) + 1))
        if self.places is NULL:
            raise MemoryError
        for slot, index in (*program.inputs, *[(slot, index) for slot, _, index in program.outputs]):
            self.places[i], self.places[i + 1] = slot, index
            i += 2

    def __dealloc__(self):
        PyMem_Free(self.places)

    cpdef bint run(self, TraceRunner trace, bint keeps_turn=False) except -1:
        cdef long long on_stack[2 * STACK_WORDS]
        cdef long long* table = on_stack
        cdef Py_ssize_t n_cells = self.n_numbers + self.n_constants
        if self.table_size <= STACK_WORDS and n_cells <= STACK_WORDS:
            self._run(trace, table, table + STACK_WORDS, keeps_turn)
            return True
        table = <long long*>PyMem_Malloc(8 * (self.table_size + n_cells + 1))
        if table is NULL:
            raise MemoryError
        try:
            self._run(trace, table, table + self.table_size, keeps_turn)
        finally:
            PyMem_Free(table)
        return True

    cdef _run(self, TraceRunner trace, long long* table, long long* cells, bint keeps_turn):
        cdef list values = trace.values, made = [], held = [], blocks
        cdef Py_ssize_t i
        cdef Py_ssize_t* place = self.places
        cdef Value value, old
        cdef tuple one
        cdef Runner runner = <Runner>self.runner
        memset(table, 0, 8 * self.table_size)
        blocks = self.memory.taken(table)
        for i in range(self.n_inputs):
            value = <Value>values[place[0]]
            if value._address is None:
                value._address = address(value.array)         # they are all the CPU's
            table[place[1]] = value._address
            place += 2
        for spec in self.specs:
            one = taken_spare(spec, self.size_classes[len(made)])
            made.append(one)
            table[place[1]] = one[1]
            place += 2
        for one in self.takes:
            old = <Value>values[<Py_ssize_t>one[2]]
            held.append(old.array if old.spec is one[1] else old.look(one[1], 0))
        self._numbers(trace.code, cells)
        trace.found = None                            # from here on it must not be run again
        if keeps_turn:                                # see Note [Small looks] in runner.py
            runner(self.words, self.steps, table, cells)
        else:
            with nogil:
                runner(self.words, self.steps, table, cells)
        self.memory.give(blocks)
        place = self.places + 2 * self.n_inputs
        for i in range(self.n_outputs):
            value = <Value>values[place[0]]
            value.array, value._address = <tuple>made[i]
            value._memory = None
            value.trace = None
            value.whole_block = self.size_classes[i] is not None
            place += 2
        for i in range(len(self.takes)):
            value = <Value>values[<Py_ssize_t>(<tuple>self.takes[i])[0]]
            old = <Value>values[<Py_ssize_t>(<tuple>self.takes[i])[2]]
            value.array, value._address = held[i], old._address
            value._memory = None
            value.trace = None
        old_ones = (trace.code, trace.values, trace.last, trace.slots)       # what they hold goes when all is done
        trace.clear()

    cdef _numbers(self, list code, long long* cells):
        """Put the numbers of the instructions into the cells, and the constants behind them."""
        cdef Py_ssize_t i
        cdef tuple place
        cdef double real
        cdef int beyond = 0
        for i in range(self.n_numbers):
            place = <tuple>self.numbers[i]
            number = (<tuple>(<tuple>code[<Py_ssize_t>place[0]])[3])[<Py_ssize_t>place[1]]
            if self.cells[i] == c'd' and (type(number) is float or type(number) is int):
                real = number
                memcpy(cells + i, &real, 8)
            elif self.cells[i] == c'q' and type(number) is int:
                cells[i] = PyLong_AsLongLongAndOverflow(number, &beyond)
            else:
                beyond = 1
            if beyond:                                # any other number has a rule of its own
                packed = self.program.scalars([code[at][3][n] for at, n, _ in self.numbers]).tobytes()
                memcpy(cells, <char*>packed, len(packed))
                return
        memcpy(cells + self.n_numbers, <char*>self.constants, 8 * self.n_constants)


cdef class DeviceCall:
    """A program whose last stretch is another device's."""

    def __init__(self, program):
        self.program = program
        by_device = {}
        for slot, spec, index in program.outputs:
            by_device.setdefault(spec.device, []).append((spec, slot, index))
        self.outputs = [(device.backend, [spec for spec, *_ in rows], [(slot, index) for _, slot, index in rows])
                        for device, rows in by_device.items()]

    cpdef bint run(self, TraceRunner trace, bint keeps_turn=False) except -1:
        if keeps_turn:                                # Python runs in it, and with it any other thread
            return False
        cdef list values = trace.values, code = trace.code, made = []
        cdef Py_ssize_t slot, index
        cdef Value value
        program = self.program
        words = program.zeros[:]
        cdef long long[::1] table = words
        blocks = program.working_memory(words)
        for slot, index in program.inputs:
            value = <Value>values[slot]
            table[index] = value.address() if value._address is None else value._address
        for backend, specs, places in self.outputs:
            for (slot, index), (array_, address) in zip(places, backend.blanks(specs)):
                table[index] = address
                made.append((slot, array_, address))
        scalars = program.scalars([code[i][3][n] for i, n, _ in program.numbers]) if program.numbers \
            else program.constants
        try:
            program.run_native(words, scalars, code, False, partial(self.hand_out, trace, made))
        except DeviceFailed:
            trace.found = None                        # it must not be run again
            raise
        return True

    def hand_out(self, TraceRunner trace, list made):
        """Hand out what was made, and what stands in memory that was taken over; an interrupted run does it twice."""
        if not trace.code:
            return
        trace.found = None                            # from here on it must not be run again
        cdef list values = trace.values
        cdef Value value, old
        cdef Py_ssize_t slot, source
        for slot, array_, address in made:
            value = <Value>values[slot]
            value.array, value._address, value._memory = array_, address, None
            value.trace = None
        for slot, spec, source in self.program.takes:
            value, old = <Value>values[slot], <Value>values[source]
            value.array = old.array if old.spec is spec else old.look(spec, 0)
            value._memory, value._address = None, old._address
            value.trace = None
        old_ones = (trace.code, trace.values, trace.last, trace.slots)       # what they hold goes when all is done
        trace.clear()
