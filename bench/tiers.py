"""How soon is a new program as fast as it will be? The first steps of small programs, by what runs them.

    python bench/tiers.py [names …] [--steps 50] [--threads 2] [--tries 1] [--busy] [--curves] [--json FILE]

Each program of small_programs/ runs in processes of its own: by default settings, with an empty folder of kernels and
again with what that run has left there; pinned to native code, both ways; pinned to the reference executor; and under
PyTorch. Every step is timed by the wall clock, with a look at its loss; the first one includes what the program builds,
but not the import. Printed are, for each contender, the first step, the sums of the first 25 and 50 steps, the median
of the last ten, and from which step on the default stays within 1.2 of native's last steps (of three steps in a row,
the best counts: other processes disturb). With `--tries`, the best time of each step counts.

Where other processes keep the machine busy, the wall clock says little. With `--busy` a step takes the processor time
of all threads of its process: an upper bound, since it counts what is compiled on another core meanwhile.
"""
import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side import EAGER, two_cores
from small_programs import PROGRAMS, built

DEFAULT, FILLED, NATIVE, NATIVE_FILLED, REFERENCE = "default", "filled", "native", "native filled", "reference"
CONTENDERS = (DEFAULT, FILLED, NATIVE, NATIVE_FILLED, REFERENCE, EAGER)
EXECUTORS = {NATIVE: "native", NATIVE_FILLED: "native", REFERENCE: "reference"}
SUMS = 25, 50                 # over how many steps times are added up
LAST = 10                     # steps whose median is the steady time
STEADY = 1.2                  # times native's steady time: as fast as that counts as arrived
SECONDS = 600                 # after which a process is given up


def child(contender, name, steps, threads, busy):
    """Print the seconds of every step."""
    m = importlib.import_module("torch" if contender == EAGER else "flambeau")
    m.set_num_threads(threads)
    now = time.process_time if busy else time.perf_counter
    times, start = [], now()
    step = built(m, name)
    for _ in range(steps):
        step()
        times.append(now() - start)
        start = now()
    print(json.dumps(times))


def ran(contender, name, args, folder):
    """The seconds of every step in a process of its own whose kernels are kept in `folder`; a text where it failed."""
    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "FLAMBEAU_CACHE_DIR"), folder)
    command = [sys.executable, "-W", "ignore", __file__, "--steps", str(args.steps), "--threads", str(args.threads),
               *["--busy"] * args.busy, "--child", contender, name]
    environment = os.environ | places | {"FLAMBEAU_EXECUTOR": EXECUTORS.get(contender, "auto")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        said = [text for text in done.stderr.splitlines() if "Error: " in text and not text.startswith(" ")]
        return (said or [f"exit status {done.returncode}"])[-1][:200]
    return json.loads(done.stdout.splitlines()[-1])


def measured(name, args):
    """{contender: seconds of every step} of a program, or {contender: a text}."""
    found = {}
    for _ in range(args.tries):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            for contender in args.only:
                times = ran(contender, name, args, other if contender in (NATIVE, NATIVE_FILLED) else one)
                known = found.get(contender)
                found[contender] = list(map(min, known, times)) if isinstance(known, list) else times
    return found


def steady(times):
    """The time of a step in the end."""
    return statistics.median(times[-LAST:])


def arrived(times, goal):
    """The first step, counted from one, from which on every three steps have one that is as quick as `goal`."""
    late = [i for i in range(len(times) - 2) if min(times[i:i + 3]) > goal]
    return late[-1] + 2 if late else 1


def lines(name, found):
    """What a program's contenders took, in lines."""
    goal = STEADY * steady(found[NATIVE]) if isinstance(found.get(NATIVE), list) else None
    for contender, times in found.items():
        if isinstance(times, str):
            yield f"{name:<28}{contender:<15}{times}"
            continue
        sums = [f"{1e3 * sum(times[:count]):10.0f}" for count in SUMS if count <= len(times)]
        since = arrived(times, goal) if goal is not None and contender in (DEFAULT, FILLED) else ""
        if since and since > len(times) - LAST:
            since = "never"
        yield f"{name:<28}{contender:<15}{1e3 * times[0]:10.1f}{''.join(sums)}{1e3 * steady(times):10.2f}{since:>9}"


def ratios(found):
    """{what: ratio}: what the first steps of the default take beside the better of the pinned executors, and PyTorch's
    first step beside the default's."""
    if any(isinstance(times, str) for times in found.values()):
        return {}
    made = {}
    for mine, native in ((DEFAULT, NATIVE), (FILLED, NATIVE_FILLED)):
        for count in SUMS:
            if mine in found and native in found and REFERENCE in found and count <= len(found[mine]):
                better = min(sum(found[other][:count]) for other in (native, REFERENCE))
                made[f"{mine}, {count} steps / better pinned"] = sum(found[mine][:count]) / better
        if mine in found and EAGER in found:
            made[f"{mine}, first step: PyTorch's / ours"] = found[EAGER][0] / found[mine][0]
    return made


def summary(found):
    """The ratios of all programs, in lines."""
    rows = {name: ratios(times) for name, times in found.items()}
    for what in dict.fromkeys(what for row in rows.values() for what in row):
        some = sorted((row[what], name) for name, row in rows.items() if what in row)
        values = [value for value, _ in some]
        yield f"{what:<42} geometric mean {statistics.geometric_mean(values):5.2f}  median " \
              f"{statistics.median(values):5.2f}  from {some[0][0]:.2f} ({some[0][1]}) to " \
              f"{some[-1][0]:.2f} ({some[-1][1]})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs whose name contains one of these")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tries", type=int, default=1, help="processes for each contender")
    parser.add_argument("--busy", action="store_true", help="processor time instead of the wall clock")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS, help="some contenders")
    parser.add_argument("--curves", action="store_true", help="print the time of every step, too")
    parser.add_argument("--json", help="a file for every time")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(*args.child, args.steps, args.threads, args.busy)
    two_cores(args.threads)
    found = {}
    heads = "".join(f"sum {count}".rjust(10) for count in SUMS if count <= args.steps)
    print(f"{'program, milliseconds':<28}{'':<15}{'first':>10}{heads}{'steady':>10}{'arrived':>9}", flush=True)
    for name in PROGRAMS:
        if args.names and not any(word in name for word in args.names):
            continue
        found[name] = measured(name, args)
        for line in lines(name, found[name]):
            print(line, flush=True)
        if args.curves:
            for contender, times in found[name].items():
                print(f"    {contender}: {' '.join(f'{1e3 * t:.1f}' for t in times)}", flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps(found))
    print("", *summary(found), sep="\n")
    return None


if __name__ == "__main__":
    main()
