cimport cython
from flambeau.base.counting cimport counts
from flambeau.base.entry cimport Entry
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.exclusive cimport owns_memory
from flambeau.trace.value cimport Value


cdef Py_ssize_t INPUT, RESULT
cdef object CPU, update


@cython.locals(code=list, values=list, wanted=list, parts=list, shifted=list, holders=list, free=list, specs=list,
               instruction=Instruction, entry=Entry, offsets=tuple, first=Py_ssize_t, slot=Py_ssize_t, value=Value)
cpdef key_of(TraceBase trace)


@cython.locals(entry=Entry, slots=tuple, offsets=tuple, places=dict)
cpdef set_moving(list parts, list shifted, unchanged)


@cython.locals(found=list, at=Py_ssize_t, specs=tuple, place=tuple)
cpdef tuple moving_offsets(Entry entry, tuple slots, tuple offsets, unchanged, dict places)
