"""What programs touch at import or at the start, before they compute anything. All of it has to work."""
# ruff: noqa: UP007, UP035, UP045
import importlib.util
import os
import pickle
import random
import sys
from typing import Callable, Optional, Union

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.fx
import torch.jit
import torch.multiprocessing as mp
import torch.nn as nn
import torch.onnx
import torch.profiler
import torch.sparse
import torch.utils.checkpoint as cp
import torch.utils.data
from torch import Tensor
from torch.autograd import Variable
from torch.cuda.amp import GradScaler, autocast
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
from torch.types import Device

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    SummaryWriter = None
try:
    import torch.no_such_module
except ImportError as error:
    print("not there:", error)

print("version:", torch.__version__.split(".")[:2], torch.__version__ >= "1.10", torch.__version__ < (3, 0),
      torch.version.cuda)
cudnn.benchmark, cudnn.deterministic, cudnn.enabled = True, False, True
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
with torch.backends.cudnn.flags(enabled=False):
    pass
print("cudnn:", cudnn.benchmark, cudnn.is_available(), torch.backends.mps.is_available(), torch.backends.mps.is_built())
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True, warn_only=True)
print("modes:", torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled())
torch.use_deterministic_algorithms(False)
torch.set_num_threads(torch.get_num_threads())
torch.autograd.set_detect_anomaly(False)
random.seed(0), torch.manual_seed(0), torch.cuda.manual_seed(0), torch.cuda.manual_seed_all(0)
state = torch.get_rng_state()
with torch.random.fork_rng(devices=[]):
    first = torch.rand(2)
print("random:", torch.equal(first, torch.rand(2)), torch.initial_seed(), state.dtype)
print("cuda:", torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.memory_allocated(),
      torch.cuda.max_memory_allocated())
print("others:", hasattr(torch, "xpu") and torch.xpu.is_available(), torch.accelerator.is_available())
torch.cuda.empty_cache()
print("dist:", dist.is_available() and dist.is_initialized(), int(os.environ.get("LOCAL_RANK", -1)))
print("jit:", torch.jit.is_scripting(), torch.jit.is_tracing())
print("spec:", importlib.util.find_spec("torch") is not None, "torch" in sys.modules)
print("hub:", isinstance(torch.hub.get_dir(), str), hasattr(torch, "compile"), hasattr(torch, "no_such_thing"))
device: Device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Layer(nn.Module):
    writer: Optional[SummaryWriter] = None
    wrapped: Union[DDP, nn.Module, None] = None
    __constants__ = ["width"]

    def __init__(self, width: int, act: Callable[[Tensor], Tensor] = torch.relu):
        super().__init__()
        self.width, self.act = width, act
        self.linear = nn.Linear(width, width)

    @torch.jit.ignore
    def untouched(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def exported(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.unused
    def unused(self, x: Tensor) -> Tensor:
        return x

    @autocast(enabled=False)
    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            raise RuntimeError
        return self.act(cp.checkpoint(self.linear, x, use_reentrant=False))


model = Layer(3).to(device)
model = model.module if isinstance(model, (DDP, nn.DataParallel)) else model
print("model:", isinstance(model, torch.jit.ScriptModule), isinstance(model, _BatchNorm), model(torch.ones(2, 3)).shape)
with torch.autograd.profiler.record_function("forward"):
    old = Variable(torch.ones(2), requires_grad=True)
    (old * 2).sum().backward()
print("variable:", old.grad, isinstance(old, Variable), isinstance(torch.ones(1), Variable))
scaler = GradScaler(enabled=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedulers = [CosineAnnealingLR(optimizer, 10), LambdaLR(optimizer, lambda step: 1.0)]
print("pickle:", pickle.loads(pickle.dumps(torch.float32)), pickle.loads(pickle.dumps(torch.device("cpu"))),
      torch.equal(pickle.loads(pickle.dumps(model)).linear.weight, model.linear.weight))
print("start method:", mp.get_start_method(allow_none=True) in (None, "fork", "spawn", "forkserver"))
import torch.autograd.gradcheck  # it is both: importing the module leaves the function where it is
from torch.autograd.gradcheck import gradcheck

print("gradcheck, module and function:", torch.autograd.gradcheck is gradcheck,
      gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),)))
if __name__ == "__main__":
    print("done")
