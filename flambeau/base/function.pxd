cdef class Function:
    pass
