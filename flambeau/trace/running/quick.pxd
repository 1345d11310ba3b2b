from flambeau.trace.recording.append cimport TraceBase


cpdef here()
cdef TraceBase this_trace()
cpdef unsigned int class_version(cls)
cpdef unsigned long long dict_version(dictionary)
cpdef bint is_function(function, code, defaults, named) except -1
