"""`flambeau.cuda`, `torch.accelerator`, `torch.Stream` and `torch.Event` on simulated devices."""
import gc
import os
import threading

import pytest

import flambeau as torch
from flambeau.backends.cuda import configuration, driver, memory
from tests.patience import PATIENCE

cuda = torch.cuda


# --- devices ---------------------------------------------------------------------------------------------------------


def test_what_there_is(simulated):
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.is_initialized()
    known = cuda.get_device_properties("cuda:1")
    assert (known.name, known.major, known.minor, known.multi_processor_count) == ("Simulated GPU 1", 9, 0, 4)
    assert repr(known).startswith("_CudaDeviceProperties(name='Simulated GPU 1', major=9, minor=0, total_memory=")
    assert known.pci_bus_id == 2 and known.total_memory == simulated.limit
    assert known.shared_memory_per_block == 48 << 10 < known.shared_memory_per_block_optin
    assert cuda.get_device_name() == "Simulated GPU 0" and cuda.get_device_capability(1) == (9, 0)
    assert cuda.is_bf16_supported() and cuda.is_tf32_supported() and not cuda.can_device_access_peer(0, 1)
    assert torch.get_device_module() is cuda and torch._C._get_accelerator() == torch.device("cuda")


def test_a_device_is_named_in_many_ways(simulated):
    for where in (1, "cuda:1", torch.device("cuda", 1), torch.device("cuda:1"), torch.device(1)):
        x = torch.zeros(2, device=where)
        assert x.device == torch.device("cuda", 1) and x.get_device() == 1 and x.is_cuda and not x.is_cpu
        assert torch.ones(2).to(where).device.index == torch.ones(2).cuda(where).device.index == 1
        assert cuda.get_device_name(where) == "Simulated GPU 1"
    assert torch.zeros(1, device="cuda").device == torch.zeros(1).cuda().device == torch.device("cuda:0")
    assert torch.cuda.FloatTensor([1, 2]).tolist() == [1, 2] and torch.cuda.LongTensor(3).device.index == 0
    assert isinstance(torch.zeros(1, device="cuda"), cuda.FloatTensor)
    assert not isinstance(torch.zeros(1), cuda.FloatTensor)
    assert torch.ones(1, device="cuda").type() == "torch.cuda.FloatTensor"


def test_the_current_device(simulated):
    assert cuda.current_device() == 0
    with cuda.device(1):
        assert cuda.current_device() == 1 and torch.zeros(1).cuda().device.index == 1
        with cuda.device("cuda:0"):
            assert cuda.current_device() == 0
        with cuda.device(None), cuda.device(-1), cuda.device("cuda"):
            assert cuda.current_device() == 1
        with cuda.device_of(torch.zeros(1, device="cuda:0")):
            assert cuda.current_device() == 0
        with cuda.device_of(torch.zeros(1)):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 0
    with pytest.raises(ZeroDivisionError), cuda.device(1):
        raise ZeroDivisionError
    assert cuda.current_device() == 0
    cuda.set_device(-1)
    cuda.set_device("cuda:1")
    found = []
    other = threading.Thread(target=lambda: found.append(cuda.current_device()))
    other.start()
    other.join(PATIENCE)
    assert cuda.current_device() == 1 and found == [0]                      # each thread has its own
    cuda.set_device(0)


@pytest.mark.parametrize("call, kind, words", [
    (lambda: cuda.get_device_properties(2), AssertionError, "Invalid device id: 2; there are cuda:0 to cuda:1"),
    (lambda: cuda.set_device(5), RuntimeError, "invalid device ordinal: 5"),
    (lambda: torch.zeros(1, device="cuda:2"), RuntimeError, "invalid device ordinal"),
    (lambda: cuda.get_device_name("cpu"), ValueError, "Expected a cuda device, but got: cpu"),
    (lambda: cuda.set_device("cuda"), ValueError, "Expected a torch.device with a specified index"),
    (lambda: cuda.memory_stats(9), RuntimeError, "Invalid device argument: 9"),
    (lambda: torch.ones(1).cuda("cpu"), RuntimeError, "must be cuda device"),
    (lambda: cuda.can_device_access_peer(0, 7), AssertionError, "Invalid peer device id: 7"),
    (lambda: torch.Stream("cuda:4"), RuntimeError, "invalid device ordinal"),
    (lambda: cuda.cudart(), NotImplementedError, "cupy.cuda.runtime"),
    (lambda: cuda.set_sync_debug_mode("warn"), NotImplementedError, "observer"),
    (lambda: cuda.Event(interprocess=True), NotImplementedError, "between processes"),
    (lambda: cuda.no_such_name, AttributeError, "no_such_name"),
    (lambda: torch.accelerator.set_device_index("cpu"), ValueError, "doesn't match the current accelerator cuda"),
])
def test_refusals(simulated, call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_tensors_of_several_devices_do_not_mix(simulated):
    left, right, host = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"), torch.ones(3)
    for call in (lambda: left + right, lambda: torch.cat([left, right]), lambda: left @ right, lambda: left + host,
                 lambda: torch.where(left > 0, left, right), lambda: left.add_(right)):
        with pytest.raises(RuntimeError, match="same device(?s:.*)cuda:0") as got:
            call()
        assert "left" in str(got.value) and ("right" in str(got.value) or "host" in str(got.value))
    assert (left + torch.tensor(2.0)).tolist() == [3, 3, 3]             # a number of the CPU joins any device
    left[1] = 5
    assert left.to("cuda:1").add(right).tolist() == [2, 6, 2]
    right.copy_(left)
    assert right.device.index == 1 and right.tolist() == [1, 5, 1]
    strided = torch.arange(6.0, device="cuda:0").view(2, 3).t()
    assert strided.to("cuda:1").tolist() == strided.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert strided.to("cuda:1").stride() == strided.stride()


def test_a_module_moves_with_its_optimizer(simulated):
    net = torch.nn.Linear(2, 1).cuda(1)
    start = [p.tolist() for p in net.cpu().parameters()]
    net.to("cuda:1")
    assert {p.device.index for p in net.parameters()} == {1}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(torch.ones(4, 2, device="cuda:1")).sum().backward()
    assert net.weight.grad.device == torch.device("cuda:1")
    optimizer.step()
    assert net.bias.item() == pytest.approx(start[1][0] - 2) and net.weight[0, 0].item() == pytest.approx(
        start[0][0][0] - 2)


# --- streams and events ----------------------------------------------------------------------------------------------


def test_streams(simulated):
    stream = cuda.Stream()
    assert isinstance(stream, torch.Stream) and stream.device.index == 0 and stream != torch.Stream("cpu")
    assert cuda.current_stream() == cuda.default_stream() != stream and cuda.default_stream().stream_id == 0
    x = torch.arange(4.0, device="cuda")
    with cuda.stream(stream):
        assert cuda.current_stream() == stream
        y = x * 2
    assert cuda.current_stream() == cuda.default_stream()
    cuda.current_stream().wait_stream(stream)
    assert (y + 1).tolist() == [1, 3, 5, 7] and stream.query() and stream.synchronize() is None
    other = cuda.Stream(1, priority=-1)
    assert other.priority == -1 and other.device_index == 1
    with stream, other:
        assert cuda.current_device() == 1 and cuda.current_stream() == other
        assert torch.accelerator.current_stream().stream_id == other.stream_id and cuda.current_stream(0) == stream
    assert cuda.current_device() == 0
    again = cuda.Stream(stream_id=stream.stream_id, device_index=0, device_type=1)
    external = cuda.ExternalStream(stream.cuda_stream)
    assert again == external == stream and hash(again) == hash(stream) and external.__cuda_stream__() == (
        0, stream.cuda_stream)
    assert repr(stream) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={stream.cuda_stream:#x}>"
    cuda.set_stream(stream)
    assert cuda.current_stream() == stream
    cuda.set_stream(cuda.default_stream())
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()


def test_what_is_recorded_before_a_stream_is_chosen_goes_to_the_one_before(simulated, monkeypatch):
    """A launch in the trace must not wander: it is handed over when the current stream changes."""
    seen, inner = [], simulated.allocate

    def allocate(index, nbytes, stream=None):
        seen.append(simulated.current_stream(index).handle)
        return inner(index, nbytes, stream)
    x = torch.ones(8, device="cuda")
    cuda.synchronize()
    stream = cuda.Stream()
    monkeypatch.setattr(simulated, "allocate", allocate)
    before = x + 1
    with cuda.stream(stream):
        inside = x + 2
    after = x + 3
    assert [t.tolist()[0] for t in (before, inside, after)] == [2, 3, 4]
    assert seen == [0, stream.cuda_stream, 0]


def test_events_mark_and_measure(simulated):
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert start.query() and start.synchronize() is None and repr(start) == "<torch.cuda.Event uninitialized>"
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    torch.ones(1000, device="cuda").sum()
    end.record()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0 and start.device == torch.device("cuda:0")
    with pytest.raises(ValueError, match="enable_timing=True"):
        cuda.Event().elapsed_time(end)
    event = cuda.current_stream().record_event()
    assert isinstance(event, cuda.Event) and isinstance(event, torch.Event) and event.query()
    cuda.Stream().wait_event(event)
    with pytest.raises(RuntimeError, match="does not match recording stream's device"):
        event.record(cuda.current_stream(1))
    general = torch.Event("cuda:1", enable_timing=True)
    general.record(torch.Stream("cuda:1"))
    general.wait()
    assert general.device.index == 1 and general.event_id and "device_type=cuda, device_index=1" in repr(general)


def test_torch_streams_are_of_the_accelerator(simulated):
    assert torch.Stream().device == torch.device("cuda:0") and torch.Stream("cpu").device == torch.device("cpu")
    with torch.accelerator.device_index(1):
        assert torch.Stream().device.index == 1 and torch.accelerator.current_device_index() == 1
    with torch.accelerator.device_index(None):
        assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index("cuda:1")
    torch.accelerator.set_stream(torch.accelerator.current_stream(0))
    assert cuda.current_device() == 0
    torch.accelerator.synchronize()
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]
    with pytest.warns(FutureWarning, match="current_device_index"):
        torch.accelerator.current_device_idx()


def test_nothing_is_done_before_somebody_waits():
    from .simulated import compiler, simulating
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=1, delayed=True):
        x = torch.arange(1000.0, device="cuda")
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            start.record()
            y = x * 2
            end.record()
        assert not end.query()
        with pytest.raises(RuntimeError, match="must be completed"):
            start.elapsed_time(end)
        cuda.synchronize()
        assert end.query() and y.sum().item() == 999000


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory_is_counted(simulated):
    cuda.synchronize()
    gc.collect()
    cuda.reset_peak_memory_stats()
    start = cuda.memory_allocated()
    x = torch.ones(1 << 18, device="cuda")
    cuda.synchronize()
    assert cuda.memory_allocated() - start == 1 << 20 == cuda.max_memory_allocated() - start
    y = x + 1
    cuda.synchronize()
    del y
    assert cuda.memory_allocated() - start == 1 << 20 and cuda.max_memory_allocated() - start == 2 << 20
    assert cuda.memory_reserved() >= cuda.memory_allocated() and cuda.max_memory_reserved() >= 2 << 20
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() - start == 1 << 20
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] == cuda.max_memory_allocated() and stats["num_ooms"] == 0
    assert cuda.memory_stats_as_nested_dict()["reserved_bytes"]["all"]["current"] == cuda.memory_reserved()
    assert list(stats) == sorted(stats) and cuda.memory_allocated(1) == 0
    assert torch.accelerator.memory_allocated() == cuda.memory_allocated()
    cuda.empty_cache()
    assert cuda.memory_reserved() == cuda.memory_allocated()
    assert sum(one["total_size"] for one in cuda.memory_snapshot()) == cuda.memory_reserved()
    free, total = cuda.mem_get_info()
    assert total == simulated.limit and free == total - cuda.memory_reserved()
    assert cuda.device_memory_used() == total - free
    cuda.reset_accumulated_memory_stats()
    assert cuda.memory_stats()["allocation.all.allocated"] == 0
    with pytest.warns(FutureWarning, match="memory_reserved"):
        cuda.memory_cached()


def test_peaks_are_those_of_every_moment(simulated):
    """The peak is what a count at every allocation would say, however often memory comes back in between."""
    cuda.synchronize()
    gc.collect()
    cuda.reset_peak_memory_stats()
    account, most, held = memory.account(simulated, 0), cuda.memory_allocated(), []
    for step in range(200):
        if step * 7 % 5 < 2 and held:
            held.pop(step * 3 % len(held))
        else:
            held.append(account.allocate(1 + step * 977 % 5000))
        most = max(most, account.pool().used_bytes)
    assert cuda.max_memory_allocated() == most


def test_a_part_of_the_memory(simulated):
    assert cuda.get_per_process_memory_fraction() == 1
    cuda.set_per_process_memory_fraction(1 / 1024)                          # of a gibibyte
    x = torch.zeros(1 << 16, device="cuda")
    with pytest.raises(cuda.OutOfMemoryError, match=r"may have 0.10% of it \(1 MiB\), by set_per_process"):
        (x.view(1, -1) + torch.zeros(8, 1, device="cuda")).tolist()
    cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match="Invalid fraction value: 2.0"):
        cuda.set_per_process_memory_fraction(2.0)
    with pytest.raises(TypeError, match="float"):
        cuda.set_per_process_memory_fraction(1)


def test_out_of_memory_says_what_it_is_for_and_changes_nothing():
    from .simulated import compiler, simulating
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=1, limit=48 << 20):
        net = torch.nn.Linear(512, 512).cuda()                              # a mebibyte of weights
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 512, device="cuda")).sum().backward()
        optimizer.step()
        kept = torch.rand(1 << 20, device="cuda", requires_grad=True)
        waiting = kept.exp()                                                # 4 MiB that a backward waits for
        cuda.synchronize()
        before, bits = cuda.memory_allocated(), kept.tolist()[:5]
        with pytest.raises(torch.OutOfMemoryError) as got:
            (waiting.view(-1, 1) + torch.ones(64, device="cuda")).data_ptr()
        text = str(got.value)
        assert text.startswith("CUDA out of memory. Tried to allocate 256 MiB. GPU 0 has a total capacity of 48 MiB")
        assert "would not have sufficed" in text and isinstance(got.value, (MemoryError, RuntimeError))
        roles = text.partition("that tensors hold: ")[2]
        assert roles.startswith("parameters 1.002 MiB, gradients 1.002 MiB, optimizer state 2.004 MiB, graph 4 MiB")
        lines = text.partition("hold most memory:\n")[2].splitlines()
        assert len(lines) == 5 and all("test_api.py:" in line and "on cuda:0" in line for line in lines)
        sizes = [line.split("test_api.py:")[1].split()[1] for line in lines]
        assert sizes[:2] == ["4", "4"]
        del got
        gc.collect()
        cuda.synchronize()
        assert cuda.memory_allocated() == before and kept.tolist()[:5] == bits
        waiting.sum().backward()                                            # and everything goes on
        assert kept.grad.shape == kept.shape and cuda.memory_stats()["num_ooms"] >= 1
        assert "parameters 1.002 MiB" in cuda.memory_summary() and "cuda:0 memory" in cuda.memory_summary()


def test_the_pool_is_emptied_before_it_fails():
    from .simulated import compiler, simulating
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=1, limit=8 << 20):
        small = [torch.zeros(1 << 18, device="cuda") for _ in range(7)]
        cuda.synchronize()
        del small
        assert cuda.memory_reserved() >= 7 << 20 and cuda.memory_allocated() < 1 << 20
        big = torch.zeros(5 << 18, device="cuda") + 1                       # fits only if what lies idle is given back
        assert big[0].item() == 1


@pytest.mark.parametrize("text, want", [
    ("", configuration.Configuration()),
    ("expandable_segments:True", configuration.Configuration(expandable_segments=True)),
    ("backend:cudaMallocAsync", configuration.Configuration(expandable_segments=True)),
    ("max_split_size_mb:128, garbage_collection_threshold:0.8",
     configuration.Configuration(garbage_collection_threshold=0.8)),
    ("per_process_memory_fraction:0.5,max_idle_bytes:1000000",
     configuration.Configuration(per_process_memory_fraction=0.5, max_idle_bytes=1_000_000)),
    ("roundup_power2_divisions:[256:1,512:2,>:4]", configuration.Configuration()),
])
def test_configuration(text, want):
    assert configuration.read_configuration(text) == want


@pytest.mark.parametrize("text, words", [
    ("max_splitsize_mb:128", "Unrecognized key 'max_splitsize_mb'(?s:.*)max_split_size_mb"),
    ("expandable_segments", "not a name:value"), ("expandable_segments:maybe", "True or False"),
    ("garbage_collection_threshold:8", "between 0 and 1"), ("max_split_size_mb:4", "greater than 20"),
    ("backend:own", "native or cudaMallocAsync"),
])
def test_configuration_that_is_refused(text, words):
    with pytest.raises(RuntimeError, match=words):
        configuration.read_configuration(text)


@pytest.mark.parametrize("text, kept", [("", True), ("max_idle_bytes:1000000", False),
                                        ("garbage_collection_threshold:0.001", False)])
def test_idle_memory_is_given_back_as_configured(simulated, monkeypatch, text, kept):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
    memory._accounts.clear()
    account = memory.account(simulated, 0)
    held = [account.allocate(1 << 18) for _ in range(8)]
    del held
    more = account.allocate(1 << 19)                                        # of another size, so fresh
    used, reserved = account.pool()
    assert (reserved - used >= 2 << 20) is kept and used == more.nbytes == 1 << 19


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_seeds_and_states(simulated):
    cuda.manual_seed_all(7)
    one, two = torch.rand(3, device="cuda:0"), torch.rand(3, device="cuda:1")
    assert one.tolist() == two.tolist() and cuda.initial_seed() == 7 and len(cuda.default_generators) == 2
    states = cuda.get_rng_state_all()
    first = torch.rand(3, device="cuda:1").tolist()
    cuda.set_rng_state_all(states)
    assert torch.rand(3, device="cuda:1").tolist() == first
    with cuda.device(1):
        cuda.manual_seed(9)
        assert cuda.initial_seed() == 9
    assert cuda.initial_seed() == 7 and cuda.get_rng_state("cuda:1").tolist() != cuda.get_rng_state(0).tolist()


# --- processes -------------------------------------------------------------------------------------------------------


def said_by(call):
    """The first sentence of the RuntimeError that `call()` raises."""
    try:
        return f"nothing, but gave {call()!r}"
    except RuntimeError as error:
        return str(error).partition(".")[0]
    except BaseException as error:
        return repr(error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told(simulated):
    x = torch.ones(2, device="cuda")
    cuda.synchronize()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, "|".join([*map(said_by, (
                lambda: torch.zeros(1, device="cuda"), lambda: (x + 1).tolist(), lambda: cuda.current_device(),
                lambda: cuda.Stream())), str(cuda.is_initialized()), str(cuda._is_in_bad_fork()),
                str(cuda.manual_seed(1)), str(torch.manual_seed(2).initial_seed()), str(cuda.is_available()),
                str(cuda.memory_allocated())]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read().split("|")
    os.waitpid(child, 0)
    assert said == ["Cannot re-initialize CUDA in forked subprocess"] * 4 + ["False", "True", "None", "2", "True", "0"]
    assert not driver.is_forked() and x.tolist() == [1, 1]


def test_nvtx_nests(simulated):
    nvtx = cuda.nvtx
    assert nvtx.range_pop() == -1 and nvtx.range_push("outer") == 0 and nvtx.range_push("inner") == 1
    assert nvtx.range_pop() == 1 and nvtx.range_pop() == 0
    with nvtx.range("step {}", 3):
        nvtx.mark("here")
    nvtx.range_end(nvtx.range_start("across"))


# --- switches --------------------------------------------------------------------------------------------------------


def test_tf32_has_one_state_under_three_names(monkeypatch):
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    monkeypatch.setattr(cudnn, "fp32_precision", "none")      # comparisons with PyTorch switch it off (peer.py)
    assert not matmul.allow_tf32 and cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "highest"
    assert matmul.fp32_precision == cudnn.fp32_precision == "none"
    try:
        torch.set_float32_matmul_precision("medium")
        assert matmul.allow_tf32 and matmul.fp32_precision == "tf32"
        assert torch.get_float32_matmul_precision() == "medium"
        matmul.allow_tf32 = False
        assert torch.get_float32_matmul_precision() == "highest" and matmul.fp32_precision == "ieee"
        matmul.fp32_precision = "tf32"
        assert torch.get_float32_matmul_precision() == "high" and matmul.allow_tf32
        with pytest.raises(RuntimeError, match="Invalid fp32_precision 'exact'"):
            matmul.fp32_precision = "exact"
        with cudnn.flags(enabled=False, allow_tf32=False):
            assert not cudnn.enabled and not cudnn.allow_tf32
        assert cudnn.enabled and cudnn.allow_tf32 and cudnn.fp32_precision == "none"
        with cudnn.conv.flags(allow_tf32=False):
            assert not cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = "none"
    from flambeau.backends import library_switches
    try:
        library_switches.fp32_precision = "ieee"
        assert not cudnn.allow_tf32 and not matmul.allow_tf32
    finally:
        library_switches.fp32_precision = "none"


def test_libraries_on_simulated_devices(simulated):
    assert not torch.backends.cudnn.is_available() and torch.backends.cudnn.version() is None
    assert not torch.backends.cudnn.is_acceptable(torch.zeros(1, device="cuda"))


def test_memory_is_kept_for_another_stream():
    from .simulated import compiler, simulating
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=2, delayed=True):
        x = torch.ones(1 << 16, device="cuda")
        cuda.synchronize()
        used, stream = cuda.memory_allocated(), cuda.Stream()
        with cuda.stream(stream):
            y = x + 1
        x.record_stream(stream)
        with pytest.raises(RuntimeError, match="the tensor is on cuda:0 and the stream of cuda:1"):
            x.record_stream(cuda.Stream(1))
        del x
        assert cuda.memory_allocated() >= 2 * used                          # what runs there may still read it
        stream.synchronize()
        torch.ones(1, device="cuda").record_stream(stream)                  # the next one lets go of what is done
        gc.collect()
        assert y[0].item() == 2 and cuda.memory_allocated() <= used + 2048
    torch.ones(1).record_stream(torch.Stream("cpu"))


def test_a_reference_finds_room_in_what_lies_idle():
    """Memory that lies idle for the next result is not in the way of what an array module allocates by itself."""
    from .simulated import compiler, simulating
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=1, limit=8 << 20), torch.config.using(executor="reference"):
        held = [torch.zeros(1 << 18, device="cuda") + number for number in range(5)]
        cuda.synchronize()
        del held
        x = torch.ones(3 << 18, device="cuda")
        assert (x + 1)[5].item() == 2


def test_memory_that_a_cycle_held_is_given_out_whole(simulated):
    """The collector of cycles finalises everything in one, also what is kept to be given out again."""
    held = []
    for _ in range(3):
        x = torch.rand(1 << 10, device="cuda")
        x.tolist()
        cycle = [x]
        cycle.append(cycle)
        del x, cycle
        gc.collect()
        held.append(torch.full((1 << 10,), 7.0, device="cuda"))
        assert held[-1].sum().item() == 7 << 10
