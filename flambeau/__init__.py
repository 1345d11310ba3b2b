"""Flambeau: PyTorch's tensors and autograd in Python. `import flambeau as torch`."""
from .autograd.modes import (enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad,
                             set_grad_enabled)
from .base import dtypes as _dtypes
from .base.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from .base.spec import Size, device, set_default_device
from .tensor import create as _create
from .tensor import forms as _forms
from .tensor.tensor import Tensor

_forms.attach_all()
globals().update({d.name: d for d in _dtypes.ALL})
globals().update(_dtypes.ALIASES)
globals().update(_forms.namespace[""])
globals().update({name: getattr(_create, name) for name in _create.PUBLIC})

from . import autograd, linalg, nn, special  # noqa: E402

__version__ = "0.1.0"
