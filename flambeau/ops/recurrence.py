"""Recurrent layers: a state that is carried along a sequence, step by step.

The inputs of all steps are multiplied with the input weight at once, before. A step is then one product of the state
with the recurrent weight and element-wise work on its gates. A layer is a single autograd node, whose backward walks
the steps the other way and gets the weight's gradient from one product over all steps.

Sequences are matrices here, with a row for each step of each sample, one step after the other. Step t has sizes[t]
rows: the same number everywhere for a padded batch, falling ones for a packed one, whose shorter samples come last.

Where all steps have the same number of rows, and the device can (trace/planning/recurrence.py), a layer is one
instruction: the operation of a step, repeated. Otherwise each step is an instruction (`advance`, `retreat`), and so it
is in a backward that is itself to be differentiated. What all layers share is here, and those of a plain network.
"""
from itertools import accumulate

import numpy as np

from ..base.op import Composite, Op, Pointwise, door
from ..base.spec import spec
from .arith import add
from .matmul import mm
from .pieces import cat
from .relu import _threshold_backward

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
