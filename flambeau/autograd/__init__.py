"""Gradients: nodes recorded beside each call, and the engine that walks them backwards."""
from ..base.names import attribute_error
from . import anomaly_mode, forward_ad, functional, grad_mode, graph
from .engine import backward, grad
from .function import Function, FunctionCtx, once_differentiable
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .graph import detect_anomaly, set_detect_anomaly
from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled
from .variable import Variable


def _profiler_enabled():
    """Whether PyTorch's older profiler is at work: never. lightning asks before it ends."""
    return False


def __getattr__(name):
    raise attribute_error("torch.autograd", name, globals().keys)
