"""`torch.autograd.profiler`: the older interface to the same profile, and ranges for NVIDIA's and Intel's tools."""
from contextlib import ExitStack

from ..backends import devices
from ..base.observers import Observer, observing
from ..compat._library.called import called_name
from ..compat.missing import rest_of
from . import itt
from .events import (
    MEMORY_EVENT_NAME as MEMORY_EVENT_NAME,
    EventList,
    FormattedTimesMixin as FormattedTimesMixin,
    FunctionEvent,
    FunctionEventAvg as FunctionEventAvg,
    Interval as Interval,
    Kernel as Kernel,
    StringTable as StringTable,
)
from .profiler import (
    ProfilerActivity,
    _KinetoProfile,
    activity_of,
    kineto_available as kineto_available,
    record_function,
)

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "load_nvprof", "profile", "record_function"]
__getattr__ = rest_of("torch.autograd.profiler")


class profile(_KinetoProfile):
    """A profile of a `with` block; `print(prof)` is its table. `torch.profiler.profile` has steps and a schedule."""

    def __init__(self, enabled=True, *, use_cuda=False, use_device=None, record_shapes=False, with_flops=False,
                 profile_memory=False, with_stack=False, with_modules=False, use_kineto=False, use_cpu=True,
                 experimental_config=None, acc_events=False, custom_trace_id_callback=None):
        wanted = [ProfilerActivity.CPU] if use_cpu else []
        device = "cuda" if use_cuda else use_device
        if device in devices.types:
            wanted.append(activity_of(device))
        super().__init__(activities=wanted or None, record_shapes=record_shapes, with_flops=with_flops,
                         profile_memory=profile_memory, with_stack=with_stack, with_modules=with_modules,
                         experimental_config=experimental_config, acc_events=acc_events,
                         custom_trace_id_callback=custom_trace_id_callback)
        self.enabled, self.entered = enabled, False

    def __enter__(self):
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self.start()
        return self

    def __exit__(self, *exc):
        if self.enabled:
            self.stop()
        return False

    @property
    def function_events(self):
        """The calls as an EventList; None before the block has ended."""
        return None if self.profile is None else self.events()

    def _checked(self):
        if self.profile is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.events()

    def table(self, *args, **kwargs):
        """The calls as a table; see `EventList.table`."""
        return self._checked().table(*args, **kwargs)

    def total_average(self):
        """All calls added up."""
        return self._checked().total_average()

    @property
    def self_cpu_time_total(self):
        """The CPU's microseconds of all calls."""
        return self._checked().self_cpu_time_total

    def __str__(self):
        return "<unfinished torch.autograd.profile>" if self.profile is None else str(self._checked())

    def __repr__(self):
        return "<unfinished torch.autograd.profile>" if self.profile is None else repr(self._checked())


class _Ranges(Observer):
    """Begins a range of another tool's at each call, and ends it after."""

    def __init__(self, push, pop, shapes):
        self.push, self.pop, self.shapes = push, pop, shapes

    def calling(self, name, args, kwargs):
        title = called_name(name, args)
        if title is not None:
            sizes = [list(a._spec.shape) if hasattr(a, "_spec") else [] for a in args] if self.shapes else None
            self.push(f"{title}, sizes = {sizes}" if self.shapes else title)

    def called(self, name, args, kwargs, made, start, end):
        if called_name(name, args) is not None:
            self.pop()

    def backward_began(self, backward_pass):
        self.push("flambeau::backward")

    def backward_ended(self, backward_pass):
        self.pop()


class _EmitRanges:
    """A context in which calls are ranges of another tool's."""

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled, self.entered, self.record_shapes = enabled, False, record_shapes
        self._stack = ExitStack()

    def _tool(self):
        raise NotImplementedError

    def __enter__(self):
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError(f"{self._name} context manager is not reentrant")
        self.entered = True
        self._stack.enter_context(observing(_Ranges(*self._tool(), self.record_shapes), only_this_thread=True))
        return self

    def __exit__(self, *exc):
        self._stack.close()
        return False


class emit_nvtx(_EmitRanges):
    """Inside, every call is a range of NVTX's, which NVIDIA's profilers show: run under `nsys profile`.

    A range is the call, in which an operation is recorded; the kernels come when the results are looked at. The names
    are seen where NVIDIA's package `nvtx` is installed (`torch.cuda.nvtx`).
    """

    _name = "NVTX annotation"

    def _tool(self):
        from ..cuda import nvtx
        return nvtx.range_push, nvtx.range_pop


class emit_itt(_EmitRanges):
    """The same for Intel's VTune, by way of `torch.profiler.itt`."""

    _name = "ITT annotation"

    def _tool(self):
        return itt.range_push, itt.range_pop


def load_nvprof(path):
    """Refuse: files of nvprof, which NVIDIA has given up, cannot be read."""
    raise NotImplementedError(f"load_nvprof({path!r}): NVIDIA has given nvprof up; use nsys profile, and "
                              "torch.profiler.profile for the calls")
