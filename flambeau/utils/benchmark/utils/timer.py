"""`Timer`: measures how long a statement takes, computing included.

Flambeau computes what is looked at. A statement that is timed is looked at: what it gives, and what its variables
hold, is computed before it is run again. So a Timer's time is that of PyTorch's, the whole work of the statement.
"""
import ast
import statistics
import textwrap
import timeit
from enum import Enum
from importlib import import_module

from ....backends.devices import has_cuda
from ....base.spec import place
from ....trace.recording.record import current, run_all
from .common import Measurement, TaskSpec, set_torch_threads

__all__ = ["Language", "Timer", "timer"]

OVERHEAD_SHARE = 1e-4             # of the clock, in a block of runs
MAX_BLOCK_RUNS = 2 ** 31 - 1


def timer():
    """The time in seconds, when everything that was recorded is computed and all devices are done."""
    run_all()
    if has_cuda():
        place("cuda").backend.synchronize()
    return timeit.default_timer()


class Language(Enum):
    """What a statement is written in."""

    PYTHON, CPP = 0, 1


def looked_at(stmt):
    """`stmt` with what it gives looked at: kept in a variable, and computed at its end."""
    try:
        tree = ast.parse(stmt)
    except SyntaxError:                           # which timeit will say
        return stmt
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.Expr):
            name = ast.Name(f"_result_{number}", ast.Store())
            tree.body[number] = ast.copy_location(ast.Assign([name], node.value), node)
    if not tree.body:
        return stmt
    tree.body.append(ast.parse("_compute_recorded()").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _compute_recorded():
    current().run()


class Timer:
    """Times `stmt`, in Python, with `globals`, after `setup`. Labels and `num_threads` go into the measurement."""

    _timer_cls = timeit.Timer

    def __init__(self, stmt="pass", setup="pass", global_setup="", timer=timer, globals=None, label=None,
                 sub_label=None, description=None, env=None, num_threads=1, language=Language.PYTHON):
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language in (Language.CPP, "cpp", "c++"):
            raise NotImplementedError("Timer(language='cpp') would compile C++ against PyTorch; time a statement in "
                                      "Python")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise ValueError(f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be "
                             "moved to `setup`.")
        self._language = Language.PYTHON
        self._globals = dict(globals or {})
        self._globals.setdefault("torch", import_module(__name__.partition(".")[0]))
        stmt, setup = _dedented(stmt), _dedented(setup)
        self._timer = self._timer_cls(stmt=looked_at(stmt), setup=setup, timer=timer,
                                      globals={**self._globals, "_compute_recorded": _compute_recorded})
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _timeit(self, number):
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number, times):
        return Measurement(number, times, self._task_spec)

    def timeit(self, number=1_000_000):
        """One measurement of `number` runs, after a few to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(int(number // 100), 2))
            return self._measured(number, [self._timeit(number)])

    def repeat(self, repeat=-1, number=-1):
        """Refuse: `blocked_autorange` is what repeats."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback=None):
        """Refuse: `blocked_autorange` finds the number of runs."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time):
        """How many runs make a block beside which the clock is nothing; and it warms up."""
        with set_torch_threads(self._task_spec.num_threads):
            overhead = statistics.median(self._timeit(0) for _ in range(5))
            number = 1
            while True:
                taken = self._timeit(number)
                if overhead / taken <= OVERHEAD_SHARE and taken >= min_run_time / 1000 or taken > min_run_time or \
                        number * 10 > MAX_BLOCK_RUNS:
                    return number
                number *= 10

    def _blocks(self, number, enough, min_run_time, max_run_time, callback):
        """The times of blocks of `number` runs, until there are `enough` and `min_run_time` has gone by."""
        with set_torch_threads(self._task_spec.num_threads):
            return self._timed_blocks(number, enough, min_run_time, max_run_time, callback)

    def _timed_blocks(self, number, enough, min_run_time, max_run_time, callback):
        times, total = [], 0.0
        while total < min_run_time or not enough(times):
            taken = self._timeit(number)
            times.append(taken)
            total += taken
            if callback is not None:
                callback(number, taken)
            if max_run_time and total > max_run_time:
                break
        return times

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Measurements for `min_run_time` seconds, of as many runs each as the clock needs."""
        number = self._block_size(min_run_time)
        return self._measured(number, self._blocks(number, lambda times: bool(times), min_run_time, None, callback))

    def adaptive_autorange(self, threshold=0.1, *, min_run_time=0.01, max_run_time=10.0, callback=None):
        """The same, until the times are near each other: their interquartile range less than `threshold` of the
        median; for `max_run_time` seconds at most."""
        number = self._block_size(0.05)

        def enough(times):
            return len(times) > 3 and self._measured(number, times).meets_confidence(threshold)
        return self._measured(number, self._blocks(number, enough, min_run_time, max_run_time, callback))

    def collect_callgrind(self, number=100, *, repeats=None, collect_baseline=True, retain_out_file=False):
        """Refuse: instructions are not counted here."""
        raise NotImplementedError("collect_callgrind() is not in Flambeau: run the program under valgrind "
                                  "--tool=callgrind, or measure times with blocked_autorange()")


def _dedented(text):
    text = textwrap.dedent(text)
    return text.removeprefix("\n").rstrip()
