from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.value cimport Value


cpdef tuple taken_spare(spec, size_class)
cpdef Value new_value(spec, tuple made, bint whole_block)


cdef class WorkingMemory:
    cdef list large, little       # (device, bytes, index of the table), and (spec, size class, index)

    cpdef list take(self, long long[::1] table)
    cdef list taken(self, long long* table)
    cpdef give(self, list taken)


cdef class OneCall:
    cdef object program
    cdef WorkingMemory memory
    cdef list specs, size_classes, takes, numbers
    cdef bytes cells, constants
    cdef Py_ssize_t table_size, n_inputs, n_outputs, n_numbers, n_constants
    cdef Py_ssize_t* places       # (slot, index of the table) of the inputs, and then of the outputs
    cdef size_t runner, words
    cdef long long steps

    cpdef bint run(self, TraceRunner trace, bint keeps_turn=*) except -1
    cdef _run(self, TraceRunner trace, long long* table, long long* cells, bint keeps_turn)
    cdef _numbers(self, list code, long long* cells)


cdef class DeviceCall:
    cdef object program
    cdef list outputs

    cpdef bint run(self, TraceRunner trace, bint keeps_turn=*) except -1
