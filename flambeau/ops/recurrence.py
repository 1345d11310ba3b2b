"""Recurrent layers: a state that is carried along a sequence, step by step.

The inputs of all steps are multiplied with the input weight at once, before. A step is then one product of the state
with the recurrent weight and element-wise work on its gates. A layer is a single autograd node, whose backward walks
the steps the other way and gets the weight's gradient from one product over all steps.

Sequences are matrices here, with a row for each step of each sample, one step after the other. Step t has sizes[t]
rows: the same number everywhere for a padded batch, falling ones for a packed one, whose shorter samples come last.

Where all steps have the same number of rows, and the device can (trace/planning/recurrence.py), a layer is one
instruction: the operation of a step, repeated. Otherwise each step is an instruction (`advance`, `retreat`), and so it
is in a backward that is itself to be differentiated.
"""
from itertools import accumulate

import numpy as np

from ..base.op import Composite, Op, Pointwise, door
from ..base.spec import spec
from .activation import _threshold_backward
from .arith import add
from .matmul import _affine, mm
from .pieces import cat

# --- along the rows ---------------------------------------------------------------------------------------------------


def walk(sizes, reverse):
    """(first row, number of rows) of each step, in the order in which the state passes them."""
    found = list(zip(accumulate(sizes, initial=0), sizes, strict=False))
    return found[::-1] if reverse else found


def row_positions(sizes):
    """For arrays of indices: where each step starts, and the step and the sample of each row."""
    sizes = np.asarray(sizes)
    starts = np.cumsum(sizes) - sizes
    step = np.repeat(np.arange(len(sizes)), sizes)
    return sizes, starts, step, np.arange(len(step)) - starts[step]


def rows_at(table, index):
    """The rows of `table` at the positions in the array `index`."""
    return table.index_select(0, door.from_array(index, where=table._spec.device))


def last_state(states, sizes, reverse):
    """The state that each sample ends with, out of those after every step."""
    n = sizes[0]
    if reverse:
        return states[:n]
    if n == sizes[-1]:
        return states[-n:] if n else states[:0]
    sizes, starts, _, _ = row_positions(sizes)
    ends = (sizes[:, None] > np.arange(n)).sum(0) - 1
    return rows_at(states, starts[ends] + np.arange(n))


def states_before(states, first, sizes, reverse):
    """For each row the state that its step started from: that of the step before, or the sample's `first`."""
    n, count = sizes[0], len(sizes)
    if count == 1:
        return first
    if n == sizes[-1]:
        return cat((states[n:], first)) if reverse else cat((first, states[:-n] if n else states))
    sizes, starts, step, sample = row_positions(sizes)
    before = step + 1 if reverse else step - 1
    inside = (before >= 0) & (before < count)
    before = before.clip(0, count - 1)
    inside &= sizes[before] > sample
    return rows_at(cat((first, states)), np.where(inside, n + starts[before] + sample, sample))


def advance(step, x, first, sizes, reverse):
    """Walk the steps. `step(its rows of x, *state)` gives a tuple, the new state in front.

    What they gave, each for all rows; `first` is the state at the start of every sample.
    """
    made, state, old = [], first, sizes[0]
    for at, n in walk(sizes, reverse):
        if n < old:                                        # samples that end here, or have not begun yet
            state = [s[:n] for s in state]
        elif n > old:
            state = [cat((s, f[old:n])) for s, f in zip(state, first, strict=True)]
        out = step(x[at:at + n], *state)
        made.append(out)
        state, old = out[:len(first)], n
    return tuple([in_order(parts, reverse) for parts in zip(*made, strict=True)])


def in_order(parts, reverse):
    """Pieces that a walk left behind, as one matrix."""
    return parts[0] if len(parts) == 1 else cat(parts[::-1] if reverse else parts)


def retreat(step, g, sizes, reverse):
    """Walk the steps backwards. `step(its rows, *gradients of the state after it)` gives two tuples: gradients of the
    state before it, and what is to be kept for each row.

    The gradients of the first state, and what was kept. `g` holds what came from outside for the state after each step,
    a matrix or None for each of its parts.
    """
    made, begun, later, old = [], [], None, sizes[-1] if not reverse else sizes[0]
    for at, n in reversed(walk(sizes, reverse)):
        if n < old:                                        # the rest of the samples began at the step seen last
            begun.append([t[n:] for t in later])
            later = [t[:n] for t in later]
        elif n > old:                                      # here ends a sample
            later = [cat((t, t.new_zeros((n - old, t._spec.shape[1])))) for t in later]
        rows, old = slice(at, at + n), n
        now = [None if t is None else t[rows] for t in g]
        if later is not None:
            now = [t if o is None else add(o, t) for o, t in zip(now, later, strict=True)]
        later, out = step(rows, *now)
        made.append(out)
    begun.append(later)
    return ([in_order(parts, True) for parts in zip(*begun, strict=True)],
            [in_order(parts, not reverse) for parts in zip(*made, strict=True)])


# --- repeated ---------------------------------------------------------------------------------------------------------


def is_repeated(x, sizes):
    """Whether a walk along `x` is one instruction, an operation of a step repeated."""
    spec = x._spec
    return spec.numel > 0 and sizes[0] == sizes[-1] and spec.dtype.itemsize >= 4 and spec.device.backend is not None \
        and spec.device.backend.recurs


def repeated(xp, step, sequences, states, fixed, reverse=False, keeps=True):
    """What `step`, a function, gives when it is repeated, in plain array code; see trace/planning/recurrence.py."""
    rows, made = len(states[0]), []
    steps = range(0, len(sequences[0]), rows)
    for at in reversed(steps) if reverse else steps:
        out = step(xp, *[x[at:at + rows] for x in sequences], *states, *fixed)
        out = out if isinstance(out, tuple) else (out,)
        states = out[:len(states)]
        made.append(out if keeps else out[len(states):])
    whole = [xp.concatenate(parts[::-1] if reverse else parts) for parts in zip(*made, strict=True)]
    return tuple(whole) if keeps else (*states, *whole)


# --- gates ------------------------------------------------------------------------------------------------------------


def gate_masks(k, shape):
    """In a body: for each gate of [n, gates, H], where it stands."""
    at = k.expand(k.index(1, shape), shape)
    return [at == number for number in range(shape[1])]


def parted(k, x, masks):
    """In a body: the gates of x [n, gates, H], each as [n, 1, H]. They are sums of one thing: what a loop over the
    gates needs of the others is then at hand without another walk over the rows."""
    return [k.sum(k.where(mask, x, 0), 1) for mask in masks]


def joined(k, parts, masks):
    """In a body: [n, gates · H] out of one [n, 1, H] for each gate."""
    out = parts[-1]
    for part, mask in zip(parts[-2::-1], masks[-2::-1], strict=True):
        out = k.where(mask, part, out)
    n, gates, width = out.shape
    return k.reshape(out, (n, gates * width))


def split(x, count):
    """`x` [n, gates · H] seen as its gates."""
    width = x._spec.shape[1] // count
    return [x[:, i * width:(i + 1) * width] for i in range(count)]


def sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


def matrix(like, width):
    """The spec of a matrix with the rows of `like`."""
    return spec(like.dtype, (like.shape[0], width), None, like.device)


# --- one layer of a plain network -------------------------------------------------------------------------------------


class _rnn_step(Op):
    """The state after one step: tanh (or relu) of `x` plus `h` times `weight`."""

    def meta(x, h, weight, relu): return matrix(x, x.shape[1])

    def ref(xp, x, h, weight, relu):
        x = x + xp.matmul(h, weight)
        return xp.maximum(x, 0) if relu else xp.tanh(x)

    def body(k, x, h, weight, relu):
        x = x + k.matmul(h, weight)
        return k.maximum(x, 0) if relu else k.tanh(x)


class _tanh_backward(Pointwise):
    """`grad` times the slope of tanh where its result is `out`."""

    forms = "function"
    refuses = "bool int complex"

    def ref(xp, grad, out):     return grad * (1 - out * out)
    def d_grad(g, out):         return _tanh_backward(g, out)
    def d_out(g, grad, out):    return -2 * g * grad * out
    def body(k, grad, out):     return grad * (1 - out * out)


class _rnn_back(Op):
    """(gradient of the state before a step, gradient of its sum), from `g` and `later`, those of the state after it,
    which came from outside and from the step after it."""

    def meta(g, out, later, weight, relu): return later, matrix(out, out.shape[1])

    def ref(xp, g, out, later, weight, relu):
        g = g + later
        d = xp.where(out > 0, g, xp.zeros_like(g)) if relu else g * (1 - out * out)
        return xp.matmul(d, weight), d

    def body(k, g, out, later, weight, relu):
        g = g + later
        d = k.where(out > 0, g, 0) if relu else g * (1 - out * out)
        return k.matmul(d, weight), d


class _rnn_walk(Op):
    """The states after every step of sequences of one length."""

    def meta(x, h, weight, relu, reverse): return matrix(x, x.shape[1])

    def ref(xp, x, h, weight, relu, reverse):
        return repeated(xp, _rnn_step.ref, (x,), (h,), (weight, relu), reverse)[0]

    def body(k, x, h, weight, relu, reverse):
        return k.recur(_rnn_step, (x,), (h,), (weight,), (relu,), reverse)


class _rnn_walk_back(Op):
    """(gradient of the first state, gradient of the sums of all steps), with `later` for the state after the last."""

    def meta(g, out, later, weight, relu, reverse): return matrix(later, later.shape[1]), matrix(out, out.shape[1])

    def ref(xp, g, out, later, weight, relu, reverse):
        return repeated(xp, _rnn_back.ref, (g, out), (later,), (weight, relu), not reverse, keeps=False)

    def body(k, g, out, later, weight, relu, reverse):
        return k.recur(_rnn_back, (g, out), (later,), (weight,), (relu,), not reverse, keeps=False)


class _rnn_layer(Composite):
    """The states after every step, from the inputs `x`, which were multiplied with their weight before."""

    node = "RnnBackward0"

    def of(x, h, weight, relu, sizes, reverse):
        w = weight.t()
        if is_repeated(x, sizes):
            return _rnn_walk(x, h, w, relu, reverse)
        return advance(lambda x, h: (_rnn_step(x, h, w, relu),), x, (h,), sizes, reverse)[0]

    def grads(g, needs, x_spec, h, weight, relu, sizes, reverse, out):
        if is_repeated(out, sizes) and not door.records():
            dh, dx = _rnn_walk_back(g, out, h.new_zeros(h.shape), weight, relu, reverse)
            return dx, dh, mm(dx.t(), states_before(out, h, sizes, reverse)) if needs[2] else None

        def step(rows, g):
            d = _threshold_backward(g, out[rows], 0) if relu else _tanh_backward(g, out[rows])
            return (mm(d, weight),), (d,)
        (dh,), (dx,) = retreat(step, (g,), sizes, reverse)
        return dx, dh, mm(dx.t(), states_before(out, h, sizes, reverse)) if needs[2] else None


# --- one layer of LSTM cells ------------------------------------------------------------------------------------------


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


# --- one layer of gated units -----------------------------------------------------------------------------------------


class _gru_step(Op):
    """(the state, its gates r z n, the part of n that r lets in) after one step."""

    def meta(x, h, weight, bias): return matrix(x, h.shape[1]), x, matrix(x, h.shape[1])

    def ref(xp, x, h, weight, bias):
        u = xp.matmul(h, weight)
        (xr, xz, xn), (ur, uz, un) = xp.split(x, 3, axis=1), xp.split(u if bias is None else u + bias, 3, axis=1)
        r, z = sigmoid(xp, xr + ur), sigmoid(xp, xz + uz)
        n = xp.tanh(xn + r * un)
        return (h - n) * z + n, xp.concatenate((r, z, n), 1), un

    def body(k, x, h, weight, bias):
        rows, width = h.shape
        u, wide = k.matmul(h, weight), (rows, 3, width)
        u, x, h = k.reshape(u if bias is None else u + bias, wide), k.reshape(x, wide), k.reshape(h, (rows, 1, width))
        masks = gate_masks(k, wide)
        r, z = [k.sigmoid(part) for part in parted(k, x + u, masks[:2])]
        (un,), (xn,) = parted(k, u, masks[2:]), parted(k, x, masks[2:])
        n = k.tanh(xn + r * un)
        return (h - n) * z + n, joined(k, (r, z, n), masks), un


class _gru_back(Op):
    """(gradient of the sums from the input, of those from the state, of the state itself) of one step."""

    def meta(g, gates, inner, h): return gates, gates, h

    def ref(xp, g, gates, inner, h):
        r, z, n = xp.split(gates, 3, axis=1)
        dn = g * (1 - z) * (1 - n * n)
        dr, dz = dn * inner * r * (1 - r), g * (h - n) * z * (1 - z)
        return xp.concatenate((dr, dz, dn), 1), xp.concatenate((dr, dz, dn * r), 1), g * z

    def grads(u, needs, g, gates, inner, h):
        """The second derivative, written out."""
        (r, z, n), blank = split(gates, 3), gates.new_zeros(gates.shape)
        (xr, xz, xn), (ur, uz, un) = [split(blank if t is None else t, 3) for t in u[:2]]
        uh = h.new_zeros(h.shape) if u[2] is None else u[2]
        dr, dz, dn, past, new = r * (1 - r), z * (1 - z), 1 - n * n, h - n, g * (1 - z)
        p, q = xr + ur, xz + uz
        s = xn + un * r + p * inner * dr
        d_gates = (new * dn * (un + p * inner * (1 - 2 * r)), g * (q * past * (1 - 2 * z) - s * dn + uh),
                   -2 * s * new * n - q * g * dz)
        return (s * (1 - z) * dn + q * past * dz + uh * z, cat(d_gates, 1), new * dn * p * dr, q * g * dz)

    def body(k, g, gates, inner, h):
        rows, width = h.shape
        seen, masks = lambda x: k.reshape(x, (rows, 1, width)), gate_masks(k, (rows, 3, width))
        r, z, n = parted(k, k.reshape(gates, (rows, 3, width)), masks)
        g = seen(g)
        dn = g * (1 - z) * (1 - n * n)
        dr, dz = dn * seen(inner) * r * (1 - r), g * (seen(h) - n) * z * (1 - z)
        return joined(k, (dr, dz, dn), masks), joined(k, (dr, dz, dn * r), masks), g * z


class _gru_step_back(Op):
    """(gradient of the state before a step, of the sums from the input, of those from the state), from `g` and `later`,
    those of the state after it that came from outside and from the step after it."""

    def meta(g, gates, inner, before, later, weight):
        return later, matrix(gates, gates.shape[1]), matrix(gates, gates.shape[1])

    def ref(xp, g, gates, inner, before, later, weight):
        dx, du, back = _gru_back.ref(xp, g + later, gates, inner, before)
        return back + xp.matmul(du, weight), dx, du

    def body(k, g, gates, inner, before, later, weight):
        dx, du, back = _gru_back.body(k, g + later, gates, inner, before)
        return k.reshape(back, later.shape) + k.matmul(du, weight), dx, du


class _gru_walk(Op):
    """(the states, their gates, the part of n that r lets in) after every step of sequences of one length."""

    def meta(x, h, weight, bias, reverse): return matrix(x, h.shape[1]), matrix(x, x.shape[1]), matrix(x, h.shape[1])

    def ref(xp, x, h, weight, bias, reverse): return repeated(xp, _gru_step.ref, (x,), (h,), (weight, bias), reverse)

    def body(k, x, h, weight, bias, reverse): return k.recur(_gru_step, (x,), (h,), (weight, bias), (), reverse)


class _gru_walk_back(Op):
    """(gradient of the first state, of the sums of all steps from the input, of those from the state)."""

    def meta(g, gates, inner, before, later, weight, reverse):
        return matrix(later, later.shape[1]), matrix(gates, gates.shape[1]), matrix(gates, gates.shape[1])

    def ref(xp, g, gates, inner, before, later, weight, reverse):
        walked = g, gates, inner, before
        return repeated(xp, _gru_step_back.ref, walked, (later,), (weight,), not reverse, keeps=False)

    def body(k, g, gates, inner, before, later, weight, reverse):
        return k.recur(_gru_step_back, (g, gates, inner, before), (later,), (weight,), (), not reverse, keeps=False)


class _gru_layer(Composite):
    """(the states, their gates, the part of n that r lets in) after every step, from the inputs `x`, which were
    multiplied with their weight before."""

    node = "GruBackward0"

    def of(x, h, weight, bias, sizes, reverse):
        w = weight.t()
        if is_repeated(x, sizes):
            return _gru_walk(x, h, w, bias, reverse)
        return advance(lambda x, h: _gru_step(x, h, w, bias), x, (h,), sizes, reverse)

    def grads(g, needs, x_spec, h, weight, bias, sizes, reverse, out0, out1, out2):
        states, gates, inner = out0, out1, out2
        before = states_before(states, h, sizes, reverse)
        if g[0] is not None and g[1] is g[2] is None and is_repeated(gates, sizes) and not door.records():
            dh, dx, du = _gru_walk_back(g[0], gates, inner, before, h.new_zeros(h.shape), weight, reverse)
            return gru_gradients(dx, dh, du, before, bias, needs)

        def step(rows, gh):
            past = before[rows]
            gh = past.new_zeros(past.shape) if gh is None else gh
            dx, du, back = _gru_back(gh, gates[rows], inner[rows], past)
            if g[1] is not None or g[2] is not None:       # gradients for these themselves: a second derivative
                more = gru_more(*[None if t is None else t[rows] for t in g[1:]], gates[rows], inner[rows])
                dx, du = dx + more[0], du + more[1]
            return (_affine(back, du, weight),), (dx, du)
        (dh,), (dx, du) = retreat(step, g[:1], sizes, reverse)
        return gru_gradients(dx, dh, du, before, bias, needs)


def gru_gradients(dx, dh, du, before, bias, needs):
    """The gradients of a layer: of its inputs, its first state, its weight and its bias."""
    made = dx, dh, mm(du.t(), before) if needs[2] else None
    return made if bias is None else (*made, du.sum(0) if needs[3] else None)


def gru_more(g_gates, g_inner, gates, inner):
    """What gradients for the gates and for the inner part add to those of the two sums."""
    r, z, n = split(gates, 3)
    gr, gz, gn = split(gates.new_zeros(gates.shape) if g_gates is None else g_gates, 3)
    dn = gn * (1 - n * n)
    dr, dz, du = (gr + dn * inner) * r * (1 - r), gz * z * (1 - z), dn * r
    return cat((dr, dz, dn), 1), cat((dr, dz, du if g_inner is None else du + g_inner), 1)
