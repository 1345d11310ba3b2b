"""`torch.profiler.profile` and what belongs to it, over our TimeRecorder.

    with torch.profiler.profile(record_shapes=True) as prof:
        train()
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))     # as PyTorch has it
    print(prof.profile)                                                               # by part, line and kernel
"""
import contextlib
import json
import os
import socket
import time
from enum import Enum

from ..backends import devices
from ..base.errors import warn
from ..base.paths import inside
from ..base.spec import CPU, as_device
from ..trace.recording.record import run_all
from . import recorder as recorders
from .chrome import write_trace
from .events import DeviceType, events_of
from .machine import limit_of, raised
from .recorder import ModuleAndMemoryRecorder, ModuleRecorder, TimeAndMemoryRecorder, TimeRecorder
from .timeline import write_timeline

__all__ = ["ExecutionTraceObserver", "ProfilerAction", "profile", "schedule", "supported_activities",
           "tensorboard_trace_handler"]


# (whether modules are noted, whether memory is) → what notes it
RECORDERS = {(False, False): TimeRecorder, (True, False): ModuleRecorder, (False, True): TimeAndMemoryRecorder,
             (True, True): ModuleAndMemoryRecorder}


class ProfilerActivity(Enum):
    """What a profiler can watch: the CPU, and the steps of other devices."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(Enum):
    """What a profiler does at a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


RECORDING_ACTIONS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def kineto_available():
    """Whether `torch.profiler.profile` can be used."""
    return True


def supported_activities():
    """What can be watched: the CPU, and the other types of devices that are there."""
    return {ProfilerActivity.CPU, *map(activity_of, filter(devices.available, devices.accelerators))}


def activity_of(device_type):
    """The activity of a type of devices; PyTorch has one for all that others add."""
    return ProfilerActivity[DeviceType(devices.number_of(device_type)).name]


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """A function that says what a profiler does at each step: `wait` steps nothing, `warmup`, then `active`."""
    def action(step):
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:                                   # the first cycle does not wait
            step += wait
        length = wait + warmup + active
        if 0 < repeat <= step // length:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need "
                             f">= 0), active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} "
                             "(need >= 0).")
    if warmup == 0:
        warn("Profiler won't be using warmup, this can skew profiler results")
    return action


def _default_schedule_fn(_):
    """Record every step."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A function for `on_trace_ready` that writes a trace to a folder, under a name that TensorBoard knows."""
    if worker_name:
        inside(dir_name, worker_name, "worker_name")

    def handler(prof):
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(dir_name, name))
    return handler


class record_function(contextlib.ContextDecorator):
    """A name for a stretch of the program in a profile: as a context, or before a function. Without one, nothing."""

    def __init__(self, name, args=None):
        if not isinstance(name, str):
            raise TypeError(f"record_function() takes a name for a stretch of the program, not {type(name).__name__}")
        self.name, self.args = name, args
        self._entered = []

    def _recreate_cm(self):                       # of a function that calls itself, each call has its own
        return record_function(self.name, self.args)

    def __enter__(self):
        found = tuple(recorders.current)
        for one in found:
            one.enter("scope", self.name)
        self._entered.append(found)
        return self

    def __exit__(self, *exc):
        for one in self._entered.pop():
            one.close("scope", self.name)
        return False

    def _call_end_callbacks_on_future(self, future):
        """The stretch ends when a future does; ours are done when they are made."""
        return future


class _KinetoProfile:
    """A profile from `start()` to `stop()`; `profile` adds steps and a schedule.

    `profile` (ours) is what was seen, a Profile: `print(prof.profile)`, `prof.profile.table("kernel")`.
    """

    def __init__(self, *, activities=None, record_shapes=False, profile_memory=False, with_stack=False,
                 with_flops=False, with_modules=False, experimental_config=None, execution_trace_observer=None,
                 acc_events=False, custom_trace_id_callback=None, post_processing_timeout_s=None):
        self.activities = _checked(activities)
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.acc_events = with_flops, with_modules, acc_events
        self.experimental_config, self.execution_trace_observer = experimental_config, execution_trace_observer
        self.custom_trace_id_callback = custom_trace_id_callback
        self.use_device = next((device_type for device_type in devices.accelerators if devices.available(device_type)
                                and activity_of(device_type) in self.activities), None)
        self.preset_metadata, self._metadata = {}, {}
        self.profile = self.profiler = None
        self._recorder = self._trace_id = None
        self._earlier, self._looks_away = [], False

    def start(self):
        """Begin."""
        self.prepare_trace()
        self.start_trace()

    def stop(self):
        """End."""
        self.stop_trace()

    def prepare_trace(self):
        """Look, and forget what is seen until `start_trace`: what happens for the first time happens now."""
        if self._recorder is None:
            cls = RECORDERS[bool(self.with_modules or self.with_stack), bool(self.profile_memory)]
            self._recorder = cls(self.record_shapes, self.with_stack).start()
            self.profiler = self._recorder
            if self.custom_trace_id_callback is not None:
                self._trace_id = self.custom_trace_id_callback()
        self._metadata.update(self.preset_metadata)

    def start_trace(self):
        """From here on what is seen counts. What was recorded before is computed first, and is not part of it."""
        run_all()
        as_device(self.use_device or CPU).backend.synchronize()
        self._recorder.clear()

    def stop_trace(self):
        """Compute what is recorded, as part of it, and end."""
        if self._recorder is None:
            raise AssertionError("stop() without start(): the profiler is not running")
        self.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        try:
            run_all()
            as_device(self.use_device or CPU).backend.synchronize()
        finally:
            made, self._recorder = self._recorder.stop(), None
        for device in {step.device for step in made.steps}:
            if (found := limit_of(device, measure=False)) is not None:
                made.limits[device] = raised(found, made.steps)
        if self.acc_events and self.profile is not None:
            self._earlier.append(self.profile)
        self.profile = made

    def measure_limits(self):
        """Measure what the devices of the profile can do at most, if that is not known: a fifth of a second, once. From
        then on tables have a column for it."""
        for device in {step.device for step in self._seen().steps}:
            self.profile.limits[device] = raised(limit_of(device), self.profile.steps)
        return self.profile.limits

    def _seen(self):
        if self.profile is None:
            raise AssertionError("Profiler must be initialized before what it has seen is asked for: leave its `with` "
                                 "block, or call stop()")
        return self.profile

    def events(self):
        """The calls, one by one, as PyTorch's EventList of FunctionEvents."""
        self._seen()
        cpu = ProfilerActivity.CPU in self.activities
        found = None
        for one in (*self._earlier, self.profile):
            made = events_of(one, self.use_device, self.profile_memory, self.with_flops, cpu)
            if found is None:
                found = made
            else:
                found.extend(made)
        return found

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """The calls added up by name; `.table(sort_by=…)` is the text."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path, use_python_export=False):
        """Write a trace that Perfetto (ui.perfetto.dev) and Chrome open; packed, if its name ends in .gz."""
        write_trace(self._seen(), path, self._metadata)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write the frames of each call and its microseconds, for a flame graph; needs `with_stack=True`."""
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path, device=None):
        """Write how many bytes were in use when, by what they were for: .html, .json, .json.gz or .raw.json.gz; needs
        `profile_memory=True`."""
        if not self.profile_memory:
            raise ValueError("profile_memory=False: there is no memory timeline. Use "
                             "profile(profile_memory=True, record_shapes=True, with_stack=True)")
        write_timeline(self._seen(), os.fspath(path), str(as_device(device or self.use_device or "cpu")))

    def toggle_collection_dynamic(self, enable, activities):
        """Look, or look away, for a while."""
        if self._recorder is not None and ProfilerActivity.CPU in set(activities) and enable is self._looks_away:
            self._looks_away = not enable
            (self._recorder.look_again if enable else self._recorder.look_away)()

    def add_metadata(self, key, value):
        """Put a word of your own into the trace."""
        self._metadata[key] = json.dumps(value)

    def add_metadata_json(self, key, value):
        """Put something in JSON of your own into the trace."""
        self._metadata[key] = value

    def preset_metadata_json(self, key, value):
        """The same, before the profiler is started."""
        self.preset_metadata[key] = value

    def set_custom_trace_id_callback(self, callback):
        """A function that gives each trace its name."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self):
        """The name of the trace; None if there is no function that gives it one."""
        return self._trace_id


def _checked(activities):
    """The activities that were asked for, those that are here if none were."""
    if activities is None:
        return supported_activities()
    found = set()
    for one in activities:
        found.update(one if isinstance(one, dict) else (one,))
    for one in found:
        if not isinstance(one, ProfilerActivity):
            raise TypeError(f"activities holds {one!r}: give torch.profiler.ProfilerActivity.CPU, or .CUDA")
    if not found:
        raise AssertionError("No valid profiler activities found")
    missing = sorted(one.name for one in found - supported_activities())
    if missing:
        warn(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not available, disabling "
             f"{', '.join(missing)} profiling")
    return (found & supported_activities()) or {ProfilerActivity.CPU}


class profile(_KinetoProfile):
    """A profile of a `with` block, or of those steps of it that a `schedule` says; each is begun by `step()`.

    `on_trace_ready(self)` is called when a stretch of recorded steps is over.
    """

    def __init__(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False,
                 profile_memory=False, with_stack=False, with_flops=False, with_modules=False,
                 experimental_config=None, execution_trace_observer=None, acc_events=False, use_cuda=None,
                 custom_trace_id_callback=None, post_processing_timeout_s=None):
        if use_cuda is not None:
            warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning)
            activities = set(activities or supported_activities())
            (activities.add if use_cuda else activities.discard)(ProfilerActivity.CUDA)
        super().__init__(activities=activities, record_shapes=record_shapes, profile_memory=profile_memory,
                         with_stack=with_stack, with_flops=with_flops, with_modules=with_modules,
                         experimental_config=experimental_config, execution_trace_observer=execution_trace_observer,
                         acc_events=acc_events, custom_trace_id_callback=custom_trace_id_callback,
                         post_processing_timeout_s=post_processing_timeout_s)
        self.schedule, self.record_steps = schedule or _default_schedule_fn, schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.step_rec_fn = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()

    def start(self):
        """Begin with step 0."""
        self._turn(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    def stop(self):
        """End, in the middle of a stretch too."""
        self._end_step()
        self._turn(self.current_action, None)

    def step(self):
        """The next step of the program begins."""
        self._end_step()
        self.step_num += 1
        before, self.current_action = self.current_action, self.schedule(self.step_num)
        self._turn(before, self.current_action)
        self._begin_step()

    def _begin_step(self):
        if self.record_steps:
            self.step_rec_fn = f"ProfilerStep#{self.step_num}"
            if self._recorder is not None:
                self._recorder.enter("step", self.step_rec_fn)

    def _end_step(self):
        if self.step_rec_fn is not None and self._recorder is not None:
            if self.current_action in RECORDING_ACTIONS:
                run_all()                                    # what a step recorded belongs to it
            self._recorder.close("step", self.step_rec_fn)
        self.step_rec_fn = None

    def _turn(self, before, after):
        """From what was done at a step to what is done at the next; None: there is none."""
        recorded = before in RECORDING_ACTIONS
        if recorded and (before is ProfilerAction.RECORD_AND_SAVE or after not in RECORDING_ACTIONS):
            self.stop_trace()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            recorded = False
        if after is ProfilerAction.WARMUP:
            self.prepare_trace()
        elif after in RECORDING_ACTIONS and not recorded:
            self.prepare_trace()
            self.start_trace()
        elif after not in RECORDING_ACTIONS and self._recorder is not None and before is ProfilerAction.WARMUP:
            self._recorder.stop()                            # warmed up for nothing
            self._recorder = None


class ExecutionTraceObserver:
    """PyTorch's writer of execution traces for its replay tools: can be named, not used."""

    def __init__(self):
        raise NotImplementedError("ExecutionTraceObserver writes traces for PyTorch's own replay tools, and those know "
                                  "PyTorch's operators alone; use profile.export_chrome_trace(), or Profile.to_dict()")
