cimport cython
from flambeau.backends.cpu.memory.address cimport address
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.running.runner cimport TraceRunner
from flambeau.trace.running.table cimport AddressTable, WorkingMemory, fill, new_value, taken_spare
from flambeau.trace.value cimport Value


cdef object CPU, DeviceFailed, observers
cdef int FLOAT, INTEGER


@cython.final
cdef class InputPlace:
    cdef public Py_ssize_t at, index


@cython.final
cdef class MovingPlace:
    cdef public Py_ssize_t index, base, nbytes, instruction, operand, itemsize

    cpdef begins_at(self, addresses, list code)


@cython.final
cdef class ResultPlace:
    cdef public Py_ssize_t at, index, source
    cdef public object spec, size_class


@cython.final
cdef class NumberPlace:
    cdef public Py_ssize_t cell, instruction, at
    cdef public int way
    cdef public object dtype


@cython.final
cdef class BoundProgram:
    cdef public object program
    cdef public bint is_native, direct
    cdef public list inputs, moving, moved, fixed, outputs, takes, givens, numbers
    cdef public object cells
    cdef WorkingMemory memory
    cdef AddressTable table

    @cython.locals(place=ResultPlace)
    cpdef use_spares(self, bint wanted)

    cpdef AddressTable new_table(self)

    @cython.locals(values=list, code=list)
    cpdef bint run_trace(self, TraceRunner trace, bint observed, bint keeps_turn=*, perform=*) except -1

    @cython.locals(direct=bint, table=AddressTable)
    cpdef bint run(self, values, list made, numbers, list code, bint observed, TraceRunner trace=*, segment=*,
                   perform=*, bint keeps_turn=*) except -1

    @cython.locals(started=bint)
    cdef _run(self, AddressTable table, bint direct, values, list made, numbers, list code, TraceRunner trace, segment,
              perform)

    @cython.locals(words=cython.p_longlong, value=Value, place=InputPlace)
    cdef _put_inputs(self, AddressTable table, bint direct, values)

    @cython.locals(words=cython.p_longlong, place=MovingPlace, instruction=Instruction, offset=cython.longlong,
                   code=list, at=Py_ssize_t, number=Py_ssize_t)
    cdef _put_moving(self, AddressTable table, numbers)

    @cython.locals(words=cython.p_longlong, value=Value, place=ResultPlace, one=tuple, found=list)
    cdef list _put_results(self, AddressTable table, list made)

    @cython.locals(value=Value, place=ResultPlace)
    cdef list _put_results_of_devices(self, AddressTable table, list made, makers)

    @cython.locals(value=Value, place=ResultPlace, found=list)
    cdef list _taken(self, values)

    @cython.locals(cells=cython.p_longlong, reals=cython.p_double, place=NumberPlace, instruction=Instruction,
                   params=tuple)
    cdef _put_numbers(self, AddressTable table, numbers)

    @cython.locals(place=ResultPlace)
    cdef _add_givens(self, list found, dict arrays)

    @cython.locals(place=ResultPlace, number=Py_ssize_t)
    cdef _hand_out(self, bint direct, values, list made, list found, list taken, TraceRunner trace, segment)

    @cython.locals(value=Value, place=ResultPlace, number=Py_ssize_t)
    cdef _hand_out_taken(self, values, list made, list taken)


@cython.locals(value=Value)
cdef _give(list made, ResultPlace place, tuple one, bint may_be_spare)
