"""A GPU for a test: NVIDIA's where there is one, otherwise a simulated one."""
import contextlib
import gc

import pytest

import flambeau as torch
from flambeau.backends.cuda import driver

from .simulated import compiler, simulating

_absence = driver.absence()
REAL = _absence is None
on_a_real_gpu = pytest.mark.skipif(not REAL, reason=f"no CUDA here: {getattr(_absence, 'fact', '')}")


@contextlib.contextmanager
def a_gpu():
    """Inside of it "cuda" can be used, one device of it at least; a simulated one where NVIDIA's is hidden from a test
    (see tests/conftest.py)."""
    if driver.absence() is None:
        try:
            yield
        finally:
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    elif compiler.is_there():
        with simulating(devices=1):
            yield
    else:
        pytest.skip("kernels are simulated with g++, on Linux")
