from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.value cimport Value


cpdef tuple taken_spare(spec, size_class)
cpdef give_spare(spec, tuple one)
cpdef Value new_value(spec, tuple made, bint whole_block)


cdef class OneCall:
    cdef object program
    cdef list specs, size_classes, blocks, small_blocks, small_classes, takes, numbers
    cdef bytes cells, constants
    cdef Py_ssize_t table_size, n_inputs, n_outputs, n_numbers, n_constants
    cdef Py_ssize_t* places       # (slot, index of the table) of the inputs, and then of the outputs
    cdef size_t runner, words
    cdef long long steps

    cpdef bint run(self, TraceRunner trace, bint keeps_turn=*) except -1
    cdef _run(self, TraceRunner trace, long long* table, long long* cells, bint keeps_turn)
    cdef _numbers(self, list code, long long* cells)


cdef class DeviceCall:
    cdef object program, native
    cdef list outputs

    cpdef bint run(self, TraceRunner trace, bint keeps_turn=*) except -1
    cdef finish(self, TraceRunner trace, list made)
