"""Makes the files of kernels that come with the package: Note [Packaged kernels] in backends/kernel_store/packaged.py.

    python -m flambeau.cli.package_kernels FOLDER native                     in a clone, and where pip compiles
    python -m flambeau.cli.package_kernels FOLDER levels                     for a wheel: x86-64-v3 and x86-64-v4 ...

`setup.py` runs this. There are three kinds of them, all float32's: the library's own texts, which it lists itself (and
int64's that sort); the words of the loop language that NumPy does not have, for the first runs of anything, which
nothing is compiled for; and kernels that were fused in the first steps of common nets, which are run here. They are
written anew for each processor.
"""
import os
import sys
import time

import flambeau

from ..backends.backend import NoCompiler
from ..backends.kernel_store import package_kernels
from ..base import settings
from ..base.spec import CPU
from ..loops.ir import FUNCTION_WORDS, TWO_ARGUMENT_WORDS
from ..trace.running import interpret
from . import common_nets

STEPS_OF_A_NET = 2                     # the first makes what an optimizer keeps, and the second is like all others
OPERANDS = {**dict.fromkeys(TWO_ARGUMENT_WORDS, 2), "fma": 3}         # of words that have more than one


def word_launches():
    """Launches of one word each, as first runs ask for them."""
    return [interpret._function(word, "f32", OPERANDS.get(word, 1), CPU.backend, interpret.HASTY_NUMEL)
            for word in sorted({*FUNCTION_WORDS, "fma"})]


def fused_launches():
    """Launches that steps of common nets ask for."""
    seen, backend = [], CPU.backend
    compile = backend.compile

    def watched(launches, calls=()):
        seen.extend(launches)
        return compile(launches, calls)

    flambeau.manual_seed(0)
    backend.compile = watched
    try:
        for step in common_nets.steps():
            for _ in range(STEPS_OF_A_NET):
                step().tolist()
    finally:
        del backend.compile
    return seen


def main(argv):
    """Make a file for each processor that is named; the exit code."""
    folder, *names = argv
    os.makedirs(folder, exist_ok=True)
    settings.executor, settings.object_dir = "native", ""
    began = time.monotonic()
    try:
        launches = [*word_launches(), *fused_launches()]
        print(f"{len(launches)} launches in {time.monotonic() - began:.1f} s")
        for name in package_kernels.levels() if names == ["levels"] else names:
            began = time.monotonic()
            path, count = package_kernels.make(folder, name, launches)
            print(f"{path}: {count} kernels, {os.path.getsize(path) / 2**10:.0f} KiB, in "
                  f"{time.monotonic() - began:.1f} s")
    except (NoCompiler, ValueError) as error:
        print(f"kernels that come with the package cannot be made: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
