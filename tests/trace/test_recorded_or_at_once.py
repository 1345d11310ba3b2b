"""Recording changes nothing.

Random programs of views, writes, copies and arrays shared with NumPy, once with every instruction run as it is recorded
and once recorded for as long as possible, must end with the same tensors and arrays.
"""
import random

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import settings
from flambeau.trace.recording.record import current

SHAPES = [(4,), (2, 3), (3, 2), (1,), (), (2, 2, 2), (0, 3), (6,)]
DTYPES = ["float32", "float32", "float64", "int64"]


def dim(t, a):
    return a % t.dim() if t.dim() else 0


# Each step gets two tensors of the pool and two small numbers; a new tensor that it returns joins the pool.
STEPS = {
    "view": lambda t, u, a, b: t.view(-1),
    "transpose": lambda t, u, a, b: t.transpose(dim(t, a), dim(t, b)),
    "select": lambda t, u, a, b: t.select(dim(t, a), 0),
    "slice": lambda t, u, a, b: t[abs(b) % 2::abs(a) % 2 + 1],
    "expand": lambda t, u, a, b: t.expand(2, *t.shape),
    "diagonal": lambda t, u, a, b: t.diagonal(),
    "clone": lambda t, u, a, b: t.clone(),
    "detach": lambda t, u, a, b: t.detach(),
    "reshape": lambda t, u, a, b: t.reshape(-1),
    "add": lambda t, u, a, b: t + u,
    "mul": lambda t, u, a, b: t * a,
    "sum": lambda t, u, a, b: t.sum(dim(t, a)),
    "sort": lambda t, u, a, b: t.sort(dim(t, a))[0],
    "cat": lambda t, u, a, b: torch.cat([t, t]),
    "index": lambda t, u, a, b: t[torch.tensor([0, 0])],
    "mask": lambda t, u, a, b: t[t > 0],
    "add_": lambda t, u, a, b: t.add_(u),
    "mul_": lambda t, u, a, b: t.mul_(u),
    "copy_": lambda t, u, a, b: t.copy_(u),
    "fill_": lambda t, u, a, b: t.fill_(a),
    "zero_": lambda t, u, a, b: t.zero_(),
    "clamp_": lambda t, u, a, b: t.clamp_(-1, a),
    "cumsum_": lambda t, u, a, b: t.cumsum_(dim(t, a)),
    "set_item": lambda t, u, a, b: t.__setitem__(0, u),
    "set_slice": lambda t, u, a, b: t.__setitem__(slice(None, None, 2), a),
    "set_mask": lambda t, u, a, b: t.__setitem__(t > b, a),
    "set_index": lambda t, u, a, b: t.__setitem__(torch.tensor([0, abs(b) % max(1, len(t))]), u),
    "swap": lambda t, u, a, b: t.__setitem__([0, -1], t[[-1, 0]]),
    "shift": lambda t, u, a, b: t.__setitem__(slice(1, None), t[:-1]),
    "index_add_": lambda t, u, a, b: t.index_add_(0, torch.tensor([0, 0]), t[[0, 0]]),
    "index_copy_": lambda t, u, a, b: t.index_copy_(0, torch.tensor([0]), t[-1:] * a),
    "masked_fill_": lambda t, u, a, b: t.masked_fill_(t > b, a),
    "data": lambda t, u, a, b: setattr(t, "data", u),
    "set_": lambda t, u, a, b: t.set_(u),
    "out": lambda t, u, a, b: torch.add(t, t, out=u) if t.shape == u.shape else None,
    "item": lambda t, u, a, b: t.sum().item() and None,
    "address": lambda t, u, a, b: t.data_ptr() and None,
    "write through NumPy": lambda t, u, a, b: t.numpy().fill(a),
}


def run(start, program, length):
    """What is left after the program, with traces of at most `length` instructions."""
    current().run()
    settings.trace_instructions, before = length, settings.trace_instructions
    try:
        tensors, arrays, story = [], [], []
        for shape, seed, dtype in start:
            data = (np.arange(int(np.prod(shape))) * (seed + 3) % 7 - 3).astype(dtype).reshape(shape)
            tensors.append(torch.tensor(data))
        for step, i, j, a, b in program:
            t, u = tensors[i % len(tensors)], tensors[j % len(tensors)]
            try:
                if step == "numpy":
                    arrays.append(t.numpy())
                elif step == "write an array" and arrays:
                    arrays[j % len(arrays)].reshape(-1)[:1] = a
                elif step == "drop an array" and arrays:
                    del arrays[j % len(arrays)]
                elif step == "from_numpy" and arrays:
                    tensors.append(torch.from_numpy(arrays[j % len(arrays)]))
                elif step == "drop" and len(tensors) > 2:
                    del tensors[i % len(tensors)]
                elif step in STEPS:
                    made = STEPS[step](t, u, a, b)
                    if isinstance(made, torch.Tensor) and made is not t and made is not u:
                        tensors.append(made)
                story.append("done")
            except (RuntimeError, IndexError, TypeError, ValueError) as error:
                story.append(type(error).__name__)
        return story, [(list(t.shape), str(t.dtype), t._version, t.reshape(-1).tolist()) for t in tensors], \
            [a.tolist() for a in arrays]
    finally:
        settings.trace_instructions = before


@pytest.mark.parametrize("seed", range(12))
def test_recorded_or_not(seed):
    draw = random.Random(seed)
    names = [*STEPS, "numpy", "write an array", "drop an array", "from_numpy", "drop"]
    for _ in range(15):
        start = [(draw.choice(SHAPES), draw.randint(0, 9), draw.choice(DTYPES)) for _ in range(draw.randint(1, 4))]
        some = draw.sample(names, draw.randint(5, len(names)))
        program = [(draw.choice(some), *[draw.randint(0, 30) for _ in "ij"], *[draw.randint(-3, 3) for _ in "ab"])
                   for _ in range(draw.randint(3, 30))]
        first = run(start, program, 0)
        for length in (5, 2000):
            assert repr(run(start, program, length)) == repr(first), (start, program, length)
