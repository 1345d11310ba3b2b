"""`torch.profiler`: where time goes. PyTorch's interface; and `prof.profile`, by line, operation, kernel and module."""
from ..compat.missing import rest_of
from . import itt
from .data import Profile
from .events import DeviceType
from .machine import limit_of
from .model import MachineLimit
from .profiler import (
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    _default_schedule_fn,
    _KinetoProfile,
    kineto_available,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = ["DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile",
           "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]

__getattr__ = rest_of("torch.profiler")
