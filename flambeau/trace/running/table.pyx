"""The names of table.py in C."""
from flambeau.backends.cpu.memory.array_pool cimport exceeds_peak, keep_spare, take_spare
from flambeau.trace.value cimport Value

from ...backends.cpu.memory.allocator import blank, class_of, notice_peak
from ...backends.cpu.memory.array_pool import SPARE_ROOM_BYTES
from ...base import dtypes
from ...base.spec import CPU, spec as make_spec

ctypedef void (*Runner)(size_t program, long long steps, long long* words, long long* cells) noexcept nogil


cdef class AddressTable:
    def __init__(self, addresses, numbers, stretch, direct):
        self.addresses, self.numbers = addresses, numbers
        self.words = <long long*><size_t>addresses.buffer_info()[0]
        self.cells = <long long*><size_t>numbers.buffer_info()[0]
        self.reals = <double*>self.cells
        if direct:
            self.runner, self.program, self.steps = stretch.program.direct()
        elif stretch is not None and stretch.lasts:
            self.again = stretch.bound(addresses, numbers)

    cdef void call(self) noexcept:
        cdef Runner runner = <Runner>self.runner
        cdef size_t program = self.program
        cdef long long steps = self.steps
        cdef long long* words = self.words
        cdef long long* cells = self.cells
        if self.keeps_turn:                           # see Note [Small looks] in runner.py
            runner(program, steps, words, cells)
        else:
            with nogil:
                runner(program, steps, words, cells)


cdef class WorkingMemory:
    """Little blocks are taken from the spare arrays, and given back there: see Note [Spare arrays]."""

    def __init__(self, blocks):
        self.large = [(device, nbytes, index) for device, nbytes, index in blocks
                      if device is not CPU or nbytes > SPARE_ROOM_BYTES]
        self.little = [(spec, class_of(spec), index) for spec, index in
                       [(make_spec(dtypes.uint8, (nbytes,)), index) for device, nbytes, index in blocks
                        if device is CPU and nbytes <= SPARE_ROOM_BYTES]]

    cdef list take(self, AddressTable table):
        cdef list taken = []
        cdef tuple one, spare
        for one in self.little:                       # first, as `give` finds them
            spare = taken_spare(one[0], one[1])
            taken.append(spare)
            table.words[<Py_ssize_t>one[2]] = spare[1]
        for one in self.large:
            block = one[0].backend.block(one[1])
            taken.append(block)
            table.words[<Py_ssize_t>one[2]] = block.address
        return taken

    cdef give(self, list taken):
        cdef Py_ssize_t i
        for i in range(len(self.little)):
            keep_spare((<tuple>self.little[i])[0], <tuple>taken[i])


cpdef tuple taken_spare(spec, size_class):
    """An array of `spec` and its address; one that is spare, if there is one: see Note [Spare arrays] in
    backends/cpu/memory/array_pool.py."""
    cdef tuple found = None if size_class is None else take_spare(spec)
    if found is None:
        return blank(spec)
    size_class.calls += 1
    if exceeds_peak():
        notice_peak()
    return found


cpdef fill(Value value, tuple made, bint whole_block):
    value.array, value._address = made
    value._memory = None
    value.whole_block = whole_block
    value.trace = None


cpdef Value new_value(spec, tuple made, bint whole_block):
    cdef Value value = Value.__new__(Value)
    value.spec = spec
    fill(value, made, whole_block)
    return value
