"""Random programs (tests/trace/programs.py) mean the same in PyTorch and on the native executor."""
import warnings

import pytest
from hypothesis import HealthCheck, given, settings as tuned

torch = pytest.importorskip("torch")

from ..trace.programs import differ, leaves, run, scale_of, steps
from ..trace.test_native_programs import UNITS, pinned, small_tiles  # noqa: F401

APART = {"= shift_rows"}       # PyTorch refuses a source that overlaps its target, or writes it in whatever order


def agree(leaf_args, program):
    program = [step for step in program if step[0] not in APART]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = run(torch, leaf_args, program)
        ours = pinned("native", 2, leaf_args, program)
    assert ours[0] == theirs[0]
    scale = scale_of(theirs[1])
    for number, (mine, other) in enumerate(zip(ours[1], theirs[1], strict=True)):
        wrong = differ(mine, other, scale, UNITS)
        assert wrong is None, f"tensor {number}, ours and PyTorch's: {wrong}\n{theirs[0]}"


@tuned(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(leaves, steps)
def test_native_means_what_pytorch_means(small_tiles, leaf_args, program):      # noqa: F811
    agree(leaf_args, program)
