"""Reading a pickle that the caller trusts: with Python's own unpickler, or that of `pickle_module`, which runs whatever
the file names.

PyTorch's names in it mean what Flambeau has in their place, whether `import torch` gives Flambeau, PyTorch or nothing.
Storages come from the file. All other names are imported, as by `pickle.load`.
"""
from functools import partial

from ..base.module_locations import is_pytorchs, look_up
from ..compat.missing import Missing, MissingModule, hint_for
from ..tensor.storage import UntypedStorage
from .allowed_globals import ALLOWED, StorageClass, refuse_absent
from .errors import FileError, NotSupported, in_record

# What modules kept for PyTorch's C code until 1.5.
FORGOTTEN_GLOBALS = {"torch.nn.backends.thnn._get_thnn_function_backend": lambda: None}
# What makes a tensor over a storage looks whether it reaches beyond: a damaged file can be trusted, too.
CHECKED_GLOBALS = frozenset(f"torch._utils._rebuild_{name}" for name in (
    "tensor", "tensor_v2", "tensor_v3", "meta_tensor_no_storage"))


class TrustedReader:
    """Reads with `pickle_module.Unpickler`, which is given `options`."""

    def __init__(self, pickle_module, options):
        self.module, self.options = pickle_module, options

    def load(self, file, stored, record="data.pkl", late=False):
        """What the pickle in `file` describes; `stored(reader, pid)` gives the storage that a persistent id means.

        `record` is what errors call the pickle, `late` whether the contents of storages are read after it.
        """
        reader, self.record, self.late = self, record, late

        class Unpickler(self.module.Unpickler):
            def find_class(self, module, name):
                if is_pytorchs(module):
                    return reader.find(module, name)
                return super().find_class(module, name)

            def persistent_load(self, pid):
                if type(pid) is tuple and len(pid) > 1 and pid[1] is UntypedStorage:
                    pid = pid[0], BYTES, *pid[2:]
                return stored(reader, pid)

        with in_record(self.record):
            return Unpickler(file, **self.options).load()

    def find(self, module, name):
        """What PyTorch's `module.name` means here."""
        full = f"{module}.{name}"
        if full in CHECKED_GLOBALS:
            return partial(ALLOWED[full], self)
        found = ALLOWED.get(full, FORGOTTEN_GLOBALS.get(full))
        if isinstance(found, StorageClass) and found is not BYTES or full in FORGOTTEN_GLOBALS:
            return found
        found = look_up(module, name)
        if found is None or isinstance(found, (Missing, MissingModule)):
            refuse_absent(module, name)
            hint = hint_for(full)
            raise NotSupported(f"it names {full}, which Flambeau does not have{f': {hint}' if hint else ''}")
        return found

    # --- what the functions that make tensors ask of their reader; a trusted file may cost what it likes ---

    def broken(self, why):
        return FileError(f"{self.record} is damaged: {why}", record=self.record)

    def burn_bytes(self, *parts):
        pass

    def computed(self, tensor):
        if self.late:
            raise NotSupported("it holds a conjugate view in PyTorch's old format; call resolve_conj() in PyTorch and "
                               "save it again")


BYTES = ALLOWED["torch.storage.UntypedStorage"]
