"""How samples become batches, and who makes them. `DataLoader` puts it together.

Of PyTorch's own protocol between a loader and its workers, names are missing that torchdata imports.
"""
from ....compat.missing import missing
from . import collate, fetch, pin_memory, worker

HAS_NUMPY = True
MP_STATUS_CHECK_INTERVAL = worker.SHUTDOWN_SECONDS
python_exit_status = False    # whether the interpreter ends
signal_handling = missing("torch.utils.data._utils.signal_handling")
