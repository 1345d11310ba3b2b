from flambeau.trace.append cimport TraceBase


cpdef here(int inside=*)
cdef TraceBase this_trace()
