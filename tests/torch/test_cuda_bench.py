"""bench/cuda.py runs where there is no GPU: small sizes, PyTorch on the CPU, ours on a simulated device."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.cuda.simulated import compiler

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")
def test_rows_run_and_agree(tmp_path):
    file, table = tmp_path / "found.json", tmp_path / "table.md"
    command = ["bench/cuda.py", "--tiny", "--no-first", "--limit", "90", "--seconds", "0.02",
               "--rows", "softmax|columns|tiny MLP", "--json", file, "--markdown", table]
    made = subprocess.run([sys.executable, *command], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True)
    found = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert len(found) == 3, made.stdout + made.stderr
    for row in found:
        assert not row["failed"] and not row["differ"] and set(row["seconds"]) >= {"ours", "PyTorch"}, row
    assert set(found[-1]["seconds"]) == {"ours", "ours compiled", "PyTorch"}
    assert table.read_text(encoding="utf-8").count("\n| ") == 5       # a line of dashes, and one for each claim
