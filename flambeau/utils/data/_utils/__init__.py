"""How samples become batches, and who makes them. `DataLoader` puts it together."""
from . import collate, fetch, pin_memory, worker

MP_STATUS_CHECK_INTERVAL = worker.SHUTDOWN_SECONDS
