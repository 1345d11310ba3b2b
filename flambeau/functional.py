"""`torch.functional`: functions that `torch` has too, by the module that PyTorch keeps them in."""
from .base.lazy import import_when_asked
from .base.names import attribute_error
from .tensor.forms import namespace

__all__ = ("atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist "
           "chain_matmul einsum meshgrid norm split tensordot unique unique_consecutive unravel_index").split()

globals().update({name: namespace[""][name] for name in __all__})
__getattr__ = import_when_asked(__name__, {"F": "nn.functional"},
                                lambda name: attribute_error("torch.functional", name, lambda: __all__))
