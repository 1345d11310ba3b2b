"""Recurrent layers: what they compute and keep, against the equations written out, and against themselves."""
import copy

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from flambeau.trace.recording.record import current


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def close(ours, theirs, tol=1e-5):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tol, atol=tol)


sigmoid = lambda x: 1 / (1 + np.exp(-x))
KINDS = ["RNN", "LSTM", "GRU"]


def by_cells(net, cell, x, layer=0, reverse=False):
    """One layer of `net` over x [steps, samples, features], as a loop over a cell with its weights."""
    suffix = f"_l{layer}{'_reverse' if reverse else ''}"
    cell.load_state_dict({name: getattr(net, name + suffix) for name in cell.state_dict()})
    state, out = None, []
    for step in x.flip(0) if reverse else x:
        state = cell(step, state)
        out.append(state[0] if isinstance(state, tuple) else state)
    return torch.stack(out[::-1] if reverse else out), state


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_a_loop_over_its_cell(kind):
    net, x = getattr(nn, kind)(4, 6, bidirectional=True), torch.randn(5, 3, 4)
    out, state = net(x)
    cell = getattr(nn, kind + "Cell")(4, 6)
    there, end = by_cells(net, cell, x)
    back, begin = by_cells(net, cell, x, reverse=True)
    close(out, torch.cat((there, back), 2))
    parts = zip(state, end, begin) if kind == "LSTM" else [(state, end, begin)]
    for both, one, other in parts:
        close(both, torch.stack((one, other)))


def test_lstm_equations():
    cell = nn.LSTMCell(3, 2)
    x, h, c = torch.randn(4, 3), torch.randn(4, 2), torch.randn(4, 2)
    w, u, b, d = [p.detach().numpy() for p in cell.parameters()]
    i, f, g, o = np.split(x.numpy() @ w.T + b + h.numpy() @ u.T + d, 4, axis=1)
    new = sigmoid(f) * c.numpy() + sigmoid(i) * np.tanh(g)
    made = cell(x, (h, c))
    close(made[1], new)
    close(made[0], sigmoid(o) * np.tanh(new))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_is_each_sample_alone(kind):
    net = getattr(nn, kind)(4, 6, num_layers=2, bidirectional=True)
    samples = [torch.randn(n, 4) for n in (2, 5, 1, 5)]
    out, state = net(pack_sequence(samples, enforce_sorted=False))
    padded, lengths = pad_packed_sequence(out)
    assert lengths.tolist() == [2, 5, 1, 5]
    for at, sample in enumerate(samples):
        alone, end = net(sample)
        close(padded[:len(sample), at], alone)
        assert not padded[len(sample):, at].any()
        for whole, one in zip(state, end) if kind == "LSTM" else [(state, end)]:
            close(whole[:, at], one)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_packed_samples(kind):
    """They are those of each sample alone, and padding gets none."""
    net, x = getattr(nn, kind)(4, 6, bidirectional=True), torch.randn(5, 3, 4, requires_grad=True)
    out, state = net(pack_padded_sequence(x, [5, 2, 2]))
    (out.data.cos().sum() + sum(s.sin().sum() for s in (state if kind == "LSTM" else [state]))).backward()
    packed = [x.grad.clone(), *[p.grad.clone() for p in net.parameters()]]
    net.zero_grad()
    x.grad = None
    for at, n in enumerate((5, 2, 2)):
        out, state = net(x[:n, at])
        (out.cos().sum() + sum(s.sin().sum() for s in (state if kind == "LSTM" else [state]))).backward()
    for ours, theirs in zip(packed, [x.grad, *[p.grad for p in net.parameters()]]):
        close(ours, theirs, 1e-4)
    assert not packed[0][2:, 1:].any()


def test_a_state_carried_over_is_a_longer_sequence():
    net, x = nn.LSTM(4, 6, 2), torch.randn(6, 3, 4)
    first, state = net(x[:2])
    second, end = net(x[2:], state)
    whole, last = net(x)
    close(torch.cat((first, second)), whole)
    close(end[0], last[0])
    close(end[1], last[1])
    hidden = [s.detach_() for s in state]                  # truncated backpropagation: a state is no view
    assert not any(h.requires_grad for h in hidden)


def test_projection():
    net = nn.LSTM(4, 6, proj_size=2, num_layers=2)
    out, (h, c) = net(torch.randn(5, 3, 4))
    assert out.shape == (5, 3, 2) and h.shape == (2, 3, 2) and c.shape == (2, 3, 6)
    assert net.weight_hr_l0.shape == (2, 6) and net.weight_ih_l1.shape == (24, 2)
    close(h[1], out[-1])


def test_batch_first_is_a_transpose():
    net, x = nn.GRU(4, 6), torch.randn(5, 3, 4)
    turned = nn.GRU(4, 6, batch_first=True)
    turned.load_state_dict(net.state_dict())
    close(turned(x.transpose(0, 1))[0].transpose(0, 1), net(x)[0])


def test_dropout_is_between_layers_in_training():
    net, x = nn.LSTM(4, 60, 2, dropout=0.5), torch.randn(5, 3, 4)
    out = net(x)[0]
    assert not torch.equal(net(x)[0], out)
    net.eval()
    assert torch.equal(net(x)[0], net(x)[0])
    none = nn.GRU(4, 6, 2, dropout=1.0)                    # the second layer sees zeros
    second = none(x)[0]
    state = torch.zeros(3, 6)
    for now in second:
        state = torch.gru_cell(torch.zeros(3, 6), state, *[getattr(none, n + "_l1") for n in
                                                           ("weight_ih", "weight_hh", "bias_ih", "bias_hh")])
        close(now, state)


def test_names_text_and_bounds():
    net = nn.LSTM(3, 16, 2, bidirectional=True, bias=False)
    assert list(net.state_dict()) == [f"weight_{kind}_l{layer}{way}" for layer in (0, 1) for way in ("", "_reverse")
                                      for kind in ("ih", "hh")]
    assert repr(net) == "LSTM(3, 16, num_layers=2, bias=False, bidirectional=True)"
    assert [len(group) for group in net.all_weights] == [2, 2, 2, 2]
    assert all(p.abs().max() <= 0.25 and p.abs().max() > 0.2 for p in net.parameters())
    assert net.flatten_parameters() is None


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_runs_before_somebody_looks(kind):
    """Forward and backward are only recorded, whatever the kind of batch."""
    net, x = getattr(nn, kind)(4, 6, 2, bidirectional=True), torch.randn(5, 3, 4)
    packed = pack_padded_sequence(x, [5, 3, 1])
    torch.cpu.synchronize()
    for given in (x, packed):
        out, _ = net(given)
        (out if given is x else out.data).sum().backward()
        assert len(current().code) > 0
        assert all(p.grad._storage.value.trace is not None for p in net.parameters())
        net.zero_grad()


def test_long_sequences():
    """Thousands of steps, forwards and back, without recursion."""
    net, x = nn.GRU(1, 2), torch.ones(2000, 1, 1)
    with torch.config.using(executor="reference"):         # such a trace takes long to compile
        out, _ = net(x)
        out.sum().backward()
        assert out.shape == (2000, 1, 2) and all(p.grad.isfinite().all() for p in net.parameters())
        close(out[-1], out[-2])                            # it has come to rest


def test_few_instructions_a_step():
    net, x = nn.LSTM(4, 6), torch.randn(50, 3, 4)
    torch.cpu.synchronize()
    out, _ = net(x)
    assert len(current().code) < 50 + 20
    out.sum().backward()
    assert len(current().code) < 5 * 50 + 40


def test_no_samples_and_one_step():
    out, (h, c) = nn.LSTM(4, 6)(torch.zeros(5, 0, 4))
    assert out.shape == (5, 0, 6) and h.shape == (1, 0, 6) and c.shape == (1, 0, 6)
    net = nn.GRU(4, 6, bidirectional=True)
    x = torch.randn(1, 2, 4)
    close(net(x)[0][0], net(x)[1].transpose(0, 1).reshape(2, 12))


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode(kind):
    """The tangent of the output is its slope along the direction."""
    from flambeau.autograd import forward_ad
    net = getattr(nn, kind)(2, 3, dtype=torch.float64)
    x, way = torch.randn(3, 2, 2, dtype=torch.float64), torch.randn(3, 2, 2, dtype=torch.float64)
    with forward_ad.dual_level():
        out, _ = net(forward_ad.make_dual(x, way))
        slope = forward_ad.unpack_dual(out).tangent
    with torch.no_grad():
        close(slope, (net(x + 1e-6 * way)[0] - net(x - 1e-6 * way)[0]) / 2e-6, 1e-7)


def test_meta_device():
    net = nn.LSTM(4, 6, 2, bidirectional=True, device="meta")
    out, (h, c) = net(torch.zeros(5, 3, 4, device="meta"))
    assert out.is_meta and out.shape == (5, 3, 12) and h.shape == c.shape == (4, 3, 6)


def test_copies_are_apart():
    net = nn.LSTM(4, 6)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin.weight_ih_l0.zero_()
    assert net.weight_ih_l0.any() and not twin._flat_weights[0].any()


def test_compiled():
    net, x = nn.GRU(4, 6), torch.randn(5, 3, 4)
    step = torch.compile(lambda x: net(x)[0])
    for _ in range(3):
        close(step(x), net(x)[0])


def test_autocast():
    net, x = nn.LSTM(4, 6, 2), torch.randn(5, 3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = net(x)
    assert out.dtype is torch.bfloat16
    out.float().sum().backward()
    close(out.float(), net(x)[0], 3e-2)
    assert all(p.grad is not None and p.grad.dtype is torch.float32 for p in net.parameters())


@pytest.mark.parametrize("call, kind, words", [
    (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
    (lambda: nn.LSTM(3, 4)(torch.zeros(5, 2, 4)), RuntimeError, r"Expected 3, got 4"),
    (lambda: nn.GRU(3, 4)(torch.zeros(5, 2, 3), torch.zeros(1, 2, 5)), RuntimeError, r"\(1, 2, 4\), got \[1, 2, 5\]"),
    (lambda: nn.LSTM(3, 4)(torch.zeros(5, 2, 3).double()), ValueError, "does not match weight dtype"),
    (lambda: nn.RNN(3, 4, nonlinearity="sin"), ValueError, "Select from 'tanh' or 'relu'"),
    (lambda: torch.lstm(torch.zeros(2, 1, 3), (torch.zeros(1, 1, 4),) * 2, [], True, 1, 0.0, False, False, False),
     RuntimeError, "takes 4 weights and biases, got 0"),
    (lambda: torch.gru(torch.zeros(2, 1, 3), bias=True), TypeError, "wrong or missing argument"),
])
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("kind", KINDS)
def test_the_output_may_be_written_to(kind):
    net, x = getattr(nn, kind)(4, 6), torch.randn(5, 3, 4)
    out, _ = net(x)
    out.relu_().sum().backward()
    written = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(x)[0].relu().sum().backward()
    for ours, theirs in zip(written, [p.grad for p in net.parameters()]):
        close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_s_state_may_be_written_to(kind):
    cell, x = getattr(nn, kind + "Cell")(4, 6), torch.randn(3, 4)
    state = cell(x)
    for part in state if kind == "LSTM" else [state]:
        part.mul_(0.5)
    again = cell(x, state)
    sum(part.sum() for part in (again if kind == "LSTM" else [again])).backward()
    assert all(p.grad.isfinite().all() for p in cell.parameters())
