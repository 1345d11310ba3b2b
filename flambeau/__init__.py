"""Flambeau: PyTorch's tensors and autograd in Python. `import flambeau as torch`."""
from math import e, inf, nan, pi

from .autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .backends import threads as _threads
from .backends.memory import OutOfMemoryError
from .base import dtypes as _dtypes, layout as _layout
from .base.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from .base.layout import layout, memory_format
from .base.spec import Size, device, set_default_device
from .tensor import (
    create as _create,
    forms as _forms,
    indexing as _indexing,
    interop as _interop,
    protocol as _protocol,
    storage as _storage,
)
from .tensor.printing import get_printoptions, set_printoptions
from .tensor.storage import UntypedStorage
from .tensor.subclass import DisableTorchFunctionSubclass
from .tensor.tensor import Tensor

_forms.attach_all()
from .tensor import (
    about as _about,
    attributes as _attributes,
    dlpack as _dlpack,
    random as _random,
    ufuncs as _ufuncs,
)

globals().update({d.name: d for d in _dtypes.ALL})
globals().update(_dtypes.ALIASES)
globals().update({found.name: found for found in _layout.ALL})
globals().update(_forms.namespace[""])
globals().update({name: getattr(module, name) for module in (_create, _interop, _dlpack, _about, _random, _threads)
                  for name in module.PUBLIC})
globals().update(_create.LEGACY)

from . import (
    autograd,
    backends,
    compiler,
    config,
    cpu,
    cuda,
    linalg,
    mps,
    nn,
    overrides,
    plans,
    random,
    return_types,
    special,
    testing,
    utils,
)
from .compiler import compile

is_anomaly_enabled = autograd.graph.is_anomaly_enabled
is_anomaly_check_nan_enabled = autograd.graph.is_anomaly_check_nan_enabled
newaxis = None
__version__ = "0.1.0"
