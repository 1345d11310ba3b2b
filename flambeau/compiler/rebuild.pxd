cimport cython
from flambeau.trace.recording cimport new
from flambeau.trace.exclusive cimport is_sole_grad
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object Tensor


@cython.locals(storage=Storage)
cpdef new_storage(Value value, tuple facts)


@cython.locals(made=TensorBase)
cpdef new_tensor(Storage storage, tuple facts)


@cython.locals(storage=Storage)
cpdef list values_of(list storages)


@cython.locals(storage=Storage, at=Py_ssize_t, rose=Py_ssize_t)
cpdef put_results(list made, list rows)


@cython.locals(tensor=TensorBase, at=Py_ssize_t, value=Value, found=list)
cpdef list recycle(list made, list rows)


@cython.locals(tensor=TensorBase, at=Py_ssize_t, value=Value, number=Py_ssize_t)
cpdef renew(list made, list found, list rows)


@cython.locals(grad=TensorBase, value=Value, storage=Storage)
cpdef Value recycled(TensorBase tensor)
