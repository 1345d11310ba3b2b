"""Mixed precision: `autocast` chooses each operation's dtype, `GradScaler` keeps float16 gradients from vanishing."""
from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
