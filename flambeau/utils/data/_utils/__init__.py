"""How samples become batches, and who makes them. `DataLoader` puts it together.

Of what PyTorch has here, some names are missing: torchdata imports them for workers of its own.
"""
from ....missing import rest_of
from . import collate, fetch, pin_memory, worker

HAS_NUMPY = True
MP_STATUS_CHECK_INTERVAL = worker.SHUTDOWN_SECONDS
python_exit_status = False    # whether the interpreter ends
__getattr__ = rest_of("torch.utils.data._utils", signal_handling="workers of torch.utils.data.DataLoader are watched")
