"""`torch.version`: the PyTorch version whose behaviour this is, and what it was built with."""
from .backends.cuda import chain
from .base.lazy import import_when_asked, names_there
from .base.names import attribute_error
from .torch_version import TorchVersion

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = TorchVersion("2.13.0+flambeau")
debug = False
cuda: str | None            # the CUDA that the library is built for, looked up when it is asked for
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"


__getattr__ = import_when_asked(__name__, {"cuda": chain.built_for}, lambda name: attribute_error(
    "torch.version", name, lambda: names_there(__name__)))
