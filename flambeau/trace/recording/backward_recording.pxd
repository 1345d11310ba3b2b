cimport cython


@cython.freelist(2)
cdef class HeldRecording:
    cdef public object root, slot, site, older
    cdef public list code
    cdef public dict inputs
    cdef public Py_ssize_t count
    cdef public bint large
