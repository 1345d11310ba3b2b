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


def columns(address, kind, rows, cols, ld, offset):
    """The matrix that stands column after column at `address`, `ld` elements from one to the next."""
    dtype = np.dtype(TYPES[kind])
    nbytes = ((cols - 1) * ld + rows) * dtype.itemsize
    memory = np.frombuffer((ctypes.c_char * nbytes).from_address(address + offset * dtype.itemsize), dtype)
    return np.lib.stride_tricks.as_strided(memory, (rows, cols), (dtype.itemsize, ld * dtype.itemsize))
