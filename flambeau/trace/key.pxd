cimport cython
from flambeau.base.counting cimport counts
from flambeau.base.entry cimport Entry
from flambeau.trace.append cimport TraceBase
from flambeau.trace.sole cimport owns_memory
from flambeau.trace.value cimport Value


cdef Py_ssize_t INPUT, RESULT


@cython.locals(code=list, values=list, wanted=list, parts=list, held=list, free=list, kinds=list, entry=Entry,
               first=Py_ssize_t, slot=Py_ssize_t, value=Value)
cpdef key_of(TraceBase trace)
