"""`torch.version`: the PyTorch version whose behaviour this is, and what it was built with."""
from .backends.cuda import chain
from .torch_version import TorchVersion

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = TorchVersion("2.13.0+flambeau")
debug = False
cuda: str | None            # the CUDA that the library is built for, looked up when it is asked for
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"


def __getattr__(name):
    if name == "cuda":
        return chain.built_for()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
