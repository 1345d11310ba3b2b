"""Refusals, word for word: what is wrong in PyTorch's words, then the call, the names, the lines and the way out.

`messages.txt` holds small programs and what their user reads. Each is written to a file `train.py` and run. Line 1 of
the file imports Flambeau, so the first line of a program is line 2.
"""
import runpy
import warnings
from pathlib import Path

import pytest

IMPORTS = "import numpy as np, flambeau as torch, flambeau.nn.functional as F\n"


def cases():
    """(name, program, message) of each case in `messages.txt`."""
    for block in Path(__file__).with_name("messages.txt").read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        program, _, message = rest.partition("---\n")
        yield pytest.param(program, message.rstrip("\n"), id=name)


def refusal(program, folder):
    """`Type: message` of the exception that `program`, run as `train.py`, ends with."""
    path = folder / "train.py"
    path.write_text(IMPORTS + program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "nothing was refused"


@pytest.mark.parametrize("program, message", list(cases()))
def test_refusal(program, message, tmp_path):
    assert refusal(program, tmp_path) == message
