"""Datasets, samplers and `DataLoader`: batches of samples in PyTorch's order, from PyTorch's seeds.

    dataset, sampler, distributed    what there is, and in which order it is visited
    dataloader                       the loader
    _iterators                       what goes over it, with and without workers
    prefetch                         its batches on a device, copied ahead
    _utils                           samples to batches (collate, gather, fetch), and workers that make them
"""
from ...base.names import attribute_error
from ...compat.missing import missing
from ._iterators import _DatasetKind
from .dataloader import DataLoader, default_collate, default_convert, get_worker_info
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .prefetch import DevicePrefetcher
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DevicePrefetcher",
           "DistributedSampler", "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset",
           "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "_DatasetKind",
           "default_collate", "default_convert", "get_worker_info", "random_split"]

# Pipes of data, which are not here. torchdata, torch_geometric and dgl derive from them, and ask `isinstance`.
_PIPES = ("DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "argument_validation",
          "guaranteed_datapipes_determinism", "non_deterministic", "runtime_validation", "runtime_validation_disabled")


class functional_datapipe:
    """A decorator that makes a class of pipes a method of the others; here it leaves the class as it is."""

    def __init__(self, name, enable_df_api_tracing=False):
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls):
        return cls


def __getattr__(name):
    if name in _PIPES:
        return missing(f"torch.utils.data.{name}")
    raise attribute_error("torch.utils.data", name, globals().keys)
