cimport cython
from flambeau.autograd.edges cimport requires
from flambeau.trace.running cimport quick
from flambeau.trace.value cimport Storage, TensorBase


cdef class TensorLook:
    cdef public Py_ssize_t number
    cdef public TensorBase tensor
    cdef public object kind, spec
    cdef public Storage storage
    cdef public Py_ssize_t offset, leaf_hooks, post_hooks
    cdef public bint bare, needs, leaf, has_node

    cpdef bint is_off(self, TensorBase tensor) except -1


cdef class ModesLook:
    cdef public Py_ssize_t number
    cdef public object modes, grad, inference, held
    cdef public unsigned long long version

    cpdef bint are_off(self) except -1


cdef class ClassLook:
    cdef public object cls
    cdef public bint lasting
    cdef public unsigned int version
    cdef public list rows, missing

    @cython.locals(version=cython.uint, row=tuple)
    cpdef Py_ssize_t first_unmet(self) except -2


cdef class DictLook:
    cdef public object held
    cdef public unsigned long long version
    cdef public list items, missing, keys

    @cython.locals(row=tuple, names=tuple, version=cython.ulonglong)
    cpdef Py_ssize_t first_unmet(self) except -2


cdef class Guards:
    cdef public list classes, owners, dicts, items, attributes, functions, kinds, tensors, grads, outside, sizes
    cdef public list missing, keys
    cdef public dict looks
    cdef public ModesLook modes
    cdef public Py_ssize_t outside_number

    @cython.locals(row=tuple, look=ClassLook, seen=DictLook, look_of=TensorLook, grad=TensorBase, names=tuple,
                   number=Py_ssize_t, storage=Storage, modes=ModesLook)
    cpdef Py_ssize_t first_unmet(self) except -2


cpdef bint same_value(found, expected) except -1
@cython.locals(at=Py_ssize_t)
cpdef bint same_values(found, expected) except -1
