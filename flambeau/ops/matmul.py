"""Products of vectors, matrices and batches of matrices.

The products themselves (`mm`, `bmm`, `mv`) the reference takes from NumPy's BLAS, and the native executor from kernels
of our own (backends/cpu/library/gemm.py); there `dot` is a sum like any other. `matmul` and `linear` arrange their
operands and call those, with the same steps as PyTorch, so that they leave the same graph behind.
"""
from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, View, door
from ..base.spec import Spec, spec
from .arith import conj, conjugate
from .pieces import cat, stack
from .view import _expand, _reshape, _view

# --- refusals ---------------------------------------------------------------------------------------------------------

C_TYPE_NAMES = {"uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int",
                "int64": "long int", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float",
                "float64": "double", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
                "bool": "bool", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long",
                **{d.name: f"c10::{d.cname}" for d in dtypes.ALL if d.family == "float8"}}


def only_tensors(**given):
    """Refuse what is not a tensor (or the Spec of one)."""
    for name, a in given.items():
        if not isinstance(a, (Spec, door.tensor)):
            need(False, f"argument '{name}' must be Tensor, not {type(a).__name__}", TypeError)


def refuse_dtype(dtype, kernel, also=()):
    """Refuse bool (and `also`) in PyTorch's words."""
    need(dtype is not dtypes.bool and dtype not in also, f"\"{kernel}\" not implemented for '{dtype.cname}'",
         NotImplementedError)


def need_inner(m1, m2, names=("mat1", "mat2"), words="mat1 and mat2 shapes cannot be multiplied", T="T"):
    """Refuse two matrix shapes whose product does not exist: which sizes differ, and which transpose would fit."""
    (n, k), (l, p) = m1, m2
    if k == l:
        return
    a, b = names
    if k == p:
        fix = f"{a} @ {b}.{T} would fit: {[n, k]} @ {[p, l]}"
    elif n == l:
        fix = f"{a}.{T} @ {b} would fit: {[k, n]} @ {[l, p]}"
    elif n == p:
        fix = f"{b} @ {a} would fit: {[l, p]} @ {[n, k]}"
    else:
        fix = f"{a}.{T} is {[k, n]}, {b}.{T} is {[p, l]}: no transpose fits"
    need(False, f"{words} ({n}x{k} and {l}x{p}); the inner sizes {k} and {l} differ; {fix}")


def need_batches(batch1, batch2):
    """Refuse two batches of matrices that cannot be multiplied pairwise."""
    need(batch1.ndim == 3, f"batch1 must be a 3D tensor, got {batch1.ndim}D")
    need(batch2.ndim == 3, f"batch2 must be a 3D tensor, got {batch2.ndim}D")
    (b, n, k), (c, l, p) = batch1.shape, batch2.shape
    words = f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: [{c}, {l}]."
    need(b == c, words + f" The batch sizes {b} and {c} differ.")
    if k != l:
        need_inner((n, k), (l, p), ("batch1", "batch2"), words + " In each pair", "mT")


def need_expandable(input, shape):
    """Refuse an `input` that does not expand to `shape`."""
    need(input.ndim <= len(shape), f"expand(torch.{input.dtype.cname}Tensor{{{list(input.shape)}}}, "
                                   f"size={list(shape)}): the number of sizes provided ({len(shape)}) must be greater "
                                   f"or equal to the number of dimensions in the tensor ({input.ndim})")
    lead = len(shape) - input.ndim
    for d in range(len(shape) - 1, lead - 1, -1):
        have = input.shape[d - lead]
        need(have in (1, shape[d]), f"The expanded size of the tensor ({shape[d]}) must match the existing size "
                                    f"({have}) at non-singleton dimension {d}.  Target sizes: {list(shape)}.  Tensor "
                                    f"sizes: {list(input.shape)}")


# --- the products -----------------------------------------------------------------------------------------------------


def adjoint(x):
    """Each matrix of `x` transposed and conjugated."""
    return conj(x.transpose(-2, -1))


def column_major(spec):
    """Whether the matrix `spec` is laid out column after column, as the transpose of a contiguous one."""
    return spec.strides[0] == 1 and spec.strides[1] == spec.shape[0] and spec.shape[0] > 1


def d_left(g, right, left_spec):
    """The gradient for the left factor of a matrix product, in the layout that factor has: a weight that was
    transposed on the way in then gets a contiguous gradient without a copy."""
    if column_major(left_spec):
        return mm(conj(right), g.t()).t()
    return mm(g, conj(right.t()))


def d_right(g, left, right_spec):
    """The gradient for the right factor of a matrix product, in the layout that factor has."""
    if column_major(right_spec):
        return mm(g.t(), conj(left)).t()
    return mm(conj(left.t()), g)


def product(k, left, right):
    """Matrix products in a body: a library's work for floats; integers are left to the reference."""
    return k.matmul(left, right) if left.dtype.category > 1 else NotImplemented


OUT_DTYPE_HINT = {"out_dtype": "PyTorch has it on CUDA only; convert the arguments first, as in mm(a.float(), "
                  "b.float())"}


class mm(Op):
    """The matrix product of two matrices.

    >>> torch.mm(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[0, 1], [1, 0]]))
    tensor([[2, 1],
            [4, 3]])
    """

    forms = "function method out"
    refused = OUT_DTYPE_HINT
    strict_out = True

    def meta(input, mat2):
        only_tensors(input=input, mat2=mat2)
        need(input.ndim == 2, f"self must be a matrix, got {input.ndim}-D tensor")
        need(mat2.ndim == 2, f"mat2 must be a matrix, got {mat2.ndim}-D tensor")
        need_inner(input.shape, mat2.shape, ("input", "mat2"))
        need(input.dtype is mat2.dtype, "expected m1 and m2 to have the same dtype, but got: "
             f"{C_TYPE_NAMES[input.dtype.name]} != {C_TYPE_NAMES[mat2.dtype.name]}")
        refuse_dtype(input.dtype, "addmm_impl_cpu_")
        return spec(input.dtype, (input.shape[0], mat2.shape[1]), None, input.device)

    def ref(xp, input, mat2):            return xp.matmul(input, mat2)
    def d_input(g, input_spec, mat2):    return d_left(g, mat2, input_spec)
    def d_mat2(g, input, mat2_spec):     return d_right(g, input, mat2_spec)
    def body(k, input, mat2):            return product(k, input, mat2)


class bmm(Op):
    """The matrix products of two batches of matrices, pair by pair."""

    forms = "function method out"
    refused = OUT_DTYPE_HINT
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
    def body(k, input, mat2):  return product(k, input, mat2)


class _bmm_as_it_lies(Op):
    """The matrix products of batches whose dimensions no view can fold into one: attention's heads, usually."""

    node = "UnsafeViewBackward0"          # PyTorch copies them, and unfolds the result

    def meta(input, mat2):     return spec(input.dtype, (*input.shape[:-1], mat2.shape[-1]), None, input.device)
    def ref(xp, input, mat2):  return xp.matmul(input, mat2)
    def d_input(g, mat2):      return matmul(g, adjoint(mat2))
    def d_mat2(g, input):      return matmul(adjoint(input), g)
    def body(k, input, mat2):  return product(k, input, mat2)


class mv(Op):
    """The product of a matrix and a vector."""

    forms = "function method out"
    strict_out = True

    def meta(input, vec):
        only_tensors(input=input, vec=vec)
        need(input.ndim == 2 and vec.ndim == 1, f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
        (n, k), (l,) = input.shape, vec.shape
        need(k == l, f"size mismatch, got input ({n}), mat ({n}x{k}), vec ({l}); the sizes {k} and {l} differ; "
             + (f"input.T @ vec would fit: {[k, n]} @ {[l]}" if n == l else f"input.T is {[k, n]}: no transpose fits"))
        need(input.dtype is vec.dtype, f"addmv input tensors must have the same dtype, but got {vec.dtype.cname}, "
                                       f"{input.dtype.cname}, and {vec.dtype.cname}")
        refuse_dtype(input.dtype, "addmv_impl_cpu")
        return spec(input.dtype, (n,), None, input.device)

    def ref(xp, input, vec):   return xp.matmul(input, vec)
    def d_input(g, vec):       return outer(g, conj(vec))
    def d_vec(g, input):       return mv(conj(input.t()), g)
    def body(k, input, vec):   return product(k, input, k.reshape(vec, (*vec.shape, 1)))


def check_dot(name, input, other):
    only_tensors(input=input, tensor=other)
    need(input.ndim == 1 and other.ndim == 1, f"1D tensors expected, but got {input.ndim}D and {other.ndim}D tensors")
    need(input.dtype is other.dtype, f"{name} : expected both vectors to have same dtype, but found "
         f"{input.dtype.cname} and {other.dtype.cname}")
    n, m = input.numel, other.numel
    need(n == m, f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of elements, "
         f"but got {n} and {m} elements respectively")
    refuse_dtype(input.dtype, name)
    return spec(input.dtype, (), None, input.device)


class dot(Op):
    """The sum of the products of two vectors' elements."""

    forms = "function method out"
    strict_out = True

    def meta(input, tensor):     return check_dot("dot", input, tensor)
    def ref(xp, input, tensor):  return xp.dot(input, tensor)
    def d_input(g, tensor):      return g * conj(tensor)
    def d_tensor(g, input):      return g * conj(input)
    def body(k, input, tensor):  return k.sum(input * tensor, 0)


class vdot(Op):
    """Like `dot`, with the first vector conjugated."""

    forms = "function method out"
    strict_out = True

    def meta(input, other):     return check_dot("vdot", input, other)
    def ref(xp, input, other):  return xp.vdot(input, other)
    def d_input(g, other):      return conj(g) * other
    def d_other(g, input):      return g * input
    def body(k, input, other):  return k.sum(conjugate(k, input) * other, 0)


class outer(Composite):
    """The products of each element of `input` with each of `vec2`, as a matrix."""

    names = "ger"
    forms = "function method out"
    no_overlap = True

    def of(input, vec2):
        only_tensors(input=input, vec2=vec2)
        need(input.ndim == 1, f"outer: Expected 1-D argument self, but got {input.ndim}-D")
        need(vec2.ndim == 1, f"outer: Expected 1-D argument vec2, but got {vec2.ndim}-D")
        return input.reshape(input.shape[0], 1) * vec2


def affine_spec(input, mat1, mat2):
    """The Spec of a product that is added to `input`."""
    only_tensors(input=input, mat1=mat1, mat2=mat2)
    need(mat1.ndim == 2, f"mat1 must be a matrix, got {mat1.ndim}-D tensor")
    need(mat2.ndim == 2, f"mat2 must be a matrix, got {mat2.ndim}-D tensor")
    need_inner(mat1.shape, mat2.shape)
    shape = (mat1.shape[0], mat2.shape[1])
    need_expandable(input, shape)
    need(input.dtype is mat2.dtype, f"self and mat2 must have the same dtype, but got {input.dtype.cname} and "
         f"{mat2.dtype.cname}")
    need(mat1.dtype is mat2.dtype, "expected m1 and m2 to have the same dtype, but got: "
         f"{C_TYPE_NAMES[mat1.dtype.name]} != {C_TYPE_NAMES[mat2.dtype.name]}")
    refuse_dtype(mat1.dtype, "addmm_impl_cpu_")
    return spec(mat1.dtype, shape, None, mat1.device)


class _affine(Op):
    """`addmm` without its factors, for `linear`."""

    called, node = "addmm", "AddmmBackward0"

    def meta(input, mat1, mat2):              return affine_spec(input, mat1, mat2)
    def ref(xp, input, mat1, mat2):           return xp.matmul(mat1, mat2) + input
    def d_input(g):                           return g
    def d_mat1(g, mat1_spec, mat2):           return d_left(g, mat2, mat1_spec)
    def d_mat2(g, mat1, mat2_spec):           return d_right(g, mat1, mat2_spec)

    def body(k, input, mat1, mat2):
        return k.affine(mat1, mat2, input) if mat1.dtype.is_floating_point else NotImplemented


# --- matmul -----------------------------------------------------------------------------------------------------------


class _unfolded(View):
    """A contiguous `input` with the shape `size`."""

    node = "UnsafeViewBackward0"

    def view(input, size):       return size, shapes.contiguous_strides(size), 0
    def d_input(g, input_spec):  return _reshape(g, input_spec.shape)


class _unfolded_row(View):
    """The row of a matrix that has one."""

    node = "SqueezeBackward4"

    def view(input):  return input.shape[1:], input.strides[1:], 0
    def d_input(g):   return g.unsqueeze(0)


def owned(view):
    """A view of something that nothing else holds, as a tensor of its own (PyTorch calls it an unsafe view)."""
    view._base = view._view_of = None
    return view


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
    spec = larger._spec
    sizes, strides = list(spec.shape), list(spec.strides)
    if larger is other:
        sizes[-2:], strides[-2:] = sizes[:-3:-1], strides[:-3:-1]
    return all(strides[d] == strides[d + 1] * sizes[d + 1] for d in range(len(sizes) - 2))


class matmul(Composite):
    """The product of vectors, matrices or batches of matrices, as the number of dimensions says; batches broadcast.

    >>> (torch.ones(5, 2, 3) @ torch.ones(3, 4)).shape
    torch.Size([5, 2, 4])
    """

    names = "linalg.matmul"
    forms = "function method out"
    strict_out = True

    def of(input, other):
        only_tensors(input=input, other=other)
        d1, d2 = input.ndim, other.ndim
        if d1 == 2 and d2 == 2:
            need_inner(input._spec.shape, other._spec.shape, ("input", "other"))
            return mm(input, other)
        if not d1 or not d2:
            need(False, f"both arguments to matmul need to be at least 1D, but they are {d1}D and {d2}D")
        if d1 == 1 and d2 == 1:
            return dot(input, other)
        if d1 == 2 and d2 == 1:
            return mv(input, other)
        if d1 == 1 and d2 == 2:
            return owned(_unfolded_row(mm(input.unsqueeze(0), other)))
        if should_fold(input, other):
            return folded(input, other)
        return batched(input, other)


def folded(input, other):
    """The product of a batch and a single matrix or vector (in either order) as one product."""
    turned = other.ndim > input.ndim
    many, single = (other.mT, input.t()) if turned else (input, other)
    *lead, k = many._spec.shape
    rows = _reshape(many, (shapes.numel(lead), k))
    if single.ndim == 1:
        return owned(_unfolded(mv(rows, single), tuple(lead)))
    out = owned(_unfolded(mm(rows, single), (*lead, single.shape[1])))
    return out.mT.contiguous() if turned else out


def batched(input, other):
    """The product of two batches of matrices (or a batch and a vector), their batch dimensions broadcast."""
    s1, s2 = input._spec.shape, other._spec.shape
    if len(s1) == 3 and len(s2) == 3 and s1[0] != s2[0]:       # a batch of one that needs a gradient: fold instead
        if s1[0] == 1 and input.requires_grad:
            return matmul(input.squeeze(0), other)
        if s2[0] == 1 and other.requires_grad:
            return matmul(input, other.squeeze(0))
    n, k = (s1[-2] if len(s1) > 1 else 1), s1[-1]
    l, p = (s2[-2], s2[-1]) if len(s2) > 1 else (s2[0], 1)
    batch = shapes.broadcast(s1[:-2], s2[:-2])
    count = shapes.numel(batch)
    if s1[:-2] == s2[:-2] and len(batch) > 1 and k == l and count and input._spec.dtype is other._spec.dtype \
            and input._spec.dtype in (dtypes.float32, dtypes.float64) and \
            any(shapes.view_strides(t._spec.shape, t._spec.strides, (count, *t._spec.shape[-2:])) is None
                for t in (input, other)):
        return _bmm_as_it_lies(input, other)
    left = _reshape(_expand(input, (*batch, n, k)), (count, n, k))
    right = _reshape(_expand(other, (*batch, l, p)), (count, l, p)) if len(s2) > 1 else \
        _reshape(_expand(other, (*batch, l)), (count, l)).unsqueeze(2)
    out = bmm(left, right)
    if len(s2) == 1:
        out = out.squeeze(-1)
    return owned(_unfolded(out, batch + (n,) * (len(s1) > 1) + (p,) * (len(s2) > 1)))


class _linear(Composite):
    """`input` times the transposed `weight`, plus `bias`: the last dimension goes from `in` to `out` features."""

    names = "nn.functional.linear"
    forms = "function out"
    strict_out = True

    def of(input, weight, bias=None):
        only_tensors(input=input, weight=weight)
        x, w = input._spec.shape, weight._spec.shape
        n = len(x)
        if not n or not w:
            need(False, f"both arguments to linear need to be at least 1D, but they are {n}D and {len(w)}D")
        if len(w) == 2 and x[-1] != w[1]:
            k, (p, l) = x[-1], w
            need(False, f"mat1 and mat2 shapes cannot be multiplied ({input.numel() // max(k, 1)}x{k} and {l}x{p}); "
                 f"the last dimension of input has size {k}, weight is for {l} (its shape is [out, in])"
                 + (f"; weight.T would fit: {[l, p]}" if k == p else ""))
        if bias is None:
            return matmul(input, weight.t())
        if input.dtype is not weight.dtype:
            need(False, "mat1 and mat2 must have the same dtype, but got "
                 f"{input.dtype.cname} and {weight.dtype.cname}")
        if n == 2:
            return _affine(bias, input, weight.t())
        if weight.ndim == 2 and bias.ndim == 1 and input.is_contiguous():
            *lead, k = input._spec.shape
            rows = _reshape(input, (shapes.numel(lead), k))
            return _view(_affine(bias, rows, weight.t()), (*lead, weight.shape[0]))
        return matmul(input, weight.t()) + bias


# --- by groups --------------------------------------------------------------------------------------------------------


class grouped_mm(Composite):
    """Products of matrices by groups, of which `offs` (int32) says where each ends: the experts of a mixture.

    A `mat_a` of two dimensions has its rows in groups, a `mat_b` of two its columns, and where both have two, what they
    are summed over is in groups. One of three dimensions has a matrix for each group. What is behind the last group
    counts for nothing. `bias` is not taken; `out_dtype` has to be that of `mat_a`.

    >>> a, b = torch.ones(3, 2), torch.stack([torch.eye(2), 2 * torch.eye(2)])
    >>> torch.nn.functional.grouped_mm(a, b, offs=torch.tensor([1, 3], dtype=torch.int32))
    tensor([[1., 1.],
            [2., 2.],
            [2., 2.]])
    """

    names = "nn.functional.grouped_mm"
    forms = "function"

    def of(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
        return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


class _grouped_mm(Composite):
    """`nn.functional.grouped_mm` of `mat_a` and `mat_b`, as transformers calls it, with all arguments by place.

    `offs` says where each group ends; `bias` is not taken, and `out_dtype` has to be that of `mat_a`.

    >>> torch._grouped_mm(torch.ones(3, 2), torch.ones(2, 2, 1), torch.tensor([1, 3], dtype=torch.int32))
    tensor([[2.],
            [2.],
            [2.]])
    """

    names = "_grouped_mm"
    forms = "function"
    renamed = {"input": "mat_a", "self": "mat_a", "mat2": "mat_b"}

    def of(mat_a, mat_b, offs=None, bias=None, out_dtype=None):
        for name, mat in (("mat_a", mat_a), ("mat_b", mat_b)):
            need(mat.dtype.is_floating_point and mat.dtype.itemsize in (2, 4),
                 f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {mat.dtype.cname}")
            need(mat.dim() in (2, 3), f"{name} has to be 2 or 3d, got {mat.dim()} dimensions")
        flat_a, flat_b = mat_a.dim() == 2, mat_b.dim() == 2
        need((flat_a or flat_b) == (offs is not None), "Have to provide offsets if there is a 2d matrix, or no offset "
                                                       "if both matrices are 3d")
        need(bias is None, "Bias not supported yet")
        need(out_dtype is None or out_dtype is mat_a.dtype, "Grouped gemm output dtype must match `mat_a` dtype")
        need(mat_a.shape[-1] == mat_b.shape[-2], f"contraction dimension of mat_a and mat_b must match, got "
                                                 f"{mat_a.shape[-1]} and {mat_b.shape[-2]}")
        if offs is None:
            return bmm(mat_a, mat_b)
        need(offs.dim() == 1 and offs.dtype is dtypes.int32, "Offsets have to be int32" if offs.dim() == 1 else
             f"offs has to be 1d, got {offs.dim()} dimensions")
        ends = offs.tolist()
        groups = len(ends)
        need((flat_a or mat_a.shape[0] == groups) and (flat_b or mat_b.shape[0] == groups),
             "matrix batch sizes have to match" if flat_a != flat_b else "offs has to have one end for each group")
        ranges = list(zip([0, *ends[:-1]], ends, strict=True))
        if flat_a and flat_b:
            return stack([mm(mat_a[:, start:end], mat_b[start:end]) for start, end in ranges])
        if flat_a:
            parts = [mm(mat_a[start:end], mat_b[i]) for i, (start, end) in enumerate(ranges)]
            rest = mat_a.shape[0] - ends[-1]
            return cat([*parts, mat_a.new_zeros((rest, mat_b.shape[-1]))] if rest else parts)
        parts = [mm(mat_a[i], mat_b[:, start:end]) for i, (start, end) in enumerate(ranges)]
        rest = mat_b.shape[1] - ends[-1]
        return cat([*parts, mat_a.new_zeros((mat_a.shape[1], rest))] if rest else parts, 1)
