"""Distances, similarities and bilinear forms between rows."""
from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .arith import conj
from .einsum import einsum
from .linalg_norm import _norm_of_rows, _vector_norm, norm_body
from .matmul import C_TYPE_NAMES, matmul, only_tensors, refuse_dtype
from .ranges import arange


class _bilinear(Composite):
    """`input1` times each matrix of `weight` times `input2`, plus `bias`."""

    names = "nn.functional.bilinear bilinear"
    forms = "function"

    def of(input1, input2, weight, bias=None):
        only_tensors(input1=input1, input2=input2, weight=weight)
        need(input1.ndim == input2.ndim, f"bilinear(): input dimensions do not match: got {input1.ndim} and "
             f"{input2.ndim}")
        for d, (n, m) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
            need(n == m, f"bilinear(): input batch dimensions do not match at dim {d}: got {n} and {m}")
        for name, x, at in (("input1", input1, 1), ("input2", input2, 2)):
            wanted = weight.shape[at] if weight.ndim == 3 else None
            need(wanted == x.shape[-1], f"bilinear(): {name} size does not match weight size: got {x.shape[-1]} but "
                 f"expected {wanted if wanted is not None else f'a 3-D weight, not {weight.ndim}-D'}")
        need(bias is None or bias.shape[0] == weight.shape[0], "bilinear(): bias size does not match weight size: got "
             f"{bias.shape[0] if bias is not None else 0} but expected {weight.shape[0]}")
        need(input1.dtype is input2.dtype and input1.dtype is weight.dtype, "All tensors must have the same dtype, got "
             f"input1: {C_TYPE_NAMES[input1.dtype.name]}, input2: {C_TYPE_NAMES[input2.dtype.name]}, weight: "
             f"{C_TYPE_NAMES[weight.dtype.name]}")
        lead, rows = input1._spec.shape[:-1], shapes.numel(input1._spec.shape[:-1])
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
        need(compute_mode in modes, f"{compute_mode} is not a valid value for compute_mode; it is one of "
             f"{modes[1:]}", ValueError)
        only_tensors(x1=x1, x2=x2)
        for name, x in (("X1", x1), ("X2", x2)):
            need(x.dtype.category == 2, f"cdist only supports floating-point dtypes, {name} got: {x.dtype.cname}")
        need(p >= 0, f"cdist only supports non-negative p values, got {p}")
        for name, x in (("X1", x1), ("X2", x2)):
            need(x.ndim >= 2, f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
        s1, s2 = x1._spec.shape, x2._spec.shape
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
        return xp.max(size, -1, initial=0)
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
        parts = [distance(xp, x1[..., at:at + step, None, :] - x2[..., None, :, :], p)
                 for at in range(0, max(n, 1), step)]
        return xp.concatenate(parts, -2)

    def d_x1(g, x1, x2, p, out):  return d_difference(g, x1, x2, p, out).sum(-2)
    def d_x2(g, x1, x2, p, out):  return -d_difference(g, x1, x2, p, out).sum(-3)

    def body(k, x1, x2, p):
        x1 = k.reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1]))
        x2 = k.reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
        difference = x1 - x2
        return norm_body(k, difference, p, (difference.ndim - 1,))


class pdist(Op):
    """The p-norm distances between all pairs of rows of `input`: of the first to the second, the third, ….

    >>> torch.pdist(torch.tensor([[0.], [3.], [4.]]))
    tensor([3., 4., 1.])
    """

    names = "nn.functional.pdist"
    forms = "function"

    def meta(input, p=2.0):
        need(input.ndim == 2, f"pdist only supports 2D tensors, got: {input.ndim}D")
        need(input.dtype.category == 2, f"pdist only supports floating-point dtypes, got {input.dtype.cname}")
        need(p >= 0, f"pdist only supports non-negative p values, got {p}")
        refuse_dtype(input.dtype, "pdist", (dtypes.float16, dtypes.bfloat16))
        n = input.shape[0]
        return spec(input.dtype, (n * (n - 1) // 2,), None, input.device)

    def ref(xp, input, p=2.0):
        n = input.shape[0]
        return xp.concatenate([distance(xp, input[i] - input[i + 1:], float(p)) for i in range(n)] or [input[:0, 0]])

    def d_input(g, input, p, out):
        n = input.shape[0]
        made = d_difference(_matrix_of_pairs(g, n), input, input, float(p), _matrix_of_pairs(out, n))
        rows = arange(n, device=input.device)                # a row is no pair with itself, be it infinite
        return made.masked_fill((rows.unsqueeze(1) == rows).unsqueeze(-1), 0).sum(-2)

    def body(k, input, p=2.0):
        first, second = rows_of_pairs(k, input.shape[0])
        return norm_body(k, k.gather(input, 0, first) - k.gather(input, 0, second), float(p), (1,))


def rows_of_pairs(k, n):
    """In a body: of which rows each of the pairs of `n` rows is, two expressions [n * (n - 1) / 2, 1]."""
    count = n * (n - 1) // 2
    left = count - k.index(0, (count, 1))                  # m of them in the row: m (m - 1) < 2 left <= m (m + 1)
    m = k.cast(k.sqrt(k.cast(2 * left, dtypes.float64)), dtypes.int64)                   # or one less
    m = m + k.cast(m * (m + 1) < 2 * left, dtypes.int64)
    return n - 1 - m, n - m - left + k.idiv(m * (m + 1), 2)


class _matrix_of_pairs(Op):
    """The symmetric matrix [n, n] of one number for each pair of rows, in the order of `pdist`; zeros on its
    diagonal."""

    exact = True

    def meta(input, n): return spec(input.dtype, (n, n), None, input.device)

    def ref(xp, input, n):
        made = xp.zeros((n, n), input.dtype)
        first, second = xp.triu_indices(n, 1)
        made[first, second] = made[second, first] = input
        return made

    def d_input(g): return _pairs_of_matrix(g + g.mT)

    def body(k, input, n):
        row, col = k.index(0, (n, n)), k.index(1, (n, n))
        low, high = k.minimum(row, col), k.maximum(row, col)
        at = k.idiv(low * (2 * n - 1 - low), 2) + high - low - 1
        same = row == col
        return k.where(same, 0, k.gather(k.expand(k.reshape(input, (1, *input.shape)), (n, *input.shape)), 1,
                                       k.where(same, 0, at)))


class _pairs_of_matrix(Op):
    """The elements above the diagonal of `input` [n, n], row by row."""

    exact = True

    def meta(input): return spec(input.dtype, (input.shape[0] * (input.shape[0] - 1) // 2,), None, input.device)
    def ref(xp, input): return input[xp.triu_indices(input.shape[0], 1)]
    def d_input(g, input_spec): return _matrix_of_pairs(g, input_spec.shape[0]).triu(1)

    def body(k, input):
        n = input.shape[0]
        first, second = rows_of_pairs(k, n)
        return k.gather(k.reshape(input, (n * n, 1)), 0, first * n + second)             # [pairs, 1]


def d_difference(g, x1, x2, p, dist):
    """The gradient for the differences of all pairs of rows; zero where rows are equal."""
    return slope(g, x1.unsqueeze(-2) - x2.unsqueeze(-3), p, dist)


def slope(g, difference, p, dist):
    """The gradient for `difference`, from that for its p-norm `dist` over the last dimension."""
    if p == 2:
        return difference * over_distance(g, dist).unsqueeze(-1)
    g, dist, sign = g.unsqueeze(-1), dist.unsqueeze(-1), difference.sign()
    if p == 0:
        return difference * 0
    if p == 1:
        return g * sign
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

    def body(k, x1, x2):
        if x1.dtype not in (dtypes.float32, dtypes.float64):
            return NotImplemented
        n1, n2 = (k.sum(x * x, (2,)) for x in (x1, x2))
        n1, n2 = k.reshape(n1, (*x1.shape[:2], 1)), k.reshape(n2, (x2.shape[0], 1, x2.shape[1]))
        return k.sqrt(k.maximum(k.matmul(x1 * -2.0, k.permute(x2, (0, 2, 1))) + n1 + n2, 0.0))


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
        return _norm_of_rows(x1 - x2 + float(eps), p, max(x1.ndim, x2.ndim) - 1, keepdim)


class _cosine_similarity(Composite):
    """The cosine of the angle between `x1` and `x2` along `dim`; norms below `eps` count as `eps`."""

    names = "nn.functional.cosine_similarity cosine_similarity"
    forms = "function"

    def of(x1, x2, dim=1, eps=1e-8):
        only_tensors(x1=x1, x2=x2)
        dtype = dtypes.result_of([(x.dtype, 2 if x.ndim else 1) for x in (x1, x2)])
        need(dtype.is_floating_point, f"expected common dtype to be floating point, yet common dtype is {dtype.cname}")
        shape = shapes.broadcast(x1._spec.shape, x2._spec.shape)
        units = []
        for x in (x1, x2):                                # divided by its norm first: the result stays within -1 and 1
            x = (x.to(dtype) if x.dtype.category < 2 else x).expand(shape)
            units.append(x / _at_least(_vector_norm(x, 2, dim, True), eps))
        return (units[0] * units[1]).sum(dim)


class _at_least(Composite):
    """`input`, raised to `low` where it is less; the gradient passes as if it had not been."""

    node = "CloneBackward0"

    def of(input, low):   return input.clamp_min(low)
    def d_input(g):       return g
