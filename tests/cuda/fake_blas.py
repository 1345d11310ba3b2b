"""cuBLAS as a class over the CPU's memory: the functions that we call, with their arguments checked as cuBLAS does."""
import ctypes

import ml_dtypes
import numpy as np

TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
COMPUTES = {68: np.float32, 70: np.float64, 77: np.float32}
SCALARS = {68: ctypes.c_float, 70: ctypes.c_double, 77: ctypes.c_float}


class FakeBLAS:
    """Notes in `log` which functions were called."""

    def __init__(self):
        self.log = []

    def cublasCreate_v2(self, handle):
        ctypes.c_void_p.from_address(handle).value = 0xB1A5
        return 0

    def cublasSetStream_v2(self, handle, stream):
        self.log.append(("stream", stream))
        return int(handle != 0xB1A5)

    def cublasSetWorkspace_v2(self, handle, address, nbytes):
        return int(handle != 0xB1A5 or not address or address % 256 or nbytes <= 0)

    def cublasSetMathMode(self, handle, mode):
        self.log.append(("math", mode))
        return 0

    def cublasGemmEx_64(self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc,
                        compute, algorithm):
        return self.cublasGemmStridedBatchedEx_64(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype,
                                                  ldb, 0, beta, C, Ctype, ldc, 0, 1, compute, algorithm)

    def cublasGemmStridedBatchedEx_64(self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, stridea, B, Btype,
                                      ldb, strideb, beta, C, Ctype, ldc, stridec, count, compute, algorithm):
        self.log.append(("gemm", compute))
        assert handle == 0xB1A5 and algorithm == -1 and transa in (0, 1) and transb in (0, 1)
        assert lda >= max(1, k if transa else m) and ldb >= max(1, n if transb else k) and ldc >= max(1, m)
        assert count == 1 or stridec >= ldc * (n - 1) + m, "results of a batch overlap"
        kind = SCALARS[compute]
        one, adds = kind.from_address(alpha).value, kind.from_address(beta).value
        assert one == 1 and adds in (0, 1)
        for i in range(count):
            a = columns(A, Atype, *((k, m) if transa else (m, k)), lda, i * stridea).astype(COMPUTES[compute])
            b = columns(B, Btype, *((n, k) if transb else (k, n)), ldb, i * strideb).astype(COMPUTES[compute])
            c = columns(C, Ctype, m, n, ldc, i * stridec)
            made = (a.T if transa else a) @ (b.T if transb else b)
            c[...] = (made + c.astype(made.dtype) if adds else made).astype(c.dtype)
        return 0


class FakeLt:
    """cuBLASLt over the CPU's memory. What it makes are dictionaries, known by numbers; `log` has what was multiplied.

    Kernels that ask for even addresses are proposed where those are said to be even, and refuse others.
    """

    EVEN, ANY = 16, 1             # what kernels ask for, the quicker first
    ATTRIBUTES = {3: ("transa", ctypes.c_int32), 4: ("transb", ctypes.c_int32), 7: ("epilogue", ctypes.c_int32),
                  8: ("bias", ctypes.c_uint64)}
    PREFERENCES = {1: ctypes.c_uint64, **dict.fromkeys((3, 5, 6, 7, 8), ctypes.c_uint32)}

    def __init__(self):
        self.log, self.things, self.count = [], {}, 0

    def _new(self, place, **thing):
        self.count += 1
        self.things[self.count] = thing
        ctypes.c_void_p.from_address(place).value = self.count
        return 0

    def _destroy(self, thing):
        del self.things[thing]
        return 0

    cublasLtMatmulDescDestroy = cublasLtMatrixLayoutDestroy = cublasLtMatmulPreferenceDestroy = _destroy

    def cublasLtCreate(self, handle):
        ctypes.c_void_p.from_address(handle).value = 0x17
        return 0

    def cublasLtMatmulDescCreate(self, place, compute, scale):
        assert scale == 0
        return self._new(place, compute=compute, transa=0, transb=0)

    def cublasLtMatmulDescSetAttribute(self, thing, attribute, value, nbytes):
        name, kind = self.ATTRIBUTES[attribute]
        assert nbytes == ctypes.sizeof(kind)
        self.things[thing][name] = kind.from_address(value).value
        return 0

    def cublasLtMatrixLayoutCreate(self, place, kind, rows, cols, ld):
        assert ld >= rows
        return self._new(place, kind=kind, rows=rows, cols=cols, ld=ld)

    def cublasLtMatmulPreferenceCreate(self, place):
        return self._new(place)

    def cublasLtMatmulPreferenceSetAttribute(self, thing, attribute, value, nbytes):
        kind = self.PREFERENCES[attribute]
        assert nbytes == ctypes.sizeof(kind)
        self.things[thing][attribute] = kind.from_address(value).value
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, handle, desc, a, b, c, d, preference, most, found, count):
        assert handle == 0x17 and c == d and self.things[desc]["epilogue"] == 4
        asked = self.things[preference]
        kernels = [even for even in (self.EVEN, self.ANY) if all(asked[at] >= even for at in (5, 6, 7, 8))][:most]
        for i, even in enumerate(kernels):
            ctypes.c_uint64.from_address(found + 96 * i).value = even
            ctypes.c_size_t.from_address(found + 96 * i + 64).value = 0
            ctypes.c_int.from_address(found + 96 * i + 72).value = 0
        ctypes.c_int.from_address(count).value = len(kernels)
        return 0

    def cublasLtMatmul(self, handle, desc, alpha, A, a, B, b, beta, C, c, D, d, kernel, workspace, nbytes, stream):
        even = ctypes.c_uint64.from_address(kernel).value
        product = dict(self.things[desc])
        if any(address % even for address in (A, B, C, product["bias"])):
            return 15
        assert handle == 0x17 and C == D and c == d and workspace and nbytes == 0
        self.log.append(("affine", product["compute"], even))
        left, right, made = (dict(self.things[one]) for one in (a, b, c))
        return self.when(stream, lambda: self._multiply(product, A, left, B, right, C, made))

    def when(self, stream, work):
        """Do work that was put on a stream; what it is worth."""
        work()
        return 0

    def _multiply(self, product, A, left, B, right, C, made):
        a, b, c = (columns(address, one["kind"], one["rows"], one["cols"], one["ld"], 0)
                   for address, one in ((A, left), (B, right), (C, made)))
        wide = COMPUTES[product["compute"]]
        a, b = (x.astype(wide).T if product[way] else x.astype(wide) for x, way in ((a, "transa"), (b, "transb")))
        bias = columns(product["bias"], made["kind"], made["rows"], 1, made["rows"], 0)
        c[...] = (a @ b + bias.astype(wide)).astype(c.dtype)


def columns(address, kind, rows, cols, ld, offset):
    """The matrix that stands column after column at `address`, `ld` elements from one to the next."""
    dtype = np.dtype(TYPES[kind])
    nbytes = ((cols - 1) * ld + rows) * dtype.itemsize
    memory = np.frombuffer((ctypes.c_char * nbytes).from_address(address + offset * dtype.itemsize), dtype)
    return np.lib.stride_tricks.as_strided(memory, (rows, cols), (dtype.itemsize, ld * dtype.itemsize))
