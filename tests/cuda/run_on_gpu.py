"""Everything that is shown on a machine with an NVIDIA GPU, part by part, in one command.

    python tests/cuda/run_on_gpu.py [parts ...] [--out DIR] [--packages DIR] [--limit tests=240 ...]

    report      the GPU, the driver, the versions, and what a first tensor does
    tests       those of tests/cuda that use a GPU, most of them beside PyTorch on the same one
    observing   doctor, watch, memory, profiler, report and the demo
    sanitizer   a sample of the kernels under compute-sanitizer: memcheck, then racecheck
    bench       bench/cuda.py

Each part has a limit in seconds, after which it is stopped and the next begins. The logs and figures lie in DIR, the
figures of the bench as JSON and as a table of Markdown too. Where pytest is not installed, `--packages` names a folder
that holds it (`pip install --target DIR pytest pytest-xdist pytest-timeout hypothesis expecttest`).
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"report": 60, "tests": 240, "observing": 120, "sanitizer": 120, "bench": 240}
GROUPS_SHOWN = 30
# those of sanitizer.py
SANITIZED = ("maps", "rows", "columns", "reductions", "movement", "scans", "products", "training", "random")
# The tests that use a GPU; the others of the folder simulate one.
TESTS = [f"tests/cuda/{name}.py" for name in ("test_on_gpu", "test_against_torch", "test_rows_against_torch",
                                              "test_training_against_torch", "test_horizontal")]
OBSERVING = ["tests/cuda/test_observing.py", "tests/test_memory.py", "tests/profiler/test_profile.py::test_on_a_gpu"]

REPORT = """
import importlib.metadata as metadata, os, platform, sys, time, traceback
print("python", platform.python_version(), platform.machine(), os.cpu_count(), "cores")
for name in "numpy llvmlite ml_dtypes cupy-cuda13x cupy-cuda12x cuda-core cuda-bindings torch triton pytest".split():
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "is not installed")
start = time.perf_counter()
import flambeau
print(f"import flambeau {time.perf_counter() - start:.3f} s")
print("available", flambeau.cuda.is_available(), "devices", flambeau.cuda.device_count())
from flambeau.backends.cuda import driver
print("versions", driver.current().versions())
print(flambeau.cuda.get_device_properties(0))
WORK = [
    ("from_host, to_host", lambda t: t.arange(5.0).to("cuda").cpu().tolist()),
    ("map", lambda t: (t.arange(5.0, device="cuda") * 2 + 1).tolist()),
    ("sum", lambda t: t.ones(1000, 1000, device="cuda").sum().item()),
    ("rows", lambda t: t.softmax(t.ones(4, 1000, device="cuda"), 1).sum(1).tolist()),
    ("columns", lambda t: t.ones(1000, 3, device="cuda").sum(0).tolist()),
    ("product", lambda t: (t.ones(64, 64, device="cuda") @ t.ones(64, 64, device="cuda")).sum().item()),
    ("bfloat16", lambda t: (t.ones(64, 64, device="cuda", dtype=t.bfloat16) @ t.ones(64, 64, device="cuda",
                            dtype=t.bfloat16)).sum().item()),
    ("convolution", lambda t: t.nn.functional.conv2d(t.ones(1, 1, 5, 5, device="cuda"),
                                                     t.ones(1, 1, 3, 3, device="cuda")).sum().item()),
    ("sort", lambda t: t.tensor([3., 1., 2.], device="cuda").sort()[0].tolist()),
    ("backward", lambda t: t.autograd.grad((x := t.ones(5, device="cuda", requires_grad=True)).square().sum(),
                                           x)[0].tolist()),
    ("random", lambda t: t.randn(4, device="cuda", generator=t.Generator("cuda").manual_seed(0)).tolist()),
    ("memory", lambda t: (t.cuda.memory_allocated(), t.cuda.max_memory_allocated())),
]
for name, work in WORK:
    start = time.perf_counter()
    try:
        print(f"{name}: {work(flambeau)}  {time.perf_counter() - start:.3f} s", flush=True)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"{name}: {type(error).__name__}: {str(error)[:300]}  ({where.filename}:{where.lineno})", flush=True)
"""


def run(command, limit, log, **more):
    """Run a command into a log; (its exit status, or None where it was stopped, and the seconds)."""
    start = time.perf_counter()
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
                                   **more)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            for number, patience in ((signal.SIGINT, 10), (signal.SIGKILL, 10)):
                try:
                    os.killpg(process.pid, number)
                    process.wait(patience)
                    break
                except (subprocess.TimeoutExpired, ProcessLookupError):
                    pass
    return status, time.perf_counter() - start


def ending(status, limit):
    return f"stopped after {limit:.0f} s" if status is None else f"exit status {status}"


def tail(log, lines):
    text = Path(log).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(line[:300] for line in text[-lines:])


# --- the parts ------------------------------------------------------------------------------------------------------

def report(args, limit):
    if shutil.which("nvidia-smi"):
        found = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem",
                                "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
        print(found.stdout.strip() or found.stderr.strip())
    log = args.out / "report.txt"
    status, _ = run([sys.executable, "-c", REPORT], limit, log, env=environment(args))
    print(tail(log, 60))
    return ending(status, limit)


def tests(args, limit):
    return tested(args, limit, "tests", args.tests)


def observing(args, limit):
    log = args.out / "doctor.txt"
    run([sys.executable, "-m", "flambeau", "doctor", "--expect", "cuda"], limit, log, env=environment(args))
    print(tail(log, 40))
    return tested(args, limit, "observing", OBSERVING)


def tested(args, limit, name, files):
    """Run the tests in these files, and say what came of them."""
    tally, log = args.out / f"{name}.jsonl", args.out / f"{name}.log"
    tally.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "tests.cuda.tally", "-n", str(args.workers),
               "--dist", "worksteal", "--max-worker-restart", "200", *files]
    if args.choose:
        command += ["-k", args.choose]
    if has("pytest_timeout", args):
        command += ["--timeout", "60"]
    status, _ = run(command, limit, log, env=environment(args, FLAMBEAU_TEST_TALLY=str(tally)))
    if not tally.exists():
        print(tail(log, 30))
        return ending(status, limit)
    lines = [json.loads(line) for line in tally.read_text(encoding="utf-8").splitlines()]
    by_file = collections.defaultdict(collections.Counter)
    for line in lines:
        by_file[line["test"].split("::")[0]][line["outcome"]] += 1
    for name, counts in sorted(by_file.items()):
        print(f"  {name}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}")
    failed = [line for line in lines if line["outcome"] == "failed"]
    print(grouped(failed))
    slow = sorted(lines, key=lambda line: -line["seconds"])[:6]
    print("slowest: " + ", ".join(f"{line['test'].split('::')[-1]} {line['seconds']:.1f} s" for line in slow))
    counts = collections.Counter(line["outcome"] for line in lines)
    return f"{dict(counts)}, {ending(status, limit)}"


def grouped(failed):
    """The failures by what they say, the most frequent first, each with a test that says so."""
    groups = collections.defaultdict(list)
    for line in failed:
        groups[signature(line["words"])].append(line)
    shown = sorted(groups.values(), key=len, reverse=True)[:GROUPS_SHOWN]
    text = [f"{len(failed)} failures that say {len(groups)} things"]
    for group in shown:
        words = re.sub(r"\s+", " ", group[0]["words"])[:260]
        text.append(f"{len(group):4} × {group[0]['test'].split('::', 1)[-1][:70]}: {words}")
    return "\n".join(text)


def signature(words):
    """What a failure says, without its numbers and what it was called with."""
    found = re.search(r"(?:Mismatch|\w+Error|\w+Broken|NotCompiled)\b.*", words.split("\n")[0].partition(": ")[2]) \
        or re.search(r".*", words)
    return re.sub(r"[\d.e+-]+", "#", found.group())[:90]


def sanitizer(args, limit):
    """Each work under each tool, in processes side by side."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        return "compute-sanitizer is not on this machine"

    def check(what, work):
        log = args.out / f"{what}-{work}.log"
        status, took = run([tool, "--tool", what, "--error-exitcode", "9", "--print-limit", "20", sys.executable,
                            "tests/cuda/sanitizer.py", work], limit, log, env=environment(args))
        return f"  {what} {work}: {ending(status, limit)}, {took:.0f} s\n" + tail(log, 4)

    asked = [(what, work) for what in ("memcheck", "racecheck") for work in SANITIZED]
    with concurrent.futures.ThreadPoolExecutor(max(2, args.workers // 2)) as pool:
        found = [*pool.map(lambda one: check(*one), asked)]
    print("\n".join(found))
    return f"{len(asked)} runs"


def bench(args, limit):
    log = args.out / "bench.log"
    command = [sys.executable, "bench/cuda.py", "--json", str(args.out / "bench.json"), "--markdown",
               str(args.out / "bench.md"), "--total", str(max(30, limit - 30)), *args.bench.split()]
    status, _ = run(command, limit, log, env=environment(args))
    print(tail(log, 60))
    return ending(status, limit)


PARTS = {"report": report, "tests": tests, "observing": observing, "sanitizer": sanitizer, "bench": bench}


def environment(args, **more):
    """This checkout first, then what came along; caches in a folder of this run."""
    paths = [str(ROOT), *([str(Path(args.packages).resolve())] if args.packages else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths + [p for p in [os.environ.get("PYTHONPATH")] if p]),
            "FLAMBEAU_CACHE_DIR": str(args.out.resolve() / "cache"), "PYTHONUNBUFFERED": "1", "FLAMBEAU_TEST_GPU": "1",
            **more}


def has(module, args):
    return subprocess.run([sys.executable, "-c", f"import {module}"], env=environment(args), capture_output=True,
                          cwd=ROOT).returncode == 0


def main():
    parser = argparse.ArgumentParser(description="What is shown on a machine with a GPU.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-results")))
    parser.add_argument("--packages", default=".gpu-packages" if (ROOT / ".gpu-packages").is_dir() else None)
    parser.add_argument("--limit", nargs="*", default=[], metavar="PART=SECONDS")
    parser.add_argument("--workers", type=int, default=max(2, (os.cpu_count() or 2) * 3 // 4))
    parser.add_argument("--tests", nargs="*", default=TESTS, help="other tests")
    parser.add_argument("--choose", help="pytest's -k")
    parser.add_argument("--bench", default="", help="more arguments for bench/cuda.py, in one string")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    limits = {**LIMITS, **{part: float(seconds) for part, _, seconds in (text.partition("=") for text in args.limit)}}
    args.out.mkdir(parents=True, exist_ok=True)
    said = {}
    for part in args.parts or PARTS:
        print(f"--- {part}", flush=True)
        start = time.perf_counter()
        try:
            outcome = PARTS[part](args, limits[part])
        except Exception as error:                    # the other parts have their turn
            outcome = f"{type(error).__name__}: {error}"
        said[part] = f"{outcome} ({time.perf_counter() - start:.0f} s)"
        print(f"{part}: {said[part]}", flush=True)
    shutil.rmtree(args.out / "cache", ignore_errors=True)
    print("--- " + "; ".join(f"{part}: {words}" for part, words in said.items()))


if __name__ == "__main__":
    main()
