"""Copies that run beside the program: what arrives is what was there at the call, and whoever looks waits for it.

The simulated devices do nothing before somebody waits (`delayed=True`): what did not wait would read garbage.
"""
import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cuda import driver
from flambeau.trace.recording.record import current
from flambeau.utils.data import DataLoader, TensorDataset

from .simulated import compiler, simulating


@pytest.fixture(params=["simulated", "gpu"])
def lazy(request):
    """The driver of two simulated devices that work as late as they may; and that of the GPUs, where there are any."""
    if request.param == "gpu":
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU")
        yield driver.current()
        for noted in ("upload", "download"):               # see `count`
            vars(driver.current()).pop(noted, None)
        return
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=2, delayed=True) as made:
        yield made


def test_pinning(lazy):
    x = torch.arange(6.0).view(2, 3).t()
    assert not x.is_pinned()
    p = x.pin_memory()
    assert p.is_pinned() and p.pin_memory() is p and p.device.type == "cpu" and p.stride() == x.stride()
    assert torch.equal(p, x) and p.untyped_storage().is_pinned()
    assert p[1:].is_pinned() and not p.clone().is_pinned()
    assert torch.ones(4)[::2].pin_memory().tolist() == [1.0, 1.0]
    assert torch.empty(0, 3).pin_memory().shape == (0, 3)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.to("cuda").pin_memory()


def test_pinned_memory_stays_where_it_is(lazy):
    p = torch.zeros(4).pin_memory()
    where = p.data_ptr()
    p.copy_(torch.arange(4.0))
    p += 1
    p[1] = 9
    assert p.is_pinned() and p.data_ptr() == where and p.tolist() == [1.0, 9.0, 3.0, 4.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[2:], lambda x: x[:, 1], lambda x: x[:0]])
def test_a_copy_ahead_brings_what_was_there(view, dtype, lazy):
    x = torch.arange(20).view(4, 5).to(dtype).pin_memory()
    moved = view(x).to("cuda", non_blocking=True)
    assert moved.device == torch.device("cuda:0") and moved.dtype is dtype
    assert torch.equal((moved != 0).cpu(), view(x) != 0) and torch.equal(moved.cpu(), view(x))
    assert view(x).cuda(non_blocking=True).cpu().tolist() == view(x).tolist()


def test_a_copy_ahead_waits_for_nobody_until_it_is_read(lazy):
    x = torch.arange(1000.0).pin_memory()
    uploads = count(lazy, "upload")
    moved = x.to("cuda", non_blocking=True)
    assert uploads == [(False, "its own")] and moved._storage.value.trace is not None
    twice = moved * 2
    assert moved._storage.value.trace is None              # the computing stream waits, and nobody else
    assert torch.equal(twice.cpu(), x * 2)


def count(software, what):
    """Notes of each copy whether the caller waits for it, and on which stream it goes."""
    seen, whole = [], getattr(software, what)

    def noting(index, address, host_address, nbytes, stream=None, blocking=True):
        own = stream is not None and stream != software.default_stream(index)
        seen.append((blocking, "its own" if own else "the computing one"))
        return whole(index, address, host_address, nbytes, stream, blocking)
    setattr(software, what, noting)
    return seen


def test_writing_to_the_source_waits(lazy):
    x = torch.zeros(1000).pin_memory()
    moved = x.to("cuda", non_blocking=True)
    x.fill_(7)
    again = x.to("cuda", non_blocking=True)
    x[:500] += 1
    assert (moved.sum().item(), again.sum().item(), x.sum().item()) == (0.0, 7000.0, 7500.0)


def test_memory_that_numpy_looks_at_is_copied_at_once(lazy):
    x = torch.zeros(1000).pin_memory()
    array = x.numpy()
    moved = x.to("cuda", non_blocking=True)
    moved._storage.value.ready()
    array[:] = 3
    assert moved.sum().item() == 0.0
    later = torch.ones(10).pin_memory()
    ahead = later.to("cuda", non_blocking=True)
    later.numpy()[:] = 5                                   # asking for the array waits
    assert ahead.tolist() == [1.0] * 10


def test_the_source_is_kept_until_the_copy_is_through(lazy):
    moved = [torch.full((257,), float(i)).pin_memory().to("cuda", non_blocking=True) for i in range(20)]
    assert [m.mean().item() for m in moved] == [float(i) for i in range(20)]


def test_landings_are_used_again_when_nobody_looks(lazy):
    """A loop that rebinds its batch needs a few blocks, however long it runs, and none is overwritten too early."""
    used = []
    sums = torch.zeros(30, device="cuda")
    for i in range(30):
        x = torch.full((1000,), float(i)).pin_memory().to("cuda", non_blocking=True)
        sums[i] = (x * 1.0).sum()
        used.append(lazy.pool(0).used_bytes)
    assert sums.tolist() == [1000.0 * i for i in range(30)] and max(used[10:]) <= max(used[:10])
    landings = torch.device("cuda:0").backend._copies._landings
    assert len(landings) <= 4                              # the one in use, and those that wait for their readers


def test_idle_memory_goes_back(lazy):
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    for i in range(5):
        x = torch.full((100_000,), float(i)).pin_memory().to("cuda", non_blocking=True)
    assert x.mean().item() == 4.0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() < before + 2 * 100_000 * 4 and x.sum().item() == 400_000.0
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() < before + 100_000


def test_a_landing_is_not_written_before_it_was_read(lazy):
    """Copies are hurried along while what computes with the ones before has not begun."""
    made = []
    for i in range(12):
        source = torch.full((1000,), float(i)).pin_memory()
        x = source.to("cuda", non_blocking=True)
        made.append((x * 1.0).sum())
        current().run()                                    # handed over, and not begun
        del x
        source.fill_(-1)                                   # waits for the copy alone
    assert [m.item() for m in made] == [1000.0 * i for i in range(12)]


def test_to_the_cpu_and_back(lazy):
    x = torch.arange(100.0, device="cuda") * 2
    there = x.to("cpu", non_blocking=True)
    assert there.is_pinned() and there._storage.value.trace is not None
    x += 1                                                 # after the call
    assert there.tolist() == [2.0 * i for i in range(100)]
    assert x.t().to("cpu", torch.int64, non_blocking=True).tolist() == [2 * i + 1 for i in range(100)]
    assert x.view(10, 10)[:, 0].to("cpu", non_blocking=True).tolist() == [20.0 * i + 1 for i in range(10)]
    assert np.asarray(x.to("cpu", non_blocking=True)).sum() == 10000.0


def test_with_other_dtypes_and_formats(lazy):
    x = torch.arange(24.0).view(1, 2, 3, 4).pin_memory()
    moved = x.to("cuda", torch.float16, non_blocking=True, memory_format=torch.channels_last)
    assert moved.is_contiguous(memory_format=torch.channels_last) and moved.dtype is torch.float16
    assert torch.equal(moved.cpu().float(), x)
    held = torch.zeros(24, device="cuda")
    held.copy_(x.view(-1), non_blocking=True)
    assert held.tolist() == list(range(24))


def test_gradients_go_through(lazy):
    x = torch.ones(5).pin_memory().requires_grad_()
    (x.to("cuda", non_blocking=True) * 3).sum().backward()
    assert x.grad.tolist() == [3.0] * 5
    y = torch.ones(5, device="cuda", requires_grad=True)
    (y.to("cpu", non_blocking=True) * 3).sum().backward()
    assert y.grad.tolist() == [3.0] * 5


def test_on_a_stream_of_the_programs_own(lazy):
    """On a stream that the program chose, a copy goes to that one, as PyTorch's do."""
    side = torch.cuda.Stream()
    x = torch.arange(1000.0).pin_memory()
    with torch.cuda.stream(side):
        moved = x.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal((moved + 1).cpu(), x + 1)


def test_a_stream_that_comes_later_waits_too(lazy):
    """Who reads first is not the only one that waits: another stream, which has joined the first before, does too."""
    side = torch.cuda.Stream()
    x = torch.arange(1000.0).pin_memory()
    moved = x.to("cuda", non_blocking=True)
    side.wait_stream(torch.cuda.current_stream())
    first = moved + 1
    with torch.cuda.stream(side):
        assert torch.equal((moved * 2).cpu(), x * 2)
    assert torch.equal(first.cpu(), x + 1)


def test_between_devices(lazy):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x = torch.arange(10.0).pin_memory().to("cuda:1", non_blocking=True)
    assert x.device.index == 1
    assert (x.to("cuda:0", non_blocking=True) * 2).tolist() == [2.0 * i for i in range(10)]
    module = torch.nn.Linear(3, 2)
    weight = module.weight.detach().clone()
    assert torch.equal(module.to("cuda", non_blocking=True).weight.cpu(), weight)


# --- loading ----------------------------------------------------------------------------------------------------------


def batches(**options):
    data = TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))
    return DataLoader(data, batch_size=4, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_pins(workers, lazy):
    for i, (x, y) in enumerate(batches(pin_memory=True, num_workers=workers)):
        assert x.is_pinned() and y.is_pinned() and y.tolist() == [*range(4 * i, 4 * i + 4)]


def test_a_loader_pins_what_is_in_batches(lazy):
    class Box:
        def __init__(self, x): self.x = x
        def pin_memory(self): return Box(self.x.pin_memory())

    def collate(samples):
        x = torch.stack([s[0] for s in samples])
        return {"x": x, "many": [x, (x, "word")], "box": Box(x), "number": 3}

    batch = next(iter(batches(pin_memory=True, collate_fn=collate)))
    assert batch["x"].is_pinned() and batch["many"][0].is_pinned() and batch["many"][1][0].is_pinned()
    assert batch["box"].x.is_pinned() and batch["many"][1][1] == "word" and batch["number"] == 3


@pytest.mark.parametrize("pin", [False, True])
def test_prefetching(pin, lazy):
    from flambeau.utils.data import DevicePrefetcher
    loader = DevicePrefetcher(batches(pin_memory=pin), "cuda")
    assert len(loader) == 5
    for _ in range(2):
        seen = [(x.device.type, y.tolist(), x.sum().item()) for x, y in loader]
        assert [s[1] for s in seen] == [[*range(4 * i, 4 * i + 4)] for i in range(5)]
        assert {s[0] for s in seen} == {"cuda"} and [s[2] for s in seen] == [28.0 + 64 * i for i in range(5)]


def test_prefetching_copies_before_it_is_asked(lazy):
    from flambeau.utils.data import DevicePrefetcher
    uploads = count(lazy, "upload")
    one = iter(DevicePrefetcher(batches(pin_memory=True), "cuda", depth=2))
    next(one)
    assert len(uploads) == 2 * 3                            # the batch that is used, and two more
    next(one)
    assert len(uploads) == 2 * 4
    assert len(list(one)) == 3 and len(uploads) == 2 * 5


def test_prefetching_to_the_cpu_gives_the_batches_as_they_are(lazy):
    from flambeau.utils.data import DevicePrefetcher
    assert [y.tolist() for _, y in DevicePrefetcher(batches(), "cpu")] == [y.tolist() for _, y in batches()]
    with pytest.raises(ValueError, match="depth"):
        DevicePrefetcher(batches(), "cuda", depth=0)


def test_new_tensors_in_pinned_memory(lazy):
    assert torch.zeros(3, pin_memory=True).is_pinned() and torch.rand(3, pin_memory=True).is_pinned()
    assert torch.tensor([1, 2], pin_memory=True).is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
    assert torch.ones_like(torch.zeros(2), pin_memory=True).tolist() == [1.0, 1.0]
    assert torch.zeros(2).new_full((2,), 3.0, pin_memory=True).is_pinned()
    assert not torch.zeros(3).is_pinned()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned|only dense CPU tensors can be pinned"):
        torch.zeros(3, device="cuda", pin_memory=True)
