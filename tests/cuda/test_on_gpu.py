"""`flambeau.cuda` on a GPU that is there: what a simulated device cannot show. Skipped where there is none."""
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cuda import chain, driver
from tests.patience import PATIENCE

cuda = torch.cuda
_absence = driver.absence()
pytestmark = [pytest.mark.pinned,
              pytest.mark.skipif(_absence is not None, reason=f"no CUDA here: {getattr(_absence, 'fact', '')}")]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    yield
    cuda.synchronize()
    gc.collect()
    cuda.empty_cache()
    cuda.set_per_process_memory_fraction(1.0)


def test_the_chain_is_whole():
    links = dict(chain.links())
    assert chain.broken() is None and not any("broken" in text for text in links.values()), links
    assert links["visibility"].startswith(f"{cuda.device_count()} device")
    assert torch.version.cuda.split(".")[0] in ("12", "13")


def test_asking_does_not_start_cuda_so_that_children_may_use_it():
    code = """
import os, flambeau as torch
assert torch.cuda.is_available() and torch.cuda.device_count() >= 1 and not torch.cuda.is_initialized()
child = os.fork()
if not child:
    try:
        assert torch.ones(3, device="cuda").sum().item() == 3
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
torch.ones(1, device="cuda").item()
child = os.fork()
if not child:
    try:
        torch.ones(3, device="cuda")
    except RuntimeError as error:
        os._exit(0 if "Cannot re-initialize CUDA" in str(error) else 2)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("fine")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("visible, words", [("", "CUDA_VISIBLE_DEVICES is ''"), ("99", "CUDA_VISIBLE_DEVICES is '99'")])
def test_hidden_devices(visible, words):
    code = ("import flambeau as torch\nassert not torch.cuda.is_available()\n"
            "try: torch.ones(1).cuda()\nexcept RuntimeError as error: print(error)")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                          timeout=PATIENCE, env=os.environ | {"CUDA_VISIBLE_DEVICES": visible})
    assert words in done.stdout and "the visibility is broken" in done.stdout, done.stderr


def test_properties():
    known = cuda.get_device_properties()
    assert known.total_memory > 1 << 30 and known.multi_processor_count > 1 and known.warp_size == 32
    assert cuda.get_device_capability() == (known.major, known.minor) and cuda.get_device_name() == known.name
    assert f"sm_{known.major}{known.minor}" in cuda.get_arch_list()
    free, total = cuda.mem_get_info()
    assert 0 < free <= total
    if torch.backends.cudnn.is_available():
        assert torch.backends.cudnn.version() >= 90000


def test_memory_is_counted():
    cuda.reset_peak_memory_stats()
    start = cuda.memory_allocated()
    x = torch.ones(4 * MIB, device="cuda")
    cuda.synchronize()
    assert cuda.memory_allocated() - start == 16 * MIB
    y = x + 1
    cuda.synchronize()
    del y
    assert cuda.memory_allocated() - start == 16 * MIB and cuda.max_memory_allocated() - start >= 32 * MIB
    assert cuda.memory_reserved() >= cuda.memory_allocated()
    held = cuda.memory_reserved()
    cuda.empty_cache()
    assert cuda.memory_reserved() < held


def test_out_of_memory_leaves_everything_as_it_was():
    x = torch.arange(1000.0, device="cuda")
    free, total = cuda.mem_get_info()
    with pytest.raises(cuda.OutOfMemoryError, match="CUDA out of memory. Tried to allocate") as got:
        torch.empty(total, dtype=torch.float32, device="cuda").data_ptr()
    assert "would not have sufficed" in str(got.value) and "that tensors hold: parameters" in str(got.value)
    del got
    assert x.sum().item() == 499500
    cuda.set_per_process_memory_fraction(0.05)
    with pytest.raises(cuda.OutOfMemoryError, match="by set_per_process_memory_fraction"):
        torch.empty(int(0.06 * total) // 4, dtype=torch.float32, device="cuda").data_ptr()


def test_what_lies_idle_makes_room():
    free, _ = cuda.mem_get_info()
    part = int(0.3 * free) // 4
    held = [torch.empty(part, device="cuda").fill_(number) for number in range(2)]
    cuda.synchronize()
    del held
    big = torch.empty(int(0.7 * free) // 4, device="cuda").fill_(3)
    assert big[-1].item() == 3


def test_streams_run_beside_each_other_and_events_measure():
    x = torch.randn(2048, 2048, device="cuda")
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    side = cuda.Stream(priority=-1)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        start.record()
        y = x
        for _ in range(20):
            y = (y @ x).tanh()
        end.record()
    cuda.current_stream().wait_stream(side)
    total = y.sum().item()
    want = x
    for _ in range(20):
        want = (want @ x).tanh()
    assert total == want.sum().item() and start.elapsed_time(end) > 0 and end.query() and side.query()
    y.record_stream(side)
    external = cuda.ExternalStream(side.cuda_stream)
    with external:
        assert (x[0, :3] * 2).tolist() == [2 * v for v in x[0, :3].tolist()]


def test_a_graph_is_replayed():
    x, g = torch.randn(64, 64, device="cuda"), cuda.CUDAGraph()
    weight = torch.randn(64, 64, device="cuda")
    with cuda.graph(g):
        y = (x @ weight).relu().sum(1)
        noise = torch.rand(3, device="cuda")
    seen = []
    for _ in range(3):
        x.copy_(torch.randn(64, 64))
        g.replay()
        assert torch.allclose(y, (x @ weight).relu().sum(1))
        seen.append(tuple(noise.tolist()))
    assert len(set(seen)) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision(dtype):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    net.cuda()
    optimizer, scaler = torch.optim.AdamW(net.parameters(), lr=1e-2), torch.amp.GradScaler("cuda")
    data, labels, losses = torch.randn(128, 32, device="cuda"), torch.arange(128, device="cuda") % 8, []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            out = net(data)
            loss = torch.nn.functional.cross_entropy(out, labels)
        assert out.dtype is dtype and loss.dtype is torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_expandable_segments():
    code = ("import flambeau as torch\nx = torch.ones(1 << 20, device='cuda')\nassert (x + 1).sum().item() == 2 << 20\n"
            "assert torch.cuda.get_allocator_backend() == 'cudaMallocAsync'\n"
            "print(torch.cuda.memory_allocated() >= 4 << 20, torch.cuda.memory_reserved() >= 4 << 20)\n"
            "torch.cuda.empty_cache()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE,
                          env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_tf32_is_for_who_asks():
    x = torch.randn(512, 512, device="cuda")
    exact = x.double() @ x.double()
    error = (x @ x - exact).abs().max().item()
    try:
        torch.set_float32_matmul_precision("high")
        rough = (x @ x - exact).abs().max().item()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert error < 1e-3
    if cuda.get_device_capability() >= (8, 0):
        assert rough > 4 * error


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("rows, columns", [(2048, 4096), (16384, 1024), (4099, 3000)])
def test_the_gradients_of_a_layer_norm_are_those_of_numpy_and_repeat_their_bits(rows, columns, dtype, tolerance):
    """Large enough that sums of columns ride along with the rows, where the GPU takes that."""
    draw = np.random.default_rng(0)
    given = [torch.from_numpy(draw.normal(size=shape).astype(np.float32)).to(dtype)
             for shape in ((rows, columns), (rows, columns), (columns,), (columns,))]

    def gradients():
        x, g, w, b = (one.to("cuda") for one in given)
        x, w, b = (one.requires_grad_() for one in (x, w, b))
        made = torch.autograd.grad(torch.nn.functional.layer_norm(x, (columns,), w, b), [x, w, b], g)
        return [one.float().cpu().numpy() for one in made]

    x, g, w, _ = (one.double().numpy() for one in given)
    off = x - x.mean(1, keepdims=True)
    scale = 1 / np.sqrt((off * off).mean(1, keepdims=True) + 1e-5)
    hat, h = off * scale, g * w
    meant = scale * (h - h.mean(1, keepdims=True) - hat * (h * hat).mean(1, keepdims=True)), (g * hat).sum(0), g.sum(0)
    for mine, again, right in zip(gradients(), gradients(), meant, strict=True):
        np.testing.assert_array_equal(mine, again)
        np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance * np.abs(right).max())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sizes", [(20, 30, 40), (300, 700, 900), (301, 777, 129), (256, 1024, 2048)])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_bias_is_added_by_the_library_wherever_matrices_begin(dtype, sizes, start):
    (m, k, n), dtype = sizes, getattr(torch, dtype)
    rng = np.random.default_rng(0)

    def drawn(*shape):
        whole = torch.from_numpy(rng.integers(-2, 3, start + int(np.prod(shape))).astype(np.float32)).to(dtype).cuda()
        return whole[start:].view(shape)

    x, weight, bias = drawn(m, k), drawn(n, k), drawn(n)
    wide = [t.cpu().double() for t in (x, weight, bias)]
    want = (wide[0] @ wide[1].t() + wide[2]).to(dtype)                   # of whole numbers: the same in every order

    def check(made, want):               # but that parts of a sum may be rounded to 16 bits, which PyTorch allows too
        near = {"rtol": 2**-7, "atol": 1.0} if dtype is torch.bfloat16 else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(made.cpu(), want, **near)

    made = torch.nn.functional.linear(x, weight, bias)
    check(made, want)
    check(made.relu(), want.relu())
    check(torch.nn.functional.linear(x, weight, bias).relu(), want.relu())
    x[1, 2] = torch.nan
    lost = torch.nn.functional.linear(x, weight, bias).relu().cpu()
    assert lost[1].isnan().all() and not lost[0].isnan().any()
