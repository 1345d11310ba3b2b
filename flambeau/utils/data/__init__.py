"""Datasets, samplers and `DataLoader`: batches of samples in PyTorch's order, from PyTorch's seeds.

    dataset, sampler, distributed    what there is, and in which order it is visited
    dataloader                       the loader, and the iterators over it
    prefetch                         its batches on a device, copied ahead
    _utils                           samples to batches (collate, gather, fetch), and workers that make them
"""
from ...base.names import attribute_error
from .dataloader import DataLoader, _DatasetKind, default_collate, default_convert, get_worker_info
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
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DevicePrefetcher",
           "DistributedSampler", "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset",
           "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "_DatasetKind",
           "default_collate", "default_convert", "get_worker_info", "random_split"]

_PIPES = ("DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "argument_validation", "functional_datapipe",
          "guaranteed_datapipes_determinism", "non_deterministic", "runtime_validation", "runtime_validation_disabled")


def __getattr__(name):
    if name in _PIPES:
        raise AttributeError(f"torch.utils.data.{name} belongs to DataPipes, which are not in Flambeau; write a "
                             "Dataset or an IterableDataset instead")
    raise attribute_error("torch.utils.data", name, globals().keys)
