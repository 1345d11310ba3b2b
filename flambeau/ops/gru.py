"""One layer of gated recurrent units."""
from ..base.op import Composite, Op, door
from .matmul import _affine, mm
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
