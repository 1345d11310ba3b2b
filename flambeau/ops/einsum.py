"""Sums of products over chosen dimensions: einsum, tensordot, Kronecker products and chains of matrices.

Each permutes and reshapes its operands until what is left is one `bmm` or `mm`, so that gradients come of themselves.
"""

from ..base import shapes
from ..base.errors import need, warn
from ..base.op import Composite, door
from .matmul import _unfolded, bmm, dot, mm, only_tensors, owned

# --- named relatives --------------------------------------------------------------------------------------------------


class inner(Composite):
    """The sums of products over the last dimensions of `input` and `other`."""

    forms = "function method out"

    def strict_out(input, other): return input.ndim and other.ndim

    def of(input, other):
        only_tensors(input=input, other=other)
        if not input.ndim or not other.ndim:
            return input * other
        need(input.shape[-1] == other.shape[-1], "inner() the last dimension must match on both input tensors but got "
             f"shapes {list(input.shape)} and {list(other.shape)}")
        return tensordot(input, other, ((-1,), (-1,)))


class tensordot(Composite):
    """The sums of products over `dims`: a number of dimensions (last of `a`, first of `b`), or a list for each."""

    forms = "function out"
    strict_out = True

    def of(a, b, dims=2):
        only_tensors(a=a, b=b)
        dims_a, dims_b = contracted(a, b, dims)
        need(a.dtype is b.dtype, f"both inputs should have same dtype, got {a.dtype} and {b.dtype}")
        need(len(dims_a) == len(dims_b), f"both dimension lists should have same length, got {list(dims_a)} and "
                                         f"{list(dims_b)}")
        dims_a = shapes.wrap_dims(dims_a, a.ndim) if dims_a else ()
        dims_b = shapes.wrap_dims(dims_b, b.ndim) if dims_b else ()
        size_a, size_b, count = a._spec.shape, b._spec.shape, 1
        for i, j in zip(dims_a, dims_b, strict=True):
            if size_b[j] == 1:                           # broadcast: sum the other side right away
                a = a.sum(i, keepdim=True, dtype=a.dtype)
            elif size_a[i] == 1:
                b = b.sum(j, keepdim=True, dtype=b.dtype)
            else:
                need(size_a[i] == size_b[j], f"contracted dimensions need to match, but first has size {size_a[i]} in "
                     f"dim {i} and second has size {size_b[j]} in dim {j}")
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
        first, second = ((given,) if isinstance(given, int) else tuple(given) for given in dims)
        return first, second
    need(dims >= 0, f"tensordot expects dims >= 0, but got dims={dims}")
    need(dims <= min(a.ndim, b.ndim), f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))


class kron(Composite):
    """The Kronecker product: each element of `input` times the whole of `other`, laid out as blocks."""

    forms = "function method out"
    no_overlap = True

    def of(input, other):
        only_tensors(input=input, other=other)
        ndim = max(input.ndim, other.ndim)
        rows = (1,) * (ndim - input.ndim) + input._spec.shape
        columns = (1,) * (ndim - other.ndim) + other._spec.shape
        left = input.reshape([n for size in rows for n in (size, 1)])
        right = other.reshape([n for size in columns for n in (1, size)])
        return owned(_unfolded((left * right).contiguous(), tuple([n * m for n, m in zip(rows, columns, strict=True)])))


class _multi_dot(Composite):
    """The product of a chain of matrices (the first and last may be vectors), in the order that costs least."""

    names = "linalg.multi_dot"
    forms = "function out"
    lists = True
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
            need(x.dtype is tensors[0].dtype, "multi_dot(): all tensors must have be the same dtype but tensor 0 is "
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

    forms = "function out"

    def of(*matrices):
        warn("torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
             "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than "
             "multiple parameters.")
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
        if len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], (tuple, list)):
            return einsum(args[0], *args[1])             # one of these may take the call over, as a Proxy of fx does
        need(len(args) >= 2, "einsum(): must specify the equation string and at least one operand, or at least one "
             "operand and its subscripts list", ValueError)
        operands, labels, target = subscripts(args)
        return contract(operands, labels, target)


def subscripts(args):
    """(operands, labels of each, labels of the output or None) from either way of writing the call."""
    if isinstance(args[0], str):
        equation, *operands = args
        for at, x in enumerate(operands):
            if not isinstance(x, door.tensor):
                raise TypeError(f"einsum(): expected Tensor as element {at} in argument 1, but got {type(x).__name__}")
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
    again = "but an ellipsis (...)" if what == "output" else "for which an ellipsis"
    while at < len(part):
        c = part[at]
        if c == ".":
            need(ELLIPSIS not in found, f"einsum(): found '.' for {what} {again} was already found")
            need(part[at:at + 3] == ELLIPSIS, f"einsum(): found '.' for {what} that is not part of any ellipsis")
            found.append(ELLIPSIS)
            at += 3
            continue
        if c != " ":
            need(c.isascii() and c.isalpha(), f"einsum(): invalid subscript given at index {start + at} in the "
                 f"equation string, subscripts must be in [a-zA-Z], got {c!r}")
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
    dim_of, dims = {}, 0                                  # label → its dimension after permuting
    for c in target:
        if c != ELLIPSIS:
            need(c not in dim_of, f"einsum(): output subscript {c} appears more than once in the output")
            need(c in seen, f"einsum(): output subscript {c} does not appear in the equation for any input operand")
        dim_of[c] = dims
        dims += spare if c == ELLIPSIS else 1
    kept = dims
    for c in (ELLIPSIS, *seen):
        if c not in dim_of:
            dim_of[c] = dims
            dims += spare if c == ELLIPSIS else 1
    sizes, holders = [1] * dims, [0] * dims               # each dimension's size, and how many operands have it
    ops = [arranged(x, marks, at, dim_of, spare, sizes, holders)
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
        return ops[0].view(ops[0]._spec.shape[:kept]) if several else ops[0].sum(list(range(kept, dims)))
    return ops[0]


def arranged(x, marks, at, dim_of, spare, sizes, holders):
    """Operand `x` with repeated labels as diagonals and its dimensions in that order; size one where it has none."""
    order, d = [None] * len(sizes), 0
    covered = x.ndim - (len(marks) - 1)                   # by the ellipsis, where there is one

    def put(where, words, before):
        n = x.shape[d]
        if n != 1:
            need(sizes[where] in (1, n), f"einsum(): {words} has size {n} for operand {at} which does not broadcast "
                 f"with previously seen {before} {sizes[where]}")
            sizes[where] = n
            holders[where] += 1
        order[where] = d

    for c in marks:
        if c == ELLIPSIS:
            for j in range(spare - covered, spare):
                put(dim_of[c] + j, f"dimension {d} covered by ellipsis", "ellipsis with size")
                d += 1
        elif order[dim_of[c]] is None:
            put(dim_of[c], f"subscript {c}", "size")
            d += 1
        else:
            before = order[dim_of[c]]
            need(x.shape[d] == x.shape[before], f"einsum(): subscript {c} is repeated for operand {at} but the sizes "
                 f"don't match, {x.shape[d]} != {x.shape[before]}")
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
