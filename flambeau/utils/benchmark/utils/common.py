"""What was measured: a task, its times, and their statistics, in the words of PyTorch's `Measurement`."""
import math
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

from ....backends.cpu.threads import get_num_threads, set_num_threads

__all__ = ["Measurement", "TaskSpec", "ordered_unique", "select_unit", "set_torch_threads", "trim_sigfig",
           "unit_to_english"]

UNITS = {"ns": (1e-9, "nanosecond"), "us": (1e-6, "microsecond"), "ms": (1e-3, "millisecond"), "s": (1, "second")}
MAX_SIGNIFICANT_FIGURES = 4
LEAST_INTERVAL_SECONDS = 25e-9                # by which a clock is trusted at most
NOTICEABLE_SPREAD, GROSS_SPREAD = 0.1, 0.25   # interquartile range, as a part of the median


@dataclass(frozen=True, repr=False)
class TaskSpec:
    """A statement and what is said about it."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self):
        """The label, or the statement where there is none."""
        named = f": {self.sub_label}" if self.sub_label else ""
        if self.label is not None:
            return self.label + named
        if "\n" not in self.stmt:
            return self.stmt + named
        named = f" ({self.sub_label})" if self.sub_label else ""
        return f"stmt:{named}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self):
        """What was run before, in words."""
        if not self.setup or self.setup == "pass":
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self):
        """All of it, in words."""
        parts = [part for part in (self.title, self.description or "", self.setup_str()) if part]
        return "\n".join(f"{part}\n" if "\n" in part else part for part in parts)


TASK_FIELDS = frozenset(one.name for one in fields(TaskSpec))


@dataclass(repr=False)
class Measurement:
    """The times of a task: `raw_times` in seconds, each of `number_per_run` runs."""

    number_per_run: int
    raw_times: list
    task_spec: TaskSpec
    metadata: dict | None = None
    _sorted: tuple = field(default=(), init=False, compare=False)

    def __getattr__(self, name):
        if name in TASK_FIELDS:
            return getattr(self.task_spec, name)
        raise AttributeError(f"a Measurement has no {name!r}")

    @property
    def times(self):
        """Seconds of one run, as often as it was measured."""
        return [time / self.number_per_run for time in self.raw_times]

    def _ordered(self):
        if len(self._sorted) != len(self.raw_times):
            self._sorted = tuple(sorted(self.times))
        return self._sorted

    def _quantile(self, part):
        """Between the two times around it, as `torch.quantile` has it."""
        times = self._ordered()
        if not times:
            return -1.0
        at = part * (len(times) - 1)
        low = math.floor(at)
        high = min(low + 1, len(times) - 1)
        return times[low] + (times[high] - times[low]) * (at - low)

    @property
    def median(self):
        """The time in the middle."""
        return self._quantile(0.5)

    @property
    def mean(self):
        """The average."""
        times = self._ordered()
        return math.fsum(times) / len(times) if times else -1.0

    @property
    def iqr(self):
        """How far apart the first and the third quarter are."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self):
        """How many figures of the median mean something, by the spread of the times in the middle half."""
        times = self._ordered()
        middle = times[len(times) // 4:math.ceil(3 * len(times) / 4)]
        mean = math.fsum(middle) / len(middle)
        deviation = math.sqrt(math.fsum((time - mean) ** 2 for time in middle) / len(middle))
        interval = max(1.645 * deviation / math.sqrt(len(middle)), LEAST_INTERVAL_SECONDS)
        return min(max(math.floor(math.log10(self.median / interval)), 1), MAX_SIGNIFICANT_FIGURES)

    def meets_confidence(self, threshold=NOTICEABLE_SPREAD):
        """Whether the times are near enough to each other."""
        return self.iqr / self.median < threshold

    @property
    def _warnings(self):
        if not self.raw_times or self.meets_confidence(NOTICEABLE_SPREAD):
            return []
        why = "This could indicate system fluctuation." if self.meets_confidence(GROSS_SPREAD) else \
            "This suggests significant environmental influence."
        return [f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement.\n"
                f"           {why}"]

    @property
    def has_warnings(self):
        """Whether the times are far apart."""
        return bool(self._warnings)

    @property
    def title(self):
        """What was measured."""
        return self.task_spec.title

    @property
    def as_row_name(self):
        """What a row of `Compare` is called."""
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self):
        count = len(self.raw_times)
        unit, scale = select_unit(self.median)
        several, threads = count > 1, self.num_threads
        lines = [object.__repr__(self), self.task_spec.summarize(),
                 f"  {'Median: ' if several else ''}{self.median / scale:.2f} {unit}"]
        if count >= 4:
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({self._quantile(0.25) / scale:.2f} to "
                         f"{self._quantile(0.75) / scale:.2f})")
        lines.append(f"  {count} measurement{'s' if several else ''}, {self.number_per_run} runs "
                     f"{'per measurement,' if several else ','} {threads} thread{'s' if threads > 1 else ''}")
        return "\n".join([*lines, *self._warnings]).strip()

    @staticmethod
    def merge(measurements):
        """Measurements of one task put together, as runs of their own."""
        groups: dict = {}
        for one in measurements:
            groups.setdefault(one.task_spec, []).extend(one.times)
        return [Measurement(1, times, task) for task, times in groups.items()]


def select_unit(t):
    """(unit, its seconds) in which a time is a small number."""
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(math.floor(math.log10(t) / 3), "s") if t > 0 else "s"
    return unit, UNITS[unit][0]


def unit_to_english(u):
    """The name of a unit."""
    return UNITS[u][1]


def trim_sigfig(x, n):
    """`x` with `n` significant figures."""
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    scale = 10 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements):
    """Each of the elements once, in their order."""
    return list(dict.fromkeys(elements))


@contextmanager
def set_torch_threads(n):
    """Inside, `n` threads are used."""
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)
