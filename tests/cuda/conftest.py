"""Devices for the tests of CUDA: simulated ones, where there is no GPU."""
import pytest

from .simulated import compiler, simulating


@pytest.fixture
def simulated():
    """The driver of two simulated devices, cuda:0 and cuda:1, for the duration of a test."""
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=2) as driver:
        yield driver
