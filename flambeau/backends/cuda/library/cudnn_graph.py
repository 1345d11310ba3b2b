"""Attention through cuDNN's graphs, which NVIDIA's frontend builds, where its package is installed.

`pip install nvidia-cudnn-frontend` brings a compiled module that describes graphs to libcudnn. It is loaded by itself:
the package around it loads others that we do not need. What cuDNN has no plan for (sizes, an older GPU) is left to our
own kernels. cuDNN's gradients of queries are added up in any order, unless `use_deterministic_algorithms` is asked for.
"""
import contextlib
import ctypes
import functools
import glob
import importlib.util
import os
import sys

from ....base import settings
from ....base.locks import new_lock
from .. import vendor
from ..calls import HostCall

MAX_GRAPH_FEATURES = 128
EVEN_LENGTH = 128                  # cuDNN copies the lengths of other sequences from the CPU, so that what calls it
MIN_UNEVEN_LENGTH = 1024           # cannot be captured (graphs.py): short ones of those are left to our own kernels
Q, K, V, AVERAGE, REST, GRAD, DQ, DK, DV = range(1, 10)        # numbers of a graph's tensors


_loading = new_lock()              # the compiled module, which cannot be loaded twice in a process


def frontend():
    """The compiled module of cuDNN's frontend, with libcudnn in its hands; None where one of them is missing."""
    with _loading:
        return _frontend()


@functools.cache
def _frontend():
    cudnn, found = vendor.load("cudnn"), importlib.util.find_spec("cudnn")
    if not isinstance(cudnn, ctypes.CDLL) or found is None or not found.submodule_search_locations:
        return None
    files = [path for folder in found.submodule_search_locations
             for path in glob.glob(os.path.join(folder, "_compiled_module*"))]
    if not files:
        return None
    try:
        module = _loaded(files[0])
        module._set_dlhandle_cudnn(cudnn._handle)
    except (ImportError, AttributeError):          # for another Python, or of a version that is loaded otherwise
        return None
    return Frontend(module)


@functools.cache
def _loaded(path):
    """The compiled module, which cannot be loaded twice in a process."""
    spec = importlib.util.spec_from_file_location("_compiled_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Frontend:
    """What we use of the compiled module, whose names have changed: those of 1.15 before those of 1.32."""

    def __init__(self, module):
        self.module = module
        self.graph = getattr(module, "pygraph", None) or module.backend_graph
        self.set_stream = getattr(module, "set_stream", None) or module._raw_set_stream
        self.create_handle, self.data_type, self.heur_mode = module.create_handle, module.data_type, module.heur_mode
        self.refusals = (module.cudnnGraphNotSupportedError, RuntimeError, TypeError, ValueError)


@contextlib.contextmanager
def imported_as_cudnn(module):
    """For the duration of a `with` block, `import cudnn` gives the compiled module, unless the package is installed: it
    imports itself by that name, and the package would load it once more."""
    if "cudnn" in sys.modules:
        yield
        return
    sys.modules["cudnn"] = module
    try:
        yield
    finally:
        del sys.modules["cudnn"]


def forget():
    """Look for it anew, with other handles."""
    _frontend.cache_clear()
    _graph_sessions.clear()


class GraphSession:
    """cuDNN for a device, by the frontend: a handle, which knows the stream that it was used on last."""

    def __init__(self, module):
        self.module, self.lock, self.stream = module, new_lock(), None
        self.handle = module.create_handle()

    def run(self, graph, memory, workspace, stream):
        """Put the work of a graph on a stream: `memory` maps its tensors' numbers to addresses."""
        with self.lock:
            if stream != self.stream:
                self.module.set_stream(self.handle, stream)
                self.stream = stream
            graph._execute(memory, workspace, self.handle)


_graph_sessions: dict = {}         # device → GraphSession


def forward(dtype, laid, causal, scale, index):
    """A HostCall for (average, logarithms of sums), as `attention.attention` has it; None where cuDNN has no plan."""
    def described(graph, module, types):
        q, k, v = (_tensor(graph, number, laid[name], types) for number, name in ((Q, "q"), (K, "k"), (V, "v")))
        out, rest = graph.sdpa(q=q, k=k, v=v, generate_stats=True, attn_scale=scale, use_causal_mask=causal)
        _result(out, AVERAGE, laid["out"])
        rest.set_output(True)._set_data_type(module.data_type.FLOAT).set_uid(REST)
    return _planned(described, dtype, laid, index, (Q, K, V, AVERAGE, REST), "cuDNN attention")


def backward(dtype, laid, causal, scale, index):
    """A HostCall for the gradients, as `attention.attention_backward` has it; None where cuDNN has no plan."""
    def described(graph, module, types):
        q, k, v, out, grad = (_tensor(graph, number, laid[name], types) for number, name in (
            (Q, "q"), (K, "k"), (V, "v"), (AVERAGE, "out"), (GRAD, "grad")))
        samples, heads, queries, _ = laid["q"][0]
        rest = graph._make_tensor(dim=[samples, heads, queries, 1], stride=[heads * queries, queries, 1, 1],
                                  data_type=module.data_type.FLOAT, name="stats", uid=REST)
        made = graph.sdpa_backward(q=q, k=k, v=v, o=out, dO=grad, stats=rest, attn_scale=scale, use_causal_mask=causal,
                                   use_deterministic_algorithm=settings.deterministic, name="sdpa_backward")
        for one, number, name in zip(made, (DQ, DK, DV), ("dq", "dk", "dv"), strict=True):
            _result(one, number, laid[name])
    order = GRAD, Q, K, V, AVERAGE, REST, DQ, DK, DV
    return _planned(described, dtype, laid, index, order, "cuDNN attention, backward")


def _tensor(graph, number, laid, types):
    shape, strides = laid
    return graph._make_tensor(dim=list(shape), stride=list(strides), data_type=types, name=f"t{number}", uid=number)


def _result(tensor, number, laid):
    shape, strides = laid
    tensor.set_output(True).set_dim(list(shape)).set_stride(list(strides)).set_uid(number)


def _planned(described, dtype, laid, index, order, says):
    size, width = laid["q"][0][3], laid["v"][0][3]
    if dtype.name not in ("float16", "bfloat16") or size != width or size % 8 or size > MAX_GRAPH_FEATURES \
            or any(strides[3] != 1 for _, strides in laid.values()):
        return None
    lengths = laid["q"][0][2], laid["k"][0][2]
    if any(length % EVEN_LENGTH for length in lengths) and max(lengths) < MIN_UNEVEN_LENGTH:
        return None
    module = frontend()
    if module is None:
        return None
    types = module.data_type.HALF if dtype.name == "float16" else module.data_type.BFLOAT16
    with vendor.on(index):
        if index not in _graph_sessions:
            _graph_sessions[index] = GraphSession(module)
        made, single = _graph_sessions[index], module.data_type.FLOAT
        graph = module.graph(io_data_type=types, intermediate_data_type=single, compute_data_type=single,
                             handle=made.handle)
        try:
            with imported_as_cudnn(module.module):
                described(graph, module, types)
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
            graph.check_support()
            graph.build_plans()
        except module.refusals:                    # our own kernels take it
            return None
        workspace = graph.get_workspace_size()

    def attend(addresses, stream):
        memory = dict(zip(order, addresses, strict=False))
        made.run(graph, memory, addresses[len(order)] if workspace else 0, stream)

    return HostCall(attend, says, workspace)
