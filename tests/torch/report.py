"""Run the conformance checks from the command line.

    python -m tests.torch.report --op add --op sum           what fails, one line per failing check
    python -m tests.torch.report --family 'linalg.*'         by pattern
    python -m tests.torch.report --family reductions         by a heading of core_ops.txt
    python -m tests.torch.report --op max --check gradients --dtype float64 -v
    python -m tests.torch.report > docs/conformance.md       everything, as a table
    python -m tests.torch.report --keep FOLDER               so that what an interrupted run has found is not lost
"""
import argparse
import fnmatch
import hashlib
import os
import pickle
import re
import resource
import select
import signal
import sys
import time
import traceback
import typing
from pathlib import Path

import torch

from tests.torch import checks
from tests.torch.checks import CHECKS, DTYPES, HERE, OPS, case_id, dtypes_for, gap, read_gaps, run
from tests.torch.harness import short_dtype

PATIENCE = 600                    # seconds of work for one operation before it counts as hung, and an hour of waiting
DIED = "the process died, status "
ATONCE = 6                        # this many operations and fewer run in this process, where a debugger can follow


# ---- choosing -----------------------------------------------------------------------------------------------------

def sections():
    """{heading in core_ops.txt: its names}"""
    found, heading = {}, ""
    for line in (HERE / "core_ops.txt").read_text().splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.strip():
            found.setdefault(heading, []).extend(line.split())
    return found


def chosen(names, families):
    """The operations asked for, all if nothing was. A name stands for all of its variants."""
    by_heading = [set(found) for heading, found in sections().items() if any(family in heading for family in families)]
    patterns = names + families + [f"{name}.*" for name in families]

    def named(op, pattern):
        return fnmatch.fnmatchcase(op.name, pattern) or fnmatch.fnmatchcase(op.full_name, pattern)

    def asked(op):
        return any(op.name in found for found in by_heading) or any(named(op, pattern) for pattern in patterns)
    found = [op for op in OPS if asked(op)] if patterns else OPS
    unknown = [name for name in names if not any(named(op, name) for op in OPS)]
    if unknown or not found:
        sys.exit(f"no such operation in core_ops.txt: {' '.join(unknown or families)}")
    return found


# ---- running ------------------------------------------------------------------------------------------------------

class Row(typing.NamedTuple):
    """What came of one check with one dtype."""
    check: str
    dtype: str | None
    ran: int
    call: str               # the first failing call and what is wrong with it, or nothing
    wrong: str
    trace: str
    seconds: float


def examine(op, args):
    """The rows of one operation."""
    rows = []
    for check in args.check or CHECKS:
        for dtype in dtypes_for(check, op):
            if args.dtype and dtype is not None and DTYPES[dtype] not in args.dtype:
                continue
            name = dtype and DTYPES[dtype]
            try:
                outcome = run(check, op, dtype)
                call, wrong = outcome.first() if outcome.failures else ("", "")
                trace = "".join(traceback.format_exception(outcome.failures[0][1])) if wrong else ""
                rows.append(Row(check, name, outcome.ran, call, wrong, trace, outcome.seconds))
            except Exception as error:                      # the harness or OpInfo itself
                rows.append(Row(check, name, 1, op.full_name, f"harness: {error!r:.200}", traceback.format_exc(), 0.0))
    return rows


def examine_apart(op, args):
    """Start `examine` in a child process, so that a crash costs one operation: (pid, pipe to read the rows from)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(examine(op, args), pipe)
        os._exit(0)
    os.close(writer)
    return pid, reader


def examine_all(ops, args):
    """Yields (op, rows), `args.jobs` operations at a time."""
    if len(ops) <= ATONCE and not args.jobs:
        for op in ops:
            yield op, examine(op, args)
        return
    sys.stdout.flush()
    waiting, running = list(reversed(ops)), {}
    while waiting or running:
        while waiting and len(running) < (args.jobs or os.cpu_count()):
            op = waiting.pop()
            pid, reader = examine_apart(op, args)
            running[reader] = (op, pid, time.monotonic(), bytearray())
        for reader in select.select(list(running), [], [], 1.0)[0]:
            op, pid, _, data = running[reader]
            chunk = os.read(reader, 1 << 20)
            data += chunk
            if not chunk:
                os.close(reader)
                status = os.waitpid(pid, 0)[1]
                del running[reader]
                crash = Row("values", None, 1, op.full_name, f"{DIED}{status}", "", 0.0)
                yield op, pickle.loads(data) if data and not status else [crash]
        for _, pid, start, _ in running.values():
            if time.monotonic() - start > 6 * PATIENCE:
                os.kill(pid, signal.SIGKILL)


def fingerprint():
    """What the outcome depends on: the text of the package and of these checks. Rows of two trees do not mix."""
    found = hashlib.sha256()
    for path in sorted([*HERE.parents[1].glob("flambeau/**/*"), *HERE.glob("*")]):
        if path.suffix in (".py", ".txt"):
            found.update(f"{path.relative_to(HERE.parents[1])} ".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def examine_kept(ops, args):
    """Yields (op, rows) as `examine_all` does; what `args.keep` holds of this tree is not run again."""
    if not args.keep:
        yield from examine_all(ops, args)
        return
    folder = Path(args.keep) / fingerprint()
    folder.mkdir(parents=True, exist_ok=True)
    rest = []
    for op in ops:
        held = folder / op.full_name
        if held.exists():
            yield op, pickle.loads(held.read_bytes())
        else:
            rest.append(op)
    for op, rows in examine_all(rest, args):
        if not rows[-1].wrong.startswith(DIED):          # whoever ended it may not do so again
            partial = folder / f"{op.full_name}.partial"
            partial.write_bytes(pickle.dumps(rows))
            partial.replace(folder / op.full_name)
        yield op, rows


# ---- saying -------------------------------------------------------------------------------------------------------

def kind(row):
    """What rows share that fail for one reason: the text without its numbers, shapes and dtype names."""
    return row.check, re.sub(r"\b(b?float|u?int|complex|bf|[fiuc])?\d+\b|\[.*?\]|\(.*?\)|[\d.e+-]+", "", row.wrong)[:50]


def say_failures(ops, args):
    """One line per check and kind of failure, with the dtypes it concerns. True if any was not known before."""
    start, ran, failed, known = time.perf_counter(), 0, 0, 0
    gaps, dtypes = read_gaps(), {name: dtype for dtype, name in DTYPES.items()}
    for op, rows in examine_all(ops, args):
        ran += len(rows)
        groups = {}
        for row in rows:
            if args.slow and row.seconds > 1:
                print(f"slow  {row.seconds:5.1f} s  {row.check} {case_id(op, dtypes.get(row.dtype))}")
            if row.wrong:
                failed += 1
                known += gap(gaps, row.check, op, dtypes.get(row.dtype)) is not None
                groups.setdefault((row.check, row.dtype) if args.verbose else kind(row), []).append(row)
                if args.gaps:
                    print(f"test_{row.check}  {case_id(op, dtypes.get(row.dtype))}  {row.wrong[:90]}")
        for group in () if args.gaps else groups.values():
            row = group[0]
            names = ",".join(short_dtype(row.dtype) for row in group if row.dtype)
            line = " ".join(filter(None, (row.check, names, f"{row.call}: {row.wrong}")))
            print(line if args.verbose else line[:args.width])
            if args.verbose:
                print("    " + row.trace.replace("\n", "\n    "))
        sys.stdout.flush()
    print(f"{len(ops)} operations, {ran} checks: {ran - failed} pass, {failed} fail" + f" ({known} known)" * bool(known)
          + f", {time.perf_counter() - start:.1f} s", file=sys.stderr if args.gaps else sys.stdout)
    return failed > known


def mark(rows):
    """✓ or ✗, – where nothing applies, 3/4 where some dtypes pass."""
    if not any(row.ran for row in rows):
        return "–"
    good = sum(not row.wrong for row in rows)
    return "✓" if good == len(rows) else "✗" if not good else f"{good}/{len(rows)}"


def say_table(ops, args):
    """docs/conformance.md"""
    found = {}
    for op, rows in examine_kept(ops, args):
        found[op.full_name] = rows
        print(f"\r{len(found)} of {len(ops)}  {op.full_name:60}", end="", file=sys.stderr)
    print(file=sys.stderr)
    whole = sum(not any(row.wrong for row in rows) for rows in found.values())
    heads = [check.replace("_", " ") for check in CHECKS]
    says = "\n".join(f"- **{head}**: {getattr(checks, check).__doc__}" for head, check in zip(heads, CHECKS))
    print(f"""# Conformance with PyTorch

PyTorch {torch.__version__.partition("+")[0]} carries a database of its own operations, OpInfo, with inputs that show
each of them and inputs that each must refuse. The operations of `tests/torch/core_ops.txt` are run on them in both
libraries.
**{whole} of {len(ops)}** operations (each variant counted) pass every check:

{says}

✓ passes, ✗ fails, – does not apply, 1/2 passes with one of two dtypes; `dtypes` counts those that pass `values` and
names the ones that do not. The checks are in `tests/torch/checks.py`, `make conformance` runs them, and
`python -m tests.torch.report > docs/conformance.md` wrote this page.
""")
    print(f"| operation | {' | '.join([heads[0], 'dtypes', *heads[1:]])} |\n|{' --- |' * (len(heads) + 2)}")
    for op in sorted(ops, key=lambda op: op.full_name):
        by_check = {check: [row for row in found[op.full_name] if row.check == check] for check in CHECKS}
        lost = [row.dtype or "all" for row in by_check["values"] if row.wrong]
        asked = len(by_check["values"])
        dtypes = f"{asked - len(lost)}/{asked}" + f" (not {', '.join(lost)})" * bool(lost)
        marks = [mark(by_check[check]) for check in CHECKS]
        print(f"| {op.full_name} | {' | '.join([marks[0], dtypes, *marks[1:]])} |")
    gaps = read_gaps()
    if gaps:
        print("\n## Known gaps\n")
        for (test, name), reason in gaps.items():
            print(f"- `{name}` ({test.removeprefix('test_').replace('_', ' ')}): {reason}")
    return False


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.torch.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", default=[], metavar="NAME", help="an operation, with all its variants")
    parser.add_argument("--family", action="append", default=[], metavar="GLOB",
                        help="a pattern of names, a namespace, or words of a heading in core_ops.txt")
    parser.add_argument("--check", action="append", choices=CHECKS, help="only this check (again for more)")
    parser.add_argument("--dtype", action="append", help="only this dtype (again for more)")
    parser.add_argument("--samples", type=int, help="look at this many samples everywhere")
    parser.add_argument("--jobs", "-j", type=int, help="operations at a time (each in its own process)")
    parser.add_argument("--keep", metavar="FOLDER", help="go on with the table that an interrupted run left there")
    parser.add_argument("--width", type=int, default=240, help="cut lines here")
    parser.add_argument("--failures", action="store_true", help="everything, as lines and not as a table")
    parser.add_argument("--gaps", action="store_true", help="write failures the way gaps.txt wants them")
    parser.add_argument("--slow", action="store_true", help="name checks that take more than a second")
    parser.add_argument("-v", "--verbose", action="store_true", help="with the traceback of the first failing sample")
    args = parser.parse_args()
    if args.samples:
        checks.SAMPLES = dict.fromkeys(checks.SAMPLES, args.samples)
        checks.EXTRA_SAMPLES = args.samples
    if args.dtype and not set(args.dtype) <= set(DTYPES.values()):
        parser.error(f"dtypes are {' '.join(DTYPES.values())}")
    ops = [op for op in chosen(args.op, args.family) if any(dtypes_for(check, op) for check in args.check or CHECKS)]
    narrowed = args.op or args.family or args.check or args.dtype or args.failures or args.gaps or args.slow
    sys.exit((say_failures if narrowed else say_table)(ops, args))


if __name__ == "__main__":
    main()
