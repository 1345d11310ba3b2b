cimport cython
from flambeau.base.entry cimport Entry
from flambeau.trace.recording cimport new
from flambeau.trace.recording.instructions cimport Instruction
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef bint COMPILED
cdef dict limits
cdef object tell_recorded


cdef class TraceBase:
    cdef public list code, values, last, tape
    cdef public dict slots
    cdef public object bytes, held, site
    cdef public bint busy, sealed, special, own_append

    @cython.locals(code=list, values=list, last=list, ready=dict, index=Py_ssize_t, first=Py_ssize_t, one=TensorBase,
                   two=TensorBase, tensor=TensorBase, value=Value, made=Value, slot=Py_ssize_t, more=Py_ssize_t,
                   instruction=Instruction)
    cpdef append(self, Entry entry, inputs, tuple params, site)

    @cython.locals(slots=list, tensor=TensorBase, t=TensorBase, value=Value, slot=Py_ssize_t)
    cpdef _read(self, inputs, Py_ssize_t index, tuple offsets)

    @cython.locals(slots=dict)
    cpdef Py_ssize_t _slot(self, Value value) except? -2
