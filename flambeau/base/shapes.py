"""Shapes and strides as plain tuples: pure functions, no tensors.

Strides count elements. A refusal is raised with `need`, in the words PyTorch uses.
"""
from .errors import need


def numel(shape):
    """How many elements a shape has."""
    n = 1
    for s in shape:
        n *= s
    return n


def contiguous_strides(shape):
    """Row-major strides; a zero-size dimension counts as one, as in PyTorch."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if size > 1 else 1
    return tuple(reversed(strides))


def columns_first_strides(shape):
    """Strides of matrices, the last two dimensions, that lie column by column, as LAPACK has them."""
    if len(shape) < 2:
        return contiguous_strides(shape)
    return (*contiguous_strides(shape)[:-2], 1, max(shape[-2], 1))


def channels_last_strides(shape):
    """Strides of `channels_last` (4 dims) or `channels_last_3d` (5 dims): channels vary fastest."""
    order = (1, *range(len(shape) - 1, 1, -1), 0)          # innermost first
    strides, step = [0] * len(shape), 1
    for d in order:
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def is_contiguous(shape, strides):
    """Whether the elements lie in row-major order without gaps."""
    if 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def is_channels_last(shape, strides):
    """Whether the elements lie in channels-last order without gaps (4 or 5 dimensions)."""
    if len(shape) not in (4, 5):
        return False
    step = 1
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0:
            return True
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def suggests_channels_last(shape, strides):
    """Whether a result like this one should be laid out channels-last (`suggest_memory_format`)."""
    if len(shape) not in (4, 5) or strides[1] == 0 and shape[1] != 1:
        return False
    low = 0
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < low:
            return False
        if d == 0 and low == strides[1]:                   # N111-like: ambiguous, read as contiguous
            return False
        low = strides[d]
        if shape[d] > 1:
            low *= shape[d]
    return True


def is_dense(shape, strides):
    """Whether the elements fill a block of memory exactly once, in whatever order of dimensions."""
    if 0 in shape:
        return True
    step = 1
    for stride, size in sorted((st, sz) for st, sz in zip(strides, shape, strict=True) if sz != 1):
        if stride != step:
            return False
        step *= size
    return True


def may_overlap(shape, strides):
    """Whether two positions may share a memory cell (exact for expanded, conservative for odd strides)."""
    if 0 in shape:
        return False
    reach = 0
    for stride, size in sorted((st, sz) for st, sz in zip(strides, shape, strict=True) if sz != 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def extent(shape, strides):
    """How many elements of memory the view spans from its first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def wrap_dim(dim, ndim, scalar_ok=True):
    """`dim` counted from the front; a zero-dimensional tensor has dimension 0 by courtesy."""
    need(dim.__class__ not in (bool, float), f"argument 'dim' must be int, not {type(dim).__name__}: got {dim}",
         TypeError)                                 # True would be taken for dimension 1, in sort(True) for one
    span = ndim if ndim or not scalar_ok else 1
    if -span <= dim < span:
        return dim + span if dim < 0 else dim
    need(span > 0, f"Dimension specified as {dim} but tensor has no dimensions", IndexError)
    need(False, f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})", IndexError)


def wrap_dims(dims, ndim):
    """The wrapped dimensions of `dims` (None, int or sequence); None and () mean all of them."""
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        return tuple(range(ndim))
    if isinstance(dims, int):
        return (wrap_dim(dims, ndim),)
    out = tuple(wrap_dim(d, ndim) for d in dims)
    for i, d in enumerate(out):
        need(d not in out[:i], f"dim {d} appears multiple times in the list of dims")
    return out


def broadcast(*shapes):
    """The common shape of `shapes`."""
    first = shapes[0]
    for other in shapes[1:]:
        if other != first:
            break
    else:
        return tuple(first)
    ndim = max(len(s) for s in shapes)
    out = [1] * ndim
    for shape in shapes:
        lead = ndim - len(shape)
        for d in range(len(shape) - 1, -1, -1):            # from the last, as PyTorch names the first misfit it meets
            size = shape[d]
            if size != 1:
                current = out[d + lead]
                if current == 1:
                    out[d + lead] = size
                else:
                    need(current == size, f"The size of tensor a ({current}) must match the size of tensor b ({size}) "
                                          f"at non-singleton dimension {d + lead}" + _unsqueezed(*shapes))
    return tuple(out)


def _unsqueezed(*shapes):
    """Advice for two shapes that do not broadcast: the dimension of size one that would make them."""
    if len(shapes) == 2 and len(shapes[0]) != len(shapes[1]):
        (name, short), (_, long) = sorted(zip("ab", shapes, strict=True), key=lambda named: len(named[1]))
        for d in range(len(short), 0, -1):
            tried = (*short[:d], 1, *short[d:])
            pairs = zip(tried[::-1], long[::-1], strict=False)
            if len(tried) <= len(long) and all(s in (1, n) or n == 1 for s, n in pairs):
                return f"; {name}.unsqueeze({d}), which is {list(tried)}, would fit"
    return ""


def expand_strides(shape, strides, wanted):
    """Strides that show `shape` as `wanted`, repeating with stride 0."""
    lead = len(wanted) - len(shape)
    out = [0] * len(wanted)
    for d, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        out[d + lead] = stride if size == wanted[d + lead] else 0
    return tuple(out)


def reduced(shape, dims, keepdim):
    """The shape after reducing `dims` (already wrapped)."""
    if keepdim:
        return tuple(1 if d in dims else s for d, s in enumerate(shape))
    return tuple(s for d, s in enumerate(shape) if d not in dims)


def fill_in(shape, count):
    """`shape` with its single -1 replaced so that it has `count` elements."""
    product, hole = 1, None
    for i, size in enumerate(shape):              # here, as in every composite, words are made when they are needed
        if size == -1:
            need(hole is None, "only one dimension can be inferred")
            hole = i
        else:
            if size < 0:
                need(False, f"invalid shape dimension {size} at index {i} of shape {list(shape)}")
            product *= size
    if hole is None:
        if product != count:
            need(False, f"shape '{list(shape)}' is invalid for input of size {count}")
        return tuple(shape)
    if product == 0 and count == 0:
        need(False, f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension "
                    "size -1 can be any value and is ambiguous")
    if product == 0 or count % product:
        need(False, f"shape '{list(shape)}' is invalid for input of size {count}")
    return (*shape[:hole], count // product, *shape[hole + 1:])


def view_strides(shape, strides, wanted):
    """Strides that show the same memory as `wanted`, or None where a copy is needed.

    Dimensions merge where the outer one steps exactly over the whole inner one; each merged run of the old
    shape must then split into whole dimensions of the new.
    """
    if 0 in shape:
        return strides if tuple(wanted) == tuple(shape) else contiguous_strides(wanted)
    if not shape:
        return (1,) * len(wanted)
    out, w = [0] * len(wanted), len(wanted) - 1
    step = strides[-1]                       # stride of the run's innermost element
    have = got = 1                           # elements in the run; elements the new dimensions took of it
    for d in range(len(shape) - 1, -1, -1):
        have *= shape[d]
        if d == 0 or (shape[d - 1] != 1 and strides[d - 1] != have * step):
            while w >= 0 and (got < have or wanted[w] == 1):
                out[w] = got * step
                got *= wanted[w]
                w -= 1
            if got != have:
                return None
            if d > 0:
                step, have, got = strides[d - 1], 1, 1
    return tuple(out) if w == -1 else None


def elementwise_strides(shape, operands):
    """Strides of an element-wise result: `operands` are (shape, strides), already known to broadcast to `shape`.

    PyTorch's rule: dense operands that agree give their own layout; otherwise dimensions are sorted by the
    operands' strides, first operand first, and laid out densely in that order.
    """
    full = [st for sh, st in operands if sh == shape]
    if len(full) == len(operands):
        if all(is_contiguous(shape, st) for st in full):
            return contiguous_strides(shape)
        if all(is_channels_last(shape, st) for st in full):
            return channels_last_strides(shape)
        if all(st == full[0] for st in full) and is_dense(shape, full[0]):
            return full[0]
    ndim = len(shape)
    if ndim < 2:
        return contiguous_strides(shape)
    spread = [expand_strides(sh, st, shape) for sh, st in operands]

    def compare(a, b):                       # 1: a is outside b already, -1: swap, 0: no opinion
        for st in spread:
            if st[a] == 0 or st[b] == 0:
                continue
            if st[a] < st[b]:
                return -1
            if st[a] > st[b]:
                return 1
            if shape[a] > shape[b]:          # equal strides: the smaller size goes inside
                return 1
        return 0

    order = list(range(ndim - 1, -1, -1))    # innermost first
    for i in range(1, ndim):                 # insertion sort, as "no opinion" is not transitive
        at = i
        for j in range(i - 1, -1, -1):
            verdict = compare(order[j], order[at])
            if verdict > 0:
                order[at], order[j] = order[j], order[at]
                at = j
            elif verdict < 0:
                break
    strides, step = [0] * ndim, 1
    for d in order:
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def preserved_strides(shape, strides):
    """Strides of a fresh copy under `preserve_format`: the same order of dimensions, densely."""
    if is_dense(shape, strides):
        return tuple(strides)
    return elementwise_strides(tuple(shape), [(tuple(shape), tuple(strides))])


def merged_dims(sizes, strides):
    """Dimensions that several operands go through, each by its own `strides`, as few: [(size, a stride of each), …].

    Those of one go, and two that every operand goes through evenly become one.
    """
    kept: list = []
    for n, *by in zip(sizes, *strides, strict=True):
        if n == 1:
            continue
        if kept and all(outer == inner * n for outer, inner in zip(kept[-1][1:], by, strict=True)):
            kept[-1] = (kept[-1][0] * n, *by)
        else:
            kept.append((n, *by))
    return kept
