"""`torch.distributed.rpc.api`: a mark that torch_geometric and torchrl put on functions when they are imported."""
import functools

from ...compat.missing import rest_of

__getattr__ = rest_of("torch.distributed.rpc.api")


def _require_initialized(func):
    """`func`, refused: it calls other processes."""
    @functools.wraps(func)
    def refused(*args, **kwargs):
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first, which Flambeau "
                           "does not have: it runs in one process.")
    return refused
