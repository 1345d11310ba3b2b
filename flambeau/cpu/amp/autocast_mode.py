"""`torch.cpu.amp.autocast`: `torch.amp.autocast("cpu", …)` under its older name."""
from ...amp import autocast_mode as new
from ...base import dtypes
from ...base.errors import warn

__all__ = ["autocast"]


class autocast(new.autocast):
    """`torch.amp.autocast("cpu", …)`."""

    def __init__(self, enabled=True, dtype=dtypes.bfloat16, cache_enabled=True):
        warn("`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` "
             "instead.", FutureWarning)
        super().__init__("cpu", dtype, enabled, cache_enabled)
