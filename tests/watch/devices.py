"""A second device for the programs of cases.py: it computes with NumPy, and its memory is its own."""
from flambeau.backends import register
from tests.backends.toy import ToyBackend


def register_copper():
    """Have `torch.device("copper")`, the accelerator from then on."""
    register("copper", ToyBackend)
