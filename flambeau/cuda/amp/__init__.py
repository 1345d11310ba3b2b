"""`torch.cuda.amp`: the older spelling of `torch.amp` for CUDA. Without a CUDA device all of it is switched off."""
from .autocast_mode import autocast, custom_bwd, custom_fwd
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
