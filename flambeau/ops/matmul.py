"""Products of vectors, matrices and batches of matrices, and what is built from them.

The products themselves (`mm`, `bmm`, `mv`, `dot`) go to NumPy's BLAS. `matmul`, `einsum`, `tensordot` and `linear`
arrange their operands and call those, with the same steps as PyTorch, so that they leave the same graph behind.
"""
import warnings

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import Spec, spec
from .arith import conj

# --- refusals ---------------------------------------------------------------------------------------------------------

C_WORDS = {"uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int", "int64": "long int",
           "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
           "complex64": "c10::complex<float>", "complex128": "c10::complex<double>", "bool": "bool"}


def only_tensors(**given):
    """Refuse what is not a tensor (or the Spec of one)."""
    for name, a in given.items():
        if not isinstance(a, (Spec, door.tensor)):
            need(False, f"argument '{name}' must be Tensor, not {type(a).__name__}", TypeError)


def refuse_dtype(dtype, kernel, also=()):
    """Refuse bool (and `also`) in PyTorch's words."""
    need(dtype is not dtypes.bool and dtype not in also, f"\"{kernel}\" not implemented for '{dtype.cname}'",
         NotImplementedError)


def need_inner(m1, m2, names=("mat1", "mat2"), words="mat1 and mat2 shapes cannot be multiplied"):
    """Refuse two matrix shapes whose product does not exist: which sizes differ, and which transpose would fit."""
    (n, k), (l, p) = m1, m2
    if k == l:
        return
    a, b = names
    if k == p:
        fix = f"{a} @ {b}.T would fit: {[n, k]} @ {[p, l]}"
    elif n == l:
        fix = f"{a}.T @ {b} would fit: {[k, n]} @ {[l, p]}"
    elif n == p:
        fix = f"{b} @ {a} would fit: {[l, p]} @ {[n, k]}"
    else:
        fix = f"{a}.T is {[k, n]}, {b}.T is {[p, l]}: no transpose fits"
    need(False, f"{words} ({n}x{k} and {l}x{p}); the inner sizes {k} and {l} differ; {fix}")


def need_batches(batch1, batch2):
    """Refuse two batches of matrices that cannot be multiplied pairwise."""
    need(batch1.ndim == 3, f"batch1 must be a 3D tensor, got {batch1.ndim}D")
    need(batch2.ndim == 3, f"batch2 must be a 3D tensor, got {batch2.ndim}D")
    (b, n, k), (c, l, p) = batch1.shape, batch2.shape
    words = f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: [{c}, {l}]."
    need(b == c, words + f" The batch sizes {b} and {c} differ.")
    if k != l:
        need_inner((n, k), (l, p), ("batch1", "batch2"), words + " In each pair")


def need_expandable(input, shape):
    """Refuse an `input` that does not expand to `shape`."""
    need(input.ndim <= len(shape), f"expand(torch.{input.dtype.cname}Tensor{{{list(input.shape)}}}, size={list(shape)}): the "
         f"number of sizes provided ({len(shape)}) must be greater or equal to the number of dimensions in the tensor "
         f"({input.ndim})")
    lead = len(shape) - input.ndim
    for d, have in enumerate(input.shape, lead):
        need(have in (1, shape[d]), f"The expanded size of the tensor ({shape[d]}) must match the existing size ({have}) at "
             f"non-singleton dimension {d}.  Target sizes: {list(shape)}.  Tensor sizes: {list(input.shape)}")


def need_real(dtype, *numbers):
    """Refuse a complex factor on real tensors; `numbers` are the factors' types."""
    need(dtype.is_complex or complex not in numbers,
         f"value cannot be converted to type {C_WORDS[dtype.name]} without overflow: a complex factor on {dtype.name} tensors")


# --- the products -----------------------------------------------------------------------------------------------------


def adjoint(x):
    """Each matrix of `x` transposed and conjugated."""
    return conj(x.transpose(-2, -1))


def column_major(kind):
    """Whether the matrix `kind` is laid out column after column, as the transpose of a contiguous one."""
    return kind.strides[0] == 1 and kind.strides[1] == kind.shape[0] and kind.shape[0] > 1


def d_left(g, right, left_kind):
    """The gradient for the left factor of a matrix product, in the layout that factor has: a weight that was
    transposed on the way in then gets a contiguous gradient without a copy."""
    if column_major(left_kind):
        return mm(conj(right), g.t()).t()
    return mm(g, conj(right.t()))


def d_right(g, left, right_kind):
    """The gradient for the right factor of a matrix product, in the layout that factor has."""
    if column_major(right_kind):
        return mm(g.t(), conj(left)).t()
    return mm(conj(left.t()), g)


class mm(Op):
    """The matrix product of two matrices.

    >>> torch.mm(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[0, 1], [1, 0]]))
    tensor([[2, 1],
            [4, 3]])
    """

    strict_out = True

    def meta(input, mat2):
        only_tensors(input=input, mat2=mat2)
        need(input.ndim == 2, f"self must be a matrix, got {input.ndim}-D tensor")
        need(mat2.ndim == 2, f"mat2 must be a matrix, got {mat2.ndim}-D tensor")
        need_inner(input.shape, mat2.shape, ("input", "mat2"))
        need(input.dtype is mat2.dtype, "expected m1 and m2 to have the same dtype, but got: "
             f"{C_WORDS[input.dtype.name]} != {C_WORDS[mat2.dtype.name]}")
        refuse_dtype(input.dtype, "addmm_impl_cpu_")
        return spec(input.dtype, (input.shape[0], mat2.shape[1]), None, input.device)

    def ref(xp, input, mat2):            return xp.matmul(input, mat2)
    def d_input(g, input_spec, mat2):    return d_left(g, mat2, input_spec)
    def d_mat2(g, input, mat2_spec):     return d_right(g, input, mat2_spec)


class bmm(Op):
    """The matrix products of two batches of matrices, pair by pair."""

    strict_out = True

    def meta(input, mat2):
        only_tensors(input=input, mat2=mat2)
        need_batches(input, mat2)
        need(input.dtype is mat2.dtype, f"expected scalar type {input.dtype.cname} but found {mat2.dtype.cname}")
        refuse_dtype(input.dtype, "bmm")
        return spec(input.dtype, (*input.shape[:2], mat2.shape[2]), None, input.device)

    def ref(xp, input, mat2):  return xp.matmul(input, mat2)
    def d_input(g, mat2):      return bmm(g, adjoint(mat2))
    def d_mat2(g, input):      return bmm(adjoint(input), g)


class mv(Op):
    """The product of a matrix and a vector."""

    strict_out = True

    def meta(input, vec):
        only_tensors(input=input, vec=vec)
        need(input.ndim == 2 and vec.ndim == 1, f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
        (n, k), (l,) = input.shape, vec.shape
        need(k == l, f"size mismatch, got input ({n}), mat ({n}x{k}), vec ({l}); the sizes {k} and {l} differ; "
             + (f"input.T @ vec would fit: {[k, n]} @ {[l]}" if n == l else f"input.T is {[k, n]}: no transpose fits"))
        need(input.dtype is vec.dtype, "addmv input tensors must have the same dtype, but got "
             f"{vec.dtype.cname}, {input.dtype.cname}, and {vec.dtype.cname}")
        refuse_dtype(input.dtype, "addmv_impl_cpu")
        return spec(input.dtype, (n,), None, input.device)

    def ref(xp, input, vec):   return xp.matmul(input, vec)
    def d_input(g, vec):       return outer(g, conj(vec))
    def d_vec(g, input):       return mv(conj(input.t()), g)


def check_dot(name, input, other):
    only_tensors(input=input, tensor=other)
    need(input.ndim == 1 and other.ndim == 1, f"1D tensors expected, but got {input.ndim}D and {other.ndim}D tensors")
    need(input.dtype is other.dtype, f"{name} : expected both vectors to have same dtype, but found {input.dtype.cname} and "
         f"{other.dtype.cname}")
    n, m = input.numel, other.numel
    need(n == m, f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of elements, but got "
         f"{n} and {m} elements respectively")
    refuse_dtype(input.dtype, name)
    return spec(input.dtype, (), None, input.device)


class dot(Op):
    """The sum of the products of two vectors' elements."""

    strict_out = True

    def meta(input, tensor):     return check_dot("dot", input, tensor)
    def ref(xp, input, tensor):  return xp.dot(input, tensor)
    def d_input(g, tensor):      return g * conj(tensor)
    def d_tensor(g, input):      return g * conj(input)


class vdot(Op):
    """Like `dot`, with the first vector conjugated."""

    strict_out = True

    def meta(input, other):     return check_dot("vdot", input, other)
    def ref(xp, input, other):  return xp.vdot(input, other)
    def d_input(g, other):      return conj(g) * other
    def d_other(g, input):      return g * input


# --- a product added to something -------------------------------------------------------------------------------------


def plus(xp, input, beta, product, alpha):
    """`beta` times `input` plus `alpha` times `product`. A beta of zero leaves `input` out, whatever it holds."""
    if product.dtype.kind in "iu":
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * xp.asarray(alpha, product.dtype)
    if beta == 0:
        return product
    return product + (input if beta == 1 else input * xp.asarray(beta, product.dtype))


def times(g, factor):
    """`g` times the conjugate of a Python number."""
    return g if factor == 1 else g * conj(factor)


class addmm(Op):
    """`beta` times `input` plus `alpha` times the matrix product of `mat1` and `mat2`."""

    forms = "function method inplace"
    scalars = ("beta", "alpha")
    strict_out = True

    def meta(input, mat1, mat2, *, beta=1, alpha=1):
        only_tensors(input=input, mat1=mat1, mat2=mat2)
        need(mat1.ndim == 2, f"mat1 must be a matrix, got {mat1.ndim}-D tensor")
        need(mat2.ndim == 2, f"mat2 must be a matrix, got {mat2.ndim}-D tensor")
        need_inner(mat1.shape, mat2.shape)
        shape = (mat1.shape[0], mat2.shape[1])
        need_expandable(input, shape)
        need(input.dtype is mat2.dtype, f"self and mat2 must have the same dtype, but got {input.dtype.cname} and "
             f"{mat2.dtype.cname}")
        need(mat1.dtype is mat2.dtype, "expected m1 and m2 to have the same dtype, but got: "
             f"{C_WORDS[mat1.dtype.name]} != {C_WORDS[mat2.dtype.name]}")
        refuse_dtype(mat1.dtype, "addmm_impl_cpu_")
        need_real(mat1.dtype, beta, alpha)
        return spec(mat1.dtype, shape, None, mat1.device)

    def ref(xp, input, mat1, mat2, *, beta=1, alpha=1): return plus(xp, input, beta, xp.matmul(mat1, mat2), alpha)
    def d_input(g, beta):                  return times(g, beta)
    def d_mat1(g, mat1_spec, mat2, alpha): return times(d_left(g, mat2, mat1_spec), alpha)
    def d_mat2(g, mat1, mat2_spec, alpha): return times(d_right(g, mat1, mat2_spec), alpha)


class addmv(Op):
    """`beta` times `input` plus `alpha` times the product of the matrix `mat` and the vector `vec`."""

    forms = "function method inplace"
    scalars = ("beta", "alpha")
    strict_out = True

    def meta(input, mat, vec, *, beta=1, alpha=1):
        only_tensors(input=input, mat=mat, vec=vec)
        need(input.ndim <= 1 and mat.ndim == 2 and vec.ndim == 1,
             f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}")
        (n, k), (l,) = mat.shape, vec.shape
        size = input.shape[0] if input.ndim else n
        need(k == l and size in (1, n), f"size mismatch, got input ({size}), mat ({n}x{k}), vec ({l})"
             + (f"; mat.T @ vec would fit: {[k, n]} @ {[l]}" if k != l and n == l else ""))
        need(input.dtype is mat.dtype and mat.dtype is vec.dtype, "addmv input tensors must have the same dtype, but got "
             f"{input.dtype.cname}, {mat.dtype.cname}, and {vec.dtype.cname}")
        refuse_dtype(mat.dtype, "addmv_impl_cpu")
        need_real(mat.dtype, beta, alpha)
        return spec(mat.dtype, (n,), None, mat.device)

    def ref(xp, input, mat, vec, *, beta=1, alpha=1): return plus(xp, input, beta, xp.matmul(mat, vec), alpha)
    def d_input(g, beta):       return times(g, beta)
    def d_mat(g, vec, alpha):   return times(outer(g, conj(vec)), alpha)
    def d_vec(g, mat, alpha):   return times(mv(conj(mat.t()), g), alpha)


class baddbmm(Op):
    """`beta` times `input` plus `alpha` times the matrix products of two batches of matrices."""

    forms = "function method inplace"
    scalars = ("beta", "alpha")
    strict_out = True

    def meta(input, batch1, batch2, *, beta=1, alpha=1):
        only_tensors(input=input, batch1=batch1, batch2=batch2)
        need_batches(batch1, batch2)
        shape = (*batch1.shape[:2], batch2.shape[2])
        need_expandable(input, shape)
        need(input.dtype is batch1.dtype and batch1.dtype is batch2.dtype, "Input dtypes must be the same, got: input "
             f"{C_WORDS[input.dtype.name]}, batch1: {C_WORDS[batch1.dtype.name]}, batch2: {C_WORDS[batch2.dtype.name]}")
        refuse_dtype(batch1.dtype, "baddbmm")
        need_real(batch1.dtype, beta, alpha)
        return spec(batch1.dtype, shape, None, batch1.device)

    def ref(xp, input, batch1, batch2, *, beta=1, alpha=1): return plus(xp, input, beta, xp.matmul(batch1, batch2), alpha)
    def d_input(g, beta):            return times(g, beta)
    def d_batch1(g, batch2, alpha):  return times(bmm(g, adjoint(batch2)), alpha)
    def d_batch2(g, batch1, alpha):  return times(bmm(adjoint(batch1), g), alpha)


class addbmm(Op):
    """`beta` times `input` plus `alpha` times the sum of the matrix products of two batches of matrices."""

    forms = "function method inplace"
    scalars = ("beta", "alpha")
    strict_out = True

    def meta(input, batch1, batch2, *, beta=1, alpha=1):
        only_tensors(input=input, batch1=batch1, batch2=batch2)
        need(batch1.ndim == 3 and batch2.ndim == 3, f"batch1 and batch2 must be 3D tensors, got {batch1.ndim}D and "
             f"{batch2.ndim}D")
        (b, n, k), (c, l, p) = batch1.shape, batch2.shape
        need(b == c, f"batch1 and batch2 must have same number of batches, got {b} and {c}")
        need_inner((n, k), (l, p), ("batch1", "batch2"), "Incompatible matrix sizes for bmm")
        need_expandable(input, (n, p))
        need(input.dtype is batch2.dtype, f"self and mat2 must have the same dtype, but got {input.dtype.cname} and "
             f"{batch2.dtype.cname}")
        need(batch1.dtype is batch2.dtype, "expected m1 and m2 to have the same dtype, but got: "
             f"{C_WORDS[batch1.dtype.name]} != {C_WORDS[batch2.dtype.name]}")
        refuse_dtype(batch1.dtype, "addmm_impl_cpu_")
        need_real(batch1.dtype, beta, alpha)
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

    forms = "function method inplace"

    def of(input, vec1, vec2, *, beta=1, alpha=1):
        only_tensors(input=input, vec1=vec1, vec2=vec2)
        for name, x in (("vec1", vec1), ("vec2", vec2)):
            need(x.ndim == 1, f"addr: Expected 1-D argument {name}, but got {x.ndim}-D")
        need_expandable(input.spec, (vec1.shape[0], vec2.shape[0]))
        dtype = dtypes.result_of([(x.dtype, 2 if x.ndim else 1) for x in (input, vec1, vec2)])
        for name, number in (("beta", beta), ("alpha", alpha)):
            need(not isinstance(number, bool) or dtype is dtypes.bool, f"Boolean {name} only supported for Boolean results.")
            need(dtype.category >= 2 or isinstance(number, int) or dtype is dtypes.bool,
                 f"For integral input tensors, argument {name} must not be a floating point number, got {number}.")
        need_real(dtype, type(beta), type(alpha))
        return _addr(*[x if x.dtype is dtype else x.to(dtype) for x in (input, vec1, vec2)], beta, alpha)


class _addr(Op):
    """`beta` times `input` plus `alpha` times the outer product of two vectors of its dtype."""

    scalars = ("beta", "alpha")

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


# --- matmul -----------------------------------------------------------------------------------------------------------


class _unfolded(Composite):
    """`input`, which nobody else holds, with the shape `size`."""

    node = "UnsafeViewBackward0"

    def of(input, size):         return input.view(size)
    def d_input(g, input_spec):  return g.reshape(input_spec.shape)


class _unfolded_row(Composite):
    """The row of a matrix of one row, which nobody else holds."""

    node = "SqueezeBackward4"

    def of(input):    return input.squeeze(0)
    def d_input(g):   return g.unsqueeze(0)


def should_fold(input, other):
    """Whether a batch times one matrix (or vector) is better done as a single product with the batch folded into
    the rows. Where the single one needs a gradient it always is: the gradient needs no sum over a batch then."""
    larger, single = (input, other) if input.ndim >= other.ndim else (other, input)
    if larger.ndim < 3 or single.ndim > 2:
        return False
    if single.requires_grad:
        return True
    if input.ndim == 2:
        return False
    if larger.numel() == 0:
        return True
    kind = larger.spec
    sizes, strides = list(kind.shape), list(kind.strides)
    if larger is other:
        sizes[-2:], strides[-2:] = sizes[:-3:-1], strides[:-3:-1]
    return all(strides[d] == strides[d + 1] * sizes[d + 1] for d in range(len(sizes) - 2))


class matmul(Composite):
    """The product of vectors, matrices or batches of matrices, as the number of dimensions says; batches broadcast.

    >>> (torch.ones(5, 2, 3) @ torch.ones(3, 4)).shape
    torch.Size([5, 2, 4])
    """

    names = "linalg.matmul"
    strict_out = True

    def of(input, other):
        only_tensors(input=input, other=other)
        d1, d2 = input.ndim, other.ndim
        if d1 == 2 and d2 == 2:
            return mm(input, other)
        need(d1 and d2, f"both arguments to matmul need to be at least 1D, but they are {d1}D and {d2}D")
        if d1 == 1 and d2 == 1:
            return dot(input, other)
        if d1 == 2 and d2 == 1:
            return mv(input, other)
        if d1 == 1 and d2 == 2:
            return _unfolded_row(mm(input.unsqueeze(0), other))
        if should_fold(input, other):
            return folded(input, other)
        return batched(input, other)


def folded(input, other):
    """The product of a batch and a single matrix or vector (in either order) as one product."""
    turned = other.ndim > input.ndim
    many, single = (other.mT, input.t()) if turned else (input, other)
    *lead, k = many.spec.shape
    rows = many.reshape(shapes.numel(lead), k)
    if single.ndim == 1:
        return _unfolded(mv(rows, single), tuple(lead))
    out = _unfolded(mm(rows, single), (*lead, single.shape[1]))
    return out.mT.contiguous() if turned else out


def batched(input, other):
    """The product of two batches of matrices (or a batch and a vector), their batch dimensions broadcast."""
    s1, s2 = input.spec.shape, other.spec.shape
    if len(s1) == 3 and len(s2) == 3 and s1[0] != s2[0]:       # a batch of one that needs a gradient: fold instead
        if s1[0] == 1 and input.requires_grad:
            return matmul(input.squeeze(0), other)
        if s2[0] == 1 and other.requires_grad:
            return matmul(input, other.squeeze(0))
    n, k = (s1[-2] if len(s1) > 1 else 1), s1[-1]
    l, p = (s2[-2], s2[-1]) if len(s2) > 1 else (s2[0], 1)
    batch = shapes.broadcast(s1[:-2], s2[:-2])
    count = shapes.numel(batch)
    left = input.expand(*batch, n, k).reshape(count, n, k)
    right = other.expand(*batch, l, p).reshape(count, l, p) if len(s2) > 1 else \
        other.expand(*batch, l).reshape(count, l).unsqueeze(2)
    out = bmm(left, right)
    if len(s2) == 1:
        out = out.squeeze(-1)
    return _unfolded(out, batch + (n,) * (len(s1) > 1) + (p,) * (len(s2) > 1))


class _linear(Composite):
    """`input` times the transposed `weight`, plus `bias`: the last dimension goes from `in` to `out` features."""

    names = "nn.functional.linear"
    forms = "function"

    def of(input, weight, bias=None):
        only_tensors(input=input, weight=weight)
        n = input.ndim
        need(n and weight.ndim, f"both arguments to linear need to be at least 1D, but they are {n}D and {weight.ndim}D")
        if bias is None:
            return matmul(input, weight.t())
        if n == 2:
            return addmm(bias, input, weight.t())
        if weight.ndim == 2 and bias.ndim == 1 and input.is_contiguous():
            *lead, k = input.spec.shape
            rows = input.reshape(shapes.numel(lead), k)
            return addmm(bias, rows, weight.t()).view(*lead, weight.shape[0])
        return matmul(input, weight.t()) + bias


# --- named relatives --------------------------------------------------------------------------------------------------


class outer(Composite):
    """The products of each element of `input` with each of `vec2`, as a matrix."""

    names = "ger"

    def of(input, vec2):
        only_tensors(input=input, vec2=vec2)
        need(input.ndim == 1, f"outer: Expected 1-D argument self, but got {input.ndim}-D")
        need(vec2.ndim == 1, f"outer: Expected 1-D argument vec2, but got {vec2.ndim}-D")
        return input.reshape(input.shape[0], 1) * vec2


class inner(Composite):
    """The sums of products over the last dimensions of `input` and `other`."""

    def strict_out(input, other): return input.ndim and other.ndim

    def of(input, other):
        only_tensors(input=input, other=other)
        if not input.ndim or not other.ndim:
            return input * other
        need(input.shape[-1] == other.shape[-1], "inner() the last dimension must match on both input tensors but got shapes "
             f"{list(input.shape)} and {list(other.shape)}")
        return tensordot(input, other, ((-1,), (-1,)))


class tensordot(Composite):
    """The sums of products over `dims`: a number of dimensions (last of `a`, first of `b`), or a list for each."""

    forms = "function"
    strict_out = True

    def of(a, b, dims=2):
        only_tensors(a=a, b=b)
        dims_a, dims_b = contracted(a, b, dims)
        need(a.dtype is b.dtype, f"both inputs should have same dtype, got {a.dtype} and {b.dtype}")
        need(len(dims_a) == len(dims_b), "both dimension lists should have same length, got "
             f"{list(dims_a)} and {list(dims_b)}")
        dims_a, dims_b = shapes.wrap_dims(dims_a, a.ndim) if dims_a else (), shapes.wrap_dims(dims_b, b.ndim) if dims_b else ()
        size_a, size_b, count = a.spec.shape, b.spec.shape, 1
        for i, j in zip(dims_a, dims_b, strict=True):
            if size_b[j] == 1:                           # broadcast: sum the other side right away
                a = a.sum(i, keepdim=True, dtype=a.dtype)
            elif size_a[i] == 1:
                b = b.sum(j, keepdim=True, dtype=b.dtype)
            else:
                need(size_a[i] == size_b[j], f"contracted dimensions need to match, but first has size {size_a[i]} in dim {i} "
                     f"and second has size {size_b[j]} in dim {j}")
                count *= size_a[i]
        free_a = [d for d in range(a.ndim) if d not in dims_a]
        free_b = [d for d in range(b.ndim) if d not in dims_b]
        rows, columns = [size_a[d] for d in free_a], [size_b[d] for d in free_b]
        left, right = a.permute(*free_a, *dims_a) if a.ndim else a, b.permute(*dims_b, *free_b) if b.ndim else b
        n, p = shapes.numel(rows), shapes.numel(columns)
        out = dot(left.reshape(count), right.reshape(count)) if n == 1 and p == 1 else \
            mm(left.reshape(n, count), right.reshape(count, p))
        return out.reshape([*rows, *columns])


def contracted(a, b, dims):
    """The two lists of dimensions that `dims` of tensordot stands for."""
    if isinstance(dims, door.tensor):
        if dims.numel() > 1:
            need(dims.shape[0] == 2, f"tensordot expects a dims tensor of two rows, got shape {list(dims.shape)}")
            return tuple(dims[0].tolist()), tuple(dims[1].tolist())
        dims = int(dims.item())
    if isinstance(dims, (tuple, list)):
        first, second = dims
        return tuple([first] if isinstance(first, int) else first), tuple([second] if isinstance(second, int) else second)
    need(dims >= 0, f"tensordot expects dims >= 0, but got dims={dims}")
    need(dims <= min(a.ndim, b.ndim), f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))


class kron(Composite):
    """The Kronecker product: each element of `input` times the whole of `other`, laid out as blocks."""

    def of(input, other):
        only_tensors(input=input, other=other)
        ndim = max(input.ndim, other.ndim)
        rows = (1,) * (ndim - input.ndim) + input.spec.shape
        columns = (1,) * (ndim - other.ndim) + other.spec.shape
        left = input.reshape([n for size in rows for n in (size, 1)])
        right = other.reshape([n for size in columns for n in (1, size)])
        return _unfolded((left * right).contiguous(), tuple([n * m for n, m in zip(rows, columns, strict=True)]))


class _multi_dot(Composite):
    """The product of a chain of matrices (the first and last may be vectors), in the order that costs least."""

    names = "linalg.multi_dot"
    forms = "function"
    strict_out = True

    def of(tensors):
        tensors = list(tensors)
        n = len(tensors)
        need(n >= 2, f"multi_dot(): expected at least 2 tensors but got {n}")
        for at, x in enumerate(tensors):
            only_tensors(**{f"tensors[{at}]": x})
            ends = at in (0, n - 1)
            name = "the first" if at == 0 else "the last" if at == n - 1 else f"tensor {at}"
            need(x.ndim in ((1, 2) if ends else (2,)), f"multi_dot(): {name + ' tensor' if ends else name} must be "
                 f"{'1D or 2D' if ends else '2D'} but got {x.ndim}D")
            need(x.dtype is tensors[0].dtype, f"multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                 f"{tensors[0].dtype} and tensor {at} {x.dtype}")
        out = []
        chain = list(tensors)
        if chain[0].ndim == 1:
            chain[0] = chain[0].unsqueeze(0)
        else:
            out.append(chain[0].shape[0])
        if chain[-1].ndim == 1:
            chain[-1] = chain[-1].unsqueeze(-1)
        else:
            out.append(chain[-1].shape[1])
        for at in range(n - 1):
            need(chain[at].shape[1] == chain[at + 1].shape[0], f"multi_dot(): tensors {at} and {at + 1} with shapes "
                 f"{list(tensors[at].shape)} and {list(tensors[at + 1].shape)} cannot be multiplied")
        return chain_product(chain, chain_order(chain)).view(out)


def chain_order(chain):
    """For each stretch (i, j) of a chain of matrices, after which one to cut it: dynamic programming over costs."""
    sizes = [chain[0].shape[0]] + [x.shape[1] for x in chain]
    n = len(chain)
    cost, cut = {(i, i): 0 for i in range(n)}, {}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i, j], cut[i, j] = min((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                                        for k in range(i, j))
    return cut


def chain_product(chain, cut):
    """The product of `chain` in the order `cut` says, innermost stretches first."""
    order, stack = [], [(0, len(chain) - 1)]
    while stack:
        i, j = stack.pop()
        if i < j:
            order.append((i, j))
            stack += [(i, cut[i, j]), (cut[i, j] + 1, j)]
    made = {(i, i): x for i, x in enumerate(chain)}
    for i, j in reversed(order):
        k = cut[i, j]
        made[i, j] = mm(made[i, k], made[k + 1, j])
    return made[0, len(chain) - 1]


class chain_matmul(Composite):
    """The product of matrices in the order that costs least (deprecated: use `linalg.multi_dot`)."""

    forms = "function"

    def of(*matrices):
        warnings.warn("torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
                      "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than multiple "
                      "parameters.", UserWarning, stacklevel=3)
        if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)):
            matrices = matrices[0]
        for x in matrices:
            need(x.ndim == 2, f"Tensor dimension is {x.ndim}, expected 2 instead.")
        need(matrices, "chain_matmul(): Expected one or more matrices")
        return matrices[0].clone() if len(matrices) == 1 else _multi_dot(matrices)


# --- einsum -----------------------------------------------------------------------------------------------------------

ELLIPSIS = "..."


class einsum(Composite):
    """The sums of products that Einstein's notation says: `einsum("bij,bjk->bik", x, y)`, or with lists of numbers.

    >>> torch.einsum("ij,j->i", torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 10]))
    tensor([21, 43])
    """

    forms = "function"

    def of(*args):
        need(len(args) >= 2, "einsum(): must specify the equation string and at least one operand, or at least one operand and "
             "its subscripts list", ValueError)
        operands, labels, target = subscripts(args)
        for at, x in enumerate(operands):
            if not isinstance(x, door.tensor):
                raise TypeError(f"einsum(): expected Tensor as element {at} in argument 1, but got {type(x).__name__}")
        return contract(operands, labels, target)


def subscripts(args):
    """(operands, labels of each, labels of the output or None) from either way of writing the call."""
    if isinstance(args[0], str):
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
            operands = list(operands[0])
        left, arrow, right = equation.partition("->")
        parts = left.split(",")
        need(len(parts) <= len(operands), "einsum(): fewer operands were provided than specified in the equation: "
             f"{len(operands)} for '{equation}'")
        need(len(parts) >= len(operands), "einsum(): more operands were provided than specified in the equation: "
             f"{len(operands)} for '{equation}'")
        labels, start = [], 0
        for at, part in enumerate(parts):
            labels.append(letters(part, f"operand {at}", start))
            start += len(part) + 1
        return operands, labels, letters(right, "output", len(left) + 2) if arrow else None
    # The sublist format: operand, list, operand, list, …, and perhaps a list for the output
    pairs = list(args)
    target = [number_label(n) for n in pairs.pop()] if len(pairs) % 2 else None
    operands = pairs[::2]
    return operands, [[number_label(n) for n in part] for part in pairs[1::2]], target


def letters(part, what, start):
    """The labels of one operand of an equation, blanks left out, an ellipsis as one label."""
    found, at = [], 0
    for_which = " for which an ellipsis was already found" if what != "output" else " but an ellipsis (...) was already found"
    while at < len(part):
        c = part[at]
        if c == ".":
            need(ELLIPSIS not in found, f"einsum(): found '.' for {what}{for_which}")
            need(part[at:at + 3] == ELLIPSIS, f"einsum(): found '.' for {what} that is not part of any ellipsis")
            found.append(ELLIPSIS)
            at += 3
            continue
        if c != " ":
            need(c.isascii() and c.isalpha(), f"einsum(): invalid subscript given at index {start + at} in the equation string, "
                 f"subscripts must be in [a-zA-Z], got {c!r}")
            found.append(c)
        at += 1
    return found


def number_label(n):
    """The letter that a number in the sublist format stands for: 0 to 25 are A to Z, 26 to 51 a to z."""
    if n is Ellipsis:
        return ELLIPSIS
    need(0 <= n < 52, f"einsum(): subscript {n} is not within the valid range [0, 52)", ValueError)
    return chr(ord("A") + n) if n < 26 else chr(ord("a") + n - 26)


def contract(operands, labels, target):
    """Permute all operands to one order of dimensions (output, then summed), and multiply from the left."""
    spare = 0                                             # how many dimensions the ellipsis stands for
    for at, (x, marks) in enumerate(zip(operands, labels, strict=True)):
        dotted = ELLIPSIS in marks
        n = len(marks) - dotted
        need(n <= x.ndim if dotted else n == x.ndim, f"einsum(): the number of subscripts in the equation ({n}) "
             + ("is more than the number of dimensions " if dotted else "does not match the number of dimensions ")
             + f"({x.ndim}) for operand {at}" + ("" if dotted else " and no ellipsis was given"))
        if dotted:
            spare = max(spare, x.ndim - n)
    seen = sorted({c for marks in labels for c in marks if c != ELLIPSIS})
    if target is None:                                    # the ellipsis, then what appears once, in alphabetical order
        every = [c for marks in labels for c in marks]
        target = [ELLIPSIS] + [c for c in seen if every.count(c) == 1]
    place, dims = {}, 0                                   # label → its dimension after permuting
    for c in target:
        if c != ELLIPSIS:
            need(c not in place, f"einsum(): output subscript {c} appears more than once in the output")
            need(c in seen, f"einsum(): output subscript {c} does not appear in the equation for any input operand")
        place[c] = dims
        dims += spare if c == ELLIPSIS else 1
    kept = dims
    for c in (ELLIPSIS, *seen):
        if c not in place:
            place[c] = dims
            dims += spare if c == ELLIPSIS else 1
    sizes, holders = [1] * dims, [0] * dims               # the size of each dimension, and in how many operands it is real
    ops = [arranged(x, marks, at, place, spare, sizes, holders)
           for at, (x, marks) in enumerate(zip(operands, labels, strict=True))]
    several = len(ops) > 1
    while len(ops) > 1:
        a, b = ops[0], ops[1]
        now, only_a, only_b = [], [], []
        for d in range(kept, dims):
            if a.shape[d] != 1 and b.shape[d] != 1:
                holders[d] -= 1
                if holders[d] == 1:
                    now.append(d)
                    holders[d] = 0
            elif holders[d] == 1 and (a.shape[d] != 1 or b.shape[d] != 1):
                (only_a if a.shape[d] != 1 else only_b).append(d)
                holders[d] = 0
        a = a.sum(only_a, keepdim=True) if only_a else a
        b = b.sum(only_b, keepdim=True) if only_b else b
        ops[:2] = [pair(a, b, now)]
    if dims > kept:
        return ops[0].view(ops[0].spec.shape[:kept]) if several else ops[0].sum(list(range(kept, dims)))
    return ops[0]


def arranged(x, marks, at, place, spare, sizes, holders):
    """Operand `x` with repeated labels as diagonals and its dimensions at their places; size one where it has none."""
    order, d = [None] * len(sizes), 0
    covered = x.ndim - (len(marks) - 1)                   # by the ellipsis, where there is one

    def put(where, words):
        n = x.shape[d]
        if n != 1:
            need(sizes[where] in (1, n), words(n, sizes[where]))
            sizes[where] = n
            holders[where] += 1
        order[where] = d

    for c in marks:
        if c == ELLIPSIS:
            for j in range(spare - covered, spare):
                put(place[c] + j, lambda n, m: f"einsum(): dimension {d} covered by ellipsis in operand {at} has size {n} which "
                    f"does not broadcast with previously seen ellipsis with size {m} for the respective dimension")
                d += 1
        elif order[place[c]] is None:
            put(place[c], lambda n, m: f"einsum(): subscript {c} has size {n} for operand {at} which does not broadcast with "
                f"previously seen size {m}")
            d += 1
        else:
            before = order[place[c]]
            need(x.shape[d] == x.shape[before], f"einsum(): subscript {c} is repeated for operand {at} but the sizes don't match, "
                 f"{x.shape[d]} != {x.shape[before]}")
            x = x.diagonal(0, before, d).movedim(-1, before)
    for where, found in enumerate(order):
        if found is None:
            x = x.unsqueeze(d)
            order[where] = d
            d += 1
    return x.permute(order)


def pair(left, right, summed):
    """The product of two arranged operands, summed over the dimensions `summed` (kept with size one), as one `bmm`."""
    if not summed:
        return left * right
    both, only_left, only_right = [], [], []
    for d in range(left.ndim):
        if d not in summed:
            l, r = left.shape[d] != 1, right.shape[d] != 1
            (both if l and r else only_left if l else only_right).append(d)
    size = [left.shape[d] for d in both + only_left] + [1] * len(summed) + [right.shape[d] for d in only_right]
    order = both + only_left + summed + only_right
    b, n, k, p = (shapes.numel([x.shape[d] for d in ds]) for x, ds in
                  ((left, both), (left, only_left), (left, summed), (right, only_right)))
    left = left.permute(order).reshape(b, n, k)
    right = right.permute(both + summed + only_right + only_left).reshape(b, k, p)
    back = [0] * len(order)
    for at, d in enumerate(order):
        back[d] = at
    return bmm(left, right).view(size).permute(back)


# --- distances and similarities ---------------------------------------------------------------------------------------


class _bilinear(Composite):
    """`input1` times each matrix of `weight` times `input2`, plus `bias`."""

    names = "nn.functional.bilinear bilinear"
    forms = "function"

    def of(input1, input2, weight, bias=None):
        only_tensors(input1=input1, input2=input2, weight=weight)
        need(input1.ndim == input2.ndim, f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}")
        for d, (n, m) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
            need(n == m, f"bilinear(): input batch dimensions do not match at dim {d}: got {n} and {m}")
        for name, x, at in (("input1", input1, 1), ("input2", input2, 2)):
            wanted = weight.shape[at] if weight.ndim == 3 else None
            need(wanted == x.shape[-1], f"bilinear(): {name} size does not match weight size: got {x.shape[-1]} but expected "
                 f"{wanted if wanted is not None else f'a 3-D weight, not {weight.ndim}-D'}")
        need(bias is None or bias.shape[0] == weight.shape[0], "bilinear(): bias size does not match weight size: got "
             f"{bias.shape[0] if bias is not None else 0} but expected {weight.shape[0]}")
        need(input1.dtype is input2.dtype and input1.dtype is weight.dtype, "All tensors must have the same dtype, got input1: "
             f"{C_WORDS[input1.dtype.name]}, input2: {C_WORDS[input2.dtype.name]}, weight: {C_WORDS[weight.dtype.name]}")
        lead, rows = input1.spec.shape[:-1], shapes.numel(input1.spec.shape[:-1])
        out = _trilinear(input1.reshape(rows, input1.shape[-1]), input2.reshape(rows, input2.shape[-1]), weight)
        out = out.reshape(*lead, weight.shape[0])
        return out if bias is None else out + bias


class _trilinear(Composite):
    """For each row b and output o: the sum over i, j of `x[b, i] * weight[o, i, j] * y[b, j]`."""

    def of(x, y, weight):        return einsum("bi,oij,bj->bo", x, weight, y)
    def d_x(g, y, weight):       return einsum("bo,oij,bj->bi", g, conj(weight), conj(y))
    def d_y(g, x, weight):       return einsum("bo,oij,bi->bj", g, conj(weight), conj(x))
    def d_weight(g, x, y):       return einsum("bo,bi,bj->oij", g, conj(x), conj(y))


class cdist(Composite):
    """The distance (p-norm of the difference) between each row of `x1` and each of `x2`, batch by batch."""

    forms = "function"

    def of(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
        modes = (None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
        need(compute_mode in modes, f"{compute_mode} is not a valid value for compute_mode; it is one of {modes[1:]}", ValueError)
        only_tensors(x1=x1, x2=x2)
        for name, x in (("X1", x1), ("X2", x2)):
            need(x.dtype.category == 2, f"cdist only supports floating-point dtypes, {name} got: {x.dtype.cname}")
        need(p >= 0, f"cdist only supports non-negative p values, got {p}")
        for name, x in (("X1", x1), ("X2", x2)):
            need(x.ndim >= 2, f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
        s1, s2 = x1.spec.shape, x2.spec.shape
        need(s1[-1] == s2[-1], f"X1 and X2 must have the same number of columns. X1: {s1[-1]} X2: {s2[-1]}")
        need(x1.dtype is x2.dtype, f"expected scalar type {x1.dtype.cname} but found {x2.dtype.cname}")
        by_product = compute_mode == modes[2] or compute_mode in modes[:2] and (s1[-2] > 25 or s2[-2] > 25)
        if p != 2 or not by_product or 0 in s1 or 0 in s2:
            return _cdist(x1, x2, float(p))
        batch = shapes.broadcast(s1[:-2], s2[:-2])
        count = shapes.numel(batch)
        x1 = x1.expand(*batch, *s1[-2:]).reshape(count, *s1[-2:])
        x2 = x2.expand(*batch, *s2[-2:]).reshape(count, *s2[-2:])
        return _euclidean_dist(x1, x2).view(*batch, s1[-2], s2[-2])


def distance(xp, difference, p):
    """The p-norm of `difference` over its last dimension."""
    size = xp.abs(difference)
    if p == 0:
        return (size != 0).sum(-1).astype(size.dtype)
    if p == float("inf"):
        return size.max(-1, initial=0)
    return xp.sqrt((size * size).sum(-1)) if p == 2 else size.sum(-1) if p == 1 else (size ** p).sum(-1) ** (1 / p)


class _cdist(Op):
    """The p-norm distances between the rows of `x1` and of `x2`, from their differences."""

    def meta(x1, x2, p):
        refuse_dtype(x1.dtype, "cdist", (dtypes.float16, dtypes.bfloat16))
        batch = shapes.broadcast(x1.shape[:-2], x2.shape[:-2])
        return spec(x1.dtype, (*batch, x1.shape[-2], x2.shape[-2]), None, x1.device)

    def ref(xp, x1, x2, p):
        # Some rows of x1 at a time, so that their differences to all of x2 stay in the cache.
        n, m, k = x1.shape[-2], *x2.shape[-2:]
        step = max(1, 2**18 // max(1, m * k))
        parts = [distance(xp, x1[..., at:at + step, None, :] - x2[..., None, :, :], p) for at in range(0, max(n, 1), step)]
        return xp.concatenate(parts, -2)

    def d_x1(g, x1, x2, p, out):  return d_difference(g, x1, x2, p, out).sum(-2)
    def d_x2(g, x1, x2, p, out):  return -d_difference(g, x1, x2, p, out).sum(-3)


def d_difference(g, x1, x2, p, dist):
    """The gradient for the differences of all pairs of rows; zero where rows are equal."""
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    g, dist, sign = g.unsqueeze(-1), dist.unsqueeze(-1), difference.sign()
    if p == 0:
        return difference * 0
    if p == float("inf"):
        return g * sign * (difference.abs() == dist)
    size = difference.abs().masked_fill(difference == 0, 1)
    return g * sign * size ** (p - 1) / dist.masked_fill(dist == 0, 1) ** (p - 1)


class _euclidean_dist(Op):
    """The Euclidean distances between rows through one matrix product: |a|² - 2ab + |b|²."""

    node = "EuclideanDistBackward0"

    def meta(x1, x2): return spec(x1.dtype, (*x1.shape[:-1], x2.shape[-2]), None, x1.device)

    def ref(xp, x1, x2):
        n1, n2 = (x1 * x1).sum(-1, keepdims=True), (x2 * x2).sum(-1, keepdims=True)
        left = xp.concatenate([-2 * x1, n1, xp.ones_like(n1)], -1)
        right = xp.concatenate([x2, xp.ones_like(n2), n2], -1)
        return xp.sqrt(xp.maximum(xp.matmul(left, xp.swapaxes(right, -1, -2)), 0))

    def d_x1(g, x1, x2, out):
        ratio = over_distance(g, out)
        return x1 * ratio.sum(-1, keepdim=True) - matmul(ratio, x2)

    def d_x2(g, x1, x2, out):
        ratio = over_distance(g, out)
        return x2 * ratio.sum(-2).unsqueeze(-1) - matmul(ratio.mT, x1)


def over_distance(g, dist):
    """`g` over `dist`, zero where rows coincide."""
    zero = dist == 0
    return (g / dist.masked_fill(zero, 1)).masked_fill(zero, 0)


class _pairwise_distance(Composite):
    """The p-norm of `x1 - x2` over the last dimension, `eps` added to each difference."""

    names = "nn.functional.pairwise_distance pairwise_distance"
    forms = "function"

    def of(x1, x2, p=2.0, eps=1e-6, keepdim=False):
        only_tensors(x1=x1, x2=x2)
        return linalg("_norm_of_rows")(x1 - x2 + eps, p, max(x1.ndim, x2.ndim) - 1, keepdim)


class _cosine_similarity(Composite):
    """The cosine of the angle between `x1` and `x2` along `dim`; norms below `eps` count as `eps`."""

    names = "nn.functional.cosine_similarity cosine_similarity"
    forms = "function"

    def of(x1, x2, dim=1, eps=1e-8):
        only_tensors(x1=x1, x2=x2)
        dtype = dtypes.result_of([(x.dtype, 2 if x.ndim else 1) for x in (x1, x2)])
        need(dtype.is_floating_point, f"expected common dtype to be floating point, yet common dtype is {dtype.cname}")
        shape = shapes.broadcast(x1.spec.shape, x2.spec.shape)
        units = []
        for x in (x1, x2):                                # divided by its norm first: the result stays within -1 and 1
            x = (x.to(dtype) if x.dtype.category < 2 else x).expand(shape)
            units.append(x / _at_least(linalg("_vector_norm")(x, 2, dim, True), eps))
        return (units[0] * units[1]).sum(dim)


class _at_least(Composite):
    """`input`, raised to `low` where it is less; the gradient passes as if it had not been."""

    node = "CloneBackward0"

    def of(input, low):   return input.clamp_min(low)
    def d_input(g):       return g


def linalg(name):
    """An operation of `linalg`, a module that imports this one."""
    from . import linalg
    return getattr(linalg, name)
