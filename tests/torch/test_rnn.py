"""Recurrent layers beside PyTorch's: initial weights, outputs, states, gradients, refusals."""
import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from .pairs import agree, both_refuse, both_warn, total, trained

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")      # PyTorch about its own kernels

OPTIONS = {
    "plain": {},
    "deep": dict(num_layers=3, bias=False),
    "both ways": dict(bidirectional=True, batch_first=True),
    "deep both ways": dict(num_layers=2, bidirectional=True),
    "dropout": dict(num_layers=3, dropout=0.4, batch_first=True),
    "all dropped": dict(num_layers=2, dropout=1.0),
    "float64": dict(num_layers=2, dtype="float64"),
}
KINDS = {"RNN": {}, "RNN relu": dict(nonlinearity="relu"), "LSTM": {}, "LSTM projected": dict(proj_size=2), "GRU": {}}


def network(lib, kind, options):
    given = {**KINDS[kind], **options}
    if "dtype" in given:
        given["dtype"] = getattr(lib, given["dtype"])
    return getattr(lib.nn, kind.split()[0])(4, 6, **given)


def flat(state):
    return list(state) if isinstance(state, tuple) else [state]


def first_state(lib, net, samples=None):
    """A state to begin with, for a batch or a single sample."""
    layers = net.num_layers * (2 if net.bidirectional else 1)
    dtype = net.weight_ih_l0.dtype
    shape = lambda width: (layers, width) if samples is None else (layers, samples, width)
    h = lib.randn(shape(net.proj_size or net.hidden_size), dtype=dtype, requires_grad=True)
    return (h, lib.randn(shape(net.hidden_size), dtype=dtype, requires_grad=True)) if net.mode == "LSTM" else h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", OPTIONS)
def test_padded(kind, option):
    def program(lib):
        net = network(lib, kind, OPTIONS[option])
        x = lib.randn((3, 5, 4) if net.batch_first else (5, 3, 4), dtype=net.weight_ih_l0.dtype, requires_grad=True)
        hx = first_state(lib, net, 3)
        out, state = net(x, hx)
        plain_out, plain_state = net.eval()(x)
        grads = trained(lib, net, total(out, *flat(state)), x, *flat(hx))
        return [repr(net), dict(net.state_dict()), net.all_weights, out, state, plain_out, plain_state, grads]
    agree(program, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", ["plain", "deep", "deep both ways", "dropout"])
@pytest.mark.parametrize("sorts", [False, True], ids=["sorted", "unsorted"])
def test_packed(kind, option, sorts):
    def program(lib):
        rnn = lib.nn.utils.rnn
        net = network(lib, kind, OPTIONS[option])
        x = lib.randn(7, 4, 4, requires_grad=True)
        lengths = [3, 7, 1, 3] if sorts else [7, 4, 4, 1]
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=not sorts)
        hx = first_state(lib, net, 4)
        out, state = net(packed, hx)
        padded, counts = rnn.pad_packed_sequence(out, padding_value=0.5, total_length=8)
        grads = trained(lib, net, total(padded, *flat(state)), x, *flat(hx))
        return [type(out).__name__, list(out), padded, counts, state, net(packed)[1], grads]
    agree(program, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", ["plain", "both ways"])
def test_single_sample(kind, option):
    def program(lib):
        net = network(lib, kind, OPTIONS[option])
        x = lib.randn(5, 4)
        return [net(x), net(x, first_state(lib, net))]
    agree(program)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "LSTM projected", "GRU"])
@pytest.mark.parametrize("packed", [False, True])
def test_second_gradient(kind, packed):
    def program(lib):
        net = network(lib, kind, dict(bidirectional=True, dtype="float64"))
        x = lib.randn(4, 3, 4, dtype=lib.float64, requires_grad=True)
        given = lib.nn.utils.rnn.pack_padded_sequence(x, [4, 2, 1]) if packed else x
        hx = first_state(lib, net, 3)
        out, state = net(given, hx)
        leaves = [x, *flat(hx), *net.parameters()]
        first = lib.autograd.grad(total(out.data if packed else out, *flat(state)), leaves, create_graph=True)
        return lib.autograd.grad(total(*first), leaves)
    agree(program, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name, gates", [("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)])
def test_functions(name, gates):
    def program(lib):
        weights = [lib.randn(shape) for shape in ((gates * 6, 4), (gates * 6, 6), (gates * 6,), (gates * 6,))]
        h, c, x, rows = lib.randn(1, 3, 6), lib.randn(1, 3, 6), lib.randn(3, 5, 4), lib.randn(6, 4)
        hx = (h, c) if name == "lstm" else h
        call, one = getattr(lib, name), getattr(lib, name + "_cell")
        cell_state = (h[0], c[0]) if name == "lstm" else h[0]
        return [call(x, hx, weights, True, 1, 0.0, False, False, True),
                call(rows, lib.tensor([3, 2, 1]), hx, weights, True, 1, 0.0, False, False),
                one(x[:, 0], cell_state, *weights), one(x[:, 0], cell_state, *weights[:2])]
    agree(program, atol=5e-6)                 # numbers of a few units, added up in another order


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 3e-2), ("float16", 4e-3)])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_half(kind, dtype, tolerance):
    def program(lib):
        net = getattr(lib.nn, kind)(4, 6).to(getattr(lib, dtype))
        x = lib.randn(5, 3, 4).to(getattr(lib, dtype))
        out, state = net(x)
        return [out, state, trained(lib, net, out.float().sum())]
    agree(program, rtol=tolerance, atol=tolerance)


CELLS = [("RNNCell", {}), ("RNNCell", dict(nonlinearity="relu", bias=False)), ("LSTMCell", {}),
         ("LSTMCell", dict(bias=False)), ("GRUCell", {}), ("GRUCell", dict(bias=False))]


@pytest.mark.parametrize("name, options", CELLS)
def test_cell(name, options):
    def program(lib):
        cell = getattr(lib.nn, name)(4, 6, **options)
        x = lib.randn(5, 3, 4, requires_grad=True)
        state, seen = None, []
        for step in x:
            state = cell(step, state)
            seen += flat(state)
        single = cell(x[0, 0], tuple(s[0] for s in state) if name == "LSTMCell" else state[0])
        return [repr(cell), dict(cell.state_dict()), seen, single, trained(lib, cell, total(*seen), x)]
    agree(program, rtol=1e-4, atol=1e-5)


def test_copies_and_pickles():
    def program(lib):
        net = lib.nn.LSTM(4, 6, 2, bidirectional=True)
        x = lib.randn(5, 3, 4)
        net.flatten_parameters()
        return [copy.deepcopy(net)(x)[0], pickle.loads(pickle.dumps(net))(x)[0]]
    agree(program)


REFUSED = {
    "hidden size": lambda lib: lib.nn.LSTM(3, 0),
    "hidden size type": lambda lib: lib.nn.LSTM(3, 2.5),
    "layers": lambda lib: lib.nn.GRU(3, 4, 0),
    "dropout": lambda lib: lib.nn.GRU(3, 4, 2, dropout=1.5),
    "dropout type": lambda lib: lib.nn.GRU(3, 4, 2, dropout=True),
    "projection": lambda lib: lib.nn.GRU(3, 4, proj_size=2),
    "projection of RNN": lambda lib: lib.nn.RNN(3, 4, proj_size=2),
    "projection size": lambda lib: lib.nn.LSTM(3, 4, proj_size=4),
    "projection below zero": lambda lib: lib.nn.LSTM(3, 4, proj_size=-1),
    "nonlinearity": lambda lib: lib.nn.RNN(3, 4, nonlinearity="sin"),
    "mode": lambda lib: lib.nn.RNNBase("ABC", 3, 4),
    "input dims": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(3)),
    "input dims of RNN": lambda lib: lib.nn.RNN(3, 4)(lib.zeros(1, 1, 1, 3)),
    "input dims of GRU": lambda lib: lib.nn.GRU(3, 4)(lib.zeros(3)),
    "input size": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(5, 2, 4)),
    "input dtype": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(5, 2, 3).double()),
    "state dims": lambda lib: lib.nn.GRU(3, 4)(lib.zeros(5, 2, 3), lib.zeros(2, 4)),
    "state dims of one": lambda lib: lib.nn.GRU(3, 4)(lib.zeros(5, 3), lib.zeros(1, 2, 4)),
    "LSTM state dims": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(5, 2, 3), (lib.zeros(2, 4), lib.zeros(2, 4))),
    "state size": lambda lib: lib.nn.GRU(3, 4)(lib.zeros(5, 2, 3), lib.zeros(1, 2, 5)),
    "LSTM state size": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(5, 2, 3), (lib.zeros(1, 2, 5), lib.zeros(1, 2, 4))),
    "LSTM cell size": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(5, 2, 3), (lib.zeros(1, 2, 4), lib.zeros(1, 3, 4))),
    "no steps": lambda lib: lib.nn.LSTM(3, 4)(lib.zeros(0, 2, 3)),
    "cell input dims": lambda lib: lib.nn.GRUCell(3, 4)(lib.zeros(1, 2, 3)),
    "cell state dims": lambda lib: lib.nn.GRUCell(3, 4)(lib.zeros(2, 3), lib.zeros(1, 2, 4)),
    "LSTM cell state dims": lambda lib: lib.nn.LSTMCell(3, 4)(lib.zeros(2, 3), (lib.zeros(1, 2, 4),) * 2),
    "cell nonlinearity": lambda lib: lib.nn.RNNCell(3, 4, nonlinearity="sin")(lib.zeros(2, 3)),
    "cell input size": lambda lib: lib.nn.GRUCell(3, 4)(lib.zeros(2, 5)),
    "cell state size": lambda lib: lib.nn.GRUCell(3, 4)(lib.zeros(2, 3), lib.zeros(2, 5)),
    "cell samples": lambda lib: lib.nn.GRUCell(3, 4)(lib.zeros(2, 3), lib.zeros(3, 4)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal(case):
    both_refuse(REFUSED[case])


def test_warning():
    both_warn(lambda lib: lib.nn.LSTM(3, 4, dropout=0.5))
