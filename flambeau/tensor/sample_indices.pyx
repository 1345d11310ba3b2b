"""The names of sample_indices.py in C."""
cimport cython
from libc.math cimport INFINITY, log1p
from libc.stdint cimport int64_t, uintptr_t
from flambeau.backends.cpu.random.few cimport flambeau_bitgen, unit64, words_of
from flambeau.trace.recording cimport new
from flambeau.trace.running.table cimport taken_spare
from flambeau.trace.value cimport TensorBase, Value

from ..backends.cpu.memory.allocator import class_of
from ..backends.cpu.random.draws import MersenneTwister
from ..backends.cpu.memory.array_pool import LARGE_SPARE_BYTES
from ..base import dtypes
from ..base.spec import CPU

MAX_WEIGHTS = 256

cdef object float32 = dtypes.float32, float64 = dtypes.float64, cpu = CPU, twister = MersenneTwister
cdef dict size_classes = {}
cdef Py_ssize_t spare_bytes = LARGE_SPARE_BYTES, most = MAX_WEIGHTS


@cython.cdivision(True)                               # by nothing too: a number over zero is infinite
cpdef Value drawn_indices(TensorBase weights, wanted, source):
    cdef object spec = weights._spec
    cdef bint single = spec.dtype is float32
    cdef Py_ssize_t count = spec.numel, row, i, first
    cdef Value value, made
    cdef float* singles = NULL
    cdef double* doubles = NULL
    cdef int64_t* out
    cdef flambeau_bitgen* stream
    cdef double weight, wait, ratio, best
    cdef bint some
    cdef Py_ssize_t length
    cdef list found
    cdef tuple memory
    if count <= 0 or count > most or not spec.contiguous or spec.device is not cpu \
            or not single and spec.dtype is not float64 or type(source) is not twister:
        return None
    value = weights._storage.value
    value.ready()
    length = spec.shape[-1]
    if single:
        singles = <float*><uintptr_t>(value._address or value.address()) + weights._offset
    else:
        doubles = <double*><uintptr_t>(value._address or value.address()) + weights._offset
    for row in range(count // length):
        some = False
        for i in range(row * length, (row + 1) * length):
            weight = singles[i] if single else doubles[i]
            if not 0 <= weight < INFINITY:
                return None
            some |= weight > 0
        if not some:
            return None
    size_class = size_classes.get(wanted)
    if size_class is None:
        if len(size_classes) > most:
            size_classes.clear()
        size_class = size_classes[wanted] = class_of(wanted)
    memory = taken_spare(wanted, size_class)        # see Note [Spare arrays] in backends/cpu/memory/array_pool.py
    out = <int64_t*><uintptr_t>memory[1]
    with source._lock:
        stream = words_of(source)
        for row in range(count // length):
            first, best = 0, -1
            for i in range(length):
                weight = singles[row * length + i] if single else doubles[row * length + i]
                wait = -log1p(-unit64(stream))
                ratio = <float>(<float>weight / <float>wait) if single else weight / wait
                if best == best and not ratio <= best:        # the first that is no number is the largest, as in NumPy
                    first, best = i, ratio
            out[row] = first
    made = new.value()
    made.trace = None
    made.array, made._address = memory
    made.spec = wanted
    made._memory = None
    made.whole_block = wanted.nbytes <= spare_bytes
    return made
