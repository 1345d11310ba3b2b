"""How long do whole small programs take a step, of many kinds, with a look at the loss each time, beside PyTorch?

    python bench/programs.py [names …] [--threads 2] [--rounds 15] [--compiled] [--first] [--json FILE]

small_programs/ has them, each written once, as a function of the library. Both draw the same weights and the same data,
and their losses are compared over the first ten steps, which are not timed. From step 11 on they go by turns,
each a little after the other's threads have come to rest, and the ratios are PyTorch's time over ours: of both in
their best step, and of both in their median step. With `--threads 1` a step takes the processor time of its thread,
which says something on a busy machine, too. With `--compiled`, `torch.compile(step)` of ours takes part, against
PyTorch's plain step; it goes by turns with that after the plain one has, since two nets that meet the same batches one
right after the other have Flambeau plan what comes just twice. With `--first`, the first step of ours in a process of
its own with an empty kernel cache, and of PyTorch's in another; the time includes what the program builds, but not the
import.

A program that raises on ours has failed: its error is printed, and the others go on.
"""
import argparse
import gc
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from side import COMPILED, EAGER, LULL, OURS, clock, two_cores
from small_programs import PROGRAMS, built

CLOSE = 1e-3                  # how far they may be from each other, relatively
WARM_STEPS = 10               # steps before anything is timed, whose losses are compared
ROUNDS = 15                   # timed steps of each
SLOW = 0.8                    # ratios below this are listed at the end
FIRST_SECONDS = 300           # after which a first step is given up


@dataclass
class Outcome:
    """What came of a program: seconds by contender, or why there are none."""
    name: str
    seconds: dict              # of the best step; of the first one, by the wall clock
    seconds_too: dict          # of the median step; of the first one, of the processor
    error: str = ""
    differs: str = ""          # how the losses differ, in words
    losses: dict = field(default_factory=dict)

    def ratios(self, contender):
        """PyTorch's time over that of `contender`, by either measure."""
        return [times[EAGER] / times[contender] if contender in times and EAGER in times else None
                for times in (self.seconds, self.seconds_too)]


def compared(ours, theirs, name=OURS):
    """How two lists of losses differ, in words, or an empty text."""
    for i, (a, b) in enumerate(zip(ours, theirs), 1):
        if not math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-6) and not (math.isnan(a) and math.isnan(b)):
            return f"losses differ from step {i} on: {a:.6g} of {name}, {b:.6g} of PyTorch"
    return ""


def brief(error):
    """An error as one line that says where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text} ({Path(frame.filename).name}:{frame.lineno})"


def measured(name, compiled, rounds, threads):
    """The steps of a program by turns."""
    import torch

    import flambeau
    # One thread's own time leaves out what other processes take; of several only the wall clock knows.
    now = time.thread_time if threads == 1 else time.perf_counter
    found, steps, times = Outcome(name, {}, {}), {}, {}
    contenders = {EAGER: (torch, None), OURS: (flambeau, None)}
    if compiled:
        contenders[COMPILED] = flambeau, flambeau.compile
    for contender, (m, compile) in contenders.items():
        try:
            step = built(m, name, compile)
            found.losses[contender] = [step() for _ in range(WARM_STEPS)]
            steps[contender], times[contender] = step, []
        except Exception as error:
            if contender == EAGER:
                raise                      # the program itself is wrong
            found.error = "; ".join(filter(None, (found.error, f"{contender}: {brief(error)}")))
            continue
        if contender == EAGER:
            continue
        gc.collect()
        for _ in range(rounds):
            for other in (EAGER, contender):
                if threads > 1:
                    time.sleep(LULL)       # threads spin for a while after their work
                start = now()
                steps[other]()             # losses may part now: ours, plain and compiled, draw from one stream
                times[other].append(now() - start)
    found.differs = "; ".join(filter(None, (compared(found.losses[c], found.losses[EAGER], c) for c in (OURS, COMPILED)
                                            if c in steps)))
    found.seconds = {contender: min(taken) for contender, taken in times.items() if taken}
    found.seconds_too = {contender: statistics.median(taken) for contender, taken in times.items() if taken}
    return found


def child(contender, name, threads):
    """Print the seconds, of the clock and of the processor, of building a program and of its first step."""
    m = importlib.import_module("torch" if contender == EAGER else "flambeau")
    if contender == EAGER:
        m.set_num_threads(threads)
    start = time.perf_counter(), time.process_time()
    built(m, name)()
    print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1]]))


def first(name, threads, tries):
    """The first step of both, each in processes of its own, with empty caches, the best of `tries`."""
    found = Outcome(name, {}, {})
    for contender in (OURS, EAGER) * tries:
        with tempfile.TemporaryDirectory() as home:
            places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "FLAMBEAU_CACHE_DIR"), home)
            command = [sys.executable, "-W", "ignore", __file__, "--threads", str(threads), "--child", contender, name]
            ran = subprocess.run(command, env=os.environ | places, capture_output=True, text=True,
                                 timeout=FIRST_SECONDS)
        if ran.returncode:
            said = [text for text in ran.stderr.splitlines() if "Error: " in text and not text.startswith(" ")]
            found.error = (said or [f"exit status {ran.returncode}"])[-1][:300]
            return found
        for kept, seconds in zip((found.seconds, found.seconds_too), json.loads(ran.stdout.splitlines()[-1])):
            kept[contender] = min(seconds, kept.get(contender, seconds))
    return found


# --- the table ---

def line(found, contenders):
    """A row of the table."""
    cells = [clock(found.seconds.get(contender)).rjust(11) for contender in (EAGER, *contenders)]
    for contender in contenders:
        cells += [("-" if ratio is None else f"{ratio:.2f}").rjust(10) for ratio in found.ratios(contender)]
    return f"{found.name:<32}" + "".join(cells) + "   " + "; ".join(filter(None, (found.error, found.differs)))


def head(contenders, first):
    """The first line of the table."""
    cells = [("compiled" if name == COMPILED else name).rjust(11) for name in (EAGER, *contenders)]
    for _ in contenders:
        cells += ["ratio".rjust(10), ("processor" if first else "median").rjust(10)]
    return f"{'program':<32}" + "".join(cells)


def summary(found, contender):
    """What the ratios of one contender come to, in lines."""
    ratios = sorted((ratio, outcome.name) for outcome in found if (ratio := outcome.ratios(contender)[0]) is not None)
    if not ratios:
        return f"{contender}: none"
    values = [ratio for ratio, _ in ratios]
    slow = [f"{name} {ratio:.2f}" for ratio, name in ratios if ratio < SLOW]
    text = f"{contender}: {len(ratios)} programs, geometric mean {statistics.geometric_mean(values):.2f}, median " \
           f"{statistics.median(values):.2f}, below {SLOW}: {len(slow)}"
    return text + "".join(f"\n    {name}" for name in slow)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs whose name contains one of these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--compiled", action="store_true", help="torch.compile of ours takes part")
    parser.add_argument("--first", action="store_true", help="the first step instead, in processes of their own")
    parser.add_argument("--tries", type=int, default=1, help="processes for each program, with --first")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    parser.add_argument("--json", help="a file for everything that was measured")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(*args.child, args.threads)
    names = [name for name in PROGRAMS if not args.names or any(word in name for word in args.names)]
    if args.list:
        for name in names:
            print(f"{name:<32}{PROGRAMS[name].__doc__.splitlines()[0]}")
        return None
    two_cores(args.threads)
    warnings.simplefilter("ignore")          # the programs' own affair, and the same each time
    contenders = (OURS, COMPILED) if args.compiled and not args.first else (OURS,)
    print(head(contenders, args.first), flush=True)
    found = []
    for name in names:
        outcome = first(name, args.threads, args.tries) if args.first \
            else measured(name, args.compiled, args.rounds, args.threads)
        found.append(outcome)
        print(line(outcome, contenders), flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps([asdict(outcome) for outcome in found], indent=1))
    print()
    for contender in contenders:
        print(summary(found, contender))
    print(f"{len(found)} programs, {sum(bool(o.error) for o in found)} failed, "
          f"{sum(bool(o.differs) for o in found)} with other losses")
    return None


if __name__ == "__main__":
    main()
