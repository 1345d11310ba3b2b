"""Data from where it is kept to batches of tensors: `flambeau.data.sql` and what else is ours beside `utils.data`.

    sql              a query of a database, as a Dataset
    datasets         pictures as they lie on disk: folders, MNIST, CIFAR
    transforms       pictures changed and augmented, whole batches at once
    pictures         many in a grid, in a file, drawn upon

Nothing here is PyTorch's; `torch.utils.data` has PyTorch's datasets and its loader.
"""
from ..base.lazy import import_when_asked
from ..base.names import attribute_error

# A name, and the module that is imported when it is asked for: a program does not pay for what it does not use.
_DATA_MODULES = {"sql": "data.sql", "SQLDataset": "data.sql:SQLDataset", "datasets": "data.datasets",
                "pictures": "data.pictures", "transforms": "data.transforms"}
__getattr__ = import_when_asked(__name__, _DATA_MODULES,
                                lambda name: attribute_error("flambeau.data", name, lambda: _DATA_MODULES))
