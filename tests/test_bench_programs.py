"""The programs of bench/small_programs run: two steps of each on Flambeau, with losses that are numbers."""
import contextlib
import math
import sys
from pathlib import Path

import pytest

import flambeau
from tests.thorough import sample

BENCH = str(Path(__file__).parents[1] / "bench")
sys.path.insert(0, BENCH)
try:
    from small_programs import PROGRAMS, built
finally:
    sys.path.remove(BENCH)

# What Flambeau has none of, by the program that asks for it.
LACKING = {"quantisation_aware": "fake_quantize_per_tensor_affine", "molecule_messages": "torch.sparse.mm",
           "two_towers": "sparse gradients"}


@pytest.mark.parametrize("name", sample(PROGRAMS, 10))
def test_a_program_takes_two_steps(name):
    lacking = LACKING.get(name)
    errors = AttributeError, NotImplementedError
    with pytest.raises(errors, match=lacking) if lacking else contextlib.nullcontext():
        step = built(flambeau, name)
        losses = [step(), step()]
        assert all(math.isfinite(loss) for loss in losses), losses


def test_what_is_lacking_is_asked_for():
    assert LACKING.keys() <= PROGRAMS.keys()
    assert all(function.__doc__ and function.__doc__.endswith(".") for function in PROGRAMS.values())
