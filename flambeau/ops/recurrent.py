"""Recurrent networks as functions: stacks of layers, in one direction or both, and single cells.

Sequences are matrices inside, with a row for each step of each sample; recurrence.py, lstm.py
and gru.py have the layers.
"""
from ..base.errors import need
from ..base.op import Composite
from .dropout import drop
from .gru import _gru_layer
from .lstm import _lstm_layer
from .matmul import _linear as linear
from .pieces import cat, stack
from .recurrence import _rnn_layer, last_state

# --- whole networks ---------------------------------------------------------------------------------------------------


def suited(x, *given):
    """`given` in the dtype of `x`, which autocast may have lowered."""
    return [t if t is None or t._spec.dtype is x._spec.dtype else t.to(x._spec.dtype) for t in given]


def in_wider(x, state):
    """`x` in the dtype of the state it is added to, where that is wider: autocast lowers products, and no sums."""
    return x.to(state._spec.dtype) if state._spec.dtype.itemsize > x._spec.dtype.itemsize else x


def own(states):
    """A copy where backward needs the states as they are, since what a function gives may be written to."""
    return states.clone() if states.requires_grad else states


def rnn_layer(relu, rows, state, weights, sizes, reverse):
    w_ih, w_hh, b_ih, b_hh = weights
    x = linear(rows, w_ih, None if b_ih is None else b_ih + b_hh)
    return _rnn_layer(x, *suited(x, *state, w_hh), relu, sizes, reverse),


def gru_layer(rows, state, weights, sizes, reverse):
    w_ih, w_hh, b_ih, b_hh = weights
    x = in_wider(linear(rows, w_ih, b_ih), state[0])
    return _gru_layer(x, *suited(x, *state, w_hh, b_hh), sizes, reverse)[:1]


def lstm_layer(rows, state, weights, sizes, reverse):
    w_ih, w_hh, b_ih, b_hh, project = weights
    x = linear(rows, w_ih, None if b_ih is None else b_ih + b_hh)
    if project is None:                           # a whole layer: in PyTorch one operation, in the lower precision
        return _lstm_layer(x, *suited(x, *state, w_hh, project), sizes, reverse)[:2]
    wide = in_wider(x, state[1])
    states, cells, _ = _lstm_layer(wide, *suited(wide, *state, w_hh, project), sizes, reverse)
    return *suited(x, states), cells


def lstm_step(rows, state, weights, sizes, reverse):
    w_ih, w_hh, b_ih, b_hh = weights
    x = in_wider(linear(rows, w_ih, None if b_ih is None else b_ih + b_hh), state[1])
    return _lstm_layer(x, *suited(x, *state, w_hh), None, sizes, reverse)[:2]


LAYERS = {
    "rnn_tanh": lambda *given: rnn_layer(False, *given), "rnn_relu": lambda *given: rnn_layer(True, *given),
    "gru": gru_layer, "lstm": lstm_layer, "lstm_cell": lstm_step,
}


def network(layer_type, rows, first, params, biases, layers, dropout, train, both_ways, sizes):
    """(the last layer's states in rows, the last state of each layer) of a stack of layers.

    `first` holds the first states, [layers · directions, samples, features] for each part of the state.
    """
    need(sizes, "Expected sequence length to be larger than 0 in RNN")
    directions = 2 if both_ways else 1
    projected = layer_type == "lstm" and first[0]._spec.shape[2] != first[1]._spec.shape[2]
    each = (4 if biases else 2) + projected
    count = each * layers * directions
    need(len(params) == count, f"{layer_type} of {layers} layers in {directions} directions takes {count} weights and "
                               f"biases, got {len(params)}")
    ends: list = [[] for _ in first]
    for layer in range(layers):
        made = []
        for direction in range(directions):
            number = layer * directions + direction
            given = list(params[each * number:each * (number + 1)])
            given[2:] = [*(given[2:4] if biases else (None, None)), *(given[-1:] if projected else ())]
            if layer_type == "lstm" and not projected:
                given.append(None)
            out = LAYERS[layer_type](rows, [part[number] for part in first], given, sizes, direction == 1)
            made.append(out[0])
            for end, states in zip(ends, out, strict=True):
                end.append(last_state(states, sizes, direction == 1))
        rows = made[0] if directions == 1 else cat(made, 1)
        if dropout and train and layer < layers - 1:
            rows = drop(rows, dropout, True)
    return own(rows) if directions == 1 else rows, [stack(end) for end in ends]


def recurrent(layer_type, given, named):
    """The public function of that name, in its two forms: over a padded batch, and over a packed one with its batch
    sizes."""
    packed = "batch_sizes" in named or len(given) > 3 and isinstance(given[3], (tuple, list))
    names = ("data", "batch_sizes") if packed else ("input",)
    names += ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
    names += () if packed else ("batch_first",)
    a = dict(zip(names, given, strict=False), **named)
    wrong = [name for name in a if name not in names] or [name for name in names if name not in a]
    need(not wrong and len(given) <= len(names), f"takes ({', '.join(names)}), got a wrong or missing argument: "
                                                 f"{', '.join(wrong) or len(given)}", TypeError)
    first = tuple(a["hx"]) if layer_type == "lstm" else (a["hx"],)
    tail = [a["params"], a["has_biases"], a["num_layers"], a["dropout"], a["train"], a["bidirectional"]]
    if packed:
        rows, ends = network(layer_type, a["data"], first, *tail, tuple(a["batch_sizes"].tolist()))
        return rows, *ends
    x = a["input"].transpose(0, 1) if a["batch_first"] else a["input"]
    steps, samples, width = x._spec.shape
    rows, ends = network(layer_type, x.reshape(steps * samples, width), first, *tail, (samples,) * steps)
    out = rows.view(steps, samples, rows._spec.shape[1])
    return out.transpose(0, 1) if a["batch_first"] else out, *ends


class Network(Composite):
    """A recurrent network as a function; its arguments are those of PyTorch's two overloads."""

    forms = "function"
    lists = True


class rnn_tanh(Network):
    """(output, last states) of a stack of plain recurrent layers with tanh, over a padded batch or a packed one."""

    def of(*given, **named): return recurrent("rnn_tanh", given, named)


class rnn_relu(Network):
    """(output, last states) of a stack of plain recurrent layers with relu, over a padded batch or a packed one."""

    def of(*given, **named): return recurrent("rnn_relu", given, named)


class gru(Network):
    """(output, last states) of a stack of gated recurrent layers, over a padded batch or a packed one."""

    def of(*given, **named): return recurrent("gru", given, named)


class lstm(Network):
    """(output, last states, last cells) of a stack of LSTM layers, over a padded batch or a packed one."""

    def of(*given, **named): return recurrent("lstm", given, named)


# --- single cells -----------------------------------------------------------------------------------------------------


def check_cell(input, hx, w_ih, w_hh, gates):
    """Refuse operands of a cell that do not fit."""
    need(input.dim() == 2 and input.shape[1] == w_ih.shape[1],
         f"input has inconsistent input_size: got {input.shape[-1]} expected {w_ih.shape[1]}")
    size = w_hh.shape[0] // gates
    need(hx.shape[1] == size, f"hidden0 has inconsistent hidden_size: got {hx.shape[1]}, expected {size}")
    need(input.shape[0] == hx.shape[0], f"Input batch size {input.shape[0]} doesn't match hidden0 batch size "
                                        f"{hx.shape[0]}")


def cell(layer_type, gates, input, state, *weights):
    """One step of one layer: the new state."""
    check_cell(input, state[0], *weights[:2], gates)
    return tuple([own(part) for part in LAYERS[layer_type](input, state, weights, (input._spec.shape[0],), False)])


class rnn_tanh_cell(Composite):
    """The next state of a plain recurrent cell: tanh of the sum of its two products."""

    forms = "function"

    def of(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return cell("rnn_tanh", 1, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


class rnn_relu_cell(Composite):
    """The next state of a plain recurrent cell: relu of the sum of its two products."""

    forms = "function"

    def of(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return cell("rnn_relu", 1, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


class gru_cell(Composite):
    """The next state of a gated recurrent cell."""

    forms = "function"

    def of(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return cell("gru", 3, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


class lstm_cell(Composite):
    """The next (state, cell contents) of an LSTM cell."""

    forms = "function"
    lists = True

    def of(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return cell("lstm_cell", 4, input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
