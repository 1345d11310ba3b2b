"""Time several contenders side by side, in one process, and print who is ahead of whom.

A contender is a function without arguments that computes something and gives it back computed. Before anything is
timed the results are compared. Then each contender gets a burst of calls in turn, for several rounds, and its best call
counts. What a call gives back is freed within the time of the call: fresh memory is part of what an operation costs.
"""
import gc
import os
import sys
import time
from dataclasses import dataclass, field

import numpy as np

SECONDS = 3.0                 # what a race may take, all contenders together, once they are warm
ROUNDS = 5
PATIENCE = 10.0               # seconds to wait for a quiet machine, for each row
QUIET = 0.1                   # part of the cores that other processes may take while something is timed
WARM_CALLS = 8                # calls before anything is timed: plans are made, code is compiled, caches are filled
WARM_SECONDS = 0.3            # but not more of them than fit into this time
LULL = 0.025                  # OpenMP's and XLA's threads spin this long for more work, on the next contender's cores
SHORT = 20e-6                 # calls shorter than this are timed in bunches

OURS, COMPILED, EAGER, INDUCTOR, JAX = CONTENDERS = "ours", "ours compiled", "PyTorch", "torch.compile", "JAX jit"


def two_cores(threads=2):
    """Hold this process, and every library in it, to two cores."""
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > threads:
        # Libraries count the cores and start threads when they are imported, so begin again: cores outlive an exec.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    import torch
    torch.set_num_threads(threads)


# --- contenders: what they compute is there when they return ---

def synchronizer():
    """The function that runs everything that Flambeau has recorded and that somebody can still see."""
    import flambeau
    if hasattr(flambeau, "cpu"):
        return flambeau.cpu.synchronize
    from flambeau.trace.recording.record import run_all
    return run_all


def synchronize():
    synchronizer()()


def ours(function, *args):
    """`function(*args)` under Flambeau; its result is held while the trace runs, so that all of it is computed."""
    finish = synchronizer()

    def run():
        result = function(*args)
        finish()
        return result
    return run


def eager(function, *args):
    return lambda: function(*args)


def jitted(function, *args, jit=True):
    """`function(*args)` under JAX, whose calls return before their work is done."""
    import jax
    if jit:
        function = jax.jit(function)
    return lambda: jax.block_until_ready(function(*args))


# --- agreement ---

def flat(result):
    """All arrays in a result, whichever library made them, as NumPy arrays of their own."""
    if isinstance(result, tuple | list):
        return [array for part in result for array in flat(part)]
    if hasattr(result, "detach"):
        result = result.detach().clone().numpy()       # of a copy: the tensor itself stays free of NumPy
    return [np.array(result)]


def agree(results, rtol=1e-4, atol=1e-5):
    """None, or in words how the results of the contenders differ: {name: result}."""
    found = {name: flat(result) for name, result in results.items()}
    judge = EAGER if EAGER in found else next(iter(found))
    for name, arrays in found.items():
        if len(arrays) != len(found[judge]):
            return f"{name} gives {len(arrays)} results, {judge} {len(found[judge])}"
        for i, (a, b) in enumerate(zip(arrays, found[judge])):
            if a.shape != b.shape:
                return f"result {i} of {name} is {a.shape}, of {judge} {b.shape}"
            if not np.allclose(a, b, rtol, atol, equal_nan=True):
                return f"result {i} of {name} and {judge} differ by up to {np.abs(a - b).max():.3g}"
    return None


# --- the race ---

def race(runs, rounds=ROUNDS, seconds=SECONDS, patience=PATIENCE):
    """The best time of a call of each contender: {name: seconds}.

    A burst in which other processes took more than a tenth of the cores does not count as a round; the race goes on
    until everybody has had its rounds, or for `patience` seconds more. Then the best there is has to do, and
    `race.disturbed` says how much of the cores the others took in the quietest burst of whoever had it worst.
    """
    guess = {name: _warm(run) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    others = {name: [] for name in runs}
    gc.collect()
    gc.freeze()               # the objects of three libraries would be looked through again in everybody's time
    share = seconds / len(runs) / rounds
    last = time.perf_counter() + seconds + patience
    while any(sum(took < QUIET for took in others[name]) < rounds for name in runs):
        if any(not took or took[-1] > QUIET for took in others.values()):
            _wait_for_quiet(last)
        for name, run in runs.items():
            time.sleep(LULL)
            run()             # after the others: caches and clocks are theirs
            before = cores()
            best[name] = min(best[name], _burst(run, guess[name], share))
            others[name].append(taken(before, cores()))
        if time.perf_counter() > last:
            break
    gc.unfreeze()
    race.disturbed = max(min(took) for took in others.values())
    return best


def _burst(run, guess, share):
    """The best time of a call within about `share` seconds of calls."""
    best, bunch = float("inf"), max(1, int(5 * SHORT / guess)) if guess < SHORT else 1
    until = time.perf_counter() + share
    while True:
        start = time.perf_counter()
        for _ in range(bunch):
            run()
        end = time.perf_counter()
        best = min(best, (end - start) / bunch)
        if end > until:
            return best


def cores():
    """Seconds so far: on the clock, of this process on all cores, and of everybody on all cores."""
    everybody = 0.0
    if os.path.exists("/proc/stat"):
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        everybody = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), everybody


def _wait_for_quiet(last):
    """Sleep until others leave the cores alone, or the clock says `last`."""
    while True:
        before = cores()
        time.sleep(0.25)
        if taken(before, cores()) < QUIET or time.perf_counter() > last:
            return


def taken(before, after):
    """Which part of the cores other processes took between two readings of `cores`."""
    clock, mine, everybody = (b - a for a, b in zip(before, after))
    return max(0.0, everybody - mine) / (clock * os.cpu_count())


def _warm(run):
    """Call until warm; gives how long the last call took."""
    began = time.perf_counter()
    for _ in range(WARM_CALLS):
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        if end - began > WARM_SECONDS:
            break
    return end - start


# --- the table ---

@dataclass
class Claim:
    """One line of the table: a ratio that should reach `target`, of the time of `above` over that of `below`."""
    target: float
    note: str = ""            # what sets this claim apart from the others on the same work
    above: str = EAGER
    below: str = OURS


@dataclass
class Row:
    """Some work, who does it, and what is claimed about it."""
    work: str
    runs: dict                                    # contender → function that makes the function to be timed
    claims: list
    check: object = None                          # gives results to compare, where they are not the runs' own
    tolerance: tuple = (1e-4, 1e-5)
    missing: dict = field(default_factory=dict)   # contender → why it is not here


def clock(seconds):
    """A time as text."""
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 \
        else f"{seconds * 1e6:.1f} µs"


def paint(text, good):
    """Red where it is not good, on a terminal."""
    return text if good or not sys.stdout.isatty() else f"\033[31m{text}\033[0m"


def doubt(disturbed):
    """What to say of a time during which other processes took this part of the cores."""
    return f"; in doubt: other processes took {100 * disturbed:.0f}% of the cores" if disturbed > QUIET else ""


class Table:
    """Prints a line for each claim as soon as it is measured, and keeps them."""

    HEAD = ("work", "ours", "PyTorch", "torch.compile", "JAX jit", "ratio", "target", "")
    WIDTHS = (58, 10, 10, 13, 10, 7, 7, 0)

    def __init__(self):
        self.lines = []
        self._print(self.HEAD)

    def _print(self, cells, good=True):
        first, *rest, verdict = cells
        text = first.ljust(self.WIDTHS[0]) + " ".join(c.rjust(w) for c, w in zip(rest, self.WIDTHS[1:]))
        print(text, " ", paint(verdict, good), flush=True)

    def add(self, work, times, ratio=None, target="", verdict="", good=True, below=OURS):
        """One line; `ratio` a number or text, `times` {contender: seconds or nothing}."""
        self.lines.append({"work": work, "seconds": times, "ratio": ratio, "target": target, "verdict": verdict,
                           "reached": good})
        cells = [clock(times.get(name)) for name in (below, EAGER, INDUCTOR, JAX)]
        ratio = "-" if ratio is None else ratio if isinstance(ratio, str) else f"{ratio:.2f}"
        self._print((work, *cells, ratio, str(target), verdict), good)

    def race(self, row, rounds=ROUNDS, patience=PATIENCE):
        """Compare, time and print `row`."""
        runs, missing, results = {}, dict(row.missing), {}
        for name, make in row.runs.items():
            try:
                run = make()
                results[name] = run()
                runs[name] = run
            except Exception as error:            # a bench goes on without a contender, and says so
                missing[name] = f"fails: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        if row.check is not None:
            results = row.check(list(runs))
        differ = agree(results, *row.tolerance) if len(results) > 1 else None
        results.clear()
        times, aside = {}, ""
        if runs and not differ:
            times = race(runs, rounds, patience=patience)
            aside = doubt(race.disturbed)
        for claim in row.claims:
            work = f"{row.work}{claim.note and ', '}{claim.note}"
            if differ or claim.below in missing or claim.above in missing:
                why = f"NOT COMPARED: {differ}" if differ else ", ".join(
                    f"{name} {missing[name]}" for name in (claim.below, claim.above) if name in missing)
                self.add(work, times, None, claim.target, why + aside, False, claim.below)
                continue
            ratio = times[claim.above] / times[claim.below]
            good = ratio >= claim.target
            verdict = "reached" if good else f"short by {100 * (1 - ratio / claim.target):.0f}%"
            self.add(work, times, ratio, claim.target, verdict + aside, good and not aside, claim.below)

    def close(self):
        """How many claims hold."""
        held = sum(line["reached"] for line in self.lines)
        print(f"\n{held} of {len(self.lines)} reached")
