"""Random programs: views, in-place writes, arithmetic and backward, drawn by hypothesis, must mean the same in PyTorch.

A program is a list of steps over a growing pool of tensors. Both sides take each step; either both go on or both refuse
with the same type of exception, and in the end every tensor's contents, strides, version and history flag, and every
leaf's gradient, agree.
"""
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

torch = pytest.importorskip("torch")
import flambeau

SHAPES = [(3,), (2, 3), (4, 1), (2, 1, 3), (), (0, 2), (2, 2)]
index = st.integers(0, 30)
small = st.integers(-3, 3)


def leaf(m, shape, seed, grad, dtype):
    n = 1
    for s in shape:
        n *= s
    data = [((seed + 3) * (i + 2) % 7 - 3) / 2 for i in range(n)]
    return m.tensor(data, dtype=getattr(m, dtype)).reshape(shape).clone().detach().requires_grad_(grad)


# Each step: (name, function(m, pool, pick, a, b)) → a new tensor, or None where it only writes.


def dim(t, a):
    return a % t.dim() if t.dim() else 0


def spread(t):
    """Whether elements share memory: PyTorch fills such a tensor and then fails in its backward; ours does not fail."""
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))


# Index tensors stay in range: PyTorch writes part before it refuses, and does not refuse where the result is empty.
STEPS = {
    "transpose": lambda m, t, u, a, b: t.transpose(dim(t, a), dim(t, b)),
    "select": lambda m, t, u, a, b: t.select(dim(t, a), b % max(t.shape[dim(t, a)], 1) if t.dim() else 0),
    "slice": lambda m, t, u, a, b: t[abs(a) % 3:, ...] if t.dim() else t,
    "step": lambda m, t, u, a, b: t[::abs(a) % 3 + 1],
    "narrow": lambda m, t, u, a, b: t.narrow(dim(t, a), 0, max(0, t.shape[dim(t, a)] - 1)),
    "unsqueeze": lambda m, t, u, a, b: t.unsqueeze(dim(t, a)),
    "squeeze": lambda m, t, u, a, b: t.squeeze(),
    "view": lambda m, t, u, a, b: t.view(-1),
    "reshape": lambda m, t, u, a, b: t.reshape(-1),
    "expand": lambda m, t, u, a, b: t.expand(2, *t.shape),
    "flatten_split": lambda m, t, u, a, b: t.reshape(-1).split(2)[0],
    "diagonal": lambda m, t, u, a, b: t.diagonal(),
    "index": lambda m, t, u, a, b: t[m.tensor([0, a % max(len(t), 1), 0])],
    "mask": lambda m, t, u, a, b: t[t > 0],
    "detach": lambda m, t, u, a, b: t.detach(),
    "clone": lambda m, t, u, a, b: t.clone(),
    "contiguous": lambda m, t, u, a, b: t.contiguous(),
    "add": lambda m, t, u, a, b: t + u,
    "mul": lambda m, t, u, a, b: t * u,
    "sub_number": lambda m, t, u, a, b: t - a / 2,
    "neg": lambda m, t, u, a, b: -t,
    "square": lambda m, t, u, a, b: t ** 2,
    "tanh": lambda m, t, u, a, b: t.tanh(),
    "sum": lambda m, t, u, a, b: t.sum(dim(t, a), keepdim=bool(b % 2)),
    "double": lambda m, t, u, a, b: t.double(),
    "where": lambda m, t, u, a, b: m.where(t > a, t, u),
    "cat": lambda m, t, u, a, b: m.cat([t, u], dim(t, a)),
    "add_": lambda m, t, u, a, b: t.add_(u),
    "mul_": lambda m, t, u, a, b: t.mul_(u),
    "sub_number_": lambda m, t, u, a, b: t.sub_(a / 2),
    "copy_": lambda m, t, u, a, b: t.copy_(u) if t is not u else None,
    "fill_": lambda m, t, u, a, b: t.fill_(a) if not spread(t) else None,
    "zero_": lambda m, t, u, a, b: t.zero_() if not spread(t) else None,
    "tanh_": lambda m, t, u, a, b: t.tanh_(),
    "set_item": lambda m, t, u, a, b: t.__setitem__(abs(a) % 3, u),
    "set_slice": lambda m, t, u, a, b: t.__setitem__(slice(None, abs(a) % 3), b / 2),
    "set_index": lambda m, t, u, a, b: t.__setitem__(m.tensor([0, a % max(len(t), 1)]), b / 2),
    "set_mask": lambda m, t, u, a, b: t.__setitem__(t > b, a / 2),
    "no_grad_add_": lambda m, t, u, a, b: without_grad(m, t, a),
    "backward": lambda m, t, u, a, b: (t * t).sum().backward(retain_graph=bool(a % 2)),
}


def without_grad(m, t, a):
    with m.no_grad():
        t.add_(a)


leaves = st.lists(st.tuples(st.sampled_from(SHAPES), index, st.booleans(), st.sampled_from(["float32", "float64"])),
                  min_size=1, max_size=3)
steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), index, index, small, small), min_size=1, max_size=12)


def run(m, leaf_args, program):
    pool = [leaf(m, *args) for args in leaf_args]
    n = len(pool)
    story = []
    for name, i, j, a, b in program:
        try:
            made = STEPS[name](m, pool[i % len(pool)], pool[j % len(pool)], a, b)
        except Exception as error:
            story.append((name, type(error).__name__))
            continue
        story.append(name)
        if isinstance(made, m.Tensor):
            pool.append(made)
    try:
        total = sum(((t * t).sum() for t in pool[n:]), pool[0].sum())
        if total.requires_grad:
            total.backward()
    except Exception as error:
        story.append(("backward", type(error).__name__))
    facts = [(tuple(t.shape), [s for s, n in zip(t.stride(), t.shape) if n > 1 and t.numel()], t.storage_offset(),
              str(t.dtype), t.requires_grad, t._version, t._is_view()) for t in pool]
    values = [t.detach().clone().double().reshape(-1).tolist() for t in pool]
    grads = [None if t.grad is None else t.grad.double().reshape(-1).tolist() for t in pool[:n]]
    return story, facts, values, grads


def same_numbers(a, b):
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(x == y or x != x and y != y or abs(x - y) <= 1e-4 * max(1, abs(x), abs(y))
                                    for x, y in zip(a, b))


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(leaves, steps)
def test_random_programs(leaf_args, program):
    theirs, ours = run(torch, leaf_args, program), run(flambeau, leaf_args, program)
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    for mine, other in zip(ours[2] + ours[3], theirs[2] + theirs[3]):
        assert same_numbers(mine, other), (ours, theirs)
