"""Flambeau: PyTorch's tensors and autograd in Python. `import flambeau as torch`."""
from .base import core as _core  # before everything else: from here on the core's modules are found, compiled or not

# isort: split
from .base import requirements as _requirements

# isort: split
from math import e, inf, nan, pi
from sys import is_finalizing as _is_finalizing
from typing import TYPE_CHECKING

from .autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .backends.cpu import threads as _threads
from .backends.cpu.memory.allocator import OutOfMemoryError
from .base import (
    dtypes as _dtypes,
    errors as _errors,
    layout as _layout,
    settings as _settings,
    tracebacks as _tracebacks,
)
from .base.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from .base.layout import layout, memory_format
from .base.once import imported as _imported
from .base.op import door
from .base.public_names import publish as _publish
from .base.spec import Size, device, set_default_device
from .tensor import (
    create as _create,
    forms as _forms,
    indexing as _indexing,
    movement as _movement,
    protocol as _protocol,
    storage as _storage,
)
from .tensor.overrides import DisableTorchFunctionSubclass
from .tensor.printing import get_printoptions, set_printoptions
from .tensor.storage import StorageBase, UntypedStorage
from .tensor.tensor import Tensor
from .tensor.typed_storage import LEGACY_STORAGES as _legacy_storages, TypedStorage

_tracebacks.install()
_forms.attach_all()
globals().pop("ops")          # the package of declarations: `torch.ops` is PyTorch's, in compat/_library/overloads.py
from .tensor import (
    attributes as _attributes,
    functions as _functions,
    generators as _generators,
    ufuncs as _ufuncs,
)

for _cls in (Tensor, Size, OutOfMemoryError, device, dtype, finfo, iinfo, layout, memory_format, _generators.Generator):
    _publish(_cls, __name__)
for _cls in (UntypedStorage, TypedStorage):
    _publish(_cls, f"{__name__}.storage")
del _cls
globals().update({d.name: d for d in (*_dtypes.ALL, *_dtypes.NAMES_ONLY)})
globals().update(_dtypes.ALIASES)
globals().update({found.name: found for found in _layout.LAYOUTS_AND_FORMATS})
globals().update(_forms.namespace[""])
globals().update({name: getattr(module, name) for module in (*_functions.PUBLIC_MODULES, _threads)
                  for name in module.PUBLIC})
globals().update(_create.LEGACY_TENSOR_TYPES)
globals().update(_legacy_storages)

from . import (
    autograd,
    backends,
    compiler,
    config,
    cpu,
    linalg,
    mps,
    overrides,
    plans,
    random,
    special,
    utils,
)
from .compiler import compile

if TYPE_CHECKING:
    from . import amp, cuda, distributions, func, nn, optim, serialization, testing

# What a program may never ask for is imported when it asks: a module, or a name out of one.
_IMPORTED_WHEN_ASKED = {
    "amp": "amp", "cuda": "cuda", "data": "data", "distributions": "distributions", "func": "func", "hub": "hub",
    "nn": "nn", "optim": "optim", "safetensors": "safetensors", "serialization": "serialization",
    "autocast": "amp:autocast", "GradScaler": "amp:GradScaler",
    "save": "serialization:save", "load": "serialization:load",
    "vmap": "func:vmap",
    "install_as_torch": "cli:install_as_torch", "doctor": "cli.doctor:doctor", "expect": "cli.expected:expect",
    "lens": "lens", "report": "reporting:report",
    "sparse": "sparse", "sparse_coo_tensor": "sparse:sparse_coo_tensor",
    "ops": "_ops:ops", "Tag": "_ops:Tag", "svd_lowrank": "compat._lowrank:svd_lowrank",
    "pca_lowrank": "compat._lowrank:pca_lowrank",
    **{name: name for name in ("_ops", "accelerator", "distributed", "fft", "functional", "fx", "jit",
                               "library", "memory", "multiprocessing", "profiler", "quasirandom", "return_types",
                               "signal", "storage", "testing", "torch_version", "types", "version", "watch", "xpu")},
    **{name: f"amp.autocast_mode:{name}" for name in (
        "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "get_autocast_cpu_dtype",
        "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled",
        "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled",
        "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype")},
    "__all__": "compat.star:names", "Event": "tensor.streams:Event", "Stream": "tensor.streams:Stream",
    "Future": "futures:Future", "futures": "futures",
    "ScriptFunction": "jit:ScriptFunction", "ScriptModule": "jit:ScriptModule",
    "get_device_module": "compat.devices:get_device_module", "__config__": "compat.__config__",
    "AcceleratorError": "accelerator:AcceleratorError", "_disable_dynamo": "compat._dynamo:_disable_dynamo",
    "_has_compatible_shallow_copy_type": "compat.devices:_has_compatible_shallow_copy_type",
    "_register_device_module": "compat.devices:_register_device_module",
    "_shape_as_tensor": "compat.devices:_shape_as_tensor",
    **{name: f"compat.type_names:{name}" for name in (
        "AnyType", "BoolType", "DeviceObjType", "DictType", "FloatType", "Graph", "IntType", "ListType", "NoneType",
        "NumberType", "OptionalType", "ScriptObject", "StreamObjType", "StringType", "TensorType", "TupleType", "Type",
        "UnionType", "Value", "per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric",
        "per_tensor_affine", "per_tensor_symmetric", "qscheme")},
    "PyTorchFileReader": "compat._C:PyTorchFileReader",
    **{name: f"compat.symbolic:{name}" for name in (
        "SymBool", "SymFloat", "SymInt", "sym_float", "sym_fresh_size", "sym_int", "sym_ite", "sym_max", "sym_min",
        "sym_not", "sym_sqrt", "sym_sum")},
    **{name: f"compat.checks:{name}" for name in (
        "_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_not_implemented",
        "_check_tensor_all",
        "_check_tensor_all_with", "_check_type", "_check_value", "_check_with")},
    **{name: f"compat.switches:{name}" for name in (
        "are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi", "get_deterministic_debug_mode",
        "get_float32_matmul_precision", "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled",
        "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal", "set_vital",
        "set_warn_always", "use_deterministic_algorithms")},
}


def __getattr__(name):
    if name.startswith("_foreach_"):
        return getattr(_imported("tensor.foreach", __name__), name)
    if name not in _IMPORTED_WHEN_ASKED:
        return _imported("compat.missing", __name__).of_torch(name)
    module, _, member = _IMPORTED_WHEN_ASKED[name].partition(":")
    found = _imported(module, __name__)
    found = getattr(found, member) if member else found
    globals()[name] = found
    return found


_noticing = None              # the module that is told, once it is imported


def _noticed(what, *facts):
    global _noticing
    if _is_finalizing():                              # nothing can be imported any more
        return None
    if _noticing is None:
        _noticing = _imported("watch.noticed", __name__)
    _errors.told += 1
    return getattr(_noticing, what)(*facts)


door.noticed = _noticed
del door


def __dir__():
    return sorted({*globals(), *_IMPORTED_WHEN_ASKED})


is_anomaly_enabled = autograd.graph.is_anomaly_enabled
is_anomaly_check_nan_enabled = autograd.graph.is_anomaly_check_nan_enabled
legacy_contiguous_format = _layout.contiguous_format
newaxis = None
__version__ = "0.1.0"
if _settings.watch in ("full", "strict") or _settings.watch_ignore:
    _imported("watch.watching", __name__).switch(_settings.watch)

if _settings.expect_device:
    _imported("cli.expected", __name__).at_import()
