"""Products to which a bias is added before they are written: `a @ b + bias`, through cuBLASLt.

cuBLAS's other half can do to each element of a product what comes after it (an epilogue). It wants to be asked which of
its kernels is best for given sizes and for how even the addresses are, which takes tens of microseconds, so the answer
is kept. Sums are rounded once, to the dtype of the result, as PyTorch's are.

Its epilogue that puts a zero for what is below is not used: some of its kernels (of float16 and bfloat16 with sizes
that are no multiples of eight, on an H200 with cuBLAS 13) put one for a NaN, too. The kernel of our own for small
products does that as it should.
"""
import ctypes
import weakref

from ....base.locks import new_lock
from .. import vendor
from ..calls import HostCall
from . import products
from .products import CUDA_TYPES, DEFAULT_MATH, NO_HALF_SUMS, SCALARS, WORKSPACE_BYTES, check, compute_type, math_mode

MOST_EVEN_BYTES = 16           # an address that is a multiple of so many is as even as kernels ask for
DTYPES = ("float32", "float16", "bfloat16")

# cuBLASLt's numbers
WAY_A, WAY_B, EPILOGUE, BIAS_ADDRESS = 3, 4, 7, 8                # attributes of a product
WORKSPACE, SCHEMES = 1, 3                                        # of what is asked for,
LEAST_EVEN = 5, 6, 7, 8                                          # of the addresses of A, B, C and D
BIAS = 4                       # the epilogue
NOT_SUPPORTED = 15
CANDIDATES = 8                 # kernels that are asked for; the others are for addresses that the first is not for
NO_HALF_SCHEMES = 3            # in which parts of a sum are never kept in 16 bits

_pointer, _int, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_LT_SIGNATURES = {
    "cublasLtCreate": [_pointer],
    "cublasLtMatmulDescCreate": [_pointer, _int, _int],
    "cublasLtMatmulDescSetAttribute": [_pointer, _int, _pointer, _size],
    "cublasLtMatmulDescDestroy": [_pointer],
    "cublasLtMatrixLayoutCreate": [_pointer, _int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64],
    "cublasLtMatrixLayoutDestroy": [_pointer],
    "cublasLtMatmulPreferenceCreate": [_pointer],
    "cublasLtMatmulPreferenceSetAttribute": [_pointer, _int, _pointer, _size],
    "cublasLtMatmulPreferenceDestroy": [_pointer],
    "cublasLtMatmulAlgoGetHeuristic": [_pointer] * 7 + [_int, _pointer, _pointer],
    "cublasLtMatmul": [_pointer] * 14 + [_size, _pointer],
}

_handles: dict = {}            # device → cuBLASLt's handle


class ProposedKernel(ctypes.Structure):
    """A kernel that cuBLASLt proposes: cublasLtMatmulHeuristicResult_t."""

    _fields_ = (("kernel", ctypes.c_uint64 * 8), ("workspace_bytes", _size), ("status", _int),
                ("waves", ctypes.c_float), ("reserved", _int * 4))


def affine(dtype, a, b, bias, c, epilogue, index=0):
    """[HostCall] or [LaunchCall] for c = a @ b + bias, matrices and a vector as (shape, strides); None where there is
    none. The addresses are those of a, b, bias and c. The epilogue "relu" leaves nothing below zero; small products
    alone have it, and "bias" is the other."""
    if dtype.name not in CUDA_TYPES or len(c[0]) != 2 or bias != ((c[0][1],), (1,)):
        return None
    if products.is_small(a, c):
        found = products.small(dtype, a, b, c, epilogue)
        if found is not None:
            return [found]
    call = products.lay_out(a, b, c)
    if epilogue != "bias" or dtype.name not in DTYPES or call is None or not call.turned or blas_lt() is None \
            or products.blas() is None or len(products.parts_of(call, dtype.itemsize)) > 1:
        return None
    with vendor.on(index):
        product = AffineProduct(call, dtype, index)
        if not product.is_possible():
            return None
    says = f"cublasLtMatmul {dtype.name} {call.m} x {call.n} x {call.k} + bias"
    return [HostCall(product, says, prepare=products.preparing(index))]


def blas_lt():
    """cuBLASLt; None where it is not there."""
    library = vendor.load("cublasLt")
    if library is not None and isinstance(library, ctypes.CDLL) and library.cublasLtCreate.argtypes is None:
        vendor.declare(library, _LT_SIGNATURES)
    return library


def forget():
    """Let go of all handles: the driver has changed."""
    _handles.clear()


class AffineProduct:
    """What a Call is to cuBLASLt, with a bias: called with the addresses of a, b, bias and c, and a stream."""

    def __init__(self, call, dtype, index):
        self.call, self.dtype, self.index = call, dtype, index
        self.library = blas_lt()
        self.handle = _handles.get(index) or _handles.setdefault(index, _made(self.library, "cublasLtCreate"))
        data_type, (m, n, k) = CUDA_TYPES[dtype.name], (call.m, call.n, call.k)
        self.a = self._new("cublasLtMatrixLayout", data_type, *((k, m) if call.a.way else (m, k)), call.a.ld)
        self.b = self._new("cublasLtMatrixLayout", data_type, *((n, k) if call.b.way else (k, n)), call.b.ld)
        self.c = self._new("cublasLtMatrixLayout", data_type, m, n, call.c.ld)
        self.products = {}     # compute type → a description of the product
        self.kernels = {}      # (compute type, math mode, how even each address is) → [ProposedKernel], the best first
        self.using = new_lock()                   # a description holds the address of the bias for the time of a call

    def __call__(self, addresses, stream):
        b, a, bias, c = addresses                 # the transposes of all three; see products.py
        made = products.session(self.index, stream)
        compute, math = compute_type(self.dtype), math_mode(self.dtype) if self.dtype.itemsize == 2 else DEFAULT_MATH
        one, zero = SCALARS[compute]
        even = tuple([min(at & -at, MOST_EVEN_BYTES) for at in (a, b, c, bias)])
        with self.using:
            kernels = self.kernels.get((compute, math, even)) or self._choose(compute, math, even)
            product = self._product(compute)
            self._set(product, BIAS_ADDRESS, ctypes.c_uint64(bias))
            while True:
                status = self.library.cublasLtMatmul(
                    self.handle, product, one, a, self.a, b, self.b, zero, c, self.c, c, self.c,
                    ctypes.addressof(kernels[0].kernel), made.workspace.address, kernels[0].workspace_bytes, stream)
                if status != NOT_SUPPORTED or len(kernels) == 1:
                    break
                del kernels[0]                    # proposed, and then refused: so it goes for some odd addresses
            check(status, "cublasLtMatmul")

    def is_possible(self):
        """Whether cuBLASLt has a kernel, wherever the matrices begin."""
        anywhere = (self.dtype.itemsize,) * 4
        return all(self._find(compute_type(self.dtype), math, anywhere) for math in (DEFAULT_MATH, NO_HALF_SUMS))

    def _choose(self, compute, math, even):
        found = self._find(compute, math, even) + self._find(compute, math, (self.dtype.itemsize,) * 4)
        if not found:
            raise vendor.VendorError(f"cublasLtMatmulAlgoGetHeuristic has no kernel for {self.dtype.name} "
                                     f"{self.call.m} x {self.call.n} x {self.call.k}")
        self.kernels[compute, math, even] = found
        return found

    def _find(self, compute, math, even):
        """Kernels for addresses that are multiples of `even` bytes, the best first, as [ProposedKernel]."""
        asked = self._new("cublasLtMatmulPreference")
        self._set(asked, WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES), "Preference")
        if math != DEFAULT_MATH:
            self._set(asked, SCHEMES, ctypes.c_uint32(NO_HALF_SCHEMES), "Preference")
        for attribute, least in zip(LEAST_EVEN, even, strict=True):
            self._set(asked, attribute, ctypes.c_uint32(least), "Preference")
        found, count, matrices = (ProposedKernel * CANDIDATES)(), ctypes.c_int(), (self.a, self.b, self.c, self.c)
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            self.handle, self._product(compute), *matrices, asked, CANDIDATES, ctypes.addressof(found),
            ctypes.addressof(count))
        return [one for one in found[:0 if status else count.value] if not one.status]

    def _product(self, compute):
        """The description of the product."""
        found = self.products.get(compute)
        if found is None:
            found = self.products[compute] = self._new("cublasLtMatmulDesc", compute, CUDA_TYPES["float32"])
            for attribute, value in ((WAY_A, self.call.a.way), (WAY_B, self.call.b.way), (EPILOGUE, BIAS)):
                self._set(found, attribute, ctypes.c_int32(value))
        return found

    def _new(self, object_name, *given):
        """A description of cuBLASLt's, there as long as this."""
        made = _made(self.library, f"{object_name}Create", *given)
        weakref.finalize(self, getattr(self.library, f"{object_name}Destroy"), made).atexit = False
        return made

    def _set(self, what, attribute, value, object_name="Desc"):
        check(getattr(self.library, f"cublasLtMatmul{object_name}SetAttribute")(
            what, attribute, ctypes.addressof(value), ctypes.sizeof(value)), f"cublasLtMatmul{object_name}SetAttribute")


def _made(library, name, *given):
    """What a function of cuBLASLt's makes."""
    made = ctypes.c_void_p()
    check(getattr(library, name)(ctypes.addressof(made), *given), name)
    return made.value
