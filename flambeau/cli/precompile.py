"""`flambeau precompile`: run a program, and keep every kernel that it used for machines that have no compiler.

The program is run once for each number of threads that the machine to come may have, since products are cut by it, and
once as programs run by default. What it computes there, with the same shapes, is found compiled.
"""
import os
import subprocess
import sys
import tempfile

import flambeau

from ..backends.backend import NoCompiler
from ..backends.cpu import machine_code
from ..backends.kernel_store import precompiled
from ..base import settings
from .run import run

PRECOMPILE_USAGE = """\
flambeau precompile --to FOLDER [--cpu NAME] [--threads 1,2,4] [--linker ld] script.py [arguments]

  --to FOLDER         where the kernels go; elsewhere, FLAMBEAU_PRECOMPILED=FOLDER uses them, without llvmlite
  --cpu NAME          the processor to compile for: x86-64-v3, generic, native ...; x86-64-v2 or generic if not given
  --threads 1,2,4     the numbers of threads to run the program with
  --linker ld         what links an object to a shared library

The script may be -m module or -c code, too. Linux only.
"""
THREADS = (1, 2, 4, 6)                            # what AWS Lambda has, among others


def main(argv):
    """`flambeau precompile …`; the exit code."""
    given, rest = {"--to": None, "--cpu": None, "--threads": ",".join(map(str, THREADS)), "--linker": "ld"}, list(argv)
    if not rest or rest[0] in ("-h", "--help"):
        print(PRECOMPILE_USAGE, end="", file=sys.stdout if rest else sys.stderr)
        return 0 if rest else 2
    while len(rest) > 1 and rest[0] in given:
        option = rest.pop(0)
        given[option] = rest.pop(0)
    counts = given["--threads"].split(",")
    wrong = ("--to says where they go" if not given["--to"] else "what is to run?" if not rest else
             f"--threads {given['--threads']}: numbers with commas between them"
             if not all(count.isdecimal() and int(count) for count in counts) else
             "it makes shared libraries for Linux alone" if not sys.platform.startswith("linux") else "")
    if wrong:
        print(f"flambeau precompile: {wrong}\n\n{PRECOMPILE_USAGE}", end="", file=sys.stderr)
        return 2
    try:
        settings.cpu = given["--cpu"] or common_processor()
        machine_code.processor()
    except (NoCompiler, ValueError) as error:
        print(f"flambeau precompile: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        if not run_each(rest, cache, counts):
            return 1
        made = precompiled.link(cache, given["--to"], machine_code.host(), given["--linker"])
    size = sum(entry.stat().st_size for entry in os.scandir(given["--to"]))
    print(f"{made} libraries for {settings.cpu}, {size / 2**20:.1f} MiB, in {given['--to']}")
    return 0


def common_processor():
    """The level that nearly all machines of this kind have."""
    return "generic" if os.uname().machine in ("aarch64", "arm64") else "x86-64-v2"


def run_each(words, cache, counts):
    """Run the program with each number of threads; whether all went well."""
    for executor, count in [("auto", counts[-1]), *(("native", count) for count in counts)]:
        done = run_once(words, cache, executor, count)
        if done:
            print(f"flambeau precompile: with {count} threads, the program ended with {done}", file=sys.stderr)
            return False
    return True


def run_once(words, cache, executor, count):
    """Run the program in a process of its own; its exit code."""
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": cache, "FLAMBEAU_EXECUTOR": executor,
                   "FLAMBEAU_CPU": settings.cpu}
    environment.pop("FLAMBEAU_PRECOMPILED", None)
    return subprocess.run([sys.executable, "-m", "flambeau", "precompile-part", count, *words],
                          env=environment).returncode


def part(argv):
    """What such a process does: `precompile-part threads script …`."""
    flambeau.set_num_threads(int(argv[0]))
    machine_code.leave_packaged_kernels()          # where they go there is no package's file to find them in
    try:
        code = run(argv[1:])
    except SystemExit as end:
        code = end.code or 0
    flambeau.cpu.synchronize()
    machine_code.finish_improving()
    return code
