"""Storages as objects: what `untyped_storage()` returns, and the memory of files.

The cell itself (trace.value.Storage) is what tensors hold, as their attribute `_storage`; these are handles on it,
equal where the cell is the same. tensor/typed_storage.py has PyTorch's older storages, which know a dtype.
"""
import errno
import os
import weakref
from bisect import bisect_left, bisect_right
from operator import index as whole_number, itemgetter

import numpy as np

from ..backends.cpu import host
from ..base import dtypes
from ..base.locks import new_lock
from ..base.spec import CPU, META, as_device, device as make_device, spec
from ..base.weakbag import WeakTable
from ..trace.shared_memory import share
from ..trace.value import Storage, Value
from .interop import exported, held, shared
from .reading import array_of
from .tensor import Tensor, wrap
from .write import before_write

PUBLIC = ("UntypedStorage", "StorageBase")
FILE_ALIGNMENT_BYTES = 8      # a part of a file that starts elsewhere is copied, so that kernels can read it
NOT_A_HANDLE_MESSAGE = ("there are no handles on shared memory here: send the tensors or the storage through "
                        "torch.multiprocessing, which shares their memory")


def of_bytes(memory):
    """A cell over an array of bytes that nothing else writes to."""
    return Storage.of(Value.of_bytes(memory), memory.size, CPU)


class StorageBase:
    """What storages are, for `isinstance`: those of bytes."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError("Cannot directly construct StorageBase; subclass it and then construct that")


class UntypedStorage(StorageBase):
    """The bytes behind one or more tensors."""

    is_sparse = is_sparse_csr = False
    is_cuda = property(lambda self: self.device.type == "cuda")
    is_hpu = property(lambda self: self.device.type == "hpu")
    filename = None           # the file that a storage was mapped from to share it
    _fake_device = _checkpoint_offset = None
    _addressed = None         # an array over the memory, from when its address was asked for

    def __init__(self, *args, device=None, storage=None):
        if storage is None:
            storage = _made(args, CPU if device is None else as_device(device))
        self._storage = storage

    # --- what it is ---

    @property
    def device(self):
        return self._storage.device

    @property
    def _cdata(self):
        return id(self._storage)

    def nbytes(self):
        """How many bytes there are."""
        return self._storage.nbytes

    size = __len__ = nbytes

    def element_size(self):
        """Bytes per element: one."""
        return 1

    def get_device(self):
        """The index of the device; None on the CPU."""
        return self.device.index

    def data_ptr(self):
        """The address of the first byte, which stays where it is while this object lives.

        Not while the tensor does, as with `Tensor.data_ptr`: packages ask `tensor.untyped_storage().data_ptr()` of
        every parameter only to see which share memory, and what is pinned cannot be fused (Note [Exported storages]).
        """
        if self.device is META or not self.nbytes():
            return 0
        if self.device is CPU:
            self._addressed = exported(self._tensor())
            return host.address(self._addressed)
        self._addressed = held(self._tensor())
        return self.device.backend.address(self._addressed.memory)

    def resizable(self):
        """Whether `resize_` can be called."""
        return True

    def is_pinned(self, device=None):
        """Whether the memory is page-locked."""
        return self._storage.page_locked

    def is_shared(self):
        """Whether other processes see this memory: after `share_memory_`, or that of a file mapped to be shared."""
        return self.filename is not None or self._storage.shared is not None

    def __sizeof__(self):
        return object.__sizeof__(self) + 8 + self.nbytes()       # PyTorch's object is by a pointer larger

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and other._storage is self._storage

    def __hash__(self):
        return id(self._storage)

    def __repr__(self):
        rows = "...\n" if self.device is META else _rows(self)
        return f"{rows}[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    __str__ = __repr__

    # --- its bytes ---

    def _tensor(self):
        return wrap(self._storage, spec(dtypes.uint8, (self._storage.nbytes,), None, self._storage.device))

    def tolist(self):
        """The bytes as numbers."""
        return self._tensor().tolist()

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, index):
        if self.device is META:
            raise NotImplementedError("Not available for 'meta' device type")
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
            return UntypedStorage(storage=_part(self._storage, start, max(start, stop)))
        return self._tensor()[self._at(index)].item()

    def __setitem__(self, index, value):
        at = index if isinstance(index, slice) else self._at(index)
        if isinstance(index, slice) and index.step not in (None, 1):
            raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
        if not isinstance(value, int):
            raise TypeError(f"can only set storage content with a int types, but got {type(value).__name__} instead")
        self._tensor()[at] = value & 255

    def _at(self, index):
        """A position from the start, refused beyond the end."""
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        at = whole_number(index)
        if not -len(self) <= at < len(self):
            raise IndexError(f"index {at} out of range for storage of size {len(self)}")
        return at % len(self)

    def copy_(self, source, non_blocking=None):
        """Overwrite the bytes by those of `source`."""
        source = getattr(source, "_untyped_storage", source)
        if len(source) != len(self):
            raise RuntimeError(f"size does not match, self was {len(self)} bytes but src was {len(source)} bytes")
        self._tensor().copy_(source._tensor())
        return self

    def fill_(self, value):
        """Set every byte to `value`."""
        self._tensor().fill_(value)
        return self

    def byteswap(self, dtype):
        """Turn the bytes of each element round; of a complex one, those of each part."""
        self._byteswap(max(dtype.itemsize // (2 if dtype.is_complex else 1), 1))

    def _byteswap(self, width):
        if width > 1:
            whole = len(self) // width * width
            swapped = array_of(self._tensor())[:whole].reshape(-1, width)[:, ::-1].reshape(-1)
            self._tensor()[:whole] = wrap(of_bytes(swapped.copy()), spec(dtypes.uint8, (whole,)))

    def resize_(self, size):
        """Make it `size` bytes long; bytes beyond the old end are not initialised."""
        resize(self._storage, int(size))
        return self

    # --- others made of it ---

    def new(self):
        """A storage of no bytes."""
        return UntypedStorage(0, device=self.device)

    def clone(self):
        """A copy."""
        return UntypedStorage(storage=self._tensor().clone()._storage)

    def untyped(self):
        return self

    def cpu(self):
        """Itself, if it is on the CPU."""
        return self.to(device="cpu")

    def to(self, *, device, non_blocking=False):
        """The storage on a device: itself, if it is there."""
        where = as_device(device)
        return self if where is self.device else UntypedStorage(storage=self._tensor().to(where)._storage)

    def cuda(self, device=None, non_blocking=False):
        """Refused where there is no CUDA device."""
        return self.to(device="cuda" if device is None else make_device(device))

    def mps(self):
        """Refused where there is no such device."""
        return self.to(device="mps")

    def pin_memory(self, device=None):
        """A copy in page-locked memory; refused where no accelerator is served by it."""
        return UntypedStorage(storage=self._tensor().pin_memory(device)._storage)

    def share_memory_(self):
        """Move the bytes where other processes see them; see docs/data.md."""
        share([self._storage])
        return self

    @classmethod
    def _new_shared(cls, size, *, device="cpu"):
        """A new storage of `size` bytes that other processes see."""
        return cls(size, device=device).share_memory_()

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        from copy import deepcopy
        return UntypedStorage(storage=deepcopy(self._tensor(), memo)._storage)

    def __reduce__(self):
        return untyped, (self._storage,)

    # --- from elsewhere ---

    @classmethod
    def from_file(cls, filename, shared=False, nbytes=0):
        """The bytes of a file, read as they are looked at. `shared`: what is written goes to the file."""
        return _mapped(os.fspath(filename), shared, nbytes)

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, *, dtype=None):
        """A copy of the elements in an object with the buffer protocol, which lie there in `byte_order`."""
        if dtype is None:
            raise RuntimeError("function missing required argument 'dtype' (pos 5)")
        width = dtype.itemsize // (2 if dtype.is_complex else 1)
        if byte_order is None and width > 1:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        if byte_order not in (None, "native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        data = memoryview(buffer).cast("B")
        if not 0 <= offset <= len(data):
            raise ValueError(f"offset must be non-negative and no greater than buffer length ({len(data)}), but got "
                             f"{offset}")
        left = len(data) - offset
        if count < 0:
            if left % dtype.itemsize:
                raise ValueError(f"buffer size ({len(data)}) must be a multiple of element size ({dtype.itemsize})")
            count = left // dtype.itemsize
        if count * dtype.itemsize > left:
            raise ValueError(f"buffer has only {left // dtype.itemsize} elements after offset {offset}, but specified "
                             f"a size of {count}")
        made = UntypedStorage(storage=of_bytes(host.array_over(data, np.uint8, count * dtype.itemsize, offset).copy()))
        if byte_order == "big" and width > 1:
            made._byteswap(width)
        return made


def _refused(name):
    def method(self_or_class, *args, **kwargs):
        raise NotImplementedError(f"UntypedStorage.{name}: {NOT_A_HANDLE_MESSAGE}")
    method.__name__ = name
    method.__doc__ = "Refused: there are no handles on shared memory here."
    return method


for _name in ("_share_filename_cpu_", "_share_fd_cpu_", "_share_cuda_", "_shared_incref", "_shared_decref",
              "_weak_ref"):
    setattr(UntypedStorage, _name, _refused(_name))
for _name in ("_new_using_filename_cpu", "_new_using_fd_cpu", "_new_shared_filename_cpu", "_new_shared_fd_cpu",
              "_new_shared_cuda", "_release_ipc_counter", "_release_ipc_counter_cuda",
              "_new_with_weak_ptr", "_free_weak_ref", "_expired"):
    setattr(UntypedStorage, _name, classmethod(_refused(_name)))


def conversion(dtype):
    """The method that gives the elements of a storage as `dtype`."""
    def method(self):
        return self._to(dtype)
    method.__doc__ = f"The elements as {dtype.name}, in a storage of their own."
    return method


CONVERSIONS = {"double": dtypes.float64, "float": dtypes.float32, "half": dtypes.float16, "long": dtypes.int64,
               "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
               "bool": dtypes.bool, "bfloat16": dtypes.bfloat16, "complex_double": dtypes.complex128,
               "complex_float": dtypes.complex64, "float8_e5m2": dtypes.float8_e5m2,
               "float8_e4m3fn": dtypes.float8_e4m3fn, "float8_e5m2fnuz": dtypes.float8_e5m2fnuz,
               "float8_e4m3fnuz": dtypes.float8_e4m3fnuz}
for _name, _dtype in CONVERSIONS.items():
    setattr(UntypedStorage, _name, conversion(_dtype))


def _made(args, where):
    """The cell of a new storage: of no bytes, of so many, or of those in a sequence."""
    if len(args) > 1:
        raise TypeError(f"torch.UntypedStorage() takes a size or a sequence of bytes, got {len(args)} arguments")
    data = args[0] if args else 0
    if hasattr(data, "__index__"):
        size = whole_number(data)
        if size < 0:
            raise RuntimeError(f"a storage of {size} bytes: the size must not be negative")
        if where is META:
            return Storage.of(None, size, META)
        raw = spec(dtypes.uint8, (size,), None, where)
        return Storage.of(Value.of(where.backend.allocate(raw), raw), size, where)
    try:
        items = list(data)
    except TypeError:
        raise TypeError(f"torch.UntypedStorage(): expected a size or a sequence of ints, got {type(data).__name__}") \
            from None
    for item in items:
        if not hasattr(item, "__index__"):
            raise RuntimeError(f"torch.UntypedStorage(): tried to construct a storage from a sequence "
                               f"({type(data).__name__}), but one of the items was of type {type(item).__name__} "
                               "instead of int")
    bytes_ = np.array([whole_number(item) & 255 for item in items], np.uint8)
    raw = spec(dtypes.uint8, bytes_.shape, None, where)
    return Storage.of(None if where is META else Value.of(where.backend.from_host(bytes_, raw), raw), bytes_.size,
                      where)


def _rows(storage):
    """The elements, one on a line: all of them up to a thousand."""
    found = storage.tolist() if len(storage) <= 1000 else [*storage._tensor()[:10].tolist(), "...",
                                                           *storage._tensor()[-10:].tolist()]
    return "".join(f" {n}\n" for n in found) or " \n"


def untyped(cell):
    return UntypedStorage(storage=cell)


# --- files ---


_parts = weakref.WeakKeyDictionary()      # cell over a file → FileParts


def _mapped(filename, shared, nbytes):
    """A storage over the first `nbytes` of a file."""
    nbytes = whole_number(nbytes)
    try:
        if shared and (not os.path.exists(filename) or os.path.getsize(filename) < nbytes):
            with open(filename, "ab") as file:
                file.truncate(nbytes)
        size = os.path.getsize(filename)
        if size < nbytes:
            raise RuntimeError(f"file <{filename}> size <{size}> is smaller than the required mapping size <{nbytes}>")
        memory = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,)) if nbytes \
            else np.empty(0, np.uint8)
    except OSError as error:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(f"unable to open file <{filename}> in {mode} mode: {os.strerror(error.errno or errno.EIO)} "
                           f"({error.errno})") from error
    made = UntypedStorage(storage=of_bytes(memory.view(np.ndarray)))
    if shared:
        made._storage.adopt(memory)          # the outside sees every write: see Note [Exported storages] in value.py
        made.filename = filename
    else:
        _parts[made._storage] = FileParts()
    return made


class FileParts:
    """The cells over parts of a file that is not shared, for threads too: checkpoints are read through them.

    They are not to run at the call: each is an ordinary cell over its pages, the same one for the same bytes; one that
    overlaps others is a copy. Writes to a part are its own.
    """

    def __init__(self):
        self._lock = new_lock()
        self._cells = WeakTable()  # (start, stop) → its cell
        self._over: list = []      # (start, stop, weak reference to the cell) of those that are no copies, sorted

    def part(self, memory, start, stop):
        with self._lock:
            found = self._cells.get((start, stop))
            if found is None:
                first = bisect_right(self._over, start, key=itemgetter(0))
                if first and self._over[first - 1][1] > start:
                    first -= 1
                last = bisect_left(self._over, stop, first, key=itemgetter(0))
                alive = any(ref() is not None for _, _, ref in self._over[first:last])
                part = memory[start:stop]
                found = of_bytes(part.copy() if alive or start % FILE_ALIGNMENT_BYTES else part)
                if not alive:
                    self._over[first:last] = [(start, stop, weakref.ref(found))]
                self._cells[start, stop] = found
            return found


def _part(cell, start, stop):
    """A cell over some bytes of another: each sees what is written through the other; of files see FileParts."""
    parts = _parts.get(cell)
    if parts is not None:
        return parts.part(cell.value.ready().memory, start, stop)
    return shared(exported(wrap(cell, spec(dtypes.uint8, (stop - start,)), start)))._storage


def resize(cell, nbytes):
    """Give a storage another length, keeping the bytes that fit."""
    if nbytes == cell.nbytes:
        return
    whole = wrap(cell, spec(dtypes.uint8, (cell.nbytes,), None, cell.device))
    before_write(whole, "resize_")
    if cell.device is not META:
        if cell.exported and cell.still_exported():
            raise RuntimeError("cannot resize a storage whose memory NumPy (or another library) holds, or whose "
                               "address was asked for; clone() the tensor first")
        cell.value = cell.value.ready().with_length(nbytes, zeros=True)
    cell.nbytes = nbytes
    cell.version += 1


def untyped_storage(self):
    """The storage behind the tensor, as bytes."""
    return UntypedStorage(storage=self._storage)


def is_shared(self):
    """Whether other processes see this memory: see `share_memory_`."""
    return self._storage.shared is not None


def share_memory_(self):
    """Move the tensor's storage to memory that other processes see when the tensor is sent to them, or when they are
    forked: what one of them writes is there for all. Operations on such tensors run at the call.

    >>> x = torch.zeros(2)
    >>> x.share_memory_().is_shared(), x[1:].is_shared()
    (True, True)
    """
    share([self._storage])
    return self


def is_set_to(self, tensor):
    """Whether both tensors look at the same memory in the same way."""
    return self._storage is tensor._storage and self._offset == tensor._offset \
        and self._spec.shape == tensor._spec.shape and self._spec.strides == tensor._spec.strides


for form in (untyped_storage, is_shared, share_memory_, is_set_to):
    setattr(Tensor, form.__name__, form)
del form
