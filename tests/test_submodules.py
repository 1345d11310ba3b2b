"""Submodules that PyTorch has loaded with itself are attributes here too, right after the import.

`submodules.txt` lists them: those of PyTorch's after `import torch` that Flambeau has. tests/torch/test_importable.py
holds the list.
"""
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE
from tests.thorough import sample

NAMES = (Path(__file__).parent / "submodules.txt").read_text().split()

# Each name is asked for in a process that has done nothing but the import: a fork of one that has.
ASK = """
import functools, os, sys
import flambeau
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            functools.reduce(getattr, name.split(".")[1:], flambeau)
        except AttributeError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def test_submodules_are_attributes():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ASK, *sample(NAMES, 4)], capture_output=True,
                          text=True, timeout=10 * PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
