"""Recurrent layers (RNN, LSTM, GRU) over padded and packed sequences, and their single cells."""
import math

from ...autograd.modes import modes
from ...base.errors import warn
from ...tensor.functions import (
    empty,
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn_relu,
    rnn_relu_cell,
    rnn_tanh,
    rnn_tanh_cell,
    zeros,
)
from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]

GATES_OF_MODE = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
FUNCTION_OF_MODE = {"LSTM": lstm, "GRU": gru, "RNN_TANH": rnn_tanh, "RNN_RELU": rnn_relu}


def apply_permutation(tensor, permutation, dim=1):
    """The samples of `tensor` in another order."""
    return tensor.index_select(dim, permutation)


def positive(**sizes):
    """Refuse sizes that are no positive integers."""
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")


class RNNBase(Module):
    """What RNN, LSTM and GRU share: `num_layers` recurrent layers, in one direction or both.

    The weights of layer k are `weight_ih_lk`, `weight_hh_lk`, `bias_ih_lk`, `bias_hh_lk` (and `weight_hr_lk` of an LSTM
    with projections), those of the backward direction end in `_reverse`.
    """

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
                     "bidirectional", "proj_size"]
    _added = {"proj_size": 0}

    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element "
                             f"being zeroed, got {dropout!r}")
        if dropout > 0 and num_layers == 1:
            warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                 f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}")
        positive(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        for name, switch in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(switch, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(switch).__name__}")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections, got "
                             f"{proj_size}")
        if proj_size >= hidden_size:
            raise ValueError(f"proj_size has to be smaller than hidden_size, got {proj_size} and {hidden_size}")
        if mode not in GATES_OF_MODE:
            raise ValueError(f"Unrecognized RNN mode: {mode}; it is one of {', '.join(GATES_OF_MODE)}")
        self._all_weights = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                shapes = self._shapes(layer)
                names = [f"{name}_l{layer}{suffix}" for name in shapes]
                for name, shape in zip(names, shapes.values()):
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(names)
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def _shapes(self, layer):
        """The shapes of one layer's weights, in one direction."""
        state, gates = self.proj_size or self.hidden_size, GATES_OF_MODE[self.mode] * self.hidden_size
        width = self.input_size if layer == 0 else state * (2 if self.bidirectional else 1)
        shapes = {"weight_ih": (gates, width), "weight_hh": (gates, state)}
        if self.bias:
            shapes.update(bias_ih=(gates,), bias_hh=(gates,))
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        return shapes

    def _state_for_files(self, state):
        """PyTorch's networks hold their weights in a list as well."""
        weights = [self._parameters.get(name) for name in self._flat_weights_names]
        return {**super()._state_for_files(state), "_flat_weights": weights}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.pop("_flat_weights", None)

    @property
    def _flat_weights(self):
        """All weights in one list. They are looked up by name, since a parametrization may stand in their place."""
        own = self._parameters
        return [own[name] if name in own else getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self):
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self):
        """Nothing to do: PyTorch lays the weights side by side in memory for cuDNN."""

    def reset_parameters(self):
        """Draw all weights anew, uniformly within one over the square root of the hidden size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        says = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False),
                            ("dropout", 0), ("bidirectional", False)):
            found = getattr(self, name)
            if found != usual:
                says += f", {name}={found}"
        return says

    # --- what is refused ---

    def check_input(self, input, batch_sizes):
        """Refuse an input of the wrong dtype, number of dimensions or width."""
        dtype = getattr(self, self._flat_weights_names[0]).dtype
        if input.dtype != dtype and modes.autocast is None:
            raise ValueError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert input: "
                             f"input.to({dtype}), or convert model: model.to({input.dtype})")
        dims = 2 if batch_sizes is not None else 3
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError("input.size(-1) must be equal to input_size. Expected "
                               f"{self.input_size}, got {input.size(-1)}")

    def get_expected_hidden_size(self, input, batch_sizes):
        """The shape that the first state must have."""
        return self._state_shape(input, batch_sizes, self.proj_size or self.hidden_size)

    def _state_shape(self, input, batch_sizes, width):
        samples = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return (self.num_layers * (2 if self.bidirectional else 1), samples, width)

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        """Refuse a first state of another shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input, hidden, batch_sizes):
        """Refuse an input or a first state that does not fit this network."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def _check_dims(self, input, hx):
        """Refuse a sequence or a state of the wrong number of dimensions; whether the sequence is a batch."""
        name = type(self).__name__ if type(self).__name__ in ("RNN", "LSTM", "GRU") else self.mode.split("_")[0]
        if input.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D "
                             f"{'tensor ' if name == 'RNN' else ''}instead")
        batched = input.dim() == 3
        parts = () if hx is None else hx if isinstance(hx, (tuple, list)) else (hx,)
        if any(part.dim() != input.dim() for part in parts):
            found = [f"{part.dim()}-D" for part in parts]
            raise RuntimeError(f"For {'batched 3-D' if batched else 'unbatched 2-D'} input, "
                               + (f"hx should also be {input.dim()}-D but got {found[0]} tensor" if len(found) == 1 else
                                  f"hx and cx should also be {input.dim()}-D but got ({', '.join(found)}) tensors"))
        return batched

    # --- forward ---

    def permute_hidden(self, hx, permutation):
        """The state with its samples in another order."""
        return hx if permutation is None else apply_permutation(hx, permutation)

    def _first_state(self, input, batch_sizes):
        """Zeros, for a network that was given no state."""
        return zeros(self.get_expected_hidden_size(input, batch_sizes), dtype=input.dtype, device=input.device)

    def _add_sample(self, hx):
        return hx.unsqueeze(1)

    def _drop_sample(self, hx):
        return hx.squeeze(1)

    def _call(self, input, batch_sizes, hx):
        """(output, the state in the form that the user gives it) from the operation."""
        call = FUNCTION_OF_MODE[self.mode]
        tail = (hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        if batch_sizes is None:
            out, *state = call(input, *tail, self.batch_first)
        else:
            out, *state = call(input, batch_sizes, *tail)
        return out, state[0] if len(state) == 1 else tuple(state)

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            data, batch_sizes, order, back = input
            hx = self._first_state(data, batch_sizes) if hx is None else self.permute_hidden(hx, order)
            self.check_forward_args(data, hx, batch_sizes)
            out, state = self._call(data, batch_sizes, hx)
            return PackedSequence(out, batch_sizes, order, back), self.permute_hidden(state, back)
        batched, samples_at = self._check_dims(input, hx), 0 if self.batch_first else 1
        if not batched:
            input, hx = input.unsqueeze(samples_at), None if hx is None else self._add_sample(hx)
        hx = self._first_state(input, None) if hx is None else hx
        self.check_forward_args(input, hx, None)
        out, state = self._call(input, None, hx)
        return (out, state) if batched else (out.squeeze(samples_at), self._drop_sample(state))


class RNN(RNNBase):
    """Layers of the plain kind: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.

    >>> rnn = torch.nn.RNN(10, 20, 2)
    >>> output, hn = rnn(torch.randn(5, 3, 10))
    >>> output.shape, hn.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
                 dropout=0.0, bidirectional=False, device=None, dtype=None, **more):
        refuse_projection(more)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, device=device, dtype=dtype, **more)
        self.nonlinearity = nonlinearity


class GRU(RNNBase):
    """Gated recurrent layers: r and z say how much of the past enters the new state.

    >>> gru = torch.nn.GRU(10, 20, batch_first=True, bidirectional=True)
    >>> output, hn = gru(torch.randn(3, 5, 10))
    >>> output.shape, hn.shape
    (torch.Size([3, 5, 40]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args, **kwargs):
        refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Layers of long short-term memory, whose state is a pair: what the cells give away, and what they hold.

    >>> lstm = torch.nn.LSTM(10, 20, num_layers=2)
    >>> output, (hn, cn) = lstm(torch.randn(5, 3, 10))
    >>> output.shape, cn.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input, batch_sizes):
        """The shape that the cells' first contents must have."""
        return self._state_shape(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input, hidden, batch_sizes):
        """Refuse an input or a first state that does not fit this network."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes),
                               "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes),
                               "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx, permutation):
        """The state with its samples in another order."""
        return hx if permutation is None else tuple(apply_permutation(part, permutation) for part in hx)

    def _first_state(self, input, batch_sizes):
        cells = zeros(self.get_expected_cell_size(input, batch_sizes), dtype=input.dtype, device=input.device)
        return super()._first_state(input, batch_sizes), cells

    def _add_sample(self, hx):
        return hx[0].unsqueeze(1), hx[1].unsqueeze(1)

    def _drop_sample(self, hx):
        return hx[0].squeeze(1), hx[1].squeeze(1)


def refuse_projection(given):
    if "proj_size" in given:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


# --- cells ------------------------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """What the cells share: weights for the input and for the state, of `num_chunks` gates."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((gates, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((gates, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(gates, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw all weights anew, uniformly within one over the square root of the hidden size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        says = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            says += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            says += f", nonlinearity={self.nonlinearity}"
        return says

    def _step(self, function, input, hx):
        """The next state, by `function`; a single sample goes through as a batch of one."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        parts = () if hx is None else tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        for number, part in enumerate(parts):
            if part.dim() not in (1, 2):
                which = "hidden" if len(parts) == 1 else f"hx[{number}]"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {part.dim()}D instead")
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if hx is None:
            blank = zeros((x.size(0), self.hidden_size), dtype=x.dtype, device=x.device)
            parts = (blank, blank)
        elif not batched:
            parts = tuple(part.unsqueeze(0) for part in parts)
        state = parts if isinstance(self, LSTMCell) else parts[0]
        made = function(x, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return made
        return tuple(part.squeeze(0) for part in made) if isinstance(made, tuple) else made.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of a plain recurrent layer."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}; it is 'tanh' or 'relu'")
        return self._step(rnn_tanh_cell if self.nonlinearity == "tanh" else rnn_relu_cell, input, hx)


class LSTMCell(RNNCellBase):
    """One step of an LSTM layer: (h, c) from an input and (h, c).

    >>> cell = torch.nn.LSTMCell(10, 20)
    >>> h, c = cell(torch.randn(3, 10))
    >>> h.shape, c.shape
    (torch.Size([3, 20]), torch.Size([3, 20]))
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        return self._step(lstm_cell, input, hx)


class GRUCell(RNNCellBase):
    """One step of a gated recurrent layer."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        return self._step(gru_cell, input, hx)
