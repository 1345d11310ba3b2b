"""What is printed when an error ends a program: a refusal ends at the program's line, a mistake of ours shows all."""
import os
import subprocess
import sys
import traceback

import pytest

import flambeau as torch
from flambeau.base import tracebacks
from tests.patience import PATIENCE

REFUSED = """
def double(x):
    return x.view(5)

double(torch.ones(2, 3))
"""
MISTAKE = """
from flambeau.base import dtypes
dtypes.named("float33")                 # a KeyError inside of ours, which nobody worded
"""


def printed(program, folder, **environment):
    """What a program prints to stderr, and the files its traceback names."""
    path = folder / "train.py"
    path.write_text("import flambeau as torch\n" + program)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **environment})
    assert done.returncode == 1, done
    return done.stderr, [line.split('"')[1] for line in done.stderr.splitlines() if line.startswith('  File "')]


def test_a_refusal_ends_at_the_line_of_the_program(tmp_path):
    text, files = printed(REFUSED, tmp_path)
    assert files == [str(tmp_path / "train.py")] * 2, text
    assert text.startswith("Traceback (most recent call last):\n") and "return x.view(5)\n" in text
    assert "\nRuntimeError: shape '[5]' is invalid for input of size 6\n  in view(input: x float32[2, 3], 5)" in text


def test_all_frames_are_there_for_who_asks(tmp_path):
    text, files = printed(REFUSED, tmp_path, FLAMBEAU_TRACEBACKS="full")
    assert len(files) > 2 and any("flambeau" in file for file in files[2:]), text
    text, files = printed("torch.config.tracebacks = 'full'\n" + REFUSED, tmp_path)
    assert len(files) > 2, text


def test_a_mistake_of_ours_shows_all(tmp_path):
    text, files = printed(MISTAKE, tmp_path)
    assert len(files) == 2 and files[1].endswith("dtypes.py") and text.endswith("KeyError: 'float33'\n"), text


def test_an_error_during_another_is_shortened_too(tmp_path):
    text, files = printed("""
try:
    torch.ones(2).view(3)
except RuntimeError as error:
    raise ValueError("no such view") from error
""", tmp_path)
    assert files == [str(tmp_path / "train.py")] * 2 and "direct cause" in text, text


def test_the_exception_keeps_its_frames(tmp_path):
    text, _ = printed("""
import atexit, sys, traceback
atexit.register(lambda: print(len(traceback.extract_tb(sys.last_value.__traceback__)), file=sys.stderr))
""" + REFUSED, tmp_path)
    assert int(text.splitlines()[-1]) > 3, text
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2).view(3)
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 2


def test_who_prints_errors_in_another_way_is_left_alone(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import sys\nmine = sys.excepthook = lambda *error: print('mine')\nimport flambeau as torch\n"
                    "assert sys.excepthook is mine\ntorch.ones(2).view(3)\n")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("mine\n", "")


def test_only_a_raise_is_a_refusal():
    def last(function, kind):
        with pytest.raises(kind) as caught:
            function()
        found = caught.value.__traceback__
        while found.tb_next is not None:
            found = found.tb_next
        return found

    def refuses(): raise ValueError("no")
    def fails(): return {}["no"]

    def asserts():
        assert not asserts

    assert tracebacks.raises(last(refuses, ValueError))
    assert not tracebacks.raises(last(fails, KeyError)) and not tracebacks.raises(last(asserts, AssertionError))
