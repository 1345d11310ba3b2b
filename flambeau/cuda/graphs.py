"""`torch.cuda.CUDAGraph`: a stretch of a program, recorded once and run again without Python.

    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        static_y = net(static_x)
    static_x.copy_(batch)
    g.replay()                      # static_y is what the net makes of the batch

What PyTorch has CUDA capture, kernels over fixed addresses, is here what is recorded anyway: the instructions of the
stretch, which are not run. A replay reads the contents that the tensors from before have now, runs the instructions as
one plan (compiler/replay.py), draws random numbers anew, and puts the results into the tensors that the stretch made or
wrote to. So the rules of PyTorch's hold: nothing inside may look at contents, a tensor keeps its shape, and Python that
is not a tensor's (numbers, branches) is as it was. Addresses may change, and tensors of the CPU may take part.
"""
import gc

from ..autograd.node import checksum
from ..backends.cuda import driver
from ..base.errors import here, line_of
from ..base.observers import observing, who_looked
from ..compiler import compile
from ..compiler.recording import Recording, RecordingObserver, noted_in
from ..compiler.replay import Runner
from ..compiler.runtime import Checks, Draws
from ..nn import Module
from ..tensor.streams import hand_over
from ..tensor.tensor import Tensor
from ..trace.recording.record import _local, current, set_current
from ..trace.value import Storage, Value
from .streams import Stream, StreamContext, need_cuda

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


class GraphRecording(Recording):
    """The recording of a stretch: whatever a replay could not do is refused at once."""

    __slots__ = ("known", "holders", "before")

    def __init__(self, like):
        super().__init__(like)
        self.known = {id(storage): storage for storage in storages_alive()}       # that were there before
        self.holders = {one.value: one for one in self.known.values() if one.value.trace is None}
        self.before = {}          # Storage that was written to → what it had

    def append(self, entry, inputs, params, site):
        if entry.op.effect:
            raise RuntimeError(f"{entry.op.__name__}() has an effect, and cannot be part of a CUDAGraph, at "
                               f"{line_of(here())}")
        for tensor in inputs:
            self.meet(tensor._storage)
        return super().append(entry, inputs, params, site)

    def meet(self, storage):
        """The contents of a Storage are read: those that were there before, a replay will ask their Storage for."""
        value = storage.value
        self.run_others(value)
        if value.trace is self or value in self.born:
            return
        if id(storage) not in self.known:                 # which shares what another one held
            storage = self.holders.get(value)
            if storage is None:
                raise RuntimeError(NOT_PERMITTED.format(what="what is computed at the call", line=line_of(here())))
        if self.read_from.setdefault(value, storage) is not storage and storage.value is value:
            self.part_from_others(storage)

    def run(self, asked=None):
        """Nothing; and contents may not be looked at."""
        if asked is not None:
            raise RuntimeError(NOT_PERMITTED.format(what="a look at contents", line=line_of(here())))

    def noted(self, a):
        if isinstance(a, Tensor):
            self.meet(a._storage)
        return super().noted(a)


NOT_PERMITTED = ("CUDA error: operation not permitted when stream is capturing: {what} inside of torch.cuda.graph at "
                 "{line}; do it before the graph, or after replay()")


def storages_alive():
    """Every Storage with contents that there is."""
    return [one for one in gc.get_objects() if type(one) is Storage and one.value is not None]


class GraphObserver(RecordingObserver):
    """Tells a GraphRecording of looks and writes, too."""

    def looked(self, value):
        if self.recording.is_current() and who_looked().f_code is not checksum.__code__:
            self.recording.run(value)

    def wrote(self, storage):
        recording = self.recording
        if recording.is_current() and id(storage) in recording.known:
            recording.before.setdefault(storage, storage.value)


class CUDAGraph:
    """A stretch of a program that was recorded by `torch.cuda.graph`, and runs again at every `replay()`."""

    def __new__(cls, keep_graph=False):
        need_cuda("CUDAGraph")
        return object.__new__(cls)

    def __init__(self, keep_graph=False):
        self._pool, self._runner, self._outer = None, None, None

    def capture_begin(self, pool=None, capture_error_mode="global", check_input_liveness=False):
        """Record from here on, in this thread, until `capture_end()`; `with torch.cuda.graph(g):` is both."""
        if is_current_stream_capturing():
            raise RuntimeError("A CUDAGraph is being captured already: end it before another one begins")
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError("Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                               f"{capture_error_mode}")
        hand_over()
        self.reset()
        self._pool, self._outer = pool or graph_pool_handle(), current()
        recording = GraphRecording(self._outer)
        self._observing = observing(GraphObserver(recording), only_this_thread=True)
        self._observing.__enter__()
        set_current(recording)

    def capture_end(self):
        """End the recording. Nothing of it has been computed: tensors that were there before are as they were, and
        those that the stretch made have no contents before the first `replay()`."""
        trace = current()
        if self._outer is None or not isinstance(trace, GraphRecording):
            raise RuntimeError("capture_end() without a capture_begin() of the same CUDAGraph in this thread")
        self._leave(trace)
        self._note(trace)
        for storage, _ in self._outputs:
            spec = storage.value.spec
            storage.value = trace.before.get(storage) or Value.of(spec.device.backend.allocate(spec), spec)
        with trace.lock:
            trace.clear()

    def _leave(self, trace):
        set_current(self._outer)
        self._outer = None
        _local.trace.special = trace.special
        self._observing.__exit__(None, None, None)

    def _note(self, trace):
        """Note what a replay reads, draws, checks and gives."""
        drawn = {value: number for number, (_, _, value) in enumerate(trace.draws)}

        def source(value):
            """Where a replay has contents from that are no result."""
            return ("draw", drawn[value]) if value in drawn else ("value", value) if value in trace.born else \
                ("storage", trace.read_from.get(value) or trace.holders[value])
        written = [one for one in storages_alive() if one in trace.before or id(one) not in trace.known
                   and (one.value.trace is trace or one.value in drawn or one.value in trace.holders)]
        wanted = list(dict.fromkeys(one.value.slot for one in written if one.value.trace is trace))
        self._outputs = [(one, ("result", wanted.index(one.value.slot)) if one.value.trace is trace else
                          source(one.value)) for one in written]
        self._draws = Draws([(draw, spec) for draw, spec, _ in trace.draws])
        for _, given in trace.checks:
            for seen in noted_in(given):
                trace.number(seen)
        self._sources = [source(value) for value in trace.slots]
        self._runner = Runner(trace.code, [value.spec for value in trace.values], list(trace.slots.values()), wanted,
                              (), {})
        self._checks = Checks(trace.checks, list(trace.code), {}) if trace.checks else None

    def replay(self):
        """Run what was recorded, over the contents that the tensors from before have now."""
        if self._runner is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        hand_over()
        drawn, results = self._draws(), [None] * (len(self._runner.wanted) + 1)

        def found(source_type, what):
            return {"draw": drawn, "result": results}[source_type][what] if source_type in ("draw", "result") else \
                what.value.ready() if source_type == "storage" else what
        values = tuple([found(*source) for source in self._sources])
        shared = [found(*source) for _, source in self._outputs]         # before anything is written
        if self._checks is not None:
            self._checks.make(dict(zip(self._runner.inputs, values, strict=True)))
        self._runner.run(values, (), results)
        for (storage, source), value in zip(self._outputs, shared, strict=True):
            value = found(*source) if source[0] == "result" else value
            if storage.exported:                          # its memory stays where it is
                storage.device.backend.put(storage.value.ready().array, value.array)
                storage.value.on_host = storage.value.bounds = None
            else:
                storage.value = value

    def reset(self):
        """Forget what was recorded."""
        self._runner, self._outputs, self._sources, self._draws, self._checks = None, (), (), None, None

    def instantiate(self):
        """Nothing: a replay has all it needs."""

    def pool(self):
        """What `torch.cuda.graph_pool_handle()` gives, for other graphs; memory is shared anyway."""
        return self._pool

    def enable_debug_mode(self):
        """Nothing; `torch.plans.of(tensor)` shows what runs."""

    def debug_dump(self, debug_path):
        """Refused: there is no graph of CUDA's to show."""
        raise NotImplementedError("CUDAGraph.debug_dump(): `torch.plans.of(tensor)` shows what will run")


class graph:
    """A context in which a CUDAGraph is recorded, on a stream of its own."""

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", check_input_liveness=False):
        need_cuda("graph")
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = Stream() if stream is None else stream
        self.stream_ctx = StreamContext(self.capture_stream)

    def __enter__(self):
        driver.current().synchronize(self.capture_stream.device_index)
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, cls, error, trace):
        try:
            if cls is None:
                self.cuda_graph.capture_end()
            else:
                self._give_up()
        finally:
            self.stream_ctx.__exit__()
        return False

    def _give_up(self):
        """An error ended the stretch: what it would have written is as it was."""
        trace = current()
        if isinstance(trace, GraphRecording):
            self.cuda_graph._leave(trace)
            for storage, value in trace.before.items():
                storage.value = value


def is_current_stream_capturing():
    """Whether this thread records a CUDAGraph."""
    return isinstance(current(), GraphRecording)


_handles = 0


def graph_pool_handle():
    """A token that PyTorch's graphs share memory by; here all share the device's pool."""
    global _handles
    need_cuda("graph_pool_handle")
    _handles += 1
    return 0, _handles


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """`callables`, functions or modules, whose forward and backward run without Python: by `torch.compile`.

    A module is changed and given back, as in PyTorch.
    """
    need_cuda("make_graphed_callables")
    several = isinstance(callables, tuple)
    made = []
    for one in callables if several else (callables,):
        if isinstance(one, Module):
            if one._backward_hooks or one._forward_hooks or one._forward_pre_hooks:
                raise AssertionError("Modules must not have hooks registered at the time they are passed. However, "
                                     "registering hooks on modules after passing them through make_graphed_callables "
                                     "is allowed.")
            if any(buffer.requires_grad for buffer in one.buffers()):
                raise AssertionError("In any torch.nn.Module passed to make_graphed_callables, only parameters may be "
                                     "trainable. All buffers must have ``requires_grad=False``.")
            one.forward = compile(one.forward)
            made.append(one)
        else:
            made.append(compile(one))
    return tuple(made) if several else made[0]
