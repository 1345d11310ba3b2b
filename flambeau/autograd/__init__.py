"""Gradients: nodes recorded beside each call, and the engine that walks them backwards."""
from sys import modules

from ..base.lazy import import_when_asked, names_there
from ..base.names import attribute_error
from . import anomaly_mode, forward_ad, functional, grad_mode, graph
from .engine import backward, grad
from .function import Function, FunctionCtx, once_differentiable
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .graph import detect_anomaly, set_detect_anomaly
from .modes import enable_grad, inference_mode, modes, no_grad, set_grad_enabled, set_multithreading_enabled
from .variable import Variable

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "grad_mode", "gradcheck",
           "gradgradcheck", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
           "set_multithreading_enabled", "variable"]


def _is_checkpoint_valid():
    """Whether a checkpoint of the reentrant kind may run its function again now: not for `grad`. deepspeed, dgl."""
    return modes.backward_pass is None or modes.backward_pass.whole


def _profiler_enabled():
    """Whether a profiler is at work. lightning asks before it ends."""
    found = modules.get(f"{__package__.rpartition('.')[0]}.profiler.recorder")
    return bool(getattr(found, "current", ()))           # which a module half imported has not got


# names of what stands in the package flambeau.profiler
__getattr__ = import_when_asked(
    __name__, {"profiler": "profiler.autograd_profiler", "profiler_util": "profiler.events",
               "DeviceType": "profiler.events:DeviceType"},
    lambda name: attribute_error("torch.autograd", name, lambda: names_there(__name__)))
