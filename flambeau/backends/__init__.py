"""What a device can do: run operations on arrays, hold memory, draw random numbers.

`torch.backends.cudnn` and its like are answered here too, for programs that set their switches; see switches.py.
"""
from importlib import import_module

_SWITCHES = frozenset("cuda cudnn cusparselt kleidiai mha miopen mkl mkldnn mps nnpack openmp opt_einsum "
                      "quantized".split())


def __getattr__(name):
    if name not in _SWITCHES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".switches", __name__), name)
