"""Run the tests of native code once for every processor that this machine can stand for.

    python -m tests.processors [arguments of pytest]

On x86 these are a processor without FMA, F16C and SSE4.1 (x86-64), one with AVX2 (x86-64-v3), and one with AVX-512 but
without its halves (x86-64-v4); on aarch64 the least of them. What this machine lacks is skipped, and says why. Objects
for processors that are not here at all are emitted by tests/loops/test_targets.py.
"""
import os
import subprocess
import sys

from flambeau.backends.cpu import machine_code

PINS = ("x86-64", "x86-64-v3", "x86-64-v4", "generic")
FILES = ("tests/ops/test_bodies.py", "tests/ops/test_bodies_rows.py", "tests/loops/test_scalar.py",
         "tests/loops/test_halves.py", "tests/trace/test_native.py", "tests/trace/test_native_programs.py",
         "tests/trace/test_not_compiled.py", "tests/backends/test_library.py", "tests/backends/test_winograd.py",
         "tests/backends/test_threads.py")


def main(arguments):
    """Run them; the exit code is that of the first that failed."""
    ran = 0
    for pin in PINS:
        try:
            machine_code.check_processor(pin)
        except ValueError as error:
            print(f"{pin}: skipped. {error}", flush=True)
            continue
        ran += 1
        print(f"{pin}:", flush=True)
        code = subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments, *FILES],
                              env={**os.environ, "FLAMBEAU_CPU": pin, "FLAMBEAU_EXECUTOR": "native"}).returncode
        if code:
            return code
    if not ran:
        print(f"none of {', '.join(PINS)} can run on this machine: {machine_code.processor().triple}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
