"""`torch.fx.experimental`: of it, what packages ask at every call. The rest is missing."""
from ...compat.missing import rest_of
from . import proxy_tensor

__getattr__ = rest_of("torch.fx.experimental")
