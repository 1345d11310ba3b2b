"""Every operation on a GPU, simulated: every row of every table gives there what it gives on the CPU, derivatives too.

By the reference (with an array module like CuPy) and by kernels, in several dtypes and layouts. A part of that is run,
the same in every run, and with FLAMBEAU_TEST_THOROUGH=1 more, in minutes. Kernels are run forwards and backwards, which
must give the same bytes.
"""
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau.base.observers import Observer, observing

from ..backends.test_toy import stays
from ..ops.rows import ROWS, results
from ..ops.test_tables import floating, stepped, turned
from ..thorough import sample
from .simulated import compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]

TOLERANCE = {torch.float64: (2e-5, 1e-4), torch.float32: (2e-5, 1e-4), torch.float16: (1e-2, 4e-2),
             torch.bfloat16: (5e-2, 2e-1)}                   # of values, and of derivatives
LAYOUTS = {"": lambda t: t, "turned": turned, "stepped": stepped}


def cases(dtypes, layouts, step, thorough_step=1):
    """Rows in dtypes and layouts, each `step`th of them; beside each other stand different ones."""
    found = [pytest.param(row, dtype, LAYOUTS[layout], id=" ".join(filter(None, (row.name, str(dtype)[6:], layout))))
             for row in ROWS if row.op != "cpu" for layout in layouts for dtype in dtypes]
    return pytest.mark.parametrize("row, dtype, layout", sample(found, step, thorough_step))


@pytest.fixture(scope="module")
def cuda():
    with simulating(devices=2, races=True):
        yield torch.device("cuda", 0)


def close(a, b, tol):
    a, b = a.detach().cpu(), b.detach()
    if a.dtype in (torch.float16, torch.bfloat16):
        a, b = a.float(), b.float()
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tol, atol=tol)


def refused_on_cpu(row, dtype, layout):
    """Whether the CPU refuses a row in a dtype."""
    try:
        with torch.config.using(executor="reference"):
            for made in results(row.ours(*row.tensors(layout, dtype))):
                if isinstance(made, torch.Tensor):
                    made.detach().tolist()
    except (RuntimeError, TypeError, ValueError):
        return True
    return False


class Draws(Observer):
    """Whether random numbers were drawn."""

    any = False

    def drew(self, *told):
        self.any = True


def compare(row, device, executor, dtype=torch.float64, layout=LAYOUTS[""]):
    """Run a row on a device and, by the reference, on the CPU."""
    theirs = row.tensors(layout, dtype, leaf=bool(row.grad))
    with device:                                             # what a layout, or the row itself, makes is there too
        ours = [there if stays(row, there) else layout(t.to(device)).requires_grad_(there.requires_grad)
                for t, there in zip(row.tensors(dtype=dtype), theirs, strict=True)]
    value_tolerance, grad_tolerance = TOLERANCE[dtype]
    with torch.config.using(executor=executor):
        with device:
            mine = row.ours(*ours)
        with torch.config.using(executor="reference"), observing(Draws()) as draws:
            other = row.ours(*theirs)
        for a, b in zip(results(mine), results(other), strict=True):
            if not isinstance(a, torch.Tensor):
                assert a == b
                continue
            assert a.device == (b.device if stays(row, a) else device) and a.dtype == b.dtype
            assert a.shape == b.shape and a.stride() == b.stride()
            if not draws.any:                                # a GPU draws other numbers
                close(a, b, value_tolerance)
        if row.grad:
            for made in (mine, other):
                sum((f.abs() if f.is_complex() else f).sum() for f in floating(made)).backward()
            for a, b in zip(ours, theirs, strict=True):
                if b.grad is not None:
                    assert a.grad.device == device and a.grad.shape == b.grad.shape
                    if not draws.any:
                        close(a.grad, b.grad, grad_tolerance)
    torch.cuda.synchronize()


@cases([torch.float64], [""], 11)
def test_by_the_reference(row, dtype, layout, cuda):
    """With CuPy, as it were: nothing that CuPy lacks is used, and nothing of the CPU's gets in among it."""
    compare(row, cuda, "reference")


@cases([torch.float64, torch.float32, torch.float16, torch.bfloat16], ["", "turned", "stepped"], 151, 13)
def test_by_kernels(row, dtype, layout, cuda):
    """Compiled: schedules, CUDA C++, programs and the library."""
    if dtype is not torch.float64 and refused_on_cpu(row, dtype, layout):
        pytest.skip(f"the CPU has no {row.name} of {dtype}")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*mistake in Flambeau")
        compare(row, cuda, "native", dtype, layout)


@cases([torch.float32], [""], 13)
def test_results_that_nobody_reads(row, dtype, layout, cuda):
    """Of several results one is kept: what makes the others writes them somewhere all the same."""
    with torch.config.using(executor="reference"), observing(Draws()) as draws:
        theirs = results(row.ours(*row.tensors(dtype=dtype)))
    if len(theirs) < 2 or draws.any or not all(isinstance(made, torch.Tensor) for made in theirs):
        pytest.skip("it has one result")
    with torch.config.using(executor="native"):
        for at, other in enumerate(theirs):
            ours = [t if stays(row, t) else t.to(cuda) for t in row.tensors(dtype=dtype)]
            with cuda:
                mine = results(row.ours(*ours))[at]
            close(mine, other, TOLERANCE[dtype][0])
    torch.cuda.synchronize()
