cimport cython
from flambeau.base.counting cimport count_in
from flambeau.base.entry cimport Entry
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.running.key cimport moving_offsets
from flambeau.trace.value cimport Value


cdef Py_ssize_t INPUT, RESULT
cdef list _remembered
cdef tuple ONE_INPUT, TWO_INPUTS


cdef class SingleRun:
    cdef public tuple offsets
    cdef public object plan
    cdef public Py_ssize_t times
    cdef public bint is_small


@cython.locals(number=dict)
cpdef tuple reads_of(tuple slots)


@cython.locals(instruction=Instruction, entry=Entry, slots=tuple, first=Py_ssize_t, slot=Py_ssize_t, values=list,
               runs=tuple, single=SingleRun)
cpdef cached_plan(TraceBase trace)


@cython.locals(entry=Entry, offsets=tuple)
cpdef tuple offsets_of(Instruction instruction, tuple reads)


@cython.locals(single=SingleRun)
cdef SingleRun _like(tuple runs, tuple offsets)


@cython.locals(single=SingleRun, before=tuple)
cdef SingleRun _noted(Entry entry, tuple reads, tuple offsets)


@cython.locals(instruction=Instruction, entry=Entry, single=SingleRun)
cpdef remember(TraceBase trace, plan, tuple found)


@cython.locals(singles=dict)
cpdef forget_single_runs()


@cython.locals(code=list, values=list, last=list, instruction=Instruction, entry=Entry, slot=Py_ssize_t, end=Py_ssize_t)
cpdef Py_ssize_t run_ahead(TraceBase trace, Py_ssize_t index, Py_ssize_t stop, wanted, list left) except -1


@cython.locals(entry=Entry, slots=tuple, reads=tuple, runs=tuple, inputs=list, slot=Py_ssize_t,
               single=SingleRun, code=list)
cdef bint _run_alone(Instruction instruction, list values) except -1


@cython.locals(slots=tuple, found=list)
cdef list _inputs(Instruction instruction, tuple reads, list values)


@cython.locals(entry=Entry, reads=tuple, offsets=tuple, single=SingleRun)
cpdef bint has_plan_now(Instruction instruction, list values, plan_alone) except -1
