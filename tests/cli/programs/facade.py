"""Flambeau under PyTorch's name, looked at from inside."""
import importlib
import importlib.util
import pickle
import sys
import warnings

import flambeau

assert "torch" not in sys.modules
flambeau.install_as_torch()
flambeau.install_as_torch()                       # again is fine

import torch
import torch.amp.autocast_mode
import torch.cuda.amp.grad_scaler
import torch.nn.functional as F
from torch.utils import data

# the same objects, whichever way they are come by
for name in ("nn", "nn.functional", "nn.modules.linear", "nn.utils.rnn", "optim", "optim.lr_scheduler", "utils.data",
             "autograd", "autograd.functional", "linalg", "amp", "amp.autocast_mode", "cuda", "cuda.amp", "func",
             "distributions", "utils.checkpoint", "random", "special", "jit", "types", "overrides", "multiprocessing"):
    ours = importlib.import_module(f"flambeau.{name}")
    assert importlib.import_module(f"torch.{name}") is ours is sys.modules[f"torch.{name}"], name
    assert ours.__spec__.name == ours.__name__ == f"flambeau.{name}", name
    found = torch
    for part in name.split("."):
        found = getattr(found, part)
    assert found is ours, name
assert F is flambeau.nn.functional and data is flambeau.utils.data
assert torch.Tensor is flambeau.Tensor and torch.float32 is flambeau.float32 and torch.autocast is flambeau.autocast

# the version is PyTorch's, Flambeau keeps its own
assert torch.__version__ == "2.13.0+flambeau" and torch.__version__ >= "2.13" and torch.__version__ < "2.14.0"
assert flambeau.__version__ != torch.__version__ and torch.__name__ == "torch" and flambeau.__name__ == "flambeau"
assert torch.version.__version__ == torch.__version__ and torch.version.cuda == flambeau.version.cuda

# settings instead of executors
assert torch.backends is not flambeau.backends and torch.backends.cudnn is flambeau.backends.cudnn
assert importlib.import_module("torch.backends.cudnn") is torch.backends.cudnn
assert not hasattr(torch.backends, "kernels") and not torch.backends.mps.is_available()
with torch.backends.cuda.sdp_kernel(enable_flash=False):
    assert not torch.backends.cuda.flash_sdp_enabled()
assert torch.backends.cuda.flash_sdp_enabled()

# our own insides are not seen
assert callable(torch.trace) and callable(torch.tensor) and torch.ops.__name__ == "torch.ops"
assert torch.ops is sys.modules["torch.ops"] and torch.export is importlib.import_module("torch.export")
assert not hasattr(torch, "loops") and importlib.util.find_spec("torch.loops") is None

# what is missing
import torch.export.exported_program
import torch.nn.attention.flex_attention

assert importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torch.nothing_like_it") is None
assert not isinstance(3, torch.utils.benchmark.Timer) and not isinstance(3, torch.export.Dim)
# what needs a package that may not be installed says so as in PyTorch
if importlib.util.find_spec("tensorboard") is None:
    assert not hasattr(torch.utils, "tensorboard")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        assert error.name == "tensorboard"
    else:
        raise AssertionError(SummaryWriter)
for name in ("lobpcg", "no_such_name", "_no_such_name"):
    assert not hasattr(torch, name), name
assert not hasattr(torch.nn.functional, "no_such_name") and not hasattr(torch.linalg, "no_such_name")
for module, name in ((torch, "lobpcg"), (torch.nn.functional, "no_such_name"), (torch.linalg, "no_such_name")):
    try:
        getattr(module, name)
    except AttributeError as error:
        assert name in str(error) and "PyTorch has" in str(error) and error.name == name, error
for line in ("import torch.nothing_like_it", "import torch.nn.nothing_like_it", "import torch._no_such_name",
             "import torch.export.nothing_like_it",
             "from torch import no_such_name", "from torch.nn import no_such_name"):
    try:
        exec(line)
    except ImportError as error:
        assert "torch" in str(error) or "flambeau" in str(error)
    else:
        raise AssertionError(line)

# pickles name classes by PyTorch's modules, too
assert pickle.loads(b"ctorch.nn.modules.linear\nLinear\n.") is flambeau.nn.Linear
assert pickle.loads(b"ctorch\nfloat32\n.") is torch.float32
assert pickle.loads(pickle.dumps(torch.nn.Linear(2, 1))).weight.shape == (1, 2)

# and it computes
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert torch.ones(3).sum() == 3 and "amp" in dir(torch) and "stack" in dir(torch)
print("fine")
