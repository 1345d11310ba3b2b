"""`torch.cuda.amp.GradScaler`: `torch.amp.GradScaler("cuda", …)` under its older name."""
from ...amp import grad_scaler as new
from ...amp.grad_scaler import OptState as OptState
from ...base.errors import warn

__all__ = ["GradScaler"]


class GradScaler(new.GradScaler):
    """`torch.amp.GradScaler("cuda", …)`."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        warn("`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` "
             "instead.", FutureWarning)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
