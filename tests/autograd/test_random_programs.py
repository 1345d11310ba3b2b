"""Random programs of views, in-place writes and arithmetic: values against NumPy, gradients against NumPy's slopes.

A program is a list of steps over a growing pool of tensors. NumPy's basic indexing shares memory exactly where a view
does, so the same steps written for arrays say what every element must be; running them at two neighbouring points
says what the derivative must be.
"""
import numpy as np
from hypothesis import HealthCheck, assume, event, given, settings, strategies as st

import flambeau as torch

from ..thorough import THOROUGH


def weight(t):
    return np.cos(np.arange(t.size, dtype=np.float64)).reshape(t.shape)


# What one step does: the same expression for a tensor and for an array. `t` and `u` are of the pool, `k` is a number.

VIEWS = {
    "transpose": lambda t, u, k: t.T if t.ndim == 2 else t,
    "slice": lambda t, u, k: t[1:],
    "step": lambda t, u, k: t[::2],
    "last": lambda t, u, k: t[..., :-1],
    "row": lambda t, u, k: t[k % t.shape[0]],
    "item": lambda t, u, k: t[0, -1] if t.ndim == 2 else t[0],
    "unsqueeze": lambda t, u, k: t[:, None],
    "reshape": lambda t, u, k: t.reshape(-1),              # a view where it can be, in both
}
MAKES = {
    "add": lambda t, u, k: t + u,
    "sub": lambda t, u, k: u - t,
    "mul": lambda t, u, k: t * u,
    "scale": lambda t, u, k: t * (k / 2),
    "square": lambda t, u, k: t ** 2 / 4,
    "sum": lambda t, u, k: t.sum(0),
    "gather": lambda t, u, k: t[[0, -1, 0]],
}
WRITES = {
    "add_": lambda t, u, k: t.__iadd__(u),
    "shift_": lambda t, u, k: t.__isub__(k / 2),
    "scale_": lambda t, u, k: t.__imul__(k / 2),
    "mul_": lambda t, u, k: t.__imul__(u),
    "fill": lambda t, u, k: t.__setitem__(..., k / 2),
    "copy": lambda t, u, k: t.__setitem__(..., u),
    "set row": lambda t, u, k: t.__setitem__(k % t.shape[0], u),
    "set slice": lambda t, u, k: t.__setitem__(slice(None, None, 2), k / 2),
    "set column": lambda t, u, k: t.__setitem__((..., 0), u),
}
STEPS = {**VIEWS, **MAKES, **WRITES}

programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9), st.integers(-3, 3)),
                    min_size=1, max_size=12)


def possible(name, t, u, k):
    """Whether both libraries would take the step (dimensions, broadcasting; no write into memory that it reads)."""
    if name not in ("transpose", "reshape", "scale", "square", "fill", "add", "sub", "mul") and not name.endswith("_"):
        if t.ndim == 0 or 0 in t.shape:
            return False
    if name in ("add", "sub", "mul"):
        try:
            np.broadcast_shapes(t.shape, u.shape)
        except ValueError:
            return False
    target = t[0] if name == "set row" else t[..., 0] if name == "set column" else t
    if name in ("add_", "mul_", "copy", "set row", "set column"):
        try:
            if np.broadcast_shapes(target.shape, u.shape) != target.shape:
                return False
        except ValueError:
            return False
        if np.may_share_memory(t, u) and not (t is u and name in ("add_", "mul_")):
            return False                                     # PyTorch refuses most of these, NumPy none
    return True


def with_numpy(x, program):
    """The pool after the program, and the steps that could be taken."""
    pool, taken = [x * 1.0], []
    for name, i, j, k in program:
        t, u = pool[i % len(pool)], pool[j % len(pool)]
        if not possible(name, t, u, k):
            continue
        taken.append((name, i, j, k))
        if name == "item":                                   # with `...` NumPy gives a view, without a number
            pool.append(t[0, -1, ...] if t.ndim == 2 else t[0, ...])
        elif name == "row":
            pool.append(t[k % t.shape[0], ...])
        elif name in WRITES:
            STEPS[name](t, u, k)
        else:
            pool.append(np.asarray(STEPS[name](t, u, k)))
    return pool, taken


def total(pool):
    return sum((t * weight(t)).sum() for t in pool)


def with_flambeau(x, taken):
    pool = [x * 1.0]
    for name, i, j, k in taken:
        made = STEPS[name](pool[i % len(pool)], pool[j % len(pool)], k)
        if name not in WRITES:
            pool.append(made)
    return pool


def start():
    return np.sin(np.arange(1.0, 13.0)).reshape(3, 4)


@settings(max_examples=400 if THOROUGH else 120, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(programs)
def test_values_and_gradients(program):
    at = start()
    expected, taken = with_numpy(at, program)
    assume(taken)
    x = torch.tensor(at, requires_grad=True)
    pool = with_flambeau(x, taken)
    for ours, theirs in zip(pool, expected):
        assert tuple(ours.shape) == theirs.shape, taken
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-12, atol=1e-12, err_msg=str(taken))
        if theirs.size > 1 and 1 not in theirs.shape:
            assert ours.stride() == tuple(s // 8 for s in theirs.strides) or not ours._is_view(), taken
    loss = sum((t * torch.tensor(weight(a))).sum() for t, a in zip(pool, expected))
    try:
        grad, = torch.autograd.grad(loss, x, allow_unused=True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        event("refused: a value that a derivative needs was overwritten")
        assert any(name in ("mul", "mul_", "square") for name, *_ in taken), taken          # nothing else keeps values
        return
    event("differentiated")
    v, h = np.cos(np.arange(12.0)).reshape(3, 4), 1e-6
    up, down = (total(with_numpy(at + s * h * v, taken)[0]) for s in (1, -1))
    slope = 0.0 if grad is None else (grad.numpy() * v).sum()
    scale = 1 + sum(np.abs(t).sum() for t in expected)
    assert abs(slope - (up - down) / (2 * h)) < 1e-5 * scale, taken


@settings(max_examples=100 if THOROUGH else 40, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(programs)
def test_without_gradients_the_same_values(program):
    """No history, so no refusals; the trace alone must keep old values and new ones apart."""
    expected, taken = with_numpy(start(), program)
    with torch.no_grad():
        pool = with_flambeau(torch.tensor(start()), taken)
        for ours, theirs in zip(pool, expected):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12, atol=1e-12, err_msg=str(taken))
