"""Data parallelism, as far as one device goes: PyTorch's wrapper runs its module as it is where there are no GPUs."""
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
