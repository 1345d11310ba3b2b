from flambeau.trace.value cimport Value


cdef class AddressTable:
    cdef public object addresses, numbers, again
    cdef long long* words
    cdef long long* cells
    cdef double* reals
    cdef public bint keeps_turn
    cdef size_t runner, program
    cdef long long steps

    cdef void call(self) noexcept


cdef class WorkingMemory:
    cdef list large, little       # (device, bytes, index of the table), and (spec, size class, index)

    cdef list take(self, AddressTable table)
    cdef give(self, list taken)


cpdef tuple taken_spare(spec, size_class)
cpdef fill(Value value, tuple made, bint whole_block)
cpdef Value new_value(spec, tuple made, bint whole_block)
