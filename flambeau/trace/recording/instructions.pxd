cimport cython
from flambeau.base.entry cimport Entry


@cython.final
@cython.freelist(64)            # a program that looks often frees as many as it records
cdef class Instruction:
    cdef public Entry entry
    cdef public tuple slots, offsets, params
    cdef public Py_ssize_t first
    cdef public object site
