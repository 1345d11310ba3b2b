"""Functions of layers, activations and losses; each is declared in `ops/`."""
from ..tensor.forms import namespace

globals().update(namespace["nn.functional"])
