"""Every kernel that operations give is rendered, and compiled by NVRTC for sm_80 and sm_90: no GPU is needed for that.

The rows of the tables of tests/ops are run on a device that reads kernels (the abacus), with a GPU's schedules; forward
and backward, in float32 and bfloat16. A part of the rows is taken, the same in every run; FLAMBEAU_TEST_THOROUGH=1
takes all of them.
"""
import pytest

import flambeau as torch
from flambeau.backends import register
from flambeau.backends.cuda import code, nvrtc, schedule
from flambeau.loops.dialects.cuda import CUDA
from flambeau.loops.gpu.render import render
from flambeau.trace.planning import plan

from ..backends.test_toy import stays
from ..backends.toy.abacus import AbacusBackend
from ..ops.rows import ROWS
from ..ops.test_tables import floating
from ..thorough import sample

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")]
KERNELS_OF_A_MODULE = 25


class CollectingAbacus(AbacusBackend):
    """An abacus that takes a GPU's kernels, and keeps the CUDA C++ of each in `sources`."""

    interprets, carries_columns = False, True
    vector_bytes, reductions = schedule.LANE_BYTES, schedule.REDUCTIONS
    sources: dict = {}                # text → the kernel that it is of

    def schedule(self, launch):
        return schedule.schedule(launch)

    def compile(self, launches, calls=()):
        for launch in launches:
            self.sources.setdefault(render(launch.kernel, launch.schedule, code.KERNEL_NAME, CUDA), str(launch))
        return super().compile(launches, calls)


register("collecting", CollectingAbacus)


def collect(row, device, dtype):
    """Run a row on the collecting device, and what it gives back through autograd."""
    given = [t if stays(row, t) else (t.detach().to(dtype) if t.is_floating_point() else t.detach()).to(device)
             .requires_grad_(t.requires_grad) for t in row.tensors(leaf=bool(row.grad))]
    with device:
        made = row.ours(*given)
    if row.grad:
        sum((f.abs() if f.is_complex() else f).sum() for f in floating(made)).backward()
    torch.cpu.synchronize()                                   # everything is made while somebody holds it


def collected(rows, **constants):
    """The sources that rows give, with some constants of the schedule changed."""
    device, patch = torch.device("collecting", 0), pytest.MonkeyPatch()
    for name, value in constants.items():
        assert hasattr(schedule, name)
        patch.setattr(schedule, name, value)
    plan.forget()
    CollectingAbacus.sources.clear()
    with torch.config.using(executor="native"):
        for dtype in (torch.float32, torch.bfloat16):
            for row in rows:
                try:
                    collect(row, device, dtype)
                except (RuntimeError, ValueError):            # an operation that has no bfloat16
                    if dtype is torch.float32:
                        raise
    patch.undo()
    plan.forget()
    return dict(CollectingAbacus.sources)


@pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90"))
@pytest.mark.parametrize("constants", ({}, {"LARGE_MAP": 1, "MIN_COLUMN_THREADS": 1}), ids=("as they are", "large"))
def test_all_kernels_compile(architecture, constants):
    rows = [row for row in ROWS if row.op != "cpu"]
    sources = list(collected(sample(rows, 50), **constants))
    assert len(sources) > 10
    for first in range(0, len(sources), KERNELS_OF_A_MODULE):
        texts = [code.named(text, code.KERNEL_NAME)[1] for text in sources[first:first + KERNELS_OF_A_MODULE]]
        nvrtc.compile(code.together(texts), architecture, code.NVRTC_OPTIONS)


@pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90"))
def test_kernels_that_carry_columns_compile(architecture, monkeypatch):
    """Which the rows of the tables are too small for."""
    for name in ("MIN_CARRYING_ELEMENTS", "USED_OF_ROUNDS"):
        monkeypatch.setattr(schedule, name, 0)
    plan.forget()
    CollectingAbacus.sources.clear()
    with torch.config.using(executor="native"):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            x, g = (torch.randn(600, 520, dtype=dtype).to("collecting") for _ in range(2))
            w, b = (torch.randn(520, dtype=dtype).to("collecting").requires_grad_() for _ in range(2))
            y = torch.nn.functional.layer_norm(x.requires_grad_(), (520,), w, b)
            made = torch.autograd.grad(y, [x, w, b], g)
            torch.cpu.synchronize()
    plan.forget()
    texts, loops = list(CollectingAbacus.sources), "".join(CollectingAbacus.sources.values())
    assert len(made) == 3 and loops.count("d1 cut by d0") == 3 and " abreast by " in loops
    nvrtc.compile(code.together([code.named(text, code.KERNEL_NAME)[1] for text in texts]), architecture,
                  code.NVRTC_OPTIONS)


def test_a_kernel_that_cannot_be_written_is_refused():
    """What a mistake in a text would look like."""
    if not nvrtc.is_there():
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    with pytest.raises(nvrtc.NotCompiled, match="undefined"):
        nvrtc.compile("__global__ void f() { nothing(); }", "sm_90")
