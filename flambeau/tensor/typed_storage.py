"""PyTorch's older storages, which know the dtype of their elements: `tensor.storage()`, `FloatStorage` and its kin.

They are deprecated there, with a warning once in a process, and so here. One is a handle on an UntypedStorage.
"""
import collections.abc
import copy

import numpy as np

from ..base import dtypes
from ..base.errors import warn
from ..base.spec import as_device, spec
from .create import array_from, from_array
from .storage import CONVERSIONS, UntypedStorage
from .tensor import Tensor, wrap

STORAGE_NAMES = {d: f"{d.cname}Storage" for d in dtypes.COMMON}
_warned: list = []


def _warn_typed_storage_removal(stacklevel=2):
    if not _warned:
        _warned.append(True)
        warn("TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
             "class. This should only matter to you if you are using storages directly.  To access UntypedStorage "
             "directly, use tensor.untyped_storage() instead of tensor.storage()")


def _reset_warn_typed_storage_removal():
    _warned.clear()


def of_elements(tensor, dtype):
    """A storage of the elements of `tensor` converted to `dtype`."""
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"Argument 'dtype' must be torch.dtype, not {type(dtype)}")
    made = tensor.to(dtype, copy=True)
    return TypedStorage(wrap_storage=made.untyped_storage(), dtype=dtype, _internal=True)


def converted(storage, wanted):
    """What `storage.type(wanted)` gives: a copy in the storage class that `wanted` is or names."""
    name = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", str(wanted))
    found = next((d for d, known in STORAGE_NAMES.items() if name.removeprefix("torch.") == known), None)
    if found is None:
        raise ValueError(f"invalid type: '{name}'; the storages are {', '.join(STORAGE_NAMES.values())}")
    return storage._to(found)


def _type_of_bytes(self, dtype=None, non_blocking=False):
    """The name of its type, or a copy as another kind of storage."""
    return "torch.storage.UntypedStorage" if dtype is None else converted(self, dtype)


def _bytes_to(self, dtype):
    """The bytes as numbers of another dtype, in a storage that knows it."""
    return of_elements(self._tensor(), dtype)


UntypedStorage.type, UntypedStorage._to = _type_of_bytes, _bytes_to
_type_of_bytes.__name__, _type_of_bytes.__qualname__ = "type", "UntypedStorage.type"


class TypedStorage:
    """The elements behind one or more tensors of one dtype. Deprecated, as in PyTorch."""

    is_sparse = False
    _fake_device = None
    _dtype = property(lambda self: self.dtype)

    def __new__(cls, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        if not _internal:
            _warn_typed_storage_removal()
        if cls is TypedStorage:
            return object.__new__(cls)
        if cls is _LegacyStorage:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        expected = (f"{cls}.__new__ received an invalid combination of arguments. Expected one of:\n * no arguments\n "
                    "* (int size)\n * (Sequence data)\n * (*, UntypedStorage wrap_storage)")
        for name, given in (("device", device), ("dtype", dtype)):
            if given is not None:
                raise RuntimeError(f"{expected}\nKeyword argument '{name}' cannot be specified")
        if len(args) > (1 if wrap_storage is None else 0):
            raise RuntimeError(f"{expected}\nToo many positional arguments" if wrap_storage is None else
                               f"{expected}\nNo positional arguments should be given when using 'wrap_storage'")
        if args and not isinstance(args[0], (int, np.integer, collections.abc.Sequence)):
            raise TypeError(f"{expected}\nArgument type not recognized: {type(args[0])}")
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype, _internal=True)

    def __init__(self, *args, device=None, dtype=None, wrap_storage=None, _internal=False):
        expected = ("TypedStorage.__init__ received an invalid combination of arguments. Expected one of:\n * (*, "
                    "torch.device device, torch.dtype dtype)\n * (int size, *, torch.device device, torch.dtype dtype)"
                    "\n * (Sequence data, *, torch.device device, torch.dtype dtype)\n * (*, UntypedStorage "
                    "wrap_storage, torch.dtype dtype)")
        if wrap_storage is not None:
            if args:
                raise RuntimeError(f"{expected}\nNo positional arguments should be given when using 'wrap_storage'")
            if dtype is None or device is not None:
                raise RuntimeError(f"{expected}\nArgument 'dtype' must be specified" if dtype is None else
                                   f"{expected}\nArgument 'device' should not be specified when 'wrap_storage' is "
                                   "given")
            if not isinstance(dtype, dtypes.dtype):
                raise TypeError(f"{expected}\nArgument 'dtype' must be torch.dtype, not {type(dtype)}")
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"{expected}\nArgument 'wrap_storage' must be UntypedStorage, but got "
                                f"{type(wrap_storage)}")
            self.dtype, self._untyped_storage = dtype, wrap_storage
            return
        self.dtype = dtypes.given(dtype, dtypes.get_default_dtype())
        if len(args) > 1:
            raise RuntimeError(f"{expected}\nToo many positional arguments")
        if not args or isinstance(args[0], (int, np.integer)):
            count = int(args[0]) if args else 0
            self._untyped_storage = UntypedStorage(count * self.dtype.itemsize, device=device)
        elif isinstance(args[0], collections.abc.Sequence):
            made = from_array(array_from(args[0], self.dtype), False, as_device("cpu" if device is None else device))
            self._untyped_storage = made.untyped_storage()
        else:
            raise TypeError(f"{expected}\nArgument type not recognized: {type(args[0])}")

    # --- what it is ---

    @property
    def device(self):
        return self._untyped_storage.device

    @property
    def filename(self):
        return self._untyped_storage.filename

    @property
    def is_cuda(self):
        return self._untyped_storage.is_cuda

    @property
    def is_hpu(self):
        return self._untyped_storage.is_hpu

    @property
    def _cdata(self):
        return self._untyped_storage._cdata

    @property
    def _storage(self):
        return self._untyped_storage._storage

    def untyped(self):
        """The same bytes without the dtype."""
        _warn_typed_storage_removal()
        return self._untyped_storage

    def _size(self):
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def size(self):
        """How many elements there are."""
        _warn_typed_storage_removal()
        return self._size()

    __len__ = size

    def nbytes(self):
        """How many bytes there are."""
        _warn_typed_storage_removal()
        return self._untyped_storage.nbytes()

    _nbytes = nbytes

    def element_size(self):
        """Bytes per element."""
        _warn_typed_storage_removal()
        return self.dtype.itemsize

    def _element_size(self):
        return self.dtype.itemsize

    def get_device(self):
        """The index of the device; None on the CPU."""
        _warn_typed_storage_removal()
        return self.device.index

    def data_ptr(self):
        """The address of the first element."""
        _warn_typed_storage_removal()
        return self._untyped_storage.data_ptr()

    def _data_ptr(self):
        return self._untyped_storage.data_ptr()

    def type(self, dtype=None, non_blocking=False):
        """The name of its type, or a copy as another kind of storage."""
        _warn_typed_storage_removal()
        if dtype is None:
            cls = self._get_legacy_storage_class()
            return "torch.storage.TypedStorage" if cls is None else f"torch.{cls.__name__}"
        return converted(self, dtype)

    def _get_legacy_storage_class(self):
        return LEGACY_STORAGES.get(STORAGE_NAMES.get(self.dtype)) if self.device.type == "cpu" else None

    def pickle_storage_type(self):
        """The name under which it is saved: "FloatStorage"."""
        _warn_typed_storage_removal()
        return self._pickle_storage_type()

    def _pickle_storage_type(self):
        if self.dtype not in STORAGE_NAMES:
            raise KeyError(f"dtype {self.dtype} is not recognized")
        return STORAGE_NAMES[self.dtype]

    def resizable(self):
        """Whether `resize_` can be called."""
        _warn_typed_storage_removal()
        return self._untyped_storage.resizable()

    def is_shared(self):
        """Whether other processes see this memory."""
        _warn_typed_storage_removal()
        return self._untyped_storage.is_shared()

    def _is_shared(self):
        return self._untyped_storage.is_shared()

    def is_pinned(self, device=None):
        """Whether the memory is page-locked: never without an accelerator."""
        _warn_typed_storage_removal()
        return self._untyped_storage.is_pinned(device)

    def __sizeof__(self):
        _warn_typed_storage_removal()
        return object.__sizeof__(self) + self._untyped_storage.nbytes()

    def __eq__(self, other):
        _warn_typed_storage_removal()
        return isinstance(other, TypedStorage) and self._untyped_storage == other._untyped_storage \
            and self.dtype is other.dtype

    def __hash__(self):
        return hash(self._untyped_storage)

    def __repr__(self):
        _warn_typed_storage_removal()
        rows = "...\n" if self.device.type == "meta" else "".join(f" {n}\n" for n in self._tensor().tolist()) or " \n"
        return (f"{rows}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self._size()}]")

    __str__ = __repr__

    # --- its elements ---

    def _tensor(self):
        return wrap(self._storage, spec(self.dtype, (self._size(),), None, self.device))

    def tolist(self):
        """The elements."""
        _warn_typed_storage_removal()
        return self._tensor().tolist()

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, index):
        _warn_typed_storage_removal()
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, (int, np.integer)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        return self._tensor()[self._at(index)].item()

    def __setitem__(self, index, value):
        _warn_typed_storage_removal()
        if not isinstance(index, (int, np.integer, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if isinstance(value, (TypedStorage, UntypedStorage)):
            raise RuntimeError(f"cannot set item with value type {type(value)}")
        if isinstance(value, collections.abc.Sequence):
            value = TypedStorage(value, dtype=self.dtype, _internal=True)._tensor()
        self._tensor()[index if isinstance(index, slice) else self._at(index)] = value

    def _at(self, index):
        size = self._size()
        if not -size <= index < size:
            raise IndexError(f"index {index} out of range for storage of size {size}")
        return int(index) % size

    def fill_(self, value):
        """Set every element to `value`."""
        _warn_typed_storage_removal()
        self._tensor().fill_(value)
        return self

    def copy_(self, source, non_blocking=None):
        """Overwrite the bytes by those of `source`: as in PyTorch, nothing is converted."""
        _warn_typed_storage_removal()
        self._untyped_storage.copy_(source)
        return self

    def resize_(self, size):
        """Make it `size` elements long."""
        _warn_typed_storage_removal()
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    _resize_ = resize_

    # --- others made of it ---

    def _new_wrapped_storage(self, untyped):
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype, _internal=True)

    def clone(self):
        """A copy."""
        _warn_typed_storage_removal()
        return self._new_wrapped_storage(self._untyped_storage.clone())

    def __copy__(self):
        return self._new_wrapped_storage(copy.copy(self._untyped_storage))

    def __deepcopy__(self, memo):
        return self._new_wrapped_storage(copy.deepcopy(self._untyped_storage, memo))

    _deepcopy = __deepcopy__

    def cpu(self):
        """The storage on the CPU."""
        _warn_typed_storage_removal()
        return self._new_wrapped_storage(self._untyped_storage.cpu())

    def to(self, *, device, non_blocking=False):
        """The storage on a device."""
        _warn_typed_storage_removal()
        return self._new_wrapped_storage(self._untyped_storage.to(device=device))

    def cuda(self, device=None, non_blocking=False):
        """Refused where there is no CUDA device."""
        _warn_typed_storage_removal()
        return self._new_wrapped_storage(self._untyped_storage.cuda(device))

    def pin_memory(self, device=None):
        """Refused: there is no accelerator that page-locked memory would serve."""
        _warn_typed_storage_removal()
        return self._new_wrapped_storage(self._untyped_storage.pin_memory(device))

    def share_memory_(self):
        """Accepted for PyTorch's sake: memory is not shared between processes here."""
        _warn_typed_storage_removal()
        self._untyped_storage.share_memory_()
        return self

    _share_memory_ = share_memory_

    def _to(self, dtype):
        return of_elements(self._tensor(), dtype)

    def __reduce__(self):
        return _typed, (self._storage, self.dtype)

    # --- from elsewhere ---

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, *, dtype=None, device=None):
        """A copy of the elements in an object with the buffer protocol."""
        _warn_typed_storage_removal()
        if cls is not TypedStorage and (dtype is not None or device is not None):
            raise RuntimeError(f"from_buffer: '{'device' if dtype is None else 'dtype'}' can only be specified in "
                               "UntypedStorage.from_buffer and TypedStorage.from_buffer")
        dtype = cls.dtype if cls is not TypedStorage else dtypes.given(dtype, dtypes.get_default_dtype())
        made = UntypedStorage.from_buffer(buffer, byte_order, count, offset, dtype=dtype)
        return TypedStorage(wrap_storage=made, dtype=dtype, _internal=True)

    _from_buffer = from_buffer

    @classmethod
    def from_file(cls, filename, shared=False, size=0):
        """The elements of a file, read as they are looked at. `shared`: what is written goes to the file."""
        _warn_typed_storage_removal()
        if cls is TypedStorage:
            raise RuntimeError("from_file can only be called on derived classes")
        made = UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize)
        return TypedStorage(wrap_storage=made, dtype=cls.dtype, _internal=True)


def _conversion(name):
    def method(self):
        _warn_typed_storage_removal()
        return self._to(CONVERSIONS[name])
    method.__doc__ = f"The elements as {CONVERSIONS[name].name}, in a storage of their own."
    return method


for _name in CONVERSIONS:
    setattr(TypedStorage, _name, _conversion(_name))


def _typed(cell, dtype):
    return TypedStorage(wrap_storage=UntypedStorage(storage=cell), dtype=dtype, _internal=True)


class _LegacyStorageMeta(type):
    """`isinstance(storage, FloatStorage)`: whether it is one of that dtype."""

    def __instancecheck__(cls, thing):
        return type(thing) is TypedStorage and cls.__dict__.get("dtype") is thing.dtype and thing.device.type == "cpu"


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """What FloatStorage and its kin have in common."""


LEGACY_STORAGES = {name: _LegacyStorageMeta(name, (_LegacyStorage,), {
    "dtype": d, "__module__": "torch", "__doc__": f"Makes storages of {d.name}. Deprecated, as in PyTorch."})
    for d, name in STORAGE_NAMES.items()}


def storage(self):
    """The storage behind the tensor, with the tensor's dtype. Deprecated: use `untyped_storage`."""
    _warn_typed_storage_removal()
    return _typed(self._storage, self._spec.dtype)


def _typed_storage(self):
    return _typed(self._storage, self._spec.dtype)


def storage_type(self):
    """The class of its storage: `FloatStorage`."""
    return LEGACY_STORAGES.get(STORAGE_NAMES.get(self._spec.dtype), TypedStorage)


for form in (storage, _typed_storage, storage_type):
    setattr(Tensor, form.__name__, form)
del form
