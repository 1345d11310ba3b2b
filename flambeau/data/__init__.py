"""Data from where it is kept to batches of tensors: `flambeau.data.sql` and what else is ours beside `utils.data`.

    sql              a query of a database, as a Dataset
    datasets         pictures as they lie on disk: folders, MNIST, CIFAR
    transforms       pictures changed and augmented, whole batches at once
    pictures         many in a grid, in a file, drawn upon

Nothing here is PyTorch's; `torch.utils.data` has PyTorch's datasets and its loader.
"""
from importlib import import_module as _import_module

from ..base.names import attribute_error as _attribute_error

# A name, and the module that is imported when it is asked for: no one pays for what he does not use.
_LOADED_WHEN_ASKED = {"sql": "sql", "SQLDataset": "sql:SQLDataset", "datasets": "datasets", "pictures": "pictures",
                      "transforms": "transforms"}


def __getattr__(name):
    if name not in _LOADED_WHEN_ASKED:
        raise _attribute_error("flambeau.data", name, lambda: [*globals(), *_LOADED_WHEN_ASKED])
    module, _, member = _LOADED_WHEN_ASKED[name].partition(":")
    found = _import_module(f".{module}", __name__)
    found = getattr(found, member) if member else found
    globals()[name] = found
    return found


def __dir__():
    return sorted({*globals(), *_LOADED_WHEN_ASKED})
