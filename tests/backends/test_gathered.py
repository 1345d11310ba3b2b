"""Plans of several devices: steps of one stand together, and what is computed stays what it is."""
import numpy as np
import pytest
from hypothesis import given, strategies as st

import flambeau as torch

from .toy import abacus  # noqa: F401  (registers the device)

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def native():
    torch.cpu.synchronize()
    with torch.config.using(executor="native"):
        yield


def stretches(tensor):
    """The devices of a pending tensor's plan, in the order of its steps, each once for steps in a row."""
    found = []
    for step in torch.plans.of(tensor).steps:
        if not found or found[-1] != (step.native, str(step.device)):
            found.append((step.native, str(step.device)))
    return found


def test_steps_that_take_turns_become_two_programs():
    here, there = torch.ones(3, 3), torch.ones(4, 4).to("abacus")
    torch.cpu.synchronize()
    for _ in range(3):                            # a product, and a kernel, of each in turn
        here, there = (here @ here) * 0.5, (there @ there) * 0.25
    both = there + here.sum().to("abacus")
    assert stretches(both) == [(True, "cpu"), (False, "abacus:0"), (True, "abacus:0")]
    assert (both.cpu().numpy() == 1 + 9 * 1.5 ** 7).all()


@given(st.lists(st.tuples(st.sampled_from(("add", "write", "move", "sum", "view")), st.integers(0, 3),
                          st.integers(0, 3)), min_size=1, max_size=25))
def test_programs_of_two_devices(turns):
    """The same in the same order on one device alone."""
    def run(devices):
        held = [torch.arange(6.0).add(k).to(devices[k % 2]) for k in range(4)]
        for what, a, b in turns:
            where = held[a].device
            other = held[b].to(where)
            if what == "add":
                held[a] = held[a] * 0.5 + other
            elif what == "write":
                held[a][1:4] = other[2:5] + 1
            elif what == "move":
                held[a] = other.to(devices[(a + 1) % 2]).clone()
            elif what == "sum":
                held[a] = held[a] + (other - 1).cumsum(0) * 0.25
            else:
                held[a][:3].mul_(2)
        return [one.cpu().numpy() for one in held]

    for one, other in zip(run(("cpu", "abacus")), run(("cpu", "cpu")), strict=True):
        np.testing.assert_array_equal(one, other)
