cdef class Entry:
    cdef public object op, casts, template, simple, param_at, pick, wrap, input_specs, deltas, look, device, compiles
    cdef public object compute, fits, rounded, nbytes, weight
    cdef public tuple outs, zeros
    cdef public dict recipes
    cdef public dict singles          # how traces of such a call alone ran: see SingleRun in trace/running/key.py
    cdef public bint many, quick, larger, checked, several
    cdef public long long traces, latest
