"""Every operation on a GPU, simulated: every row of every table gives there what it gives on the CPU, derivatives too.

A part of the rows is run, the same in every run; FLAMBEAU_TEST_THOROUGH=1 runs all of them.
"""
import numpy as np
import pytest

import flambeau as torch

from ..backends.test_toy import stays
from ..ops.rows import results
from ..ops.test_tables import floating, rows
from .simulated import compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]


@pytest.fixture(scope="module")
def cuda():
    with simulating(devices=2):
        yield torch.device("cuda", 0)


def close(a, b, tol):
    a, b = a.detach().cpu(), b.detach()
    if a.dtype in (torch.float16, torch.bfloat16):
        a, b, tol = a.float(), b.float(), 1e-2
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tol, atol=tol)


def compare(row, device, executor):
    """Run a row on a device and on the CPU, by the reference there."""
    ours, theirs = row.tensors(leaf=bool(row.grad)), row.tensors(leaf=bool(row.grad))
    with torch.config.using(executor=executor):
        ours = [t if stays(row, t) else t.detach().to(device).requires_grad_(t.requires_grad) for t in ours]
        torch.manual_seed(0)
        with device:
            mine = row.ours(*ours)
        torch.manual_seed(0)
        with torch.config.using(executor="reference"):
            other = row.ours(*theirs)
        for a, b in zip(results(mine), results(other), strict=True):
            if not isinstance(a, torch.Tensor):
                assert a == b
                continue
            assert a.device == (b.device if stays(row, a) else device) and a.dtype == b.dtype
            assert a.shape == b.shape and a.stride() == b.stride()
            close(a, b, 2e-5)
        if row.grad:
            for made in (mine, other):
                sum((f.abs() if f.is_complex() else f).sum() for f in floating(made)).backward()
            for a, b in zip(ours, theirs, strict=True):
                if b.grad is not None:
                    assert a.grad.device == device
                    close(a.grad, b.grad, 1e-4)
        torch.cuda.synchronize()


@rows(lambda row: row.op != "cpu")
def test_by_the_reference(row, cuda):
    """With CuPy, as it were: nothing that CuPy lacks is used, and nothing of the CPU's gets in among it."""
    compare(row, cuda, "reference")


@rows(lambda row: row.op != "cpu")
def test_by_kernels(row, cuda):
    """Compiled: schedules, CUDA C++, programs and the library."""
    compare(row, cuda, "native")
