from flambeau.trace.append cimport TraceBase


cdef here(int inside)
cdef TraceBase this_trace()
