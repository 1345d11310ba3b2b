"""`torch.distributed`, answered honestly: there is one process. Questions get that answer; the rest is missing."""
from .missing import rest_of

_ALONE = "leave it out where torch.distributed.is_available() is False; there is one process"
__path__: list = []
__getattr__ = rest_of("torch.distributed", init_process_group=_ALONE, all_reduce=_ALONE, barrier=_ALONE,
                      all_gather=_ALONE, broadcast=_ALONE, get_rank=_ALONE, get_world_size=_ALONE)


def is_available():
    """Whether processes can work together."""
    return False


def is_initialized():
    """Whether they do."""
    return False


def is_torchelastic_launched():
    """Whether this process was started by torchrun."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_available
