"""Products of matrices of 8-bit integers, and of floats with weights that are kept in 8 bits.

The native executor multiplies them by the processor's unit for such numbers, where it has one
(backends/cpu/library/gemm_units.py); elsewhere in floats that hold every sum exactly.
"""
from ..base import dtypes
from ..base.errors import need
from ..base.op import Op
from ..base.spec import spec
from .matmul import mm, only_tensors

EXACT_FLOAT32_K = 512         # of k, up to which float32 holds every sum of products of 8-bit numbers


class _int_mm(Op):
    """The product of two matrices of int8 (the first may be uint8) in int32.

    >>> torch._int_mm(torch.tensor([[100, 2]], dtype=torch.int8), torch.tensor([[100], [-1]], dtype=torch.int8))
    tensor([[9998]], dtype=torch.int32)
    """

    names = "_int_mm"
    forms = "function out"
    strict_out = True

    def meta(input, mat2):
        only_tensors(input=input, mat2=mat2)
        need(input.ndim == 2, f"int_mm_out_cpu: Expected self to be of dimension 2 but got {input.ndim}")
        need(mat2.ndim == 2, "Dimension out of range (expected to be in range of [-1, 0], but got 1): mat2 must be a "
                             f"matrix, got {mat2.ndim}-D tensor", IndexError)
        need(input.shape[1] == mat2.shape[0], "int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got "
                                              f"{input.shape[1]} and {mat2.shape[0]}")
        need(input.dtype in (dtypes.int8, dtypes.uint8),
             f"int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got {input.dtype.cname.lower()}")
        need(mat2.dtype is dtypes.int8,
             f"int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got {mat2.dtype.cname.lower()}")
        return spec(dtypes.int32, (input.shape[0], mat2.shape[1]), None, input.device)

    def ref(xp, input, mat2):            # exact in float64, whose products NumPy does not make one by one
        return xp.matmul(input.astype(xp.float64), mat2.astype(xp.float64)).astype(xp.int64).astype(xp.int32)

    def body(k, input, mat2):
        if input.dtype is mat2.dtype:
            made = k.library("gemm", (input, mat2), [(dtypes.int32, (input.shape[0], mat2.shape[1]))], ("i32",))
            if made is not None:
                return made[0]
        exact = dtypes.float32 if input.shape[1] <= EXACT_FLOAT32_K else dtypes.float64
        return k.cast(k.cast(k.matmul(k.cast(input, exact), k.cast(mat2, exact)), dtypes.int64), dtypes.int32)


class _weight_int8pack_mm(Op):
    """`input` times the transpose of `mat2`, a weight in int8, whose rows are `scales` times as large as they stand
    there.

    >>> torch._weight_int8pack_mm(torch.ones(1, 2), torch.tensor([[3, 4]], dtype=torch.int8), torch.tensor([0.5]))
    tensor([[3.5000]])
    """

    names = "_weight_int8pack_mm"
    forms = "function"

    def meta(input, mat2, scales):
        only_tensors(input=input, mat2=mat2, scales=scales)
        words = "_weight_int8pack_mm_cpu : "
        need(input.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16),
             f"{words}expect A to be either 32-bit or 16-bit float tensor.")
        need(input.ndim == 2 and mat2.ndim == 2, "Dimension out of range (expected to be in range of [-1, 0], but got "
             f"1): {words}A and B are matrices, got {input.ndim}-D and {mat2.ndim}-D", IndexError)
        need(input.strides[1] == 1 or input.shape[1] == 1, f"{words}A must be contiguous on the last dimension.")
        need(mat2.dtype is dtypes.int8, f"{words}expect B to be int8 tensor.")
        need(mat2.contiguous, f"{words}expect B to be contiguous.")
        need(mat2.shape[1] == input.shape[1], f"{words}expect B.size(1) == {input.shape[1]}")
        need(scales.shape == mat2.shape[:1],
             f"{words}expect scales to be 1d tensor with size {mat2.shape[0]}")
        need(scales.dtype is input.dtype,
             f"expected scalar type {input.dtype.cname} but found {scales.dtype.cname}")
        return spec(input.dtype, (input.shape[0], mat2.shape[0]), None, input.device)

    def ref(xp, input, mat2, scales):
        return xp.matmul(input, mat2.astype(input.dtype).T) * scales

    def d_input(g, mat2, scales):
        return mm(g * scales, mat2.to(g.dtype))

    def body(k, input, mat2, scales):
        # a 16-bit float holds all numbers of 8 bits, and is multiplied so
        weight = mat2 if k.half is None else k.cast(mat2, k.half)
        return k.matmul(input, k.permute(k.cast(weight, input.dtype), (1, 0))) * scales
