from flambeau.trace.value cimport Value


cpdef bint is_finite(Value value) except -1
cpdef bint all_finite(array) except -1
