"""Convolutions on a GPU, through cuDNN: of vectors, pictures and volumes, with groups, strides, dilation, transposed.

A transposed convolution is cuDNN's gradient of the data, and the weight of given results its gradient of the filter.
All operands are contiguous, or all of them have their channels last; others are copied by the plan (None). Vectors are
pictures of one row. Which of cuDNN's algorithms is taken, and how much memory that needs to work in, is decided when a
plan asks, by its heuristics: the first that gives the same result every time, or the first of all where none does.

Float32 goes through TF32 where `torch.backends.cudnn.allow_tf32` says so, as it does in PyTorch until the program says
otherwise; the switch is read when a plan is made.
"""
import ctypes
from math import prod

from ....base.locks import new_lock
from ....base.shapes import channels_last_strides, contiguous_strides
from ... import library_switches
from .. import vendor
from ..calls import HostCall

MAX_SCRATCH_BYTES = 1 << 30

# cuDNN's numbers
CUDNN_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
NCHW, NHWC = 0, 1
CROSS_CORRELATION = 1
DEFAULT_MATH_TYPE, TENSOR_MATH, FMA_MATH = 0, 1, 3
DETERMINISTIC = 1
MAX_ALGORITHMS = 10

_int, _pointer, _size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
_CHOOSE = [_pointer] * 5 + [_int, _pointer, _pointer]
_CUDNN_SIGNATURES = {
    "cudnnCreate": [_pointer],
    "cudnnSetStream": [_pointer, _pointer],
    "cudnnCreateTensorDescriptor": [_pointer],
    "cudnnSetTensorNdDescriptor": [_pointer, _int, _int, _pointer, _pointer],
    "cudnnCreateFilterDescriptor": [_pointer],
    "cudnnSetFilterNdDescriptor": [_pointer, _int, _int, _int, _pointer],
    "cudnnCreateConvolutionDescriptor": [_pointer],
    "cudnnSetConvolutionNdDescriptor": [_pointer, _int, _pointer, _pointer, _pointer, _int, _int],
    "cudnnSetConvolutionGroupCount": [_pointer, _int],
    "cudnnSetConvolutionMathType": [_pointer, _int],
    "cudnnGetConvolutionForwardAlgorithm_v7": _CHOOSE,
    "cudnnGetConvolutionBackwardDataAlgorithm_v7": _CHOOSE,
    "cudnnGetConvolutionBackwardFilterAlgorithm_v7": _CHOOSE,
    "cudnnConvolutionForward": [_pointer] * 7 + [_int, _pointer, _size] + [_pointer] * 3,
    "cudnnConvolutionBackwardData": [_pointer] * 7 + [_int, _pointer, _size] + [_pointer] * 3,
    "cudnnConvolutionBackwardFilter": [_pointer] * 7 + [_int, _pointer, _size] + [_pointer] * 3,
}
_floats, _doubles = (ctypes.c_float * 2)(1, 0), (ctypes.c_double * 2)(1, 0)


class Algorithm(ctypes.Structure):
    """What cuDNN says of one of its algorithms (cudnnConvolutionFwdAlgoPerf_t and its kin)."""

    _fields_ = [("number", _int), ("status", _int), ("time", ctypes.c_float), ("memory", _size),
                ("determinism", _int), ("math", _int), ("reserved", _int * 3)]


class NetworkSession:
    """cuDNN for a device: a handle, which knows the stream that it was used on last."""

    def __init__(self, library):
        self.library, self.lock, self.stream = library, new_lock(), None
        handle = ctypes.c_void_p()
        call(library.cudnnCreate, ctypes.addressof(handle))
        self.handle = handle.value

    def use(self, stream):
        if stream != self.stream:
            call(self.library.cudnnSetStream, self.handle, stream)
            self.stream = stream


_sessions: dict = {}          # device → NetworkSession
_starting = new_lock()


def session(index):
    """The NetworkSession of a device; None where there is no cuDNN, or it is switched off."""
    library = vendor.load("cudnn") if library_switches.cudnn.enabled else None
    if library is None:
        return None
    found = _sessions.get(index)
    if found is None or found.library is not library:
        with _starting:
            if isinstance(library, ctypes.CDLL) and library.cudnnCreate.argtypes is None:
                vendor.declare(library, _CUDNN_SIGNATURES)
            found = _sessions.get(index)
            if found is None or found.library is not library:
                with vendor.on(index):
                    found = _sessions[index] = NetworkSession(library)
    return found


def forget():
    """Let go of all handles: the driver has changed."""
    _sessions.clear()


def call(function, *args):
    status = function(*args)
    if status:
        raise vendor.VendorError(f"{function.__name__} gave status {status}")


# --- what is asked for ------------------------------------------------------------------------------------------------


def convolve(dtype, x, weight, y, stride, padding, dilation, groups, transposed, index=0):
    """[HostCall] for y = x convolved with weight, all (shape, strides); None where there is none."""
    if transposed:
        return _convolution("BackwardData", dtype, y, weight, x, stride, padding, dilation, groups, index)
    return _convolution("Forward", dtype, x, weight, y, stride, padding, dilation, groups, index)


def convolve_weight(dtype, x, y, weight, stride, padding, dilation, groups, index=0):
    """[HostCall] for the weight whose every element sums the products of x and y that a convolution multiplies by it;
    None where there is none."""
    return _convolution("BackwardFilter", dtype, x, weight, y, stride, padding, dilation, groups, index)


# Of each of cuDNN's functions: where its first and second operand and its result stand among (x, weight, y), and among
# the addresses that it is given, operands first.
ORDERS = {"Forward": ("xwy", (0, 1, 2)), "BackwardData": ("wyx", (1, 0, 2)), "BackwardFilter": ("xyw", (0, 1, 2))}


def _convolution(way, dtype, x, weight, y, stride, padding, dilation, groups, index):
    """The convolution of x to y with weight, of which the function `way` computes one from the others."""
    if dtype.name not in CUDNN_TYPES or any(0 in laid[0] for laid in (x, weight, y)) or max(
            prod(laid[0]) for laid in (x, weight, y)) >= 2**31:
        return None
    rank = len(stride)
    reaches = all((n + 2 * p - d * (k - 1) - 1) // s + 1 == out for n, p, d, k, s, out in
                  zip(x[0][2:], padding, dilation, weight[0][2:], stride, y[0][2:], strict=True))
    layout = _layout((x, weight, y))
    if rank > 3 or not reaches or layout is None:
        return None
    made = session(index)
    if made is None:
        return None
    if rank == 1:
        x, weight, y = [_picture(laid, layout) for laid in (x, weight, y)]
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    with vendor.on(index):
        return _planned(made, way, dtype, x, weight, y, stride, padding, dilation, groups, layout)


def _layout(operands):
    """NCHW where all operands are contiguous, NHWC where all of them have their channels last, else None."""
    ways = {NCHW: contiguous_strides, NHWC: channels_last_strides}
    for layout, strides_of in ways.items():
        if layout == NHWC and len(operands[0][0]) < 4:
            continue
        if all(n == 1 or s == one for shape, strides in operands
               for n, s, one in zip(shape, strides, strides_of(shape), strict=True)):
            return layout
    return None


def _picture(laid, layout):
    """A batch of vectors as one of pictures of one row."""
    (n, c, size), _ = laid
    shape = (n, c, 1, size)
    return shape, contiguous_strides(shape)


def _planned(made, way, dtype, x, weight, y, stride, padding, dilation, groups, layout):
    library, data_type = made.library, CUDNN_TYPES[dtype.name]
    half = dtype.itemsize == 2
    math = TENSOR_MATH if half else FMA_MATH if dtype.name == "float32" and not library_switches.cudnn.allow_tf32 else \
        DEFAULT_MATH_TYPE
    described = {"x": _tensor(library, data_type, x, layout), "y": _tensor(library, data_type, y, layout),
                 "w": _filter(library, data_type, weight, layout)}
    how = _made(library.cudnnCreateConvolutionDescriptor)
    sums = CUDNN_TYPES["float64" if dtype.name == "float64" else "float32"]
    call(library.cudnnSetConvolutionNdDescriptor, how, len(stride), _ints(padding), _ints(stride), _ints(dilation),
         CROSS_CORRELATION, sums)
    call(library.cudnnSetConvolutionGroupCount, how, groups)
    call(library.cudnnSetConvolutionMathType, how, math)
    order, at = ORDERS[way]
    first, second, result = (described[name] for name in order)
    chosen = _choose(made, way, first, second, how, result)
    if chosen is None:
        return None
    call(library.cudnnSetConvolutionMathType, how, chosen.math)
    numbers = _doubles if dtype.name == "float64" else _floats
    one, zero = ctypes.addressof(numbers), ctypes.addressof(numbers) + ctypes.sizeof(numbers) // 2
    function, algorithm, memory = getattr(library, f"cudnnConvolution{way}"), chosen.number, chosen.memory

    def compute(addresses, stream):
        scratch = addresses[3] if memory else None
        with made.lock:
            made.use(stream)
            call(function, made.handle, one, first, addresses[at[0]], second, addresses[at[1]], how, algorithm, scratch,
                 memory, zero, result, addresses[at[2]])

    return [HostCall(compute, f"cudnnConvolution{way} {dtype.name} algorithm {algorithm}", memory)]


def _choose(made, way, first, second, how, result):
    """The Algorithm that is taken; None where cuDNN has none for this."""
    found, count = (Algorithm * MAX_ALGORITHMS)(), ctypes.c_int()
    ask = getattr(made.library, f"cudnnGetConvolution{way}Algorithm_v7")
    if ask(made.handle, first, second, how, result, MAX_ALGORITHMS, ctypes.addressof(count), ctypes.addressof(found)):
        return None
    fit = [one for one in found[:count.value] if not one.status and one.memory <= MAX_SCRATCH_BYTES]
    return next((one for one in fit if one.determinism == DETERMINISTIC), fit[0] if fit else None)


# --- descriptors, which live as long as the process -------------------------------------------------------------------


def _made(create):
    handle = ctypes.c_void_p()
    call(create, ctypes.addressof(handle))
    return handle.value


def _tensor(library, data_type, laid, layout):
    made, (shape, _) = _made(library.cudnnCreateTensorDescriptor), laid
    strides = (channels_last_strides if layout == NHWC else contiguous_strides)(shape)
    call(library.cudnnSetTensorNdDescriptor, made, data_type, len(shape), _ints(shape), _ints(strides))
    return made


def _filter(library, data_type, laid, layout):
    made, (shape, _) = _made(library.cudnnCreateFilterDescriptor), laid
    call(library.cudnnSetFilterNdDescriptor, made, data_type, layout, len(shape), _ints(shape))
    return made


def _ints(values):
    return (ctypes.c_int * len(values))(*values)
