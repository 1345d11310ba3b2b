"""Recurrent networks, packed sequences and reparametrised weights, against the formulas written out step by step."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

X, H, C = numbers((3, 2, 3), seed=60), numbers((1, 2, 2), seed=61), numbers((1, 2, 2), seed=62)
ROWS, SIZES = numbers((4, 3), seed=63), np.array([2, 1, 1])
weights = lambda gates, at: [numbers(shape, seed=at + i) / 2 for i, shape in
                             enumerate(((gates * 2, 3), (gates * 2, 2), (gates * 2,), (gates * 2,)))]
one, three, four = weights(1, 70), weights(3, 80), weights(4, 90)
sigmoid = lambda x: 1 / (1 + np.exp(-x))


def plain(f):
    return lambda x, h, w, u, b, c: (f(x @ w.T + b + h @ u.T + c),)


def gated(x, h, w, u, b, c):
    (xr, xz, xn), (hr, hz, hn) = np.split(x @ w.T + b, 3, -1), np.split(h @ u.T + c, 3, -1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = np.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


def long_short(x, h, c, w, u, b, d, project=None):
    i, f, g, o = np.split(x @ w.T + b + h @ u.T + d, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h if project is None else h @ project.T, c


def over(step, count):
    """The same for a sequence: all states, and the last of each part."""
    def run(x, *given):
        state, seen = [s[0] for s in given[:count]], []
        for now in x:
            state = step(now, *state, *given[count:])
            seen.append(state[0])
        return (np.stack(seen), *[s[None] for s in state])
    return run


def packed(step, count, back=False):
    """The same sample by sample, for rows of steps of 2, 1 and 1 samples."""
    def run(x, *given):
        out, ends = np.empty((4, 2)), []
        for sample, at in ((0, [0, 2, 3]), (1, [1])):
            state = [s[0, sample] for s in given[:count]]
            for place in at[::-1] if back else at:
                state = step(x[place], *state, *given[count:])
                out[place] = state[0]
            ends.append(state)
        return (out, *[np.stack(part)[None] for part in zip(*ends)])
    return run


relu = lambda x: np.maximum(x, 0)
call = lambda f: lambda x, h, *p: f(x, h, p, True, 1, 0.0, False, False, False)
call_lstm = lambda x, h, c, *p: torch.lstm(x, (h, c), p, True, 1, 0.0, False, False, False)
call_rows = lambda f: lambda x, h, *p: f(x, torch.tensor(SIZES), h, p, True, 1, 0.0, False, False)
call_lstm_rows = lambda x, h, c, *p: torch.lstm(x, torch.tensor(SIZES), (h, c), p, True, 1, 0.0, False, False)

# Differences take long: the input's weight and the biases, which come in before the recurrence, are held still.
row("rnn_tanh", call(torch.rnn_tanh), over(plain(np.tanh), 1), X, H, *one, grad="first", still=(2, 4, 5))
row("rnn_relu", call(torch.rnn_relu), over(plain(relu), 1), X, H, *one, grad="first", still=(2, 4, 5))
row("gru", call(torch.gru), over(gated, 1), X, H, *three, grad="first", still=(2, 4))
row("lstm", call_lstm, over(long_short, 2), X, H, C, *four, grad="first", still=(3, 5, 6))
row("lstm projected", lambda x, h, c, *p: torch.lstm(x, (h, c), p, True, 1, 0.0, False, False, False), over(long_short, 2), X,
    numbers((1, 2, 1), seed=64), C, four[0], numbers((8, 1), seed=65), *four[2:], numbers((1, 2), seed=66), grad="first", still=(3, 5, 6))
row("rnn_tanh packed", call_rows(torch.rnn_tanh), packed(plain(np.tanh), 1), ROWS, H, *one, meta=False, still=(2, 4, 5))
row("gru packed", call_rows(torch.gru), packed(gated, 1), ROWS, H, *three, grad="first", meta=False, still=(2, 4, 5))
row("lstm packed", call_lstm_rows, packed(long_short, 2), ROWS, H, C, *four, grad="first", meta=False, still=(3, 4, 5, 6))


def two_ways(x, *given):
    """Backwards is the same over the rows of each sample in reverse."""
    first, (h, c), (ahead, behind) = packed(long_short, 2), given[:2], (given[2:6], given[6:])
    there, back = first(x, h[:1], c[:1], *ahead), packed(long_short, 2, back=True)(x, h[1:], c[1:], *behind)
    return np.concatenate((there[0], back[0]), 1), np.concatenate((there[1], back[1])), np.concatenate((there[2], back[2]))


row("lstm packed both ways", lambda x, h, c, *p: torch.lstm(x, torch.tensor(SIZES), (h, c), p, True, 1, 0.0, False, True),
    two_ways, ROWS, numbers((2, 2, 2), seed=67), numbers((2, 2, 2), seed=68), *four, *weights(4, 100), grad=False, meta=False)
row("rnn_tanh_cell", lambda x, h, *p: torch.rnn_tanh_cell(x, h, *p), lambda *a: plain(np.tanh)(*a)[0], X[0], H[0], *one, grad="first")
row("rnn_relu_cell", lambda x, h, *p: torch.rnn_relu_cell(x, h, *p), lambda *a: plain(relu)(*a)[0], X[0], H[0], *one, grad="first")
row("gru_cell", lambda x, h, *p: torch.gru_cell(x, h, *p), lambda *a: gated(*a)[0], X[0], H[0], *three, still=(2, 4))
row("gru_cell bare", lambda x, h, *p: torch.gru_cell(x, h, *p), lambda *a: gated(*a, 0, 0)[0], X[0], H[0], *three[:2], grad="first")
row("lstm_cell", lambda x, h, c, *p: torch.lstm_cell(x, (h, c), *p), long_short, X[0], H[0], C[0], *four, still=(3, 4, 5))
row("lstm_cell bare", lambda x, h, c, *p: torch.lstm_cell(x, (h, c), *p), lambda *a: long_short(*a, 0, 0), X[0], H[0], C[0], *four[:2], grad="first")

# --- packed sequences -----------------------------------------------------------------------------------------------------

PADDED, LENGTHS = numbers((3, 2, 2), seed=110), np.array([3, 1])


def pack(x, lengths):
    return np.stack([x[t, b] for t in range(lengths[0]) for b in range(2) if t < lengths[b]])


def pad(rows, value):
    out = np.full((4, 2, 2), value)
    out[:3, 0], out[:1, 1] = rows[[0, 2, 3]], rows[[1]]
    return out


row("_pack_padded_sequence", lambda x, n: torch._pack_padded_sequence(x, n, False), lambda x, n: (pack(x, n), np.array([2, 1, 1])),
    PADDED, LENGTHS, meta=False)
row("_pack_padded_sequence batch first", lambda x, n: torch._pack_padded_sequence(x, n, True)[0],
    lambda x, n: pack(x.swapaxes(0, 1), n), PADDED.swapaxes(0, 1), LENGTHS, meta=False)
row("_pad_packed_sequence", lambda x, n: torch._pad_packed_sequence(x, n, False, 0.5, 4), lambda x, n: (pad(x, 0.5), LENGTHS),
    ROWS[:, :2], SIZES, meta=False)
row("_pad_packed_sequence batch first", lambda x, n: torch._pad_packed_sequence(x, n, True, -1.0, 4)[0],
    lambda x, n: pad(x, -1.0).swapaxes(0, 1), ROWS[:, :2], SIZES, meta=False)

# --- weights --------------------------------------------------------------------------------------------------------------

V, G = numbers((2, 3, 2), seed=111), numbers((1, 3, 1), seed=112)
length = lambda v, dim, p=2: (np.abs(v) ** p).sum(tuple(d for d in range(3) if d != dim), keepdims=True) ** (1 / p)

row("norm_except_dim", lambda v: torch.norm_except_dim(v, 2, 1), lambda v: length(v, 1), V)
row("norm_except_dim cubes", lambda v: torch.norm_except_dim(v, 3, 0), lambda v: length(v, 0, 3), V)
row("norm_except_dim all", lambda v: torch.norm_except_dim(v, 2, -1), lambda v: np.sqrt((v * v).sum()), V)
row("_weight_norm", lambda v, g: torch._weight_norm(v, g, 1), lambda v, g: v * g / length(v, 1), V, G)


def reflections(v, tau):
    """The product of I - tau u uᵀ, each u the column of v below the diagonal, with a one on it."""
    n = len(v)
    q = np.eye(n)
    for i, t in enumerate(tau):
        u = np.concatenate((np.zeros(i), [1], v[i + 1:, i]))
        q = q @ (np.eye(n) - t * np.outer(u, u))
    return q[:, :v.shape[1]]


def decomposes(made, x):
    a, tau = made[0].numpy(), made[1].numpy()
    np.testing.assert_allclose(reflections(a, tau) @ np.triu(a)[:a.shape[1]], x, rtol=1e-10, atol=1e-10)


row("geqrf", lambda x: torch.geqrf(x), None, numbers((4, 3), seed=113), holds=decomposes, grad=False)
row("householder_product", lambda v, t: torch.linalg.householder_product(v, t), reflections, numbers((4, 3), seed=114),
    numbers((2,), seed=115))
row("householder_product none", lambda v: torch.linalg.householder_product(v, torch.zeros(0, dtype=v.dtype, device=v.device)),
    lambda v: np.eye(3, 2), numbers((3, 2), seed=116), grad=False)
