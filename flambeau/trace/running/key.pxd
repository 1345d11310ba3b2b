cimport cython
from flambeau.base.counting cimport count_in, counts
from flambeau.base.entry cimport Entry
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.exclusive cimport owns_memory
from flambeau.trace.value cimport Value


cdef Py_ssize_t INPUT, RESULT
cdef list _remembered
cdef object CPU, update


@cython.locals(code=list, values=list, wanted=list, parts=list, shifted=list, holders=list, free=list, specs=list,
               instruction=Instruction, entry=Entry, offsets=tuple, first=Py_ssize_t, slot=Py_ssize_t, value=Value)
cpdef key_of(TraceBase trace)


@cython.locals(entry=Entry, slots=tuple, offsets=tuple, places=dict)
cpdef set_moving(list parts, list shifted, unchanged)


@cython.locals(found=list, at=Py_ssize_t, specs=tuple, place=tuple)
cpdef tuple moving_offsets(Entry entry, tuple slots, tuple offsets, unchanged, dict places)


cdef class SingleRun:
    cdef public tuple offsets, input_specs
    cdef public object plan


@cython.locals(instruction=Instruction, entry=Entry, slots=tuple, offsets=tuple, first=Py_ssize_t, slot=Py_ssize_t,
               values=list, value=Value, single=SingleRun)
cpdef cached_plan(TraceBase trace)


@cython.locals(instruction=Instruction, entry=Entry, single=SingleRun)
cpdef remember(TraceBase trace, plan, tuple found)


@cython.locals(singles=dict)
cpdef forget_single_runs()
