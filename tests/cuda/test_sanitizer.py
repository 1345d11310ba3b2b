"""The sample of kernels for compute-sanitizer runs, on simulated devices, and agrees with the CPU."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..thorough import THOROUGH
from .simulated import compiler

ROOT = Path(__file__).parents[2]


@pytest.mark.pinned
@pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")
def test_the_sample_runs():
    works = [] if THOROUGH else ["training", "random"]
    made = subprocess.run([sys.executable, "tests/cuda/sanitizer.py", "--simulated", "--seconds", "600", *works],
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert made.returncode == 0 and "\n0 failures" in made.stdout, made.stdout + made.stderr
    assert "kernel" in made.stdout.split("steps: ")[1]
