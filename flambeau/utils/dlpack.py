"""`torch.utils.dlpack`: tensors shared with other libraries."""
from ..tensor.dlpack import from_dlpack, to_dlpack as to_dlpack

__all__ = ["from_dlpack"]
