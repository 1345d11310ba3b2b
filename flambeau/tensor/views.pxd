cimport cython
from flambeau.autograd.edges cimport requires
from flambeau.base.entry cimport Entry, NotedCall
from flambeau.trace.recording cimport new
from flambeau.trace.running cimport quick
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.value cimport Storage, TensorBase


cdef object Tensor, modes, make_node


@cython.locals(trace=TraceBase, storage=Storage, tensor=TensorBase)
cpdef view_one(Entry entry, tuple args, TensorBase source, Py_ssize_t moved)
