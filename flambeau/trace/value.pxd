from flambeau.backends.cpu.memory.array_pool cimport keep_spare
from flambeau.base.counting cimport count_in


cdef object CPU
cdef dict events
cdef Py_ssize_t _looks, RESULT


cpdef Py_ssize_t looks()


cdef class Value:
    cdef public object trace, array, spec, _memory, _address, on_host, bounds
    cdef public Py_ssize_t slot
    cdef bint whole_block         # `array` stands alone in a block of the allocator's, and may be a spare one later

    cpdef Value ready(self)
    cpdef address(self)
    cpdef look(self, spec, offset)
    cpdef read(self, spec, offset)


cdef class Storage:
    cdef public Value value
    cdef public object nbytes, device, writer, fingerprint, hidden_writes, _keeper, _export, shared, in_flight
    cdef public Py_ssize_t version, saved_at, hidden
    cdef public bint readonly, exported, inference, _pinned, page_locked
    cdef object __weakref__


cdef class TensorBase:
    cdef public Storage _storage
    cdef public object _spec, _site, _node, _grad, _base, _view_of, _cut, _accumulator, _data_version
    cdef public object _leaf_hooks, _post_hooks
    cdef public Py_ssize_t _offset, _seen
    cdef public int _nr
    cdef public bint _requires_grad
