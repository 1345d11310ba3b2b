cimport cython
from flambeau.autograd.edges cimport requires
from flambeau.base.entry cimport Entry, NotedCall
from flambeau.tensor.history cimport make_node
from flambeau.trace.recording cimport new
from flambeau.trace.running cimport quick
from flambeau.trace.recording.append cimport TraceBase
from flambeau.trace.value cimport Storage, TensorBase, Value


cdef object Tensor, modes


@cython.locals(trace=TraceBase, value=Value, storage=Storage, tensor=TensorBase, t=TensorBase, wanted=int, bit=int)
cpdef record_one(Entry entry, tuple args, inputs, tuple params)


@cython.locals(trace=TraceBase, value=Value, storage=Storage, tensor=TensorBase, t=TensorBase, exported=bint)
cpdef list record_several(Entry entry, tuple args, inputs, tuple params)
