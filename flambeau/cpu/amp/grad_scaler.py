"""`torch.cpu.amp.GradScaler`: `torch.amp.GradScaler("cpu", …)` under its older name."""
from ...amp import grad_scaler as new
from ...base.errors import warn

__all__ = ["GradScaler"]


class GradScaler(new.GradScaler):
    """`torch.amp.GradScaler("cpu", …)`."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        warn("`torch.cpu.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cpu', args...)` "
             "instead.", FutureWarning)
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
