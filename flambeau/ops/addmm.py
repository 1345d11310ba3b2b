"""A product of matrices or vectors that is added to something."""
from ..base import dtypes
from ..base.arguments import as_scalar
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .arith import conj
from .matmul import (
    C_TYPE_NAMES,
    OUT_DTYPE_HINT,
    adjoint,
    affine_spec,
    bmm,
    d_left,
    d_right,
    mv,
    need_batches,
    need_expandable,
    need_inner,
    only_tensors,
    outer,
    product,
    refuse_dtype,
)


def plus(xp, input, beta, product, alpha):
    """`beta` times `input` plus `alpha` times `product`. A beta of zero leaves `input` out, whatever it holds."""
    dtype = dtypes.from_numpy(product.dtype)
    beta, alpha = as_scalar(beta, dtype), as_scalar(alpha, dtype)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (input if beta == 1 else input * beta)


def added(k, input, beta, made, alpha):
    """`plus` in a body."""
    return made if made is NotImplemented else made * alpha + k.where(beta == 0, 0, input * beta)


def old_orders(left, right):
    """The orders in which PyTorch once took the arguments of a product that is added, as function and as method."""
    tail = f"{left} {right}"
    return f"beta input alpha {tail}", f"beta input {tail}", f"input beta alpha {tail}", f"input beta {tail}"


def times(g, factor):
    """`g` times the conjugate of a Python number."""
    return g if factor == 1 else g * conj(factor)


class addmm(Op):
    """`beta` times `input` plus `alpha` times the matrix product of `mat1` and `mat2`."""

    forms = "function method inplace out"
    deprecated = old_orders("mat1", "mat2")
    refused = OUT_DTYPE_HINT
    scalars = ("beta", "alpha")
    must_fit = {"beta": "compute", "alpha": "compute"}
    strict_out = True

    def meta(input, mat1, mat2, *, beta=1, alpha=1):
        return affine_spec(input, mat1, mat2)

    def ref(xp, input, mat1, mat2, *, beta=1, alpha=1): return plus(xp, input, beta, xp.matmul(mat1, mat2), alpha)
    def d_input(g, beta):                  return times(g, beta)
    def d_mat1(g, mat1_spec, mat2, alpha): return times(d_left(g, mat2, mat1_spec), alpha)
    def d_mat2(g, mat1, mat2_spec, alpha): return times(d_right(g, mat1, mat2_spec), alpha)

    def body(k, input, mat1, mat2, *, beta=1, alpha=1):
        return added(k, input, beta, product(k, mat1, mat2), alpha)


class addmv(Op):
    """`beta` times `input` plus `alpha` times the product of the matrix `mat` and the vector `vec`."""

    forms = "function method inplace out"
    deprecated = old_orders("mat", "vec")
    scalars = ("beta", "alpha")
    must_fit = {"beta": "dtype", "alpha": "dtype"}
    strict_out = True

    def meta(input, mat, vec, *, beta=1, alpha=1):
        only_tensors(input=input, mat=mat, vec=vec)
        need(input.ndim <= 1 and mat.ndim == 2 and vec.ndim == 1,
             f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}")
        (n, k), (l,) = mat.shape, vec.shape
        size = input.shape[0] if input.ndim else n
        need(k == l and size in (1, n), f"size mismatch, got input ({size}), mat ({n}x{k}), vec ({l})"
             + (f"; mat.T @ vec would fit: {[k, n]} @ {[l]}" if k != l and n == l else ""))
        need(input.dtype is mat.dtype and mat.dtype is vec.dtype, "addmv input tensors must have the same dtype, but "
             f"got {input.dtype.cname}, {mat.dtype.cname}, and {vec.dtype.cname}")
        refuse_dtype(mat.dtype, "addmv_impl_cpu")
        return spec(mat.dtype, (n,), None, mat.device)

    def ref(xp, input, mat, vec, *, beta=1, alpha=1): return plus(xp, input, beta, xp.matmul(mat, vec), alpha)
    def d_input(g, beta):       return times(g, beta)
    def d_mat(g, vec, alpha):   return times(outer(g, conj(vec)), alpha)
    def d_vec(g, mat, alpha):   return times(mv(conj(mat.t()), g), alpha)

    def body(k, input, mat, vec, *, beta=1, alpha=1):
        if not mat.dtype.is_floating_point:
            return NotImplemented
        return added(k, input, beta, k.reshape(k.matmul(mat, k.reshape(vec, (*vec.shape, 1))), mat.shape[:1]), alpha)


class baddbmm(Op):
    """`beta` times `input` plus `alpha` times the matrix products of two batches of matrices."""

    forms = "function method inplace out"
    deprecated = old_orders("batch1", "batch2")
    refused = OUT_DTYPE_HINT
    scalars = ("beta", "alpha")
    must_fit = {"beta": "compute", "alpha": "compute"}
    strict_out = True

    def meta(input, batch1, batch2, *, beta=1, alpha=1):
        only_tensors(input=input, batch1=batch1, batch2=batch2)
        need_batches(batch1, batch2)
        shape = (*batch1.shape[:2], batch2.shape[2])
        need_expandable(input, shape)
        need(input.dtype is batch1.dtype and batch1.dtype is batch2.dtype, "Input dtypes must be the same, got: input "
             f"{C_TYPE_NAMES[input.dtype.name]}, batch1: {C_TYPE_NAMES[batch1.dtype.name]}, batch2: "
             f"{C_TYPE_NAMES[batch2.dtype.name]}")
        refuse_dtype(batch1.dtype, "baddbmm")
        return spec(batch1.dtype, shape, None, batch1.device)

    def ref(xp, input, batch1, batch2, *, beta=1, alpha=1):
        return plus(xp, input, beta, xp.matmul(batch1, batch2), alpha)

    def d_input(g, beta):            return times(g, beta)
    def d_batch1(g, batch2, alpha):  return times(bmm(g, adjoint(batch2)), alpha)
    def d_batch2(g, batch1, alpha):  return times(bmm(adjoint(batch1), g), alpha)

    def body(k, input, batch1, batch2, *, beta=1, alpha=1):
        return added(k, input, beta, product(k, batch1, batch2), alpha)


class addbmm(Op):
    """`beta` times `input` plus `alpha` times the sum of the matrix products of two batches of matrices."""

    forms = "function method inplace out"
    deprecated = old_orders("batch1", "batch2")
    scalars = ("beta", "alpha")
    must_fit = {"beta": "compute", "alpha": "compute"}
    strict_out = True

    def meta(input, batch1, batch2, *, beta=1, alpha=1):
        only_tensors(input=input, batch1=batch1, batch2=batch2)
        need(batch1.ndim == 3 and batch2.ndim == 3, f"batch1 and batch2 must be 3D tensors, got {batch1.ndim}D and "
             f"{batch2.ndim}D")
        (b, n, k), (c, l, p) = batch1.shape, batch2.shape
        need(b == c, f"batch1 and batch2 must have same number of batches, got {b} and {c}")
        need_inner((n, k), (l, p), ("batch1", "batch2"), "Incompatible matrix sizes for bmm", "mT")
        need_expandable(input, (n, p))
        need(input.dtype is batch2.dtype, f"self and mat2 must have the same dtype, but got {input.dtype.cname} and "
             f"{batch2.dtype.cname}")
        need(batch1.dtype is batch2.dtype, "expected m1 and m2 to have the same dtype, but got: "
             f"{C_TYPE_NAMES[batch1.dtype.name]} != {C_TYPE_NAMES[batch2.dtype.name]}")
        refuse_dtype(batch1.dtype, "addmm_impl_cpu_")
        return spec(batch1.dtype, (n, p), None, batch1.device)

    def ref(xp, input, batch1, batch2, *, beta=1, alpha=1):
        total = xp.matmul(batch1, batch2).sum(axis=0, dtype=batch1.dtype)
        return plus(xp, input, beta, total, alpha)

    def d_input(g, beta): return times(g, beta)

    def d_batch1(g, batch2, alpha):
        return times(bmm(g.unsqueeze(0).expand(batch2.shape[0], *g.shape), adjoint(batch2)), alpha)

    def d_batch2(g, batch1, alpha):
        return times(bmm(adjoint(batch1), g.unsqueeze(0).expand(batch1.shape[0], *g.shape)), alpha)


class addr(Composite):
    """`beta` times `input` plus `alpha` times the outer product of `vec1` and `vec2`."""

    forms = "function method inplace out"
    deprecated = old_orders("vec1", "vec2")
    no_overlap = True

    def of(input, vec1, vec2, *, beta=1, alpha=1):
        only_tensors(input=input, vec1=vec1, vec2=vec2)
        for name, x in (("vec1", vec1), ("vec2", vec2)):
            need(x.ndim == 1, f"addr: Expected 1-D argument {name}, but got {x.ndim}-D")
        need_expandable(input._spec, (vec1.shape[0], vec2.shape[0]))
        dtype = dtypes.result_of([(x.dtype, 2 if x.ndim else 1) for x in (input, vec1, vec2)])
        for name, number in (("beta", beta), ("alpha", alpha)):
            need(not isinstance(number, bool) or dtype is dtypes.bool, f"Boolean {name} only supported for Boolean "
                 "results.")
            need(dtype.category >= 2 or isinstance(number, int),
                 f"For integral input tensors, argument {name} must not be a floating point number, got {number}.")
        return _addr(*[x if x.dtype is dtype else x.to(dtype) for x in (input, vec1, vec2)], beta, alpha)


class _addr(Op):
    """`beta` times `input` plus `alpha` times the outer product of two vectors of its dtype."""

    scalars = ("beta", "alpha")
    must_fit = {"beta": "dtype", "alpha": "dtype"}

    def meta(input, vec1, vec2, beta, alpha):
        return spec(input.dtype, (vec1.shape[0], vec2.shape[0]), None, input.device)

    def ref(xp, input, vec1, vec2, beta, alpha):
        if input.dtype == bool:
            product = xp.logical_and(xp.outer(vec1, vec2), alpha)
            return xp.logical_or(xp.logical_and(input, beta), product) if beta else product
        return plus(xp, input, beta, xp.outer(vec1, vec2), alpha)

    def d_input(g, beta):        return times(g, beta)
    def d_vec1(g, vec2, alpha):  return times(mv(g, conj(vec2)), alpha)
    def d_vec2(g, vec1, alpha):  return times(mv(g.t(), conj(vec1)), alpha)

    def body(k, input, vec1, vec2, beta, alpha):
        product = k.reshape(vec1, (vec1.shape[0], 1))
        if input.dtype is dtypes.bool:
            return input & beta | product & vec2 & alpha
        return product * vec2 * alpha + k.where(beta == 0, 0, input * beta)
