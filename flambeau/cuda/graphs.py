"""`torch.cuda.CUDAGraph` and its kin, which need CUDA. `flambeau.compile` replays a recorded step without Python."""

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


class NeedsCuda:
    """A class of PyTorch's whose objects need a CUDA device: making one is refused."""

    def __new__(cls, *args, **kwargs):
        name = next(kind.__name__ for kind in cls.__mro__ if kind.__module__.startswith(__package__))
        raise RuntimeError(f"torch.cuda.{name} requires CUDA support, and this Flambeau has no CUDA device. Ask "
                           "torch.cuda.is_available() first, or use the CPU.")


class CUDAGraph(NeedsCuda):
    """A recorded sequence of launches on a CUDA device."""


class graph(NeedsCuda):
    """A context in which launches on a CUDA device are recorded."""


def is_current_stream_capturing():
    """Whether a graph is being captured: never."""
    return False


def graph_pool_handle():
    """Refused, since there is no CUDA device."""
    raise RuntimeError("torch.cuda.graph_pool_handle requires CUDA support, and this Flambeau has no CUDA device; "
                       "flambeau.compile replays a recorded step without Python.")


def make_graphed_callables(*args, **kwargs):
    """Refused, since there is no CUDA device."""
    raise RuntimeError("torch.cuda.make_graphed_callables requires CUDA support, and this Flambeau has no CUDA device; "
                       "flambeau.compile replays a recorded step without Python.")
