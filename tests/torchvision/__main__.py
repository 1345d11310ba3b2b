"""Run torchvision's own tests of transforms, and print the table of what came of them.

    python -m tests.torchvision [--tests FOLDER] [--file NAME]… [torch] [real] [ours] [-- options of pytest's]

torch is PyTorch and torchvision, real is torchvision over Flambeau, ours is Flambeau's transforms under its name;
without any, the last two. The environment is that of `make conformance`. The tests are those of torchvision 0.28.0,
which `make torchvision-tests` fetches.
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("test_transforms_v2", "test_transforms_v2_utils", "test_transforms", "test_transforms_tensor")
MODES = {"torch": "torchvision on PyTorch", "real": "torchvision on Flambeau", "ours": "Flambeau's own"}


def run(mode, file, folder, options):
    """{outcome: {reason: how many tests}} of one file."""
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch, "found.xml")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "tests.torchvision.plugin", "-p",
                               "no:cacheprovider", "-q", "--tb=short", "-o",
                               "xfail_strict=false",      # what TorchScript refuses passes: there is none here
                               f"--junitxml={found}", f"{file}.py", *options],
                              cwd=folder, env={**os.environ, "FLAMBEAU_TORCHVISION": mode, "PYTHONPATH": path},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if not found.exists():
            sys.exit(f"{mode} {file}: no results\n{done.stdout[-4000:]}")
        print(done.stdout[-20000:], file=sys.stderr)
        return outcomes(found)


def outcomes(found):
    """The same, from the file that pytest has written."""
    counted = {outcome: collections.Counter() for outcome in ("passed", "skipped", "xfailed", "failed")}
    for case in xml.etree.ElementTree.parse(found).iter("testcase"):
        told = next((child for child in case if child.tag in ("skipped", "failure", "error")), None)
        if told is None:
            counted["passed"][""] += 1
        elif told.tag == "skipped":
            outcome = "xfailed" if told.get("type") == "pytest.xfail" else "skipped"
            counted[outcome][told.get("message", "")] += 1
        else:
            counted["failed"][re.sub(r"\s+", " ", told.get("message", ""))[:80]] += 1
    return counted


def row(mode, file, counted):
    """A row of the table in docs/images.md."""
    def why(outcome):
        told = counted[outcome].most_common(4)
        return f"{sum(counted[outcome].values())}{': ' * bool(told)}" + ", ".join(f"{n} {why}" for why, n in told)
    return f"| `{file}` | {MODES[mode]} | {sum(counted['passed'].values())} | {why('skipped')} | " \
           f"{sum(counted['xfailed'].values())} | {why('failed')} |"


def main(argv):
    own, options = (argv[:argv.index("--")], argv[argv.index("--") + 1:]) if "--" in argv else (argv, [])
    parser = argparse.ArgumentParser(prog="python -m tests.torchvision", description=__doc__.splitlines()[0])
    parser.add_argument("--tests", default=ROOT / "build" / "vision" / "test", type=Path)
    parser.add_argument("--file", action="append", choices=FILES, help="only this one")
    parser.add_argument("modes", nargs="*", metavar="MODE")
    asked = parser.parse_args(own)
    for mode in asked.modes:
        if mode not in MODES:
            parser.error(f"there is no {mode!r}; there are {', '.join(MODES)}")
    if not asked.tests.is_dir():
        sys.exit(f"{asked.tests}: there are no tests of torchvision's; run `make torchvision-tests`")
    print("| file | run on | passed | skipped | expected to fail | failed |\n| --- | --- | --- | --- | --- | --- |")
    failed = 0
    for mode in asked.modes or ["real", "ours"]:
        for file in asked.file or FILES:
            counted = run(mode, file, asked.tests, options)
            failed += sum(counted["failed"].values())
            print(row(mode, file, counted), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
