"""Random programs mean the same on the reference executor and on the native one, however many threads it has.

Whatever is exact (integers, truth values, moved data, sums of dyadic rationals) must agree exactly. Where rounding may
differ, `UNITS` in the last place of the largest number around are allowed. Between one thread and two nothing may
differ.
"""
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as tuned

import flambeau
from flambeau.backends.cpu import program, schedule, threads
from flambeau.base import settings
from flambeau.base.spec import CPU
from flambeau.trace.planning import plan
from flambeau.trace.recording.record import current

from ..thorough import THOROUGH
from .programs import differ, leaves, run, scale_of, steps

pytestmark = pytest.mark.pinned

UNITS = 500              # of a chain of a dozen operations and its backward, some of which magnify what they are given


@pytest.fixture(scope="module")
def small_tiles():
    """Tiles so small that little data makes many, and work so little that threads share it."""
    patch = pytest.MonkeyPatch()
    for module, name, value in ((schedule, "MAP_TILE_ELEMENTS", 64), (schedule, "TILE_LANES", 32),
                                (schedule, "TRANSPOSED_TILE", (4, 8)),
                                (CPU.backend, "reductions", CPU.backend.reductions._replace(block_elements=256)),
                                (program, "PIECE_NANOSECONDS", 1)):
        assert hasattr(module, name)
        patch.setattr(module, name, value)
    before = threads.get_num_threads()
    plan._plans.clear()
    yield
    patch.undo()
    plan._plans.clear()
    threads.set_num_threads(before)


def pinned(executor, n, *program):
    current().run()
    settings.executor, before = executor, settings.executor
    threads.set_num_threads(n)
    try:
        return run(flambeau, *program)
    finally:
        settings.executor = before


def agree(leaf_args, program):
    theirs = pinned("reference", 1, leaf_args, program)
    one = pinned("native", 1, leaf_args, program)
    two = pinned("native", 2, leaf_args, program)
    assert one[0] == theirs[0]
    scale = scale_of(theirs[1])
    for number, (mine, other, again) in enumerate(zip(one[1], theirs[1], two[1], strict=True)):
        wrong = differ(mine, other, scale, UNITS)
        assert wrong is None, f"tensor {number}, native and reference: {wrong}\n{theirs[0]}"
        if mine is not None:
            np.testing.assert_array_equal(mine[0][1], again[0][1], err_msg=f"tensor {number}, 1 thread and 2")


@tuned(max_examples=400 if THOROUGH else 40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(leaves, steps)
def test_native_means_what_the_reference_means(small_tiles, leaf_args, program):
    agree(leaf_args, program)
