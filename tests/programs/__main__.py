"""Run the programs with Flambeau as torch, and hold their results against PyTorch's.

    python -m tests.programs [--quick] [--page FILE] [--keep FOLDER] [--verbose] [NAME…]

`make programs` sets up the environment that this needs. --quick runs the quick half, --page writes docs/packages.md as
well, --keep FOLDER keeps what each program gave there and goes on where an earlier run ended, --verbose shows the whole
traceback of a part that stops.
"""
import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import TOLERANCE
from .facts import facts_of, page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = HERE / "kept"
NOISE = 1e-6                  # by how much of the largest of several named numbers any of them may be off: what would
                              # be zero in exact arithmetic, as the gradient of a key's bias, is rounding
VERSION = "2.13.0"            # of the PyTorch that the numbers are kept from
NOT_PROGRAMS = {"__init__", "__main__", "process", "expect", "facts"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled",
           "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore", "LC_ALL": "C.UTF-8"}
SIDE_BY_SIDE = 2              # programs at a time: much of each is imports, by one thread
SECONDS = 1200                # how long a program may take before it counts as hanging


def names(asked, quick=False):
    """The programs to run, all of them if none is `asked` for by name."""
    there = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_PROGRAMS)
    for name in asked:
        if name not in there:
            sys.exit(f"there is no program {name!r}; there are {', '.join(there)}")
    return asked or [name for name in there if not quick or facts_of(HERE / f"{name}.py").quick]


def started(name):
    """What a process of its own says of a program."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        work = Path(folder) / "work"
        work.mkdir()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **OFFLINE, "PYTHONPATH": path, "HF_HOME": folder, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run([sys.executable, "-m", "tests.programs.process", name, str(file)], cwd=work,
                                  env=environment, capture_output=True, text=True, timeout=SECONDS)
            error = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        except subprocess.TimeoutExpired:
            error = f"not finished after {SECONDS} s"
        if file.exists():
            return json.loads(file.read_text(encoding="utf-8"))
        return {"versions": {}, "parts": {}, "errors": {"process": error}, "seconds": {}}


def once(name, folder):
    """The same, or what an earlier run has left of it in `folder`."""
    file = folder / f"{name}.json"
    if not file.exists():
        done = started(name)
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(done), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


# --- comparing ---


def differences(given, kept, bound, where="", size=0.0):
    """Sentences on what differs between two results in the form in which they are kept; `size` is that of the largest
    number beside them, of which they may be off by NOISE."""
    if isinstance(kept, dict) and isinstance(given, dict):
        if "array" in kept and "array" in given:
            return array_differences(given, kept, bound, where)
        found = [f"{where}: {list(given)} instead of {list(kept)}"] if list(given) != list(kept) else []
        size = max([abs(held) for held in kept.values() if isinstance(held, float)], default=0.0)
        return found + [line for key in kept if key in given for line in
                        differences(given[key], kept[key], bound, f"{where}.{key}".lstrip("."), size)]
    if isinstance(kept, list) and isinstance(given, list) and len(kept) == len(given):
        if any(isinstance(held, float) for held in kept):
            shape = [len(kept)]
            return array_differences({"array": shape, "is": given}, {"array": shape, "is": kept}, bound, where)
        return [line for i, (one, other) in enumerate(zip(given, kept))
                for line in differences(one, other, bound, f"{where}[{i}]")]
    if isinstance(kept, float) and isinstance(given, float):
        near = abs(given - kept) <= bound * abs(kept) + NOISE * size
    else:
        near = given == kept and type(given) is type(kept)
    return [] if near else [f"{where}: {given} instead of {kept}"]


def array_differences(given, kept, bound, where):
    if given["array"] != kept["array"]:
        return [f"{where}: shape {given['array']} instead of {kept['array']}"]
    ours, theirs = (side.get("is") or side.get("some", []) for side in (given, kept))
    size = max([abs(held) for held in theirs if isinstance(held, float)], default=0.0)
    size = max(size, float(kept.get("root_mean_square", 0.0)))
    for i, (one, other) in enumerate(zip(ours, theirs)):
        if isinstance(one, float) and isinstance(other, float):
            if not abs(one - other) <= bound * size:
                worst = max(abs(a - b) for a, b in zip(ours, theirs) if isinstance(a, float) and isinstance(b, float))
                return [f"{where}: {one} instead of {other} at {i} of the {len(ours)} elements held; largest "
                        f"difference {worst:.2g}, largest number {size:.3g}"]
        elif isinstance(other, list):
            found = differences(one, other, bound, f"{where}[{i}]")
            if found:
                return found
        elif one != other:
            return [f"{where}: {one} instead of {other} at {i} of the {len(ours)} elements held"]
    sizes = {name: held for name, held in kept.items() if name == "root_mean_square"}
    return differences({name: given.get(name) for name in sizes}, sizes, bound, where)


# --- running ---


class Outcome:
    """What came of one program: which parts passed, and what is to be said of the others."""

    def __init__(self, name, folder=None):
        self.name, self.facts = name, facts_of(HERE / f"{name}.py")
        kept = KEPT / f"{name}.json"
        self.kept = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else None
        done = started(name) if folder is None else once(name, Path(folder))
        self.versions = {package: done["versions"].get(package) for package in self.facts.packages}
        self.seconds = sum(done["seconds"].values())
        self.passed, self.failed = [], dict(done["errors"])
        if self.kept is None:
            self.failed["kept"] = f"there are no kept numbers: python -m tests.programs.expect {name}, with PyTorch"
            return
        for part, results in done["parts"].items():
            found = self.compared(part, results)
            if found:
                self.failed[part] = "\n".join(found)
            else:
                self.passed.append(part)
        for part in self.kept["parts"]:
            if part not in done["parts"] and not {part, "import", "process"} & set(self.failed):
                self.failed[part] = "kept, but there is no such part"

    def compared(self, part, results):
        kept = self.kept["parts"].get(part)
        if kept is None:
            return [f"not among the kept numbers: python -m tests.programs.expect {self.name}, with PyTorch"]
        bound, _ = self.facts.bounds.get(part, (TOLERANCE, ""))
        return differences(results, kept, bound)

    def line(self):
        """The row of the table."""
        versions = []
        for package, version in self.versions.items():
            made = self.kept and self.kept["made_with"].get(package)
            other = f" (kept with {made})" if made and made != version else ""
            versions.append(f"{package} {version or '?'}{other}")
        return f"{self.name:<28}{len(self.passed):>3} of {len(self.passed) + len(self.failed):<4}" \
               f"{self.seconds:6.1f} s   {', '.join(versions)}"


def brief(found):
    """Of a traceback, the last place and the errors, each in its order; any other text whole."""
    lines = found.strip().splitlines()
    if not lines[0].startswith("Traceback"):
        return found.strip()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Refused|Warning)\b", line)]
    places = [line.strip() for line in lines if line.startswith("  File ") and "/flambeau/" not in line]
    return "\n".join([*places[-1:], *(errors or lines[-1:])])


def main(argv):
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description="Programs of packages, on Flambeau.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="the quick half")
    parser.add_argument("--page", metavar="FILE", help="write the page on packages")
    parser.add_argument("--keep", metavar="FOLDER", help="keep results there, and go on where an earlier run ended")
    parser.add_argument("--verbose", action="store_true", help="whole tracebacks")
    asked = parser.parse_args(argv)
    version = importlib.metadata.version("torch") if any(importlib.metadata.distributions(name="torch")) else "no torch"
    if version != f"{VERSION}+flambeau":
        sys.exit(f"this environment has {version}: run `make programs`, or `flambeau provide-torch` in an environment "
                 "without PyTorch")
    outcomes = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:           # of which each waits for a process
        for outcome in pool.map(lambda name: Outcome(name, asked.keep), names(asked.names, asked.quick)):
            outcomes.append(outcome)
            print(outcome.line(), flush=True)
            for part, found in outcome.failed.items():
                shown = found.strip() if asked.verbose else brief(found)
                print("\n".join(f"    {part}: {line}" for line in shown.splitlines()), flush=True)
    if asked.page:
        Path(asked.page).write_text(page(outcomes), encoding="utf-8")
    failed = sum(bool(outcome.failed) for outcome in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
