cimport cython


cdef Py_ssize_t SMALL_SPARE_BYTES, SPARES_PER_SPEC, MAX_SPARE_SPECS, MAX_LARGE_SPARES_BYTES


cdef class MemoryCounts:
    cdef public Py_ssize_t allocated, spare, peak, reserved, reserved_peak, room, retries, failures


cdef MemoryCounts _counts
cdef dict _small, _large


@cython.locals(shift=Py_ssize_t)
cpdef Py_ssize_t class_size(Py_ssize_t nbytes)

@cython.locals(arrays=list, size=Py_ssize_t)
cpdef keep_spare(spec, tuple one)

cdef _let_go_of_the_oldest(Py_ssize_t size)

@cython.locals(arrays=list, one=tuple)
cpdef tuple take_spare(spec)

cpdef bint exceeds_peak()
