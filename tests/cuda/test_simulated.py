"""The simulated devices themselves: what they compute, and what they find wrong with a kernel or a program."""
import ctypes
import gc

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.backend import NotCompiled
from flambeau.backends.cuda.driver_interface import DeviceError

from .simulated import SimulatedDriver, compiler, simulating

pytestmark = pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")

PARAMS = "struct Params { unsigned long long x, y; long long n; };\n"
SCALE = PARAMS + """
extern "C" __global__ void scale(const Params p) {
    const float *x = (const float *)p.x;
    float *y = (float *)p.y;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < p.n; i += gridDim.x * blockDim.x)
        y[i] = x[i] * 2.0f + 1.0f;
}"""


@pytest.fixture
def device():
    """Gives drivers with the options that it is called with."""
    made = []

    def make(**options):
        made.append(SimulatedDriver(**options))
        return made[-1]
    yield make
    gc.collect()
    for one in made:
        one.close()


def upload(driver, array, index=0):
    array = np.ascontiguousarray(array)
    memory = driver.allocate(index, array.nbytes)
    driver.upload(index, memory.address, array.ctypes.data, array.nbytes)
    return memory


def download(driver, memory, dtype, **how):
    made = np.empty(memory.nbytes // np.dtype(dtype).itemsize, dtype)
    driver.download(memory.index, memory.address, made.ctypes.data, made.nbytes, **how)
    return made


def launch(driver, source, words, grid=1, block=32, shared=0, stream=None, index=0, name=None, size=None):
    """Compile a kernel, and launch it with words of eight bytes."""
    name = name or compiler.KERNEL.search(source).group(2)
    function = driver.function(driver.load(index, driver.compile(source, "sm_90")), name, shared)
    buffer = (ctypes.c_int64 * len(words))(*words)
    nbytes = ctypes.c_size_t(8 * len(words) if size is None else size)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(nbytes), 0)
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
    call = call(driver.launcher())
    grid, block = ((*of, 1, 1)[:3] if isinstance(of, tuple) else (of, 1, 1) for of in (grid, block))
    stream = stream or driver.current_stream(index)
    driver.check(call(function, *grid, *block, shared, stream.handle, None, extra), name)


def test_a_kernel(device):
    driver = device()
    x = np.arange(1000, dtype=np.float32)
    there, y = upload(driver, x), driver.allocate(0, 4000)
    launch(driver, SCALE, (there.address, y.address, 1000), grid=3, block=64)
    assert (download(driver, y, np.float32) == x * 2 + 1).all()


REVERSE = PARAMS + """
extern "C" __global__ void reverse(const Params p) {
    __shared__ float part[1024];
    part[threadIdx.x] = ((const float *)p.x)[threadIdx.x];
    BARRIER
    ((float *)p.y)[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}"""


@pytest.mark.parametrize("order", (0, 1, 2, 3))
def test_barriers(device, order):
    driver = device(order=order)
    x = np.arange(1024, dtype=np.float32)
    there, y = upload(driver, x), driver.allocate(0, x.nbytes)
    launch(driver, REVERSE.replace("BARRIER", "__syncthreads();"), (there.address, y.address, 0), block=1024)
    assert (download(driver, y, np.float32) == x[::-1]).all()


def test_a_missing_barrier_is_a_race(device):
    driver = device(races=True)
    there, y = upload(driver, np.arange(64, dtype=np.float32)), driver.allocate(0, 256)
    launch(driver, REVERSE.replace("BARRIER", "__syncthreads();"), (there.address, y.address, 0), block=64)
    driver.synchronize(0)
    launch(driver, REVERSE.replace("BARRIER", ""), (there.address, y.address, 0), block=64)
    with pytest.raises(DeviceError, match="reverse gives another result where its threads run in another order"):
        driver.synchronize(0)
    driver.synchronize(0)                                    # told once


@pytest.mark.parametrize("order", (0, 1, 7))
def test_dynamic_shared_memory_and_blocks_of_three_dimensions(device, order):
    driver = device(order=order)
    source = PARAMS + """
extern "C" __global__ void turn(const Params p) {
    extern __shared__ __align__(16) int part[];
    int w = blockDim.x, h = blockDim.y;
    int at = (threadIdx.z * h + threadIdx.y) * w + threadIdx.x;
    part[at] = ((const int *)p.x)[at];
    __syncthreads();
    ((int *)p.y)[(threadIdx.z * w + threadIdx.x) * h + threadIdx.y] = part[at];
}"""
    x = np.arange(2 * 5 * 7, dtype=np.int32).reshape(2, 5, 7)
    there, y = upload(driver, x), driver.allocate(0, x.nbytes)
    launch(driver, source, (there.address, y.address, 0), block=(7, 5, 2), shared=280)
    assert (download(driver, y, np.int32).reshape(2, 7, 5) == x.transpose(0, 2, 1)).all()


WARP = PARAMS + """
extern "C" __global__ void warp(const Params p) {
    int i = threadIdx.x;
    double v = ((const double *)p.x)[i];
    for (int by = 16; by; by >>= 1) v += __shfl_down_sync(0xffffffffu, v, by);
    v = __shfl_sync(0xffffffffu, v, 0);
    unsigned odd = __ballot_sync(0xffffffffu, ((const double *)p.x)[i] < 3);
    double up = __shfl_up_sync(0xffffffffu, (float)i, 1, 8), across = __shfl_xor_sync(0xffffffffu, i, 5);
    double *y = (double *)p.y + 4 * i;
    y[0] = v; y[1] = odd; y[2] = up; y[3] = across;
}"""


@pytest.mark.parametrize("order", (0, 1, 5))
def test_warps(device, order):
    driver = device(order=order)
    x = np.arange(96.0)
    there, y = upload(driver, x), driver.allocate(0, 96 * 32)
    launch(driver, WARP, (there.address, y.address, 0), block=96)
    total, votes, up, across = download(driver, y, np.float64).reshape(96, 4).T
    i = np.arange(96)
    assert (total == np.repeat(x.reshape(3, 32).sum(1), 32)).all()
    assert (votes == np.repeat([7, 0, 0], 32)).all()
    assert (up == np.where(i % 8, i - 1, i)).all() and (across == i ^ 5).all()


def test_atomics_and_vectors(device):
    driver = device()
    source = PARAMS + """
extern "C" __global__ void __launch_bounds__(128) add(const Params p) {
    float4 v = ((const float4 *)p.x)[threadIdx.x];
    atomicAdd((float *)p.y, v.x + v.y + v.z + v.w);
    atomicMax((int *)p.y + 1, (int)v.w);
    if (atomicCAS((unsigned *)p.y + 2, 0u, 5u) == 0u) atomicAdd((unsigned *)p.y + 3, 1u);
}"""
    x = np.arange(64, dtype=np.float32)
    there, y = upload(driver, x), upload(driver, np.zeros(4, np.int32))
    launch(driver, source, (there.address, y.address, 0), block=16)
    made = download(driver, y, np.int32)
    assert made[:1].view(np.float32)[0] == x.sum() and made[1:].tolist() == [63, 5, 1]
    launch(driver, source, (there.address + 4, y.address, 0), block=1)
    with pytest.raises(DeviceError, match="misaligned address.*line 4.*no multiple of 16"):
        driver.synchronize(0)
    with pytest.raises(DeviceError, match="blocks of 256 threads, and __launch_bounds__ of 128"):
        launch(driver, source, (there.address, y.address, 0), block=256)


@pytest.mark.parametrize("body, said", [
    ("if (threadIdx.x < 16) __syncthreads();", "__syncthreads"),
    ("if (threadIdx.x < 16) { __syncthreads(); }\nelse {\n__syncthreads(); }", r"line \d+.* line \d+"),
    ("if (threadIdx.x == 3) return; __syncthreads();", "returned|returns"),
    ("if (threadIdx.x < 8) __shfl_sync(0xffffffffu, 1, 0);", "lane .* has returned|wait for each other"),
    ("if (threadIdx.x < 8) __syncwarp(0xff00u);", "not in its own mask"),
    ("while (((volatile int *)p.x)[0] != 77) {}", "runs for ever"),
    ("__trap();", "__trap"),
    ("assert(threadIdx.x < 5);", "assertion threadIdx.x < 5|assertion .* < 5"),
])
def test_threads_that_do_not_meet(device, body, said, monkeypatch):
    driver = device()
    x = upload(driver, np.zeros(32, np.float32))
    source = PARAMS + 'extern "C" __global__ void wrong(const Params p) {\n' + body + "\n}"
    launch(driver, source, (x.address, 0, 0))
    with pytest.raises(DeviceError, match=said):
        driver.synchronize(0)
    launch(driver, SCALE, (x.address, x.address, 32))        # and the device goes on
    assert (download(driver, x, np.float32) == 1).all()


def test_memory_out_of_bounds(device):
    driver = device()
    x, y = upload(driver, np.zeros(10, np.float32)), driver.allocate(0, 40)
    launch(driver, SCALE, (x.address, y.address, 11))
    with pytest.raises(DeviceError, match=r"thread \(10, 0, 0\) of block \(0, 0, 0\) of scale reads 4 bytes at .*, "
                                          "0 bytes past the end of an allocation of 40 bytes"):
        driver.synchronize(0)
    host = np.zeros(10, np.float32)
    launch(driver, SCALE, (host.ctypes.data, y.address, 10))
    with pytest.raises(DeviceError, match="no memory of a device: the CPU's, or freed"):
        driver.synchronize(0)
    other = upload(driver, host, 1)
    launch(driver, SCALE, (other.address, y.address, 10))
    with pytest.raises(DeviceError, match="memory of device 1, not 0"):
        driver.synchronize(0)
    blocks = [driver.allocate(0, 40) for _ in range(20)]
    kept = blocks[::2]                               # some of which lie right before what is freed
    freed = [block.address for block in blocks[1::2]]
    del blocks
    for address in freed:
        launch(driver, SCALE, (address, y.address, 10))
        with pytest.raises(DeviceError, match="no memory of a device: the CPU's, or freed"):
            driver.synchronize(0)
    del kept
    driver.copy(0, y.address, 1, other.address, 44)
    with pytest.raises(DeviceError, match="copy of 44 bytes to .*, of which 4 bytes are past the end"):
        driver.synchronize(0)


def test_memory_is_poisoned_and_guarded(device):
    driver = device()
    x = driver.allocate(0, 16)
    assert (download(driver, x, np.uint8) == 0xA5).all()
    ctypes.memset(x.address + 16, 0, 1)
    del x
    with pytest.raises(DeviceError, match="something wrote 0 bytes past the end of an allocation of 16 bytes"):
        driver.synchronize(0)


def test_launches_that_are_refused(device):
    driver = device()
    x = driver.allocate(0, 40)
    for options, said in (({"grid": 0}, "grid of"), ({"block": 1025}, "blocks of"), ({"grid": (1, 65536)}, "grid of"),
                          ({"size": 16}, "16 bytes of parameters")):
        with pytest.raises(DeviceError, match=said):
            launch(driver, SCALE, (x.address, x.address, 10), **options)
    with pytest.raises(DeviceError, match="named symbol not found: other"):
        launch(driver, SCALE, (x.address, x.address, 10), name="other")


def test_what_does_not_compile(device):
    with pytest.raises(NotCompiled, match="kernel.cu:2.*'nowhere'|kernel.cu:2.*‘nowhere’"):
        device().compile('extern "C" __global__ void wrong(const long long n) {\n nowhere = n;\n}', "sm_90")


def test_conversions(device):
    driver = device()
    source = PARAMS + """
extern "C" __global__ void narrow(const Params p) {
    float x = ((const float *)p.x)[threadIdx.x];
    unsigned short half, brain;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain) : "f"(x));
    ((unsigned short *)p.y)[2 * threadIdx.x] = half;
    ((unsigned short *)p.y)[2 * threadIdx.x + 1] = brain;
}"""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, 1000, np.uint32).view(np.float32)
    x = np.concatenate([np.nan_to_num(x), rng.normal(size=24).astype(np.float32) * np.float32(2e-7), x[:0]])
    x[:5] = 65519, 65520, -np.inf, 2.98e-8, -0.0
    there, y = upload(driver, x), driver.allocate(0, 4 * x.size)
    launch(driver, source, (there.address, y.address, 0), block=x.size)
    import ml_dtypes
    with np.errstate(over="ignore"):
        assert (download(driver, y, np.float16)[::2] == x.astype(np.float16)).all()
        assert (download(driver, y, np.uint16)[1::2] == x.astype(ml_dtypes.bfloat16).view(np.uint16)).all()


def test_out_of_memory(device):
    driver = device(limit=4096)
    first = driver.allocate(0, 3000)
    assert driver.memory_info(0) == (4096 - 3072, 4096) and driver.memory_info(1) == (4096, 4096)
    with pytest.raises(MemoryError, match="1,536 bytes"):
        driver.allocate(0, 1025)
    other = driver.allocate(1, 4000)
    del first
    assert driver.pool(0) == (0, 3072)                       # it lies idle in the pool
    driver.trim(0)
    assert driver.pool(0) == (0, 0) and driver.pool(1) == (4096, 4096)
    assert driver.allocate(0, 4096).nbytes == 4096 and other.nbytes == 4000


def test_streams_that_wait_until_somebody_does(device):
    driver = device(delayed=True)
    x = np.arange(8, dtype=np.float32)
    there, y = upload(driver, x), upload(driver, np.zeros(8, np.float32))
    one, other = driver.stream(0), driver.stream(0)
    launch(driver, SCALE, (there.address, y.address, 8), stream=one)
    assert not one.query() and other.query()
    assert (download(driver, y, np.float32, stream=other) == 0).all()          # nobody made it wait
    event = driver.event()
    event.record(one)
    other.wait(event)
    assert not event.query()
    assert (download(driver, y, np.float32, stream=other) == x * 2 + 1).all()
    assert event.query() and one.query()
    launch(driver, SCALE, (there.address, y.address, 8), stream=one)
    del there                                                # which the other stream still needs
    with pytest.raises(DeviceError, match="freed"):
        one.synchronize()
    legacy, blocking = driver.default_stream(0), driver.stream(0, non_blocking=False)
    z = upload(driver, x)
    launch(driver, SCALE, (z.address, z.address, 8), stream=blocking)
    assert (download(driver, z, np.float32, stream=legacy) == x * 2 + 1).all()


def test_copies_that_do_not_wait(device):
    driver = device(delayed=True)
    page_locked, plain = driver.pinned(8), np.zeros(8, np.uint8)
    page_locked[:] = 1
    x, y = driver.allocate(0, 8), driver.allocate(0, 8)
    driver.upload(0, x.address, page_locked.ctypes.data, 8, blocking=False)
    driver.upload(0, y.address, plain.ctypes.data, 8, blocking=False)
    page_locked[:], plain[:] = 2, 2
    assert (download(driver, x, np.uint8) == 2).all() and (download(driver, y, np.uint8) == 0).all()
    driver.download(0, y.address, page_locked.ctypes.data, 8, blocking=False)
    assert (page_locked == 2).all()
    driver.synchronize(0)
    assert (page_locked == 0).all()


def test_graphs(device):
    driver = device()
    stream, beside = driver.stream(0), driver.stream(0)
    x, y = upload(driver, np.ones(4, np.float32)), upload(driver, np.zeros(4, np.float32))
    driver.begin_capture(stream)
    launch(driver, SCALE, (x.address, x.address, 4), stream=stream)
    forked, joined = driver.event(), driver.event()
    forked.record(stream)
    beside.wait(forked)
    assert beside.is_capturing() and stream.is_capturing()
    driver.copy(0, y.address, 0, x.address, 16, beside)
    joined.record(beside)
    stream.wait(joined)
    with pytest.raises(DeviceError, match="not permitted when stream is capturing"):
        stream.synchronize()
    graph = driver.end_capture(stream)
    assert not beside.is_capturing() and (download(driver, x, np.float32) == 1).all()
    graph.launch(stream)
    graph.launch(stream)
    assert (download(driver, y, np.float32, stream=stream) == 7).all()
    node, = graph.nodes()
    graph.update_parameters(node, np.array([y.address, x.address, 4]).tobytes())
    graph.launch(stream)
    assert (download(driver, x, np.float32, stream=stream) == 15).all()
    with pytest.raises(DeviceError, match="takes 24 bytes"):
        graph.update_parameters(node, b"12345678")
    with pytest.raises(DeviceError, match="default stream cannot be captured"):
        driver.begin_capture(driver.default_stream(0))


def test_arrays_are_not_numpys(device):
    driver = device()
    xp = driver.cupy
    x = xp.arange(6.0).reshape(2, 3)
    assert not isinstance(x, np.ndarray) and x.shape == (2, 3) and (x + 1).sum().shape == ()
    assert float((x * x).sum()) == 55 and xp.concatenate([x, x]).get().tolist() == [[0, 1, 2], [3, 4, 5]] * 2
    view = x.T[1]
    view[...] = 9
    assert x.get().tolist() == [[0, 9, 2], [3, 9, 5]] and driver.address(view) == driver.address(x) + 8
    for wrong in (lambda: np.asarray(x), lambda: x + np.ones(3), lambda: xp.add(x, np.ones(3)),
                  lambda: xp.sum(np.ones(3))):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(AttributeError, match="'cupy' has no attribute 'nditer'"):
        getattr(xp, "nditer")  # noqa: B009
    with driver.on(1), pytest.raises(ValueError, match="array device = 0 while current = 1"):
        x + 1
    memory = driver.allocate(0, 24)
    assert driver.array(memory, (3,), np.int64, (-8,), 16).strides == (-8,)
    with pytest.raises(ValueError, match="bytes 8 to 32 of 24"):
        driver.array(memory, (3,), np.int64, None, 8)


def test_arrays_wait_for_their_stream(device):
    driver = device(delayed=True)
    x = driver.cupy.arange(4, dtype=np.float32)
    launch(driver, SCALE, (driver.address(x), driver.address(x), 4))
    assert (x + 1).get().tolist() == [2, 4, 6, 8]


def test_other_devices_take_the_place_of_some_that_are_in_use():
    """As they do on a machine that has a GPU, wherever a test before has recorded something there and not looked."""
    with simulating(devices=1):
        x = torch.arange(3.0, device="cuda")
        y = x * 2 + 1                                        # has not run
        with simulating(devices=1), torch.config.using(executor="native"):
            assert torch.ones(2, device="cuda").add(1).tolist() == [2, 2]
        assert y.tolist() == [1, 3, 5] and (x + 1).tolist() == [1, 2, 3]
