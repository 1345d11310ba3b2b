cimport cython
from flambeau.base.entry cimport Entry, Facts
from flambeau.tensor.find cimport find
from flambeau.trace.running cimport quick
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object modes
cdef dict known
cdef set plain_types
cdef int ONE_RESULT


@cython.locals(entry=Entry, t=TensorBase, storage=Storage, trace=TraceBase, grad=bint)
cpdef bint written_whole(op, Facts facts, TensorBase self, tuple args, kwargs) except -1


@cython.locals(entry=Entry, first=TensorBase, t=TensorBase, other=TensorBase, storage=Storage, trace=TraceBase,
               written=list, made=list, at=Py_ssize_t)
cpdef bint updated_whole(op, tuple tensors, tuple numbers) except -1


@cython.locals(storage=Storage)
cpdef storage_gets(TensorBase tensor, Value value, tuple writer)
