"""Run existing tests on a simulated GPU: `pytest -p tests.cuda.everywhere tests/nn` makes every new tensor there.

For looking, not for the suite: tests that ask for the CPU's words, plans or addresses fail. `Tensor.numpy()` brings
data to the CPU here, which it refuses otherwise. FLAMBEAU_TEST_CUDA_OPTIONS has options of SimulatedDriver, such as
`delayed=True`.
"""
import os

import pytest

import flambeau as torch
from flambeau.base import spec as specs

from .simulated import simulating


@pytest.fixture(scope="session", autouse=True)
def everywhere():
    asked = os.environ.get("FLAMBEAU_TEST_CUDA_OPTIONS", "")
    options = dict(option.split("=") for option in asked.split(",") if option)
    patch, plain = pytest.MonkeyPatch(), torch.Tensor.numpy
    patch.setattr(torch.Tensor, "numpy", lambda self, *, force=False: plain(self, force=True))
    patch.setattr(torch, "get_rng_state", torch.cuda.get_rng_state)
    patch.setattr(torch, "set_rng_state", torch.cuda.set_rng_state)
    with simulating(devices=2, **{name: value == "True" for name, value in options.items()}):
        specs.set_default_device("cuda:0")
        try:
            yield
        finally:
            specs.set_default_device(None)
            patch.undo()
