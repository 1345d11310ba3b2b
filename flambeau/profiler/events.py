"""`torch.autograd.profiler_util`: a Profile as PyTorch's list of events, its averages and its table.

An operation's CPU time is that of its call and of what the CPU computed for it, its share of the steps; steps of other
devices are its device time. What runs and calls need besides (plans, compilers, memory) stands in events of its own,
`flambeau::run` and others, so that the self times of all events add up to the time that was profiled.
"""
import itertools
import math
from collections import namedtuple
from enum import Enum

from ..backends.devices import number_of
from .chrome import write_trace

__all__ = ["EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel",
           "StringTable"]

MEMORY_EVENT_NAME = "[memory]"
US_PER_SECOND, US_PER_MS = 1e6, 1e3
SORT_WORDS = (("cuda", "device"), ("xpu", "device"), ("privateuse1", "device"))
COLUMN_WIDTH = 12
FLOP_UNITS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")

Kernel = namedtuple("Kernel", "name device duration")


class DeviceType(Enum):
    """Kinds of devices, with PyTorch's numbers."""

    CPU, CUDA = 0, 1
    XPU, MPS, Meta, PrivateUse1 = 12, 13, 14, 20


class Interval:
    """From `start` to `end`, in microseconds since the profile began."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        """How long it is."""
        return self.end - self.start


def in_words(us):
    """Microseconds as PyTorch's profiler writes them."""
    if us >= US_PER_SECOND:
        return f"{us / US_PER_SECOND:.3f}s"
    return f"{us / US_PER_MS:.3f}ms" if us >= US_PER_MS else f"{us:.3f}us"


def memory_in_words(nbytes):
    """Bytes as PyTorch's profiler writes them."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def _share(us, total):
    return "NaN" if not total else f"{us * 100 / total:.2f}%"


class FormattedTimesMixin:
    """Averages and words for what has `count` and times in all."""

    cpu_time = property(lambda self: self.cpu_time_total / self.count if self.count else 0.0)
    device_time = property(lambda self: self.device_time_total / self.count if self.count else 0.0)
    cuda_time = property(lambda self: self.device_time)
    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.self_device_time_total)
    cuda_memory_usage = property(lambda self: self.device_memory_usage)
    self_cuda_memory_usage = property(lambda self: self.self_device_memory_usage)
    cpu_time_str = property(lambda self: in_words(self.cpu_time))
    device_time_str = property(lambda self: in_words(self.device_time))
    cpu_time_total_str = property(lambda self: in_words(self.cpu_time_total))
    device_time_total_str = property(lambda self: in_words(self.device_time_total))
    self_cpu_time_total_str = property(lambda self: in_words(self.self_cpu_time_total))
    self_device_time_total_str = property(lambda self: in_words(self.self_device_time_total))


class FunctionEvent(FormattedTimesMixin):
    """One call, module, run or stretch of the program: a Span of the profile, in PyTorch's words.

    `self_cpu_time_total` is in microseconds, as all times are, and includes the share of the steps that computed it.
    """

    count = 1
    node_id = -1
    is_async = is_remote = is_legacy = False
    overload_name = ""
    device_index = device_resource_id = 0
    concrete_inputs: tuple = ()
    kwinputs: dict = {}
    metadata_json = "{}"

    def __init__(self, number, name, start, end, thread, use_device=None):
        self.id, self.name, self.thread, self.fwd_thread = number, name, thread, None
        self.time_range, self.use_device = Interval(start, end), use_device
        self.cpu_children, self.cpu_parent, self.kernels = [], None, []
        self.input_shapes, self.stack, self.scope = [], [], 0
        self.own_cpu = self.own_device = 0.0
        self.self_cpu_memory_usage = self.self_device_memory_usage = 0
        self.sequence_nr, self.flops, self.is_user_annotation = -1, 0, False
        self.device_type = DeviceType.CPU
        self.module = self.line = None

    key = trace_name = property(lambda self: self.name)
    self_cpu_time_total = property(lambda self: self.own_cpu)
    self_device_time_total = property(lambda self: self.own_device)

    def _sum(self, name):
        """Of it and of all that it has called."""
        total, stack = 0, [self]
        while stack:
            one = stack.pop()
            total += getattr(one, name)
            stack += one.cpu_children
        return total

    cpu_time_total = property(lambda self: self._sum("own_cpu"))
    device_time_total = property(lambda self: self._sum("own_device"))
    cpu_memory_usage = property(lambda self: self._sum("self_cpu_memory_usage"))
    device_memory_usage = property(lambda self: self._sum("self_device_memory_usage"))

    def append_kernel(self, name, device, duration):
        """A step of another device computed some of it."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child):
        """It has called `child`."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent):
        """It was called by `parent`."""
        self.cpu_parent = parent

    def __repr__(self):
        return (f"<FunctionEvent id={self.id} name={self.name} device_type={self.device_type} "
                f"cpu_time={self.cpu_time_str} start_us={self.time_range.start} end_us={self.time_range.end} "
                f"cpu_children={[child.id for child in self.cpu_children]} "
                f"{self.use_device or 'device'}_time={self.device_time_str} thread={self.thread} "
                f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>")


class FunctionEventAvg(FormattedTimesMixin):
    """Events of one key, added up."""

    SUMS = ("count", "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total",
            "cpu_memory_usage", "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "flops")
    is_legacy = is_async = is_remote = False
    node_id = -1
    overload_name = ""
    device_type = DeviceType.CPU      # until one is added

    def __init__(self):
        self.key = self.scope = self.use_device = self.cpu_parent = self.input_shapes = self.stack = None
        self.cpu_children, self.is_user_annotation, self._inside = [], False, set()
        for name in self.SUMS:
            setattr(self, name, 0)

    def add(self, other):
        """Take in one more."""
        if self.key is None:
            for name in ("key", "scope", "device_type", "use_device", "cpu_parent", "input_shapes", "stack",
                         "is_user_annotation", "cpu_children"):       # of the first
                setattr(self, name, getattr(other, name))
        for name in self.SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self):
        device = self.use_device or "cuda"
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
                f"cpu_time={self.cpu_time_str}  self_{device}_time={self.self_device_time_total_str} "
                f"{device}_time={self.device_time_str} input_shapes={self.input_shapes} "
                f"cpu_memory_usage={self.cpu_memory_usage} {device}_memory_usage={self.device_memory_usage}>")


class StringTable(dict):
    """Names by themselves; PyTorch's own shortens those of C++."""

    def __missing__(self, key):
        self[key] = key
        return key


class EventList(list):
    """Events, or averages of events: `table()`, `key_averages()`, `export_stacks()`, …."""

    def __init__(self, *args, use_device=None, profile_memory=False, with_flops=False, profile=None):
        super().__init__(*args)
        self._use_device, self._profile_memory, self._with_flops = use_device, profile_memory, with_flops
        self._profile, self._tree_built = profile, True

    def __str__(self):
        return self.table()

    self_cpu_time_total = property(lambda self: sum(event.self_cpu_time_total for event in self))

    def _like(self, events):
        return EventList(events, use_device=self._use_device, profile_memory=self._profile_memory,
                         with_flops=self._with_flops, profile=self._profile)

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        """Events of one name added up; with the others, of one name and shapes of arguments, or frames around."""
        found: dict = {}
        for event in self:
            key = (event.key, event.device_type, event.is_user_annotation,
                   str(event.input_shapes) if group_by_input_shapes else None, tuple(event.stack[:group_by_stack_n]))
            found.setdefault(key, FunctionEventAvg()).add(event)
        for event in found.values():
            event.stack = list(event.stack[:group_by_stack_n])
            if not group_by_input_shapes:
                event.input_shapes = ""
        return self._like(found.values())

    def total_average(self):
        """All events added up."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key = "Total"
        return total

    def supported_export_stacks_metrics(self):
        """What `export_stacks` can write."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write a line for each event: its frames, the outermost first, and its microseconds, as flame graphs are made
        of."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        times = [(event.stack, int(getattr(event, _attribute(metric)))) for event in self]
        lines = [f"{';'.join(entry.translate(STACK_ESCAPES) for entry in reversed(stack))} {us}\n"
                 for stack, us in times if stack and us > 0]
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines)

    def export_chrome_trace(self, path):
        """Write the profile that the events are of as a trace that Perfetto and Chrome open."""
        write_trace(self._profile, path)

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55,
              max_shapes_column_width=80, header=None, top_level_events_only=False, time_unit=None):
        """The events as PyTorch's table. `sort_by`: "self_cpu_time_total", "count", ….; row_limit -1: all rows."""
        return _table(self, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width,
                      header, top_level_events_only, time_unit)


STACK_ESCAPES = str.maketrans(" ;\t\n", "____")


def _attribute(name):
    """The attribute that a name of another device's means."""
    for word, own in SORT_WORDS:
        name = name.replace(word, own)
    return name


def _table(events, sort_by, row_limit, src_width, name_width, shapes_width, header, top_level_only, time_unit):
    if not events:
        return ""
    if time_unit not in (None, "s", "ms", "us"):
        raise ValueError(f'time_unit is {time_unit!r}: "s", "ms" or "us", or None for what fits each')
    if sort_by is not None:
        if not hasattr(events[0], _attribute(sort_by)):
            raise AttributeError(f"there is no column {sort_by!r} to sort by; some there are: self_cpu_time_total, "
                                 "cpu_time_total, self_device_time_total, cpu_memory_usage, count, flops")
        events = events._like(sorted(events, key=lambda event: getattr(event, _attribute(sort_by)), reverse=True))
    columns = _columns(events, time_unit, name_width, shapes_width, src_width)
    rows = []
    for event in events:
        if len(rows) == row_limit:
            break
        if not (top_level_only and event.cpu_parent is not None):
            rows.append([column.text(event) for column in columns])
    widths = [column.width for column in columns]
    rule = "  ".join("-" * width for width in widths) + "  "
    lines = []
    if header is not None:
        lines += ["=" * (len(rule) - 2), header]
    if top_level_only:
        lines += ["=" * (len(rule) - 2), "This report only display top-level ops statistics"]

    def row(texts):
        return "".join(f"{text:{column.side}{column.width}}  " for text, column in zip(texts, columns, strict=True))
    lines += [rule, row([column.title for column in columns]), rule, *map(row, rows), rule,
              f"Self CPU time total: {_unit(sum(e.self_cpu_time_total for e in events), time_unit)}"]
    device = sum(event.self_device_time_total for event in events if event.device_type is not DeviceType.CPU)
    if device:
        lines.append(f"Self {(events._use_device or 'cuda').upper()} time total: {_unit(device, time_unit)}")
    return "\n".join(lines) + "\n"


def _unit(us, unit):
    if unit is None:
        return in_words(us)
    return f"{us / {'s': US_PER_SECOND, 'ms': US_PER_MS, 'us': 1}[unit]:.3f}{unit}"


Column = namedtuple("Column", "title width side text")


def _columns(events, time_unit, name_width, shapes_width, src_width):
    """The columns that a table of these events has."""
    total = sum(event.self_cpu_time_total for event in events)
    device = (events._use_device or "cuda").upper()
    on_device = sum(event.self_device_time_total for event in events if event.device_type is not DeviceType.CPU)

    def column(title, text, width=COLUMN_WIDTH, side=">"):
        return Column(title, max(width, len(title)), side, text)

    def time(name):
        return lambda event: _unit(getattr(event, name), time_unit)

    def memory(name):
        return lambda event: memory_in_words(getattr(event, name))

    found = [column("Name", lambda e: fitted(e.key, name_width), width_of([e.key for e in events], name_width)),
             column("Self CPU %", lambda e: _share(e.self_cpu_time_total, total)),
             column("Self CPU", time("self_cpu_time_total")),
             column("CPU total %", lambda e: _share(e.cpu_time_total, total)),
             column("CPU total", time("cpu_time_total")), column("CPU time avg", time("cpu_time"))]
    if on_device:
        found += [column(f"Self {device}", time("self_device_time_total")),
                  column(f"Self {device} %", lambda e: _share(e.self_device_time_total, on_device)),
                  column(f"{device} total", time("device_time_total")),
                  column(f"{device} time avg", time("device_time"))]
    if events._profile_memory:
        found += [column("CPU Mem", memory("cpu_memory_usage")),
                  column("Self CPU Mem", memory("self_cpu_memory_usage"))]
        if any(event.self_device_memory_usage for event in events):
            found += [column(f"{device} Mem", memory("device_memory_usage")),
                      column(f"Self {device} Mem", memory("self_device_memory_usage"))]
    found.append(column("# of Calls", lambda e: str(e.count)))
    if any(event.input_shapes for event in events):
        width = width_of([str(event.input_shapes) for event in events], shapes_width)
        found.append(column("Input Shapes", lambda e: str(e.input_shapes)[:width], width))
    stacks = [event.stack for event in events if event.stack]
    if stacks:
        width = width_of(itertools.chain.from_iterable(stacks), src_width)
        found.append(column("Source Location", lambda e: _tail(e.stack[0], width) if e.stack else "", width, "<"))
    counts = [event.flops for event in events if event.flops > 0]
    if events._with_flops and counts:
        power = max(0, min(int(math.log10(min(counts)) / 3), len(FLOP_UNITS) - 1))
        found.append(column(f"Total {FLOP_UNITS[power]}",
                            lambda e: f"{e.flops / 1000 ** power:8.3f}" if e.flops > 0 else "--"))
    return found


def fitted(text, width):
    return text[:width - 3] + "..." if width is not None and len(text) >= width - 3 else text


def width_of(texts, most):
    widest = max(len(text) for text in texts) + 4
    return widest if most is None else min(widest, most)


def _tail(text, width):
    return text if len(text) <= width else "..." + text[len(text) - width + 3:]


# --- from a profile -------------------------------------------------------------------------------------------------

HIDDEN = frozenset(("observing",))        # spans that are no events


def events_of(profile, use_device=None, profile_memory=False, with_flops=False, cpu=True):
    """The EventList of a Profile; without `cpu`, of other devices' steps alone."""
    def us(time):
        return (time - profile.start) / 1000
    made: list = [None] * len(profile.spans)
    for number, span in enumerate(profile.spans):
        if span.kind in HIDDEN:
            continue
        event = made[number] = FunctionEvent(number, span.name, us(span.start), us(span.end), span.thread, use_device)
        event.own_cpu, event.own_device = (span.own + span.running) / 1000, span.device_running / 1000
        event.input_shapes, event.stack = list(span.shapes), list(span.stack)
        event.sequence_nr, event.scope, event.flops = span.order, int(span.kind == "node"), span.flops
        event.is_user_annotation = span.kind in ("scope", "step")
        event.self_cpu_memory_usage, event.self_device_memory_usage = span.allocated, span.device_allocated
        event.module, event.line = span.module, span.line
    for event, span in zip(made, profile.spans, strict=True):
        if event is not None and span.parent is not None and made[span.parent] is not None:
            event.set_cpu_parent(made[span.parent])
            made[span.parent].append_cpu_child(event)
    found = [event for event in made if event is not None] if cpu else []
    for number, step in enumerate(profile.steps):
        unattributed = sum(share.part for share in step.shares if share.span is None)
        if step.device != "cpu":
            event = _step_event(len(made) + number, step, us, use_device)
            event.device_type = DeviceType(number_of(step.device.partition(":")[0]))
            event.own_device = step.nanoseconds / 1000
            for share in step.shares:
                if share.span is not None and made[share.span] is not None:
                    made[share.span].append_kernel(step.name, step.device, step.nanoseconds * share.part / 1000)
            found.append(event)
        elif unattributed and cpu:                             # a compiled function: its calls were not seen
            event = _step_event(len(made) + number, step, us, use_device)
            event.own_cpu, event.flops = step.nanoseconds * unattributed / 1000, step.flops
            parent = made[step.parent] if step.parent is not None else None
            if parent is not None:
                event.set_cpu_parent(parent)
                parent.append_cpu_child(event)
            found.append(event)
    found += _memory_events(profile, len(made) + len(profile.steps), us, use_device) if profile_memory and cpu else []
    return EventList(found, use_device=use_device, profile_memory=profile_memory, with_flops=with_flops,
                     profile=profile)


def _step_event(number, step, us, use_device):
    return FunctionEvent(number, step.name, us(step.start), us(step.end), step.thread, use_device)


def _memory_events(profile, first, us, use_device):
    """What was given out or came back outside of any call."""
    found = []
    outside = [one for one in profile.memory if one.span is None]
    for number, (time, device, nbytes) in enumerate((one.time, one.device, one.nbytes) for one in outside):
        event = FunctionEvent(first + number, MEMORY_EVENT_NAME, us(time), us(time), profile.thread, use_device)
        if device == "cpu":
            event.self_cpu_memory_usage = nbytes
        else:
            event.self_device_memory_usage = nbytes
        found.append(event)
    return found
