"""The command `flambeau`: run a PyTorch program on Flambeau, be an environment's torch, say what works here."""
import sys

import flambeau

from .facade import install_as_torch

__all__ = ["install_as_torch", "main"]

USAGE = """\
flambeau: PyTorch programs on Flambeau

  flambeau run script.py [arguments]      run a program in which `import torch` is Flambeau
  flambeau run -m package.module [...]    the same for a module, found as `python -m` finds it
  flambeau run -c "code" [...]            the same for a line of code
  flambeau run --report run.html ...      with a page about the run: devices, loss, time and memory by line, findings
  flambeau provide-torch [--undo]         make Flambeau the torch of this environment, for pip too
  flambeau precompile --to FOLDER script  run a program, and keep its kernels for machines without a compiler
  flambeau doctor [--expect cuda]         what is installed, what may be used, and whether each device computes
  flambeau info                           versions, processor, threads, cache, executor
  flambeau --version                      Flambeau's version
  flambeau --help                         this text

Everything after the script is the script's own. What PyTorch has and Flambeau lacks can be imported, and says so, by
name and line, where it is used. `python -m flambeau` is the same command; in a notebook, call
flambeau.install_as_torch() before torch is imported.
"""


def main(argv=None):
    """Run the command with the arguments `argv`, or those of the process; its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    what = argv[0] if argv else "--help"
    if what == "run" and argv[1:2] not in ([], ["-h"], ["--help"]):
        from . import expected, run
        try:
            expected.expect()                     # FLAMBEAU_EXPECT_DEVICE, before the program has begun
        except (RuntimeError, ValueError) as error:
            print(f"flambeau run: {error}", file=sys.stderr)
            return 1
        return run.run(argv[1:])
    if what in ("-h", "--help", "help", "run"):
        if argv == ["run"]:
            print("flambeau run: what is to run? Give a script, -m module or -c code.", file=sys.stderr)
            return 2
        print(USAGE, end="")
        return 0
    if what in ("-V", "--version"):
        print(f"flambeau {flambeau.__version__}")
        return 0
    if what == "provide-torch":
        from .provide import provide
        return provide(argv[1:])
    if what == "doctor":
        from .doctor import main as doctor
        return doctor(argv[1:])
    if what in ("precompile", "precompile-part"):
        from . import precompile
        return (precompile.main if what == "precompile" else precompile.part)(argv[1:])
    if what == "info":
        from .info import report
        print(report())
        return 0
    if what.endswith(".py"):
        print(f"flambeau: {what!r} is not a command. Did you mean: flambeau run {what}", file=sys.stderr)
    else:
        print(f"flambeau: {what!r} is not a command.\n\n{USAGE}", end="", file=sys.stderr)
    return 2
