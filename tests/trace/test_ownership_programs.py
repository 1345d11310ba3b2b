"""Random programs of views, copies, writes and donated memory mean what they mean in NumPy.

A program keeps pairs of a tensor and the array that stands for it. Every step does the same to both, and makes views
where NumPy does. Whoever writes over memory that somebody still sees, or parts memory that two should see, is found by
comparing all pairs. Everything is whole numbers, so that they have to be equal.
"""
import gc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as tuned, strategies as st

import flambeau as torch
from flambeau.base import settings
from flambeau.trace.recording.record import current

from ..thorough import THOROUGH

pytestmark = pytest.mark.pinned

SIZE = 12


class World:
    """The pairs of a program, arrays and gradients that somebody holds, and compiled functions with their state."""

    def __init__(self):
        self.pool, self.exports = [], []
        self.buffer, self.weight = torch.zeros(SIZE, dtype=torch.int64), torch.zeros(SIZE, requires_grad=True)
        self.gradients, self.scale = [], None
        self.add(self.buffer, np.zeros(SIZE, np.int64))

        def write(x):
            x.mul_(2).add_(1)

        def store(x):
            self.buffer.mul_(2).add_(x.sum())

        def step(scale):
            self.weight.grad = None
            (self.weight * scale).sum().backward()

        def swap(scale):
            old, self.weight.grad = self.weight.grad, None
            (self.weight * scale).sum().backward()
            return old

        self.write, self.store = torch.compile(write), torch.compile(store)
        self.step, self.swap = torch.compile(step), torch.compile(swap)

    def add(self, tensor, array):
        self.pool.append((tensor, array))

    def check(self):
        for number, (tensor, array) in enumerate(self.pool):
            assert tensor.tolist() == array.tolist(), f"tensor {number} of {len(self.pool)}"
        for seen, array in self.exports:
            assert seen.tolist() == array.tolist(), "an exported array"
        for grad, expected in self.gradients:
            assert grad.tolist() == [expected] * SIZE, "a gradient"


def lent(t, n, a):
    """A result that only a variable of this call holds, while what it came from is looked at and written."""
    def look(x):
        return x.tolist()

    made, expected = t + a, (n + a) * 2
    look(t.clone())
    t.add_(1)
    n += 1
    look(made[:1])
    return made.mul_(2), expected


def turned(x):
    return x.reshape(2, -1).T.reshape(-1) if len(x) % 2 == 0 and len(x) > 2 else x + 0         # a copy in both


def put(x, a):
    x[a % len(x)] = a


def export(world, t, n):
    if len(world.exports) < 3:
        world.exports.append((t.numpy(), n))


def through_export(world, a):
    if world.exports:
        seen, array = world.exports[a % len(world.exports)]
        seen += a
        array += a


def adopt(world, n):
    array = n.copy()
    world.add(torch.from_numpy(array), array)


def write_compiled(world, t, n):
    world.write(t)
    n *= 2
    n += 1


def store_compiled(world, t, n):
    world.store(t)
    array = next(array for tensor, array in world.pool if tensor is world.buffer)
    array *= 2
    array += n.sum()


def step_compiled(world, a, keep):
    world.step(torch.full((SIZE,), float(a)))
    world.scale = float(a)
    if keep:
        world.gradients.append((world.weight.grad, world.scale))
    else:
        assert world.weight.grad.tolist() == [world.scale] * SIZE


def swap_compiled(world, a):
    old, before = world.swap(torch.full((SIZE,), float(a))), world.scale
    world.scale = float(a)
    if before is not None:
        world.gradients.append((old, before))


def drop(world, i):
    if world.pool[i][0] is not world.buffer:
        del world.pool[i]


# Each takes the world, the pair it is about, another pair, and a number; it gives a new pair, or nothing.
STEPS = {
    "new": lambda w, i, t, n, u, m, a: (torch.arange(SIZE) + a, np.arange(SIZE) + a),
    "add": lambda w, i, t, n, u, m, a: (t + a, n + a),
    "add sum": lambda w, i, t, n, u, m, a: (t + u.sum(), n + m.sum()),
    "clone": lambda w, i, t, n, u, m, a: (t.clone(), n.copy()),
    "copied": lambda w, i, t, n, u, m, a: (torch.empty_like(t).copy_(t), n.copy()),
    "turned": lambda w, i, t, n, u, m, a: (turned(t), turned(n)),
    "from": lambda w, i, t, n, u, m, a: (t[a % len(t):], n[a % len(n):]),
    "to": lambda w, i, t, n, u, m, a: (t[:-a % len(t) + 1], n[:-a % len(n) + 1]),
    "every other": lambda w, i, t, n, u, m, a: (t[::2], n[::2]),
    "detach": lambda w, i, t, n, u, m, a: (t.detach(), n),
    "lent": lambda w, i, t, n, u, m, a: lent(t, n, a),
    "= add_": lambda w, i, t, n, u, m, a: (t.add_(a), n.__iadd__(a)),
    "= mul_": lambda w, i, t, n, u, m, a: (t.mul_(3), n.__imul__(3)),
    "= add_sum_": lambda w, i, t, n, u, m, a: (t.add_(u.sum()), n.__iadd__(m.sum())),
    "= of temporary": lambda w, i, t, n, u, m, a: (t.add_((u * 2).add_(1).sum()), n.__iadd__((m * 2 + 1).sum())),
    "= head": lambda w, i, t, n, u, m, a: (t[:2].mul_(2), n[:2].__imul__(2)),
    "= put": lambda w, i, t, n, u, m, a: (put(t, a), put(n, a)),
    "= index_fill_": lambda w, i, t, n, u, m, a: (t.index_fill_(0, torch.tensor([0]), a), n.__setitem__(0, a)),
    "= index": lambda w, i, t, n, u, m, a: (t.__setitem__(torch.tensor([0]), a), n.__setitem__([0], a)),
    "= fill_": lambda w, i, t, n, u, m, a: (t.fill_(a), n.fill(a)),
    "= look": lambda w, i, t, n, u, m, a: t.tolist(),
    "= look at result": lambda w, i, t, n, u, m, a: (t + u.sum()).tolist(),
    "= run": lambda w, i, t, n, u, m, a: current().run(),
    "= drop": lambda w, i, t, n, u, m, a: drop(w, i),
    "= export": lambda w, i, t, n, u, m, a: export(w, t, n),
    "= write export": lambda w, i, t, n, u, m, a: through_export(w, a),
    "= forget exports": lambda w, i, t, n, u, m, a: w.exports.clear(),
    "= adopt": lambda w, i, t, n, u, m, a: adopt(w, n),
    "= write compiled": lambda w, i, t, n, u, m, a: write_compiled(w, t, n),
    "= store compiled": lambda w, i, t, n, u, m, a: store_compiled(w, t, n),
    "= step": lambda w, i, t, n, u, m, a: step_compiled(w, a, False),
    "= swap": lambda w, i, t, n, u, m, a: swap_compiled(w, a),
    "= step, keep": lambda w, i, t, n, u, m, a: step_compiled(w, a, True),
}


back = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5])          # mostly what was made last
programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), back, back, st.integers(0, 9)), min_size=3, max_size=24)


def run(program):
    world = World()
    for name, i, j, a in program:
        i, j = (len(world.pool) - 1 - k % len(world.pool) for k in (i, j))
        made = STEPS[name](world, i, *world.pool[i], *world.pool[j], a)
        if name[0] != "=":
            world.add(*made)
        del made
    world.check()


@pytest.mark.parametrize("executor", ["auto", "native", "reference"])
def test_a_program_means_what_it_means_in_numpy(executor):
    @tuned(max_examples=150 if THOROUGH else 60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs)
    def agrees(program):
        current().run()
        settings.executor, before = executor, settings.executor
        try:
            run(program)
        finally:
            settings.executor = before
            gc.collect(0)

    agrees()
