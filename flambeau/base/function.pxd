cdef class CalledOp:
    pass
