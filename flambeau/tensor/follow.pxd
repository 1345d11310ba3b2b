cimport cython
from flambeau.autograd.walk cimport by_rules, fetch
from flambeau.autograd.edges cimport requires
from flambeau.autograd.slots cimport NodeBase, RecipeBase
from flambeau.base.entry cimport Entry
from flambeau.tensor.recorder cimport record_one
from flambeau.tensor.views cimport view_one
from flambeau.trace cimport quick
from flambeau.trace.append cimport TraceBase
from flambeau.trace.runner cimport TraceRunner
from flambeau.trace.value cimport TensorBase, looks


cdef object Tensor, NO_VALUE, WANTS_GRADIENT
cdef set tensor_types, plain_types
cdef bint COMPILED


cdef class TapedCall:
    cdef public Entry entry
    cdef public tuple args, places, inputs, params
    cdef public bint is_view, owned


cdef class Tape:
    cdef public tuple steps
    cdef public object made
    cdef public bint several


@cython.locals(held=list, step=TapedCall, args=list, inputs=list, at=Py_ssize_t, number=Py_ssize_t,
               seen=TensorBase)
cdef follow(Tape tape, list given)


@cython.locals(trace=TraceRunner)
cpdef taped(trace, tuple key, function, tuple args, list given)


@cython.locals(trace=TraceBase, recipe=RecipeBase, key=list, given=list, fetched=dict, wanted=tuple)
cpdef list gradients(NodeBase node, list grads)


cdef bint is_plain(held) except -1


@cython.locals(trace=TraceBase, key=list, given=list, whole=tuple)
cpdef followed(op, tuple args, kwargs)
