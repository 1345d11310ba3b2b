"""What a device can do: hold memory, run operations on arrays, draw random numbers. See backend.py.

`torch.backends.cudnn` and its like are answered here too, for programs that set switches; see library_switches.py.
"""
from importlib import import_module

from .backend import Backend
from .devices import register

__all__ = ["Backend", "register"]

_SWITCHES = frozenset("cuda cudnn cusparselt kleidiai mha miopen mkl mkldnn mps nnpack openmp opt_einsum "
                      "quantized flags_frozen __allow_nonbracketed_mutation".split())


def __getattr__(name):
    if name not in _SWITCHES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".library_switches", __name__), name)
