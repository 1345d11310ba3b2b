"""`torch.cuda.amp.autocast` and its decorators: those of `torch.amp` for CUDA under their older names."""
from ...amp import autocast_mode as new
from ...base import dtypes
from ...base.errors import warn

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(new.autocast):
    """`torch.amp.autocast("cuda", …)`."""

    def __init__(self, enabled=True, dtype=dtypes.float16, cache_enabled=True):
        warn("`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` "
             "instead.", FutureWarning)
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd=None, *, cast_inputs=None):
    """`torch.amp.custom_fwd(…, device_type="cuda")`."""
    _deprecated("custom_fwd")
    return new.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd):
    """`torch.amp.custom_bwd(…, device_type="cuda")`."""
    _deprecated("custom_bwd")
    return new.custom_bwd(bwd, device_type="cuda")


def _deprecated(name):
    warn(f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}(args..., "
         "device_type='cuda')` instead.", FutureWarning)
