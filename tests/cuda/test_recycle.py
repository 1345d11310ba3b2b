"""Memory of a GPU that came back: what is given out again, and when it goes back to the driver."""
import gc

import numpy as np
import pytest
from hypothesis import given, strategies as st

import flambeau as torch
from flambeau.backends.cuda.recycle import Recycler

from .simulated import SimulatedDriver, compiler, simulating

pytestmark = pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from((1, 100, 512, 513, 2000))), min_size=1, max_size=40))
def test_no_two_have_the_same_memory(turns):
    """Whatever is allocated and freed in whatever order: blocks are large enough, and nobody else's."""
    driver = SimulatedDriver(devices=1)
    recycler, held = Recycler(driver, 0), {}
    for place, nbytes in turns:
        held.pop(place, None)
        made, _ = recycler.allocate(nbytes)
        assert made.nbytes >= nbytes
        others = [range(other.address, other.address + other.nbytes) for other in held.values()]
        assert not any(made.address in other or made.address + made.nbytes - 1 in other for other in others)
        held[place] = made
    held.clear()
    del made
    assert recycler.idle_bytes() == driver.pool(0).used_bytes
    recycler.clear()
    assert not driver.pool(0).used_bytes
    driver.close()


def test_the_lowest_address_first():
    driver = SimulatedDriver(devices=1)
    recycler = Recycler(driver, 0)
    blocks = [recycler.allocate(1000)[0] for _ in range(5)]
    addresses = sorted(block.address for block in blocks)
    for order in ([3, 1, 4, 0, 2], [0, 1, 2, 3, 4]):
        for at in order:
            blocks[at] = None
        blocks = [recycler.allocate(1000) for _ in range(5)]
        assert [block.address for block, _ in blocks] == addresses and not any(fresh for _, fresh in blocks)
        blocks = [block for block, _ in blocks]
    del blocks
    recycler.clear()
    driver.close()


def test_a_block_belongs_to_its_stream():
    driver = SimulatedDriver(devices=1)
    recycler, stream = Recycler(driver, 0), driver.stream(0)
    first = recycler.allocate(1000, stream)[0].address
    made, fresh = recycler.allocate(1000)
    assert fresh and made.address != first
    again, fresh = recycler.allocate(1000, stream)
    assert not fresh and again.address == first
    del made, again
    recycler.clear()
    driver.close()


def test_not_too_much_lies_idle():
    driver = SimulatedDriver(devices=1, limit=1 << 20)
    recycler = Recycler(driver, 0)
    for size in range(1, 100):                    # ever new sizes, each freed at once: 20 MiB in all
        recycler.allocate(size * 4096)
        assert recycler.idle_bytes() <= recycler.most + size * 4096
    recycler.clear()
    driver.close()


def test_memory_in_use_is_told_without_what_lies_idle():
    with simulating(devices=1):
        x = torch.ones(1000, device="cuda")
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        y = x + 1
        y.cpu().numpy()
        assert torch.cuda.memory_allocated() == before + 4096
        del y
        gc.collect()
        assert torch.cuda.memory_allocated() == before and torch.cuda.memory_reserved() >= before + 4096
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == before


def test_memory_that_an_array_looks_at_is_not_given_out():
    with simulating(devices=1) as driver:
        x = torch.arange(1000.0, device="cuda") * 2
        torch.cuda.synchronize()
        array = x._storage.value.spec.device.backend.seen(x._storage.value.array)
        del x
        others = [torch.zeros(1000, device="cuda") for _ in range(4)]
        torch.cuda.synchronize()
        assert (array.get() == np.arange(1000) * 2.0).all()
        del others, array
        torch.cuda.synchronize()
        assert driver.pool(0).used_bytes >= 0
