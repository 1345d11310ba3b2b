"""Random programs over tensors, for whoever wants to compare two ways of running them.

A program is a list of leaves and a list of steps over a growing pool of tensors. Every step is written for a module `m`
that is Flambeau or PyTorch. A tensor is *rough* once rounding can differ between two right ways of computing it: by how
much, beside the largest number around, is the coarsest unit on its way. A step that would make a jump out of such a
difference (a comparison, a cast to integers) is then left out.
"""
import math

import numpy as np
from hypothesis import strategies as st

SHAPES = [(), (1,), (3,), (17,), (70,), (2, 3), (4, 1), (5, 33), (1, 9), (2, 3, 4), (3, 1, 5), (2, 2, 2, 3), (0, 3),
          (40, 20), (2, 130)]
FLOATS = ["float32", "float32", "float32", "float64", "float16", "bfloat16"]
WHOLE = ["int64", "int64", "int32", "uint8", "int8", "bool"]
INFO = {"float32": (2.0**-23, 1e30), "float64": (2.0**-52, 1e250), "float16": (2.0**-10, 1e4),
        "bfloat16": (2.0**-7, 1e30)}


def numbers(shape, seed, dtype):
    """Dyadic rationals, whose sums and products are exact; with some seeds the hard ones among them."""
    n = math.prod(shape)
    x = ((np.arange(n, dtype=np.int64) + seed) * 7919 % 25 - 12) / 4
    if dtype in WHOLE:
        x = x * 4
        if seed % 5 == 0 and n:
            x[seed % n] = {"int64": 2.0**62, "int32": 2.0**31 - 1}.get(dtype, 127)
        return (np.abs(x) if dtype in ("uint8", "bool") else x).astype(dtype).reshape(shape)
    if seed % 5 == 0 and n:
        for i, hard in enumerate((math.nan, -0.0, math.inf, -math.inf)[seed % 4:][:2]):
            x[(seed + 3 * i) % n] = hard
    return x.reshape(shape)


def leaf(m, shape, seed, dtype, grad):
    made = m.tensor(numbers(shape, seed, dtype).tolist(), dtype=getattr(m, dtype)).reshape(shape).clone()
    return made.requires_grad_() if grad and dtype in INFO else made


def dim(t, a):
    return a % t.dim() if t.dim() else 0


def within(t, a, d=0):
    return a % max(t.shape[d], 1) if t.dim() else 0


def real(t):
    """Something that arithmetic of floats takes, of moderate size."""
    return t if t.dtype.is_floating_point else t.float() / 8


def tame(t):
    return real(t).clamp(-8, 8)


def index(m, t, a, n, d=0):
    if not t.shape[d]:
        raise IndexError("nothing to point at")
    return m.tensor([(a + 5 * i) % max(t.shape[d], 1) for i in range(n)])


def spread(t):
    """Whether elements share memory: writing to such a tensor is refused, or means nothing."""
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))


def image(t):
    """As images of one channel, with the last dimension across."""
    return tame(t).float().reshape(1, 1, -1, t.shape[-1])


def norm(m, t):
    return m.nn.functional.layer_norm(tame(t).float(), t.shape[-1:], eps=0.1)      # less would magnify what was lost


def entropy(m, t, a):
    x = tame(t).float().reshape(-1, t.shape[-1])
    return m.nn.functional.cross_entropy(x, index(m, x.t(), a, len(x)))


# What a step does to exactness: "=" leaves it, "~" makes the result rough, "!" asks for exact operands.
STEPS = {
    # seen otherwise
    "= transpose": lambda m, t, u, a, b: t.transpose(dim(t, a), dim(t, b)),
    "= permute": lambda m, t, u, a, b: t.permute(*[(i + a) % t.dim() for i in range(t.dim())]),
    "= select": lambda m, t, u, a, b: t.select(dim(t, a), within(t, b, dim(t, a))),
    "= slice": lambda m, t, u, a, b: t[a % 3:],
    "= last": lambda m, t, u, a, b: t[..., :max(1, t.shape[-1] - a % 3)],
    "= step": lambda m, t, u, a, b: t[..., ::a % 3 + 1],
    "= unsqueeze": lambda m, t, u, a, b: t.unsqueeze(dim(t, a)),
    "= squeeze": lambda m, t, u, a, b: t.squeeze(),
    "= reshape": lambda m, t, u, a, b: t.reshape(-1) if a % 2 else t.reshape(t.shape[::-1]),
    "= expand": lambda m, t, u, a, b: t.expand(a % 3 + 1, *t.shape) if t.numel() < 2000 else t,
    "= diagonal": lambda m, t, u, a, b: t.diagonal(),
    # moved
    "= clone": lambda m, t, u, a, b: t.clone(),
    "= contiguous": lambda m, t, u, a, b: t.contiguous(),
    "= flip": lambda m, t, u, a, b: t.flip(dim(t, a)),
    "= roll": lambda m, t, u, a, b: t.roll(a - 5, dim(t, b)),
    "= cat": lambda m, t, u, a, b: m.cat([t, u, t], dim(t, a)),
    "= stack": lambda m, t, u, a, b: m.stack([t, t.clone()], dim(t, a)),
    "= rows": lambda m, t, u, a, b: t[index(m, t, a, b % 5 + 1)],
    "= index_select": lambda m, t, u, a, b: t.index_select(dim(t, b), index(m, t, a, 4, dim(t, b))),
    "= gather": lambda m, t, u, a, b: t.clone().gather(dim(t, b), (m.arange(t.numel()).reshape(t.shape) * 7 + a) % max(
        t.shape[dim(t, b)], 1)),
    "= embedding": lambda m, t, u, a, b: m.nn.functional.embedding(index(m, t, a, 6).reshape(2, 3), t),
    "= tril": lambda m, t, u, a, b: t.tril(a - 3),
    "= pad": lambda m, t, u, a, b: m.nn.functional.pad(t, (a % 3, b % 2), value=1),
    # arithmetic that rounds alike everywhere
    "= add": lambda m, t, u, a, b: t + u,
    "= sub": lambda m, t, u, a, b: t - u if t.dtype is not m.bool and u.dtype is not m.bool else t ^ t,
    "= mul": lambda m, t, u, a, b: t * u,
    "= add_number": lambda m, t, u, a, b: t + a,
    "= mul_number": lambda m, t, u, a, b: t * (b - 4),
    "= half": lambda m, t, u, a, b: t * 0.5,
    "= neg": lambda m, t, u, a, b: -t if t.dtype is not m.bool else ~t,
    "= abs": lambda m, t, u, a, b: t.abs(),
    "= relu": lambda m, t, u, a, b: t.relu(),
    "= maximum": lambda m, t, u, a, b: m.maximum(t, u),
    "= minimum": lambda m, t, u, a, b: m.minimum(t, u),
    "= clamp": lambda m, t, u, a, b: t.clamp(-a, b),
    "= double": lambda m, t, u, a, b: t.double(),
    "= amax": lambda m, t, u, a, b: t.amax(dim(t, a), keepdim=b % 2 == 0),
    "= amin": lambda m, t, u, a, b: t.amin(),
    # with a jump somewhere
    "! floor_divide": lambda m, t, u, a, b: t.detach() // (a + 1),
    "! remainder": lambda m, t, u, a, b: t % (a + 1),
    "! floor": lambda m, t, u, a, b: t.floor(),
    "! round": lambda m, t, u, a, b: t.round(),
    "! sign": lambda m, t, u, a, b: t.sign(),
    "! less": lambda m, t, u, a, b: t < u,
    "! equal": lambda m, t, u, a, b: t == u,
    "! isnan": lambda m, t, u, a, b: t.isnan(),
    "! where": lambda m, t, u, a, b: m.where(t > b - 4, t, u),
    "! masked": lambda m, t, u, a, b: t.masked_fill(t > a, b),
    "! argmax": lambda m, t, u, a, b: t.argmax(dim(t, a)),
    "! argmin": lambda m, t, u, a, b: t.argmin(),
    "! any": lambda m, t, u, a, b: t.any(dim(t, a)),
    "! all": lambda m, t, u, a, b: t.all(),
    "! bool": lambda m, t, u, a, b: t.bool(),
    "! sum_whole": lambda m, t, u, a, b: t.nan_to_num(0, 3, -3).long().sum(dim(t, a)),
    "! count": lambda m, t, u, a, b: (t > 0).sum(),
    "! prod_whole": lambda m, t, u, a, b: t.nan_to_num(0, 3, -3).int().prod(dim(t, a)),
    "! cast": lambda m, t, u, a, b: t.nan_to_num(0, 3, -3).clamp(-100, 100).to((m.int8, m.int32, m.int64, m.uint8)[
        a % 4 if not t.dtype.is_floating_point else a % 3]),
    "! sort": lambda m, t, u, a, b: t.sort(dim(t, a))[0],
    "! cumsum": lambda m, t, u, a, b: t.cumsum(dim(t, a)),
    "! shift": lambda m, t, u, a, b: t << a % 3 if not t.dtype.is_floating_point and t.dtype is not m.bool else t,
    # mathematics
    "~ div": lambda m, t, u, a, b: real(t) / (tame(u).abs() + 1),
    "~ exp": lambda m, t, u, a, b: tame(t).exp(),
    "~ tanh": lambda m, t, u, a, b: real(t).tanh(),
    "~ sigmoid": lambda m, t, u, a, b: real(t).sigmoid(),
    "~ sqrt": lambda m, t, u, a, b: (real(t).abs() + 0.25).sqrt(),
    "~ log1p": lambda m, t, u, a, b: real(t).abs().log1p(),
    "~ sin": lambda m, t, u, a, b: tame(t).sin(),
    "~ gelu": lambda m, t, u, a, b: m.nn.functional.gelu(tame(t)),
    "~ pow": lambda m, t, u, a, b: (tame(t).abs() + 0.5) ** (b / 2 - 2),
    "~ float": lambda m, t, u, a, b: t.float(),
    "~ to_half": lambda m, t, u, a, b: tame(t).to(m.bfloat16 if a % 2 else m.float16),
    "~ sum": lambda m, t, u, a, b: t.sum(dim(t, a), keepdim=b % 2 == 0),
    "~ sum_all": lambda m, t, u, a, b: t.sum(),
    "~ mean": lambda m, t, u, a, b: real(t).mean(dim(t, a), keepdim=b % 2 == 0),
    "~ prod": lambda m, t, u, a, b: tame(t).clamp(-1.5, 1.5).prod(dim(t, a)) + 0,
    "~ var": lambda m, t, u, a, b: tame(t).var(dim(t, a), keepdim=b % 2 == 0),
    "~ centred": lambda m, t, u, a, b: tame(t) - tame(t).mean(-1, keepdim=True),
    "~ softmax": lambda m, t, u, a, b: real(t).softmax(dim(t, a)),
    "~ log_softmax": lambda m, t, u, a, b: tame(t).log_softmax(dim(t, a)),
    "~ logsumexp": lambda m, t, u, a, b: tame(t).logsumexp(dim(t, a)),
    "~ layer_norm": lambda m, t, u, a, b: norm(m, t),
    "~ cross_entropy": lambda m, t, u, a, b: entropy(m, t, a),
    "~ matmul": lambda m, t, u, a, b: tame(t).float() @ tame(t).float().transpose(-1, -2)[..., :40],
    "~ linear": lambda m, t, u, a, b: m.nn.functional.linear(
        tame(t).float(), real(t).reshape(-1, t.shape[-1])[:40].float()),
    "~ conv": lambda m, t, u, a, b: m.nn.functional.conv2d(image(t), m.arange(8.0).reshape(2, 1, 2, 2) / 8 - 0.5, None,
                                                           a % 2 + 1, b % 2),
    "! max_pool": lambda m, t, u, a, b: m.nn.functional.max_pool2d(t.nan_to_num(0, 3, -3).float()[None, None].reshape(
        1, -1, 1, t.shape[-1]).transpose(1, 2), 2, a % 2 + 1, b % 2),
    # written
    "= add_": lambda m, t, u, a, b: t.add_(u),
    "= mul_": lambda m, t, u, a, b: t.mul_(u),
    "= add_number_": lambda m, t, u, a, b: t.add_(a),
    "= copy_": lambda m, t, u, a, b: t.copy_(u.to(t.dtype)) if t.dtype.is_floating_point and not spread(t) else None,
    "= fill_": lambda m, t, u, a, b: t.fill_(a) if not spread(t) else None,
    "= zero_": lambda m, t, u, a, b: t.zero_() if not spread(t) else None,
    "= relu_": lambda m, t, u, a, b: t.relu_(),
    "= clamp_": lambda m, t, u, a, b: t.clamp_(-a, b),
    "~ tanh_": lambda m, t, u, a, b: t.tanh_(),
    "! masked_fill_": lambda m, t, u, a, b: t.masked_fill_(t > a, b) if not spread(t) else None,
    "= set_item": lambda m, t, u, a, b: t.__setitem__(within(t, a), b),
    "= set_slice": lambda m, t, u, a, b: t.__setitem__(slice(a % 3, None, b % 2 + 1), b),
    "= set_rows": lambda m, t, u, a, b: t.__setitem__(
        slice(None, None, 2), t[::2] * 2 if t.dtype is not m.bool else t[::2]),
    "= shift_rows": lambda m, t, u, a, b: t.__setitem__(slice(1, None), t[:-1]),
    "= set_index": lambda m, t, u, a, b: t.__setitem__(index(m, t, a, 2), b),
    "= column": lambda m, t, u, a, b: t[..., within(t, a, -1)].mul_(2),
    "= no_grad": lambda m, t, u, a, b: quietly(m, t, a),
    # looked at
    "= look": lambda m, t, u, a, b: (t.tolist(), None)[1],
    "= detach": lambda m, t, u, a, b: t.detach(),
    "= drop": lambda m, t, u, a, b: "drop",
}
WRITES = {name for name in STEPS if name.endswith("_")} | {"= set_item", "= set_slice", "= set_rows", "= shift_rows",
                                                            "= set_index", "= column", "= no_grad"}


def quietly(m, t, a):
    with m.no_grad():
        t.add_(a)


small = st.integers(0, 9)
leaves = st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(0, 40), st.sampled_from(FLOATS + WHOLE),
                            st.booleans()),
                  min_size=1, max_size=3)
back = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 5, 8])          # mostly what was made last
steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), back, back, small, small), min_size=4, max_size=20)


class Made:
    """A tensor of the pool: which memory it stands in, and how rough that is."""

    def __init__(self, tensor, base=None):
        self.tensor, self.base = tensor, base or self
        if base is None:
            self.rough = unit(tensor) if unit(tensor) > 2.0**-23 else 0.0


def cell(m, tensor):
    """What two tensors have in common that stand in the same memory."""
    return tensor.untyped_storage()._cdata if m.__name__ == "torch" else id(tensor._storage)


def unit(tensor):
    """The unit of the last place at 1; not less than float32's, which is on most ways."""
    return max(2.0**-23, INFO.get(str(tensor.dtype).removeprefix("torch."), (0.0,))[0])


def run(m, leaf_args, program, backward=True):
    """(what happened, [(contents, how rough) of every tensor, then of the gradients of the leaves])."""
    pool = [Made(leaf(m, *args)) for args in leaf_args]
    begun, story = list(pool), []
    for name, i, j, a, b in program:
        t, u = pool[-1 - i % len(pool)], pool[-1 - j % len(pool)]
        rough = max(t.base.rough, u.base.rough)
        if name[0] == "!" and rough:
            story.append(f"{name} left out")
            continue
        try:
            made = STEPS[name](m, t.tensor, u.tensor, a, b)
        except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError) as error:
            story.append(f"{name} {type(error).__name__}")
            continue
        story.append(name)
        if isinstance(made, m.Tensor) and made.numel() > 1_000_000:
            continue
        if name[0] == "~":
            rough = max(rough, unit(t.tensor))
        if name in WRITES:
            t.base.rough = max(t.base.rough, rough)
        elif isinstance(made, str):
            if t not in begun and len(pool) > len(begun):
                pool.remove(t)
        elif made is not None:
            one = Made(made, t.base if cell(m, made) == cell(m, t.tensor) else None)
            one.base.rough = max(one.base.rough, rough)
            pool.append(one)
    if backward:
        try:
            total = sum((tame(p.tensor).float() ** 2).sum() for p in pool if p.tensor.dtype.is_floating_point)
            if total is not None and not isinstance(total, int) and total.requires_grad:
                total.backward()
        except RuntimeError as error:
            story.append(f"backward {type(error).__name__}")
    values = [(plain(p.tensor), p.base.rough) for p in pool]
    coarsest = max(2.0**-23, *(p.base.rough for p in pool), *(unit(p.tensor) for p in pool))
    grads = [None if p.tensor.grad is None else (plain(p.tensor.grad), coarsest) for p in begun]
    return story, values + grads


def plain(t):
    """(name of the dtype, contents as an array)."""
    name = str(t.dtype).removeprefix("torch.")
    t = t.detach()
    return name, (t.double() if name in INFO else t).clone().cpu().numpy()


def scale_of(results):
    """The greatest number that is still ordinary, among all of them: what was lost beside it may be missing."""
    most = 1.0
    for (name, x), _ in (r for r in results if r is not None):
        if name in INFO and x.size:
            ordinary = np.abs(x[np.isfinite(x)])
            most = max(most, ordinary[ordinary < 1e6].max(initial=0))
    return most


def differ(ours, theirs, scale, units):
    """Where two results disagree by more than `units` of their roughness beside `scale`; None if nowhere."""
    if ours is None or theirs is None:
        return None if ours is theirs else "one of them is missing"
    (kind, a), rough = ours
    other, b = theirs[0]
    if kind != other or a.shape != b.shape:
        return f"{kind}{list(a.shape)} and {other}{list(b.shape)}"
    same = (a == b) | (a != a) & (b != b)
    if kind in INFO and rough:
        huge = INFO[kind][1]
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= units * rough * np.maximum(np.maximum(np.abs(a), np.abs(b)), scale)
            same |= near | ~(np.abs(a) < min(huge, 1e6)) & ~(np.abs(b) < min(huge, 1e6))
    if np.all(same):
        return None
    at = tuple(np.argwhere(~same)[0])
    return f"{kind}{list(a.shape)} at {list(map(int, at))}: {a[at]!r} and {b[at]!r} ({int((~same).sum())} differ)"
