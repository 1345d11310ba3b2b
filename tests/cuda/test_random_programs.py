"""Random programs mean the same on a simulated GPU and on the CPU.

Whatever is exact must agree exactly; where rounding may differ, `UNITS` in the last place of the largest number around
are allowed. Kernels are run forwards and backwards, which must give the same bytes; and with streams that do nothing
until somebody waits for them. Tiles and blocks are small, so that little data goes every way through a kernel.
"""
import pytest
from hypothesis import HealthCheck, assume, example, given, settings as tuned

import flambeau as torch
from flambeau.backends.cuda import horizontal, program, schedule

from ..thorough import THOROUGH
from ..trace.programs import differ, leaves, run, scale_of, steps
from .simulated import compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]

UNITS = 500              # of a chain of a dozen operations and its backward, some of which magnify what they are given
SMALL = {"MAP_THREADS": 32, "COLUMN_THREADS": 32, "LARGE_MAP": 64, "MIN_COLUMN_THREADS": 4,
         "REDUCTIONS": schedule.REDUCTIONS._replace(min_row_elements=64, block_elements=64, max_column_parts=2048)}


@pytest.fixture(scope="module", params=[{"races": True}, {"delayed": True}], ids=["races", "delayed"])
def cuda(request):
    patch = pytest.MonkeyPatch()
    for name, value in SMALL.items():
        patch.setattr(schedule, name, value)
    patch.setattr(program, "RUNS_BEFORE_FUSION", 1)           # kernels in a row are one launch at once
    patch.setattr(horizontal, "MIN_PARTS", 2)
    with simulating(devices=2, **request.param):
        yield torch.device("cuda", 0)
    patch.undo()


@tuned(max_examples=400 if THOROUGH else 25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(leaves, steps)
@example([((1, 9), 1, "float32", True)],                     # one position, whose result stands where its index stood
         [("= select", 0, 0, 9, 3), ("= gather", 0, 8, 8, 8), ("= mul_number", 1, 1, 5, 3), ("! cast", 1, 0, 7, 3),
          ("~ cross_entropy", 2, 0, 0, 8), ("~ sum", 8, 3, 2, 7), ("= double", 5, 8, 6, 1), ("= double", 5, 8, 6, 1),
          ("= select", 8, 5, 2, 9), ("~ gelu", 1, 0, 0, 9), ("= pad", 0, 0, 5, 9)])
def test_a_gpu_means_what_the_cpu_means(cuda, leaf_args, program):
    with torch.config.using(executor="reference"):
        theirs = run(torch, leaf_args, program)
    with torch.config.using(executor="native"), cuda:
        mine = run(torch, leaf_args, program)
    torch.cuda.synchronize()
    # PyTorch's kernels for the CPU alone refuse the absolute value of truth values: what follows is another program.
    assume(not any(done == "= abs NotImplementedError" != other for done, other in zip(theirs[0], mine[0])))
    assert mine[0] == theirs[0]
    scale = scale_of(theirs[1])
    for number, (one, other) in enumerate(zip(mine[1], theirs[1], strict=True)):
        wrong = differ(one, other, scale, UNITS)
        assert wrong is None, f"tensor {number}, GPU and CPU: {wrong}\n{theirs[0]}"
