"""Products of matrices on a GPU, through cuBLAS: float32, float64, and float16 and bfloat16 with sums in float32.

cuBLAS knows matrices whose columns lie one after the other, with a distance between them (`ld`), as they are or
transposed. A matrix of ours that lies row by row is the transpose of such a one, and so is a transposed view; others
are copied by the plan first (`gemm` answers None). A result that lies row by row is made as the transpose it is:
C' = B' A'. Batches that lie evenly, or are shared, are one call; others are one for each matrix of their outer
dimensions, up to MAX_CALLS of them.

Small products are kernels of our own, over any strides: they stand among a program's launches, where a call of cuBLAS
would have to come from Python, and take as long.

Note [Odd sizes]: for 16-bit elements, cuBLAS has quick kernels only where every matrix has a multiple of eight elements
along the way that it lies. A large product that has not is cut in two: the part that has, and the few rows or columns
that are left, which cost next to nothing. Where it is the sums that are cut, the second part is added to the first.

Note [TF32]: as in PyTorch, float32 products are exact unless `torch.backends.cuda.matmul.allow_tf32` is set, or
`set_float32_matmul_precision` is not "highest". It is looked up at every call.
"""
import ctypes
import functools
from itertools import product
from math import prod
from typing import NamedTuple

from ....base.shapes import merged_dims
from ... import library_switches
from .. import vendor
from ..calls import HostCall, LaunchCall
from . import elements

WORKSPACE_BYTES = 32 << 20     # what PyTorch gives cuBLAS on Hopper; less elsewhere would do
MAX_CALLS = 64                 # of cuBLAS for one product; with more, a copy is quicker
MAX_SMALL = 1 << 21            # multiplications of a small product, in all
MAX_SMALL_DEPTH = 512          # of each of its elements
SMALL_TILE, SMALL_THREADS = 16, 256       # a thread for each element of a tile
EVEN_BYTES = 16                # what lies side by side comes in so many for the quick kernels; see Note [Odd sizes]
MIN_CUT_SIZE = 1 << 10         # of the way that a product is cut along
MIN_CUT = 1 << 30              # multiplications of a product that is worth it
MAX_GRID_ROWS = 65535          # of a launch's second dimension

# cuBLAS's and CUDA's numbers
AS_IT_IS, TRANSPOSED = 0, 1
CUDA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
COMPUTE_FLOAT, COMPUTE_DOUBLE, COMPUTE_TF32 = 68, 70, 77
DEFAULT_MATH, NO_HALF_SUMS = 0, 16       # the second: no partial sums in 16 bits
DEFAULT_ALGORITHM = -1

_int, _long, _pointer = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
_SIGNATURES = {
    "cublasCreate_v2": [_pointer],
    "cublasSetStream_v2": [_pointer, _pointer],
    "cublasSetWorkspace_v2": [_pointer, _pointer, ctypes.c_size_t],
    "cublasSetMathMode": [_pointer, _int],
    "cublasGemmEx_64": [_pointer, _int, _int, _long, _long, _long, _pointer, _pointer, _int, _long, _pointer, _int,
                        _long, _pointer, _pointer, _int, _long, _int, _int],
    "cublasGemmStridedBatchedEx_64": [_pointer, _int, _int, _long, _long, _long, _pointer, _pointer, _int, _long, _long,
                                      _pointer, _int, _long, _long, _pointer, _pointer, _int, _long, _long, _long,
                                      _int, _int],
}
_single, _double = (ctypes.c_float * 2)(1, 0), (ctypes.c_double * 2)(1, 0)
SCALARS = {COMPUTE_FLOAT: (ctypes.addressof(_single), ctypes.addressof(_single) + 4),           # one, zero
           COMPUTE_DOUBLE: (ctypes.addressof(_double), ctypes.addressof(_double) + 8)}
SCALARS[COMPUTE_TF32] = SCALARS[COMPUTE_FLOAT]

_sessions: dict = {}           # (device, stream) → Session


class Side(NamedTuple):
    """A matrix as cuBLAS sees it: as it is or transposed, the distance of its columns, and that of a batch's."""

    way: int
    ld: int
    step: int


class Call(NamedTuple):
    """A product as cuBLAS takes it: C (m × n) of A and B, `count` times; `turned`: the operands are exchanged.

    `outer` are the offsets in elements of A, B and C of every call.
    """

    turned: bool
    m: int
    n: int
    k: int
    a: Side
    b: Side
    c: Side
    count: int
    outer: tuple


def gemm(dtype, a, b, c, index=0):
    """[HostCall] or [LaunchCall] for c = a @ b, all (shape, strides) with leading dimensions that broadcast; None where
    there is none. The addresses are those of a, b and c."""
    if dtype.name not in CUDA_TYPES:
        return None
    if is_small(a, c):
        found = small(dtype, a, b, c)
        if found is not None:
            return [found]
    call = lay_out(a, b, c)
    if call is None or blas() is None:
        return None
    says = f"cublasGemm{'StridedBatched' * (call.count > 1)}Ex {dtype.name} {call.m} x {call.n} x {call.k}"
    return [HostCall(_bound(call, dtype, index), says, prepare=preparing(index))]


def blas():
    """cuBLAS; None where it is not there."""
    library = vendor.load("cublas")
    if library is not None and isinstance(library, ctypes.CDLL) and library.cublasCreate_v2.argtypes is None:
        vendor.declare(library, _SIGNATURES)
    return library


# --- small products ---------------------------------------------------------------------------------------------------


def is_small(a, c):
    """Whether a product, given as (shape, strides) of A and C, is quicker as a kernel of our own."""
    return prod(c[0]) * a[0][-1] <= MAX_SMALL and a[0][-1] <= MAX_SMALL_DEPTH


def small(dtype, a, b, c, epilogue=""):
    """A LaunchCall for a small product, over any strides; None where a batch has too many dimensions. With the epilogue
    "bias" a vector, given before the result, is added to every row, and with "relu" nothing below zero is left."""
    (m, n), k, batch = c[0][-2:], a[0][-1], c[0][:-2]
    dims = merged_dims(batch, [_batch_strides(laid, len(batch)) for laid in (a, b, c)])
    if 0 in (m, n, k, *batch) or len(dims) > 2 or prod(batch) > MAX_GRID_ROWS:
        return None
    (outer, *steps), (inner, *by) = [(1, 0, 0, 0)] * (2 - len(dims)) + dims
    tiles = -(-m // SMALL_TILE), -(-n // SMALL_TILE)
    ints = (m, n, k, *a[1][-2:], *b[1][-2:], *c[1][-2:], inner, *steps, *by, tiles[1])
    return LaunchCall(_small_source(dtype, epilogue), "multiply", (tiles[0] * tiles[1], outer * inner, 1),
                      (SMALL_THREADS, 1, 1), 0, ints)


def _small_source(dtype, epilogue):
    ints = ["m", "n", "k", "am", "ak", "bk", "bn", "cm", "cn", "inner", "outer_a", "outer_b", "outer_c", "inner_a",
            "inner_b", "inner_c", "tiles_n"]
    given = ["a", "b", "bias", "c"] if epilogue else ["a", "b", "c"]
    text = _MULTIPLY.replace("TILE", str(SMALL_TILE)).replace("THREADS", str(SMALL_THREADS))
    return elements.opening(dtype) + elements.params(given, ints) + text.replace("EPILOGUE", _EPILOGUES[epilogue])


# What is done to an element of a product before it is written; a NaN stays one.
_EPILOGUES = {"": "", "bias": "sum += widen(((const E *)p.bias)[n]);"}
_EPILOGUES["relu"] = _EPILOGUES["bias"] + " sum = sum <= 0 ? (W)0 : sum;"


# A block makes a tile of the result, each thread an element; both factors come by way of shared memory, so many of k at
# a time, the next ones under way meanwhile. Every element adds its products in the order of k. What counts is not how
# much is computed but how long one waits for memory: the tiles are small, so that there are many of them.
_MULTIPLY = """
#undef DEPTH
#define DEPTH 32
#undef EACH
#define EACH (TILE * DEPTH / THREADS)
extern "C" __global__ void __launch_bounds__(THREADS) multiply(const Params p) {
    __shared__ W left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
    long long outer = blockIdx.y / p.inner, inner = blockIdx.y % p.inner;
    const E *a = (const E *)p.a + outer * p.outer_a + inner * p.inner_a;
    const E *b = (const E *)p.b + outer * p.outer_b + inner * p.inner_b;
    E *c = (E *)p.c + outer * p.outer_c + inner * p.inner_c;
    int top = (int)(blockIdx.x / p.tiles_n) * TILE, first = (int)(blockIdx.x % p.tiles_n) * TILE, depth = (int)p.k;
    int row = (int)threadIdx.x / TILE, col = (int)threadIdx.x % TILE;
    bool a_lies = p.ak == 1, b_lies = p.bn == 1;             // which of its dimensions neighbours go along
    int am[EACH], ak[EACH], bk[EACH], bn[EACH];              // what this thread fetches of each
    W next_a[EACH], next_b[EACH];
    for (int e = 0; e < EACH; e++) {
        int i = (int)threadIdx.x + e * THREADS;
        am[e] = a_lies ? i / DEPTH : i % TILE, ak[e] = a_lies ? i % DEPTH : i / TILE;
        bn[e] = b_lies ? i % TILE : i / DEPTH, bk[e] = b_lies ? i / TILE : i % DEPTH;
        next_a[e] = top + am[e] < p.m && ak[e] < depth ? widen(a[(top + am[e]) * p.am + ak[e] * p.ak]) : (W)0;
        next_b[e] = first + bn[e] < p.n && bk[e] < depth ? widen(b[bk[e] * p.bk + (first + bn[e]) * p.bn]) : (W)0;
    }
    W sum = 0;
    for (int start = 0; start < depth; start += DEPTH) {
        for (int e = 0; e < EACH; e++) left[ak[e]][am[e]] = next_a[e], right[bk[e]][bn[e]] = next_b[e];
        __syncthreads();
        int after = start + DEPTH;
        if (after < depth) {
            for (int e = 0; e < EACH; e++) {
                int k = after + ak[e];
                next_a[e] = top + am[e] < p.m && k < depth ? widen(a[(top + am[e]) * p.am + k * p.ak]) : (W)0;
                k = after + bk[e];
                next_b[e] = first + bn[e] < p.n && k < depth ? widen(b[k * p.bk + (first + bn[e]) * p.bn]) : (W)0;
            }
        }
        if (after <= depth) {
            #pragma unroll
            for (int k = 0; k < DEPTH; k++) sum = fma(left[k][row], right[k][col], sum);
        } else {
            #pragma unroll 8
            for (int k = 0; k < depth - start; k++) sum = fma(left[k][row], right[k][col], sum);
        }
        __syncthreads();
    }
    int m = top + row, n = first + col;
    if (m < p.m && n < p.n) {
        EPILOGUE
        c[m * p.cm + n * p.cn] = narrow(sum);
    }
}
"""


# --- layout -----------------------------------------------------------------------------------------------------------


def lay_out(a, b, c):
    """The Call for operands and a result given as (shape, strides); None where cuBLAS cannot take them as they lie."""
    (m, n), k, batch = c[0][-2:], a[0][-1], c[0][:-2]
    if 0 in (m, n, k, *batch):
        return None
    dims = merged_dims(batch, [_batch_strides(laid, len(batch)) for laid in (a, b, c)]) or [(1, 0, 0, 0)]
    *around, (count, *by) = dims                  # the innermost is cuBLAS's own
    if prod([one[0] for one in around]) > MAX_CALLS:
        return None
    outer = tuple([tuple(sum(i * one[side] for i, one in zip(at, around, strict=True)) for side in (1, 2, 3))
                   for at in product(*[range(one[0]) for one in around])])
    (am, ak), (bk, bn), (cm, cn) = (laid[1][-2:] for laid in (a, b, c))
    for turned in (True, False):
        if turned:                                # the transposes of all three
            sides = seen(n, k, bn, bk), seen(k, m, ak, am), seen(n, m, cn, cm)
            steps = by[1], by[0], by[2]
        else:
            sides = seen(m, k, am, ak), seen(k, n, bk, bn), seen(m, n, cm, cn)
            steps = by
        result = sides[2]
        if None not in sides and result[0] == AS_IT_IS:
            rows, cols = (n, m) if turned else (m, n)
            return Call(turned, rows, cols, k, *[Side(*side, step) for side, step in zip(sides, steps, strict=True)],
                        count, outer)
    return None


def seen(rows, cols, down, right):
    """(as it is or transposed, ld) of a matrix with these strides; None where it is neither."""
    if (down == 1 or rows == 1) and (cols == 1 or right >= rows):
        return AS_IT_IS, right if cols > 1 else rows
    if (right == 1 or cols == 1) and (rows == 1 or down >= cols):
        return TRANSPOSED, down if rows > 1 else cols
    return None


def _batch_strides(laid, rank):
    shape, strides = laid
    return [0] * (rank - len(shape) + 2) + [0 if n == 1 else s for n, s in zip(shape[:-2], strides[:-2], strict=True)]


# --- calling ----------------------------------------------------------------------------------------------------------


class Session:
    """cuBLAS for one stream of a device: a handle, with a workspace of its own, so that results do not depend on what
    other streams do."""

    def __init__(self, library, index, stream):
        handle = ctypes.c_void_p()
        check(library.cublasCreate_v2(ctypes.addressof(handle)), "cublasCreate")
        self.handle, self.library = handle.value, library
        self.workspace = vendor.workspace(index, WORKSPACE_BYTES)
        check(library.cublasSetStream_v2(self.handle, stream), "cublasSetStream")
        check(library.cublasSetWorkspace_v2(self.handle, self.workspace.address, WORKSPACE_BYTES), "cublasSetWorkspace")
        self.math = DEFAULT_MATH

    def use(self, math):
        if math != self.math:
            check(self.library.cublasSetMathMode(self.handle, math), "cublasSetMathMode")
            self.math = math


def session(index, stream):
    """The Session of a device's stream."""
    found = _sessions.get((index, stream))
    if found is None:
        found = _sessions.setdefault((index, stream), Session(blas(), index, stream))
    return found


@functools.cache
def preparing(index):
    """A function of a stream that makes its Session, the same for all calls on a device."""
    return functools.partial(session, index)


def forget():
    """Let go of all handles and workspaces: the driver has changed."""
    _sessions.clear()


def compute_type(dtype):
    """What cuBLAS adds up in; see Note [TF32]."""
    if dtype.name == "float64":
        return COMPUTE_DOUBLE
    return COMPUTE_TF32 if dtype.name == "float32" and library_switches.cuda.matmul.allow_tf32 else COMPUTE_FLOAT


def math_mode(dtype):
    """Whether partial sums may be kept in 16 bits: PyTorch's switches, which allow it."""
    matmul = library_switches.cuda.matmul
    allowed = {"float16": matmul.allow_fp16_reduced_precision_reduction,
               "bfloat16": matmul.allow_bf16_reduced_precision_reduction}.get(dtype.name, True)
    return DEFAULT_MATH if allowed else NO_HALF_SUMS


def check(status, name):
    if status:
        raise vendor.VendorError(f"{name} gave status {status}")


class CallPart(NamedTuple):
    """A part of a Call: its sizes, where its matrices begin, in elements, and whether it is added to what is there."""

    m: int
    n: int
    k: int
    at: tuple                  # of A, B and C
    adds: bool


def parts_of(call, size):
    """A Call in CallParts, one after the other, for elements of so many bytes; see Note [Odd sizes]."""
    m, n, k, a, b, c = call.m, call.n, call.k, call.a, call.b, call.c
    whole, even = [CallPart(m, n, k, (0, 0, 0), False)], EVEN_BYTES // size
    if size != 2 or m * n * k < MIN_CUT or any(side.ld % even or side.step % even for side in (a, b, c)):
        return whole
    along = {"m" if a.way == AS_IT_IS else "k", "k" if b.way == AS_IT_IS else "n", "m"}
    odd = [way for way in "mnk" if way in along and getattr(call, way) % even]
    if len(odd) != 1 or getattr(call, odd[0]) < MIN_CUT_SIZE:
        return whole
    way, = odd
    length = getattr(call, way)
    first = length - length % even
    steps = {"m": (1 if a.way == AS_IT_IS else a.ld, 0, 1), "n": (0, b.ld if b.way == AS_IT_IS else 1, c.ld),
             "k": (a.ld if a.way == AS_IT_IS else 1, 1 if b.way == AS_IT_IS else b.ld, 0)}[way]
    return [whole[0]._replace(**{way: first}),
            whole[0]._replace(**{way: length - first}, at=tuple(first * step for step in steps), adds=way == "k")]


def _bound(call, dtype, index):
    """`fn(addresses, stream)` that has cuBLAS compute `call`."""
    type, size = CUDA_TYPES[dtype.name], dtype.itemsize
    a, b, c = call.a, call.b, call.c
    left, right = (1, 0) if call.turned else (0, 1)
    calls = [(part.m, part.n, part.k, part.adds, (outer[left] + part.at[0]) * size, (outer[right] + part.at[1]) * size,
              (outer[2] + part.at[2]) * size) for outer in call.outer for part in parts_of(call, size)]

    def multiply(addresses, stream):
        made = _sessions.get((index, stream)) or session(index, stream)
        math = math_mode(dtype) if size == 2 else DEFAULT_MATH
        if math != made.math:
            made.use(math)
        compute = compute_type(dtype)
        one, zero = SCALARS[compute]
        for m, n, k, adds, at_a, at_b, at_c in calls:
            first, second, result = addresses[left] + at_a, addresses[right] + at_b, addresses[2] + at_c
            beta = one if adds else zero
            if call.count == 1:
                status = made.library.cublasGemmEx_64(
                    made.handle, a.way, b.way, m, n, k, one, first, type, a.ld, second, type, b.ld, beta, result, type,
                    c.ld, compute, DEFAULT_ALGORITHM)
            else:
                status = made.library.cublasGemmStridedBatchedEx_64(
                    made.handle, a.way, b.way, m, n, k, one, first, type, a.ld, a.step, second, type, b.ld, b.step,
                    beta, result, type, c.ld, c.step, call.count, compute, DEFAULT_ALGORITHM)
            check(status, "cublasGemmEx")

    return multiply
