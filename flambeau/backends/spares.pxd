cdef Py_ssize_t SPARES_PER_SPEC, MAX_SPARE_SPECS


cdef class MemoryCounts:
    cdef public Py_ssize_t allocated, spare, peak, reserved, reserved_peak, room, retries, failures


cdef MemoryCounts _counts
cdef dict _small, _large


cpdef Py_ssize_t class_size(Py_ssize_t nbytes)
cpdef keep_spare(spec, tuple one)
cpdef tuple take_spare(spec)
cpdef bint exceeds_peak()
