"""`torch.cuda.CUDAGraph` and its kin. `flambeau.compile` replays a step without Python, on CUDA as one graph."""
from ..streams import need_cuda

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

INSTEAD = "torch.compile replays a recorded step as one CUDA graph, without Python"


class CUDAGraph:
    """A recorded sequence of launches on a CUDA device."""

    def __new__(cls, *args, **kwargs):
        _refuse("CUDAGraph")


class graph:
    """A context in which launches on a CUDA device are recorded."""

    def __new__(cls, *args, **kwargs):
        _refuse("graph")


def is_current_stream_capturing():
    """Whether a graph is being captured: never."""
    return False


def graph_pool_handle():
    """Refused: graphs have no pool of their own."""
    _refuse("graph_pool_handle")


def make_graphed_callables(*args, **kwargs):
    """Refused; `torch.compile` does what it is for."""
    _refuse("make_graphed_callables")


def _refuse(name):
    need_cuda(name)
    raise NotImplementedError(f"torch.cuda.{name} is not part of Flambeau: {INSTEAD}")
