"""The wrapper for training in several processes, which is not there."""
from ..modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """A name for `isinstance` to ask about; there is no training in several processes."""

    def __init__(self, module, *args, **kwargs):
        raise NotImplementedError("DistributedDataParallel: training in several processes is not there. Call the "
                                  "module itself; one process uses all cores.")
