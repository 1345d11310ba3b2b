from flambeau.tensor.recorder cimport record_one
from flambeau.tensor.views cimport view_one
from flambeau.trace.value cimport TensorBase


cdef object Tensor, tensor_types, number_types
