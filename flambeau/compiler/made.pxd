cimport cython
from flambeau.trace cimport new
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object Tensor, may_recycle_grad


@cython.locals(value=Value, at=Py_ssize_t)
cpdef put_addresses(values, list places, table)


@cython.locals(storage=Storage)
cpdef new_storage(Value value, tuple facts)


@cython.locals(made=TensorBase)
cpdef new_tensor(Storage storage, tuple facts)


cpdef in_memory_of(Value old, spec)


@cython.locals(grad=TensorBase, value=Value, storage=Storage)
cpdef recycled(TensorBase tensor)
