"""`torch._C`, PyTorch's compiled half: what packages ask it for. `hasattr` tells what is here; nothing else is.

Each name says who needs it.
"""
from contextlib import nullcontext
from enum import Enum
from importlib import import_module
from types import SimpleNamespace

from ...accelerator import current_accelerator
from ...amp import autocast
from ...autograd.modes import inference_mode as _InferenceMode, is_grad_enabled, modes
from ...backends import devices
from ...backends.library_switches import cudnn
from ...base.dtypes import dtype
from ...base.errors import LinAlgError as _LinAlgError
from ...base.layout import layout, memory_format
from ...base.spec import CPU, Size, device
from ...jit import ScriptFunction, ScriptModule, is_tracing as _is_tracing, tracing
from ...overrides import _len_torch_function_stack
from ...tensor.about import get_default_device
from ...tensor.generators import Generator
from ...tensor.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from ...tensor.storage import StorageBase
from ...tensor.streams import Event, Stream
from ...tensor.subclass import opted_out as _disabled_torch_function_impl  # tensordict
from ...tensor.tensor import Tensor, TensorType
from ..missing import missing, refusal
from . import _functorch, _nn
from ._jit import (
    _jit_can_fuse_on_cpu,
    _jit_can_fuse_on_gpu,
    _jit_override_can_fuse_on_cpu,
    _jit_override_can_fuse_on_gpu,
    _jit_set_nvfuser_enabled,
    _jit_set_nvfuser_guard_mode,
    _jit_set_profiling_executor,
    _jit_set_profiling_mode,
    _jit_set_texpr_fuser_enabled,
)

_TensorMeta = TensorType                              # lightning (annotation)
TensorBase = _TensorBase = Tensor
_VariableFunctionsClass = _VariableFunctions = import_module(__name__.partition(".")[0])  # pickles of torch.relu
_fft, _linalg, _special = (SimpleNamespace(**{f"{space}_{name}": held for name, held in vars(
    import_module(f"...{space}", __name__)).items() if callable(held)})
    for space in ("fft", "linalg", "special"))        # in the code of a GraphModule of PyTorch's
_GLIBCXX_USE_CXX11_ABI = True                         # unsloth, sglang: of the library that extensions are built for
_has_xpu = False                                      # bitsandbytes
Graph, Value = missing("torch._C.Graph"), missing("torch._C.Value")       # transformers (annotations)


def _log_api_usage_once(event):
    """torchvision, torchmetrics, every nn.Module: PyTorch counts who uses what. Nothing is counted here."""


def _get_tracing_state():
    """fvcore, pyro, torchvision: the graph of calls that is being made, None for none."""
    return tracing.state


def _get_privateuse1_backend_name():
    """timm: what the device of another vendor is called, once there is one."""
    return next((kind for kind in devices.accelerators if kind not in devices.DEVICE_NUMBERS), "privateuseone")


def _get_accelerator(check=False):
    """transformers, diffusers: the device besides the CPU, or the CPU; with `check`, there has to be one."""
    found = current_accelerator()
    if check and found is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return found or CPU


def _are_functorch_transforms_active():
    """tensordict: whether a transform of torch.func replaces tensors by wrappers. Here none does."""
    return False


def _is_torch_function_mode_enabled():
    """tensordict: whether a TorchFunctionMode is entered."""
    return _len_torch_function_stack() > 0


def _is_alias_of(a, b):
    """tensordict: whether two tensors look at one storage."""
    return a._storage is b._storage


def _set_math_sdp_allow_fp16_bf16_reduction(enabled):
    """diffusers: a switch of PyTorch's attention, which has one way here."""


def _current_graph_task_id():
    """torchtune, trl, deepspeed: the number of the backward that runs in this thread; -1 outside of any."""
    running = modes.backward_pass
    return -1 if running is None else running.number


def _get_default_device():
    """torch_geometric: the device of new tensors, as a string."""
    return str(get_default_device())


def _get_cudnn_enabled():
    """pytorch_forecasting: whether cuDNN may be used."""
    return cudnn.enabled


def _dispatch_key_for_device(device_type):
    """deepspeed: what PyTorch's dispatcher calls the layer of a device."""
    return {"mps": "MPS", "meta": "Meta"}.get(device_type, device_type.upper())


class DispatchKey(Enum):
    """torchvision: the layers that a call passes through in PyTorch, as far as one can be left out here: autocast."""

    AutocastCPU = "cpu"
    AutocastCUDA = "cuda"
    AutocastXPU = "xpu"


class DispatchKeySet:
    """torchvision: a set of layers."""

    def __init__(self, *keys):
        self.keys = frozenset(keys)

    def __or__(self, other):
        return DispatchKeySet(*self.keys, *other.keys)

    def has(self, key):
        """Whether `key` is in the set."""
        return key in self.keys


class _ExcludeDispatchKeyGuard:
    """torchvision: a context, or an object while it lives, in which some layers are left out: no autocast."""

    def __init__(self, keys):
        self._context = autocast("cpu", enabled=False) if keys.has(DispatchKey.AutocastCPU) else nullcontext()

    def __enter__(self):
        self._context.__enter__()
        return self

    def __exit__(self, *exc):
        return self._context.__exit__(*exc)


class PyTorchFileReader:
    """lightning: reads single records of a file that torch.save wrote."""

    def __new__(cls, file):
        raise refusal("torch.PyTorchFileReader")
