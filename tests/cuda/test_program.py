"""Programs of a GPU, a simulated one and where there is one a real one: what they compute, as launches and as graphs,
and how they fail."""
import ctypes
import gc
import threading
from array import array
from struct import pack
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from flambeau.backends.backend import DeviceFailed, Task
from flambeau.backends.cuda import chain as links, driver as drivers, graphs
from flambeau.backends.cuda.calls import HostCall, LaunchCall
from flambeau.backends.cuda.program import GPUProgram

from .simulated import SimulatedDriver, compiler

pytestmark = pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")

# y = x * number + int, of doubles
AXPY = """
struct Params { unsigned long long x, y; long long n, shift; double factor; };
extern "C" __global__ void axpy(const Params p) {
    for (long long i = threadIdx.x; i < p.n; i += blockDim.x)
        ((double *)p.y)[i] = ((const double *)p.x)[i] * p.factor + (double)p.shift;
}"""
N = 8
NBYTES = 8 * N


class Counting:
    """A driver that counts how often it captures, and which nodes are changed."""

    captures = 0

    def begin_capture(self, stream, mode="relaxed"):
        self.captures += 1
        self.updates = []
        super().begin_capture(stream, mode)

    def graph_updater(self):
        form = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
        plain = form(super().graph_updater())
        self.counted = form(lambda graph, node, given: (self.updates.append(node), plain(graph, node, given))[1])
        return ctypes.cast(self.counted, ctypes.c_void_p).value


class CountingDriver(Counting, SimulatedDriver):
    pass


class CountingGPU(Counting, drivers.CuPyDriver):
    def close(self):
        self.synchronize(0)


@pytest.fixture(params=["simulated", "gpu"])
def make(request):
    """Gives backends with the options of a driver that it is called with."""
    made, is_gpu = [], request.param == "gpu"
    if is_gpu and links.broken() is not None:
        pytest.skip(f"there is no GPU: {links.broken()}")

    def backend(index=0, **options):
        if is_gpu and options:
            pytest.skip("what only simulated devices have")
        made.append(CountingGPU() if is_gpu else CountingDriver(**options))
        return SimpleNamespace(driver=made[-1], index=index)
    yield backend
    gc.collect()
    for one in made:
        one.close()


def step(source, target, shift, number):
    """A task: the memory `target` becomes that of `source` times a number, plus `shift`."""
    return Task(LaunchCall(AXPY, "axpy", (1, 1, 1), (32, 1, 1), 0, (N, shift)), [(source, 0), (target, 0)], [number])


def double_on_host(driver):
    """A call from Python: the second memory becomes twice the first, on the stream that it is given."""
    calls = []

    def fn(addresses, stream):
        calls.append(addresses)
        for address in addresses[1:]:
            driver.copy(0, address, 0, addresses[0], NBYTES, driver.external_stream(0, stream))
    return HostCall(fn, "copies"), calls


def memory(backend, contents=None):
    made = backend.driver.allocate(backend.index, NBYTES)
    held = np.asarray(contents if contents is not None else np.full(N, np.nan), np.float64)
    backend.driver.upload(backend.index, made.address, held.ctypes.data, NBYTES)
    return made


def contents(backend, there):
    made = np.empty(N)
    backend.driver.download(backend.index, there.address, made.ctypes.data, NBYTES)
    return made


def cells(*numbers):
    return array("q", pack(f"{len(numbers)}d", *numbers))


X = np.arange(N, dtype=np.float64)


def test_launches_and_calls_run_in_order(make):
    backend = make()
    copy, calls = double_on_host(backend.driver)
    program = GPUProgram(backend, [step(0, 1, 1, 0), Task(copy, [(1, 0), (2, 0)]), step(2, 3, 5, 1)])
    held = [memory(backend, X), *(memory(backend) for _ in range(3))]
    program.run([one.address for one in held], cells(2.0, 10.0))
    assert (contents(backend, held[3]) == (X * 2 + 1) * 10 + 5).all()
    assert calls == [[held[1].address, held[2].address]]


def test_places_are_behind_addresses(make):
    backend = make()
    program = GPUProgram(backend, [Task(LaunchCall(AXPY, "axpy", (1, 1, 1), (32, 1, 1), 0, (2, 0)),
                                        [(0, 16), (1, 8)], [0])])
    x, y = memory(backend, X), memory(backend, X * 0)
    program.run([x.address, y.address], cells(1.0))
    assert contents(backend, y).tolist() == [0, 2, 3, 0, 0, 0, 0, 0]


def chain(length):
    """Tasks that go from memory 0 to memory `length`, each with a number of its own."""
    return [step(number, number + 1, number, number) for number in range(length)]


def expected(numbers, found=X):
    for shift, number in enumerate(numbers):
        found = found * number + shift
    return found


def test_a_table_that_comes_back_is_captured_once(make):
    backend = make()
    program = GPUProgram(backend, chain(4))
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    table = [one.address for one in held]
    for run in range(10):
        program.run(table, cells(1.0, 2.0, 3.0, 4.0))
        assert (contents(backend, held[4]) == expected((1, 2, 3, 4))).all(), run
        assert backend.driver.captures == (run >= graphs.SIGHTINGS_BEFORE_CAPTURE)
    assert not backend.driver.updates


def test_numbers_that_change_are_put_into_the_graph(make):
    backend = make()
    program = GPUProgram(backend, chain(6))
    held = [memory(backend, X), *(memory(backend) for _ in range(6))]
    for run in range(12):
        numbers = (1.0, 2.0, 0.5 + run, 4.0, 5.0, 1.0 + run // 6)
        program.run([one.address for one in held], cells(*numbers))
        assert (contents(backend, held[6]) == expected(numbers)).all(), run
    assert backend.driver.captures == 1
    third, last = dict.fromkeys(backend.driver.updates)
    assert backend.driver.updates == [third, third, third, third, last, *[third] * 5]     # the other one once


def test_no_graph_of_few_tasks(make):
    backend = make()
    program = GPUProgram(backend, chain(graphs.MIN_TASKS - 1))
    held = [memory(backend, X), *(memory(backend) for _ in range(graphs.MIN_TASKS - 1))]
    for _ in range(8):
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0))
    assert not backend.driver.captures


def test_a_graph_has_calls_from_python_in_it(make):
    backend = make()
    copy, calls = double_on_host(backend.driver)
    program = GPUProgram(backend, [*chain(3), Task(copy, [(3, 0), (4, 0)])])
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    for run in range(8):
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0 + run))
        assert (contents(backend, held[4]) == expected((1, 2, 3 + run))).all()
    assert backend.driver.captures == 1 and len(calls) == graphs.SIGHTINGS_BEFORE_CAPTURE + 1


def test_libraries_are_prepared_for_the_stream_before_it_is_captured(make):
    backend, prepared = make(), []
    copy, calls = double_on_host(backend.driver)

    def prepare(stream):
        prepared.append((stream, backend.driver.external_stream(0, stream).is_capturing()))

    streams = []
    call = HostCall(lambda addresses, stream: (streams.append(stream), copy.fn(addresses, stream)), prepare=prepare)
    program = GPUProgram(backend, [*chain(3), Task(call, [(3, 0), (4, 0)])])
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    for current in (backend.driver.default_stream(0), backend.driver.stream(0)):
        backend.driver.use_stream(0, current)
        for _ in range(graphs.SIGHTINGS_BEFORE_CAPTURE + 2):
            program.run([one.address for one in held], cells(1.0, 2.0, 3.0))
        assert (contents(backend, held[4]) == expected((1, 2, 3))).all()
    backend.driver.use_stream(0, backend.driver.default_stream(0))
    assert [is_capturing for _, is_capturing in prepared] == [False, False]
    captured = [stream for stream, _ in prepared]
    assert len(set(captured)) == 2 and [streams[2], streams[5]] == captured       # of each current stream one


def test_what_cannot_be_captured_is_tried_once(make):
    backend = make()

    def waits(addresses, stream):                    # as a library that allocates, or waits, would
        backend.driver.check(900 if backend.driver.external_stream(0, stream).is_capturing() else 0, "waiting")

    program = GPUProgram(backend, [*chain(4), Task(HostCall(waits), [])])
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    for run in range(8):
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 1.0 + run))
        assert (contents(backend, held[4]) == expected((1, 2, 3, 1 + run))).all()
    assert backend.driver.captures == 1 and "waiting" in graphs.refusals[-1]


def test_a_library_that_copies_from_the_cpu_is_not_captured(make):
    """What it copies from is its own, and another one when a graph would be launched."""
    backend = make()
    driver = backend.driver

    def copies(addresses, stream):
        given = np.full(X.shape, copies.number, X.dtype)
        driver.upload(0, addresses[0], given.ctypes.data, given.nbytes, driver.external_stream(0, stream), False)
        copies.kept = given if not driver.external_stream(0, stream).is_capturing() else None
        if copies.kept is None:
            given[...] = -1                          # as when somebody else uses the memory

    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    program = GPUProgram(backend, [Task(HostCall(copies), [(0, 0)]), *chain(4)])
    for run in range(8):
        copies.number = 1.0 + run
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 4.0))
        made, given = contents(backend, held[4]), np.full_like(X, 1.0 + run)
        assert (made == expected((1, 2, 3, 4), given)).all()
    assert driver.captures == 1 and "memory of the CPU" in graphs.refusals[-1] and program.graphs is None


def test_graphs_that_are_not_used_are_captured_later(make):
    backend = make()
    program = GPUProgram(backend, chain(4))
    source = memory(backend, X)
    rest = [[memory(backend) for _ in range(4)] for _ in range(3 * graphs.TABLES_REMEMBERED)]
    for some in rest:                                # each table a few times, never again
        for _ in range(graphs.SIGHTINGS_BEFORE_CAPTURE + 1):
            program.run([one.address for one in (source, *some)], cells(1.0, 2.0, 3.0, 4.0))
    assert backend.driver.captures == graphs.TABLES_REMEMBERED
    for _ in range(graphs.MOST_SIGHTINGS + 1):
        program.run([one.address for one in (source, *some)], cells(1.0, 2.0, 3.0, 4.0))
    assert backend.driver.captures == graphs.TABLES_REMEMBERED + 1


def test_a_graph_belongs_to_its_thread(make):
    backend = make()
    program = GPUProgram(backend, chain(4))
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]

    def runs():
        for _ in range(graphs.SIGHTINGS_BEFORE_CAPTURE + 2):
            program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 4.0))

    runs()
    other = threading.Thread(target=runs)
    other.start()
    other.join()
    assert backend.driver.captures == 2


def test_into_a_stream_that_somebody_captures(make):
    backend = make()
    driver = backend.driver
    program = GPUProgram(backend, chain(4))
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    stream = driver.stream(0)
    driver.use_stream(0, stream)
    driver.begin_capture(stream)
    for _ in range(5):
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 4.0))
    graph = driver.end_capture(stream)
    assert driver.captures == 1 and len(graph.nodes()) == 20
    assert np.isnan(contents(backend, held[4])).all()
    graph.launch(stream)
    assert (contents(backend, held[4]) == expected((1, 2, 3, 4))).all()


def test_on_another_device_than_the_current(make):
    backend = make(1, devices=2)
    program = GPUProgram(backend, chain(4))
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    for _ in range(5):
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 4.0))
        assert (contents(backend, held[4]) == expected((1, 2, 3, 4))).all()
    assert backend.driver.current_device() == 0 and not backend.driver.captures       # its stream is not at hand
    backend.driver.set_device(1)
    for _ in range(5):
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 4.0))
    assert backend.driver.captures == 1
    backend.driver.set_device(0)


def test_the_current_stream_is_that_of_the_run(make):
    backend = make(delayed=True)
    driver = backend.driver
    program = GPUProgram(backend, chain(1))
    x, y = memory(backend, X), memory(backend)
    stream = driver.stream(0)
    driver.use_stream(0, stream)
    program.run([x.address, y.address], cells(2.0))
    driver.use_stream(0, driver.default_stream(0))
    assert not stream.query()
    stream.synchronize()
    assert (contents(backend, y) == X * 2).all()


# --- failures --------------------------------------------------------------------------------------------------------


def refused(source, target):
    """A task that no device takes: a block of too many threads."""
    return Task(LaunchCall(AXPY, "axpy", (1, 1, 1), (4096, 1, 1), 0, (N, 0)), [(source, 0), (target, 0)], [0])


@pytest.mark.parametrize("call_between", [False, True])
def test_the_task_that_was_refused_is_told(make, call_between):
    backend = make()
    copy, calls = double_on_host(backend.driver)
    between = [Task(copy, [(0, 0), (0, 0)])] if call_between else []
    program = GPUProgram(backend, [step(0, 1, 0, 0), *between, step(1, 2, 0, 0), refused(2, 3), step(3, 4, 0, 0)])
    held = [memory(backend, X), *(memory(backend) for _ in range(4))]
    with pytest.raises(DeviceFailed, match="launching a kernel") as caught:
        program.run([one.address for one in held], cells(2.0))
    assert caught.value.task == 2 + call_between
    assert (contents(backend, held[2]) == X * 4).all()          # what came before was launched,
    assert np.isnan(contents(backend, held[4])).all()           # and nothing after it


def test_an_error_of_a_call_is_the_tasks(make):
    backend = make()

    def fails(addresses, stream):
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")

    program = GPUProgram(backend, [step(0, 1, 0, 0), Task(HostCall(fails), [])])
    held = [memory(backend, X), memory(backend)]
    with pytest.raises(DeviceFailed, match="CUBLAS_STATUS_NOT_SUPPORTED") as caught:
        program.run([one.address for one in held], cells(2.0))
    assert caught.value.task == 1


def test_after_an_interrupt_the_rest_is_done(make):
    backend = make()
    copy, calls = double_on_host(backend.driver)
    interrupts = [KeyboardInterrupt, None, KeyboardInterrupt, None]

    def interrupted(addresses, stream):
        copy.fn(addresses, stream)
        if (error := interrupts.pop(0)) is not None:
            raise error

    call = HostCall(interrupted)
    program = GPUProgram(backend, [step(0, 1, 1, 0), Task(call, [(1, 0), (2, 0)]), step(2, 2, 3, 0),
                                   Task(call, [(2, 0), (3, 0)])])
    held = [memory(backend, X), *(memory(backend) for _ in range(3))]
    table = array("q", [one.address for one in held])
    numbers = cells(2.0)
    run = program.bound(table, numbers)
    with pytest.raises(KeyboardInterrupt):
        run()
    with pytest.raises(KeyboardInterrupt):
        run.resume()
    run.resume()
    assert (contents(backend, held[3]) == (X * 2 + 1) * 2 + 3).all()        # the launch in place ran once
    run.resume()                                                            # there is no more
    assert not interrupts


def test_times(make):
    backend = make(delayed=True)
    copy, calls = double_on_host(backend.driver)
    program = GPUProgram(backend, [*chain(4), Task(copy, [(4, 0), (5, 0)])])
    held = [memory(backend, X), *(memory(backend) for _ in range(5))]
    for _ in range(5):
        times = array("q", bytes(8 * 6))
        program.run([one.address for one in held], cells(1.0, 2.0, 3.0, 4.0), times)
        assert all(times) and list(times) == sorted(times)
    assert not backend.driver.captures
    assert (contents(backend, held[5]) == expected((1, 2, 3, 4))).all()


# --- as a model says -------------------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=25)
@given(st.data())
def test_any_runs(data):
    """Programs over tables and numbers that come and go compute what their tasks say, as launches or as graphs."""
    driver = CountingDriver(devices=1)
    backend = SimpleNamespace(driver=driver, index=0)
    copy, _ = double_on_host(driver)
    places = st.integers(0, 3)
    tasks, meant = [], []
    for _ in range(data.draw(st.integers(1, 7), label="tasks")):
        source, target, shift, number = data.draw(st.tuples(places, places, st.integers(-3, 3), st.integers(0, 2)))
        if data.draw(st.booleans()):
            tasks.append(step(source, target, shift, number))
            meant.append((source, target, shift, number))
        elif source != target:
            tasks.append(Task(copy, [(source, 0), (target, 0)]))
            meant.append((source, target, 0, None))
    if not tasks:
        return
    program = GPUProgram(backend, tasks)
    held = [memory(backend, X + k) for k in range(5)]
    model = [X + k for k in range(5)]
    for _ in range(data.draw(st.integers(1, 12), label="runs")):
        which = data.draw(st.sampled_from(([0, 1, 2, 3], [4, 1, 2, 3], [3, 2, 1, 0])), label="table")
        numbers = data.draw(st.sampled_from(((1.0, 0.5, -1.0), (1.0, 0.5, 0.25), (2.0, -2.0, 1.0))), label="numbers")
        program.run([held[k].address for k in which], cells(*numbers))
        for source, target, shift, number in meant:
            model[which[target]] = model[which[source]] * (1 if number is None else numbers[number]) + shift
    for there, value in zip(held, model, strict=True):
        assert (contents(backend, there) == value).all()
    driver.close()
