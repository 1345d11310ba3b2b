"""One layer of long short-term memory cells."""
from ..base.op import Composite, Op, door
from .matmul import mm
from .pieces import cat
from .recurrence import (
    advance,
    gate_masks,
    is_repeated,
    joined,
    matrix,
    parted,
    repeated,
    retreat,
    sigmoid,
    split,
    states_before,
)


class _lstm_step(Op):
    """(what the cells give away, what they hold, their four gates i f g o) after one step."""

    def meta(x, h, c, weight): return matrix(x, c.shape[1]), matrix(x, c.shape[1]), x

    def ref(xp, x, h, c, weight):
        i, f, g, o = xp.split(x + xp.matmul(h, weight), 4, axis=1)
        i, f, g, o = sigmoid(xp, i), sigmoid(xp, f), xp.tanh(g), sigmoid(xp, o)
        c = f * c + i * g
        return o * xp.tanh(c), c, xp.concatenate((i, f, g, o), 1)

    def body(k, x, h, c, weight):
        n, width = c.shape
        x = k.reshape(x + k.matmul(h, weight), (n, 4, width))
        masks = gate_masks(k, x.shape)
        gates = k.where(masks[2], k.tanh(x), k.sigmoid(x))
        i, f, g, o = parted(k, gates, masks)
        c = f * k.reshape(c, (n, 1, width)) + i * g
        return o * k.tanh(c), c, k.reshape(gates, (n, 4 * width))


class _lstm_back(Op):
    """(gradient of the four sums, gradient of what the cells held before) of one step, from those of its results."""

    def meta(gh, gc, gates, before, after): return gates, before

    def ref(xp, gh, gc, gates, before, after):
        i, f, g, o = xp.split(gates, 4, axis=1)
        t = xp.tanh(after)
        d = gc + gh * o * (1 - t * t)
        return xp.concatenate((d * g * i * (1 - i), d * before * f * (1 - f), d * i * (1 - g * g),
                               gh * t * o * (1 - o)), 1), d * f

    def grads(u, needs, gh, gc, gates, before, after):
        """The second derivative, written out: a' is the slope of the function that gave a, as a function of a."""
        (i, f, g, o), t = split(gates, 4), after.tanh()
        di, df, dg, do, dt = i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o), 1 - t * t
        ui, uf, ug, uo = split(gates.new_zeros(gates.shape) if u[0] is None else u[0], 4)
        uc = before.new_zeros(before.shape) if u[1] is None else u[1]
        d, a = gc + gh * o * dt, ui * g * di + uf * before * df + ug * i * dg + uc * f
        d_gates = (d * (ui * g * (1 - 2 * i) + ug * dg), d * (uf * before * (1 - 2 * f) + uc),
                   d * (ui * di - 2 * ug * i * g), gh * (dt * a + uo * t * (1 - 2 * o)))
        return (a * o * dt + uo * t * do, a, cat(d_gates, 1), d * uf * df,
                gh * dt * (uo * do - 2 * t * o * a))

    def body(k, gh, gc, gates, before, after):
        n, width = before.shape
        seen, masks = lambda x: k.reshape(x, (n, 1, width)), gate_masks(k, (n, 4, width))
        i, f, g, o = parted(k, k.reshape(gates, (n, 4, width)), masks)
        gh, t = seen(gh), k.tanh(seen(after))
        d = seen(gc) + gh * o * (1 - t * t)
        return joined(k, (d * g * i * (1 - i), d * seen(before) * f * (1 - f), d * i * (1 - g * g),
                          gh * t * o * (1 - o)), masks), d * f


class _lstm_step_back(Op):
    """(gradient of the state before a step, of what the cells held before it, of its four sums), from `g`, that of the
    state after it that came from outside, `g_cells`, the same of what the cells hold, or None, and `later` and
    `later_cells`, those that came from the step after it."""

    def meta(g, g_cells, gates, before, after, later, later_cells, weight):
        return later, later_cells, matrix(gates, gates.shape[1])

    def ref(xp, g, g_cells, gates, before, after, later, later_cells, weight):
        gc = later_cells if g_cells is None else g_cells + later_cells
        d, back = _lstm_back.ref(xp, later if g is None else g + later, gc, gates, before, after)
        return xp.matmul(d, weight), back, d

    def body(k, g, g_cells, gates, before, after, later, later_cells, weight):
        gc = later_cells if g_cells is None else g_cells + later_cells
        d, back = _lstm_back.body(k, later if g is None else g + later, gc, gates, before, after)
        return k.matmul(d, weight), back, d


class _lstm_walk(Op):
    """(the states, what the cells hold, their gates) after every step of sequences of one length."""

    def meta(x, h, c, weight, reverse): return matrix(x, c.shape[1]), matrix(x, c.shape[1]), matrix(x, x.shape[1])

    def ref(xp, x, h, c, weight, reverse): return repeated(xp, _lstm_step.ref, (x,), (h, c), (weight,), reverse)

    def body(k, x, h, c, weight, reverse): return k.recur(_lstm_step, (x,), (h, c), (weight,), (), reverse)


class _lstm_walk_back(Op):
    """(gradient of the first state, of what the cells held first, of the sums of all steps)."""

    def meta(g, g_cells, gates, before, after, later, later_cells, weight, reverse):
        return matrix(later, later.shape[1]), matrix(later_cells, later_cells.shape[1]), matrix(gates, gates.shape[1])

    def ref(xp, g, g_cells, gates, before, after, later, later_cells, weight, reverse):
        def step(xp, *given):
            walked = iter(given)
            return _lstm_step_back.ref(xp, *[None if x is None else next(walked) for x in (g, g_cells)], *walked)
        walked = [x for x in (g, g_cells, gates, before, after) if x is not None]
        return repeated(xp, step, walked, (later, later_cells), (weight,), not reverse, keeps=False)

    def body(k, g, g_cells, gates, before, after, later, later_cells, weight, reverse):
        return k.recur(_lstm_step_back, (g, g_cells, gates, before, after), (later, later_cells), (weight,), (),
                      not reverse, keeps=False)


class _lstm_layer(Composite):
    """(the states, what the cells hold, their gates) after every step, from the inputs `x`, which were multiplied with
    their weight before. `project`, where it is given, takes what the cells give away to the state."""

    node = "LstmBackward0"

    def of(x, h, c, weight, project, sizes, reverse):
        w, p = weight.t(), None if project is None else project.t()
        if p is None and is_repeated(x, sizes):
            return _lstm_walk(x, h, c, w, reverse)

        def step(x, h, c):
            h, c, gates = _lstm_step(x, h, c, w)
            return h if p is None else mm(h, p), c, gates
        return advance(step, x, (h, c), sizes, reverse)

    def grads(g, needs, x_spec, h, c, weight, project, sizes, reverse, out0, out1, out2):
        states, cells, gates = out0, out1, out2
        before = states_before(cells, c, sizes, reverse)
        if project is None and g[2] is None and is_repeated(gates, sizes) and not door.records():
            later = h.new_zeros(h.shape), c.new_zeros(c.shape)
            dh, dc, dx = _lstm_walk_back(*g[:2], gates, before, cells, *later, weight, reverse)
            return dx, dh, dc, mm(dx.t(), states_before(states, h, sizes, reverse)) if needs[3] else None

        def step(rows, gh, gc):
            past = before[rows]
            gc = past.new_zeros(past.shape) if gc is None else gc
            gh = states.new_zeros((past.shape[0], weight.shape[1])) if gh is None else gh
            d, back = _lstm_back(gh if project is None else mm(gh, project), gc, gates[rows], past, cells[rows])
            if g[2] is not None:                           # a gradient for the gates themselves: a second derivative
                d = d + g[2][rows] * slopes(gates[rows])
            return (mm(d, weight), back), (d, gh) if project is not None else (d,)
        (dh, dc), (dx, *gh) = retreat(step, g[:2], sizes, reverse)
        made = [dx, dh, dc, mm(dx.t(), states_before(states, h, sizes, reverse)) if needs[3] else None]
        if project is not None:
            given = split(gates, 4)[3] * cells.tanh()      # what the cells gave away
            made.append(mm(gh[0].t(), given) if needs[4] else None)
        return tuple(made)


def slopes(gates):
    """The slopes of the functions that gave the gates of an LSTM, as functions of the gates."""
    i, f, g, o = split(gates, 4)
    return cat((i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)), 1)
