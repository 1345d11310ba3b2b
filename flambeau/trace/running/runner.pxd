cimport cython
from flambeau.base.entry cimport Entry
from flambeau.trace.running cimport quick
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.running.key cimport key_of
from flambeau.trace.running.single cimport cached_plan, remember
from flambeau.trace.value cimport Value


cdef bint COMPILED
cdef dict events, switches, pending
cdef object _planning, CPU, DeviceFailed, reference
cdef dict body_programs
cdef tuple NO_KEY
cdef Py_ssize_t MAX_INLINE_INSTRUCTIONS, MAX_INLINE_BYTES


cdef class TraceRunner(TraceBase):
    cdef public object lock, owner, failures, asides, quiet, ran, begun, unsettled, backward, emptied, weighed, segments
    cdef public tuple found
    cdef public bint aside, trains
    cdef public Py_ssize_t gone

    cpdef clear(self)


@cython.locals(trace=TraceRunner, instruction=Instruction, entry=Entry, values=list, value=Value, arrays=list,
               at=Py_ssize_t, slot=Py_ssize_t)
cdef bint run_by_reference(trace) except -1


@cython.locals(trace=TraceRunner, code=list, latest=Instruction)
cdef bint run_inline(trace) except -1


@cython.locals(trace=TraceRunner, found=tuple, plans=dict, is_single=bint)
cdef bint run_as_one_call(trace, bint keeps_turn) except -1
