cimport cython


cdef class Entry:
    cdef public object op, casts, template, simple, param_at, pick, wrap, input_specs, device, compiles
    cdef public object compute, fits, rounded, nbytes, weight, claim
    cdef public tuple outs, zeros, deltas
    cdef public dict recipes
    cdef public dict singles
    cdef public bint many, larger
    cdef public int way
    cdef public long long traces, latest


@cython.final
cdef class NotedCall:
    cdef public Entry entry
    cdef public tuple args, params
    cdef public object inputs, result, inner
    cdef public Py_ssize_t moved


cdef class Facts:
    cdef public bint composite, pointwise, lists, ruled, follows, only_on_cpu, several, blind, fits_by_name
    cdef public Py_ssize_t most_followed
    cdef public object of, in_place, no_overlap, overlap_ok
    cdef public tuple typed, defaults
    cdef public frozenset typed_names
    cdef public dict pickers, entries, given, operands
