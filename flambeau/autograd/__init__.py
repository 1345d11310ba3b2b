"""Gradients: nodes recorded beside each call, and the engine that walks them backwards."""
from sys import modules

from ..base.names import attribute_error
from ..base.once import imported
from . import anomaly_mode, forward_ad, functional, grad_mode, graph
from .engine import backward, grad
from .function import Function, FunctionCtx, once_differentiable
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .graph import detect_anomaly, set_detect_anomaly
from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled
from .variable import Variable


def _profiler_enabled():
    """Whether a profiler is at work. lightning asks before it ends."""
    found = modules.get(f"{__package__.rpartition('.')[0]}.profiler.recorder")
    return bool(getattr(found, "current", ()))           # which a module half imported has not got


def __getattr__(name):
    if name in ("profiler", "profiler_util"):                # names of what stands in the package flambeau.profiler
        found = "autograd_profiler" if name == "profiler" else "events"
        return imported(f"profiler.{found}", __package__.rpartition(".")[0])
    raise attribute_error("torch.autograd", name, globals().keys)
