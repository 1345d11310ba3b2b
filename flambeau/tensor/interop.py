"""Memory shared with the outside: NumPy arrays, buffers, DLPack.

See Note [Exported storages] in trace/value.py: while the memory is held outside, every operation on it runs at
the call. A read-only array makes a read-only tensor, and every write to it is refused at the call.
"""
import numpy as np

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..backends.cpu import host
from ..base import dtypes, shapes
from ..base.errors import line_of, name_of, user_frame
from ..base.spec import CPU, META, as_device, spec
from ..trace.recording.record import run_all
from ..trace.running.quick import here
from ..trace.value import Storage, Value
from .tensor import Tensor, wrap

PUBLIC = ("from_numpy", "frombuffer")


# --- arrays to tensors --------------------------------------------------


def from_numpy(ndarray, *, lend=False):
    """A tensor over the memory of `ndarray`: each sees what is written through the other.

    A read-only array gives a tensor that refuses every write. With `lend=True`, which PyTorch has not, the array is
    read-only for as long as the tensor, or another over the same storage, lives: what the tensor holds cannot change
    behind its back.

    >>> import numpy as np
    >>> torch.from_numpy(np.arange(3.0))
    tensor([0., 1., 2.], dtype=torch.float64)
    """
    if lend:
        return _lent(ndarray)
    look = (ndarray.dtype, ndarray.shape, ndarray.strides) if ndarray.__class__ is np.ndarray else None
    spec = _kinds.get(look)
    if spec is None:
        if not isinstance(ndarray, np.ndarray):
            raise TypeError(f"expected np.ndarray (got {type_words(ndarray)})")
        check_array(ndarray)
        out = shared(ndarray)
        if look is not None and ndarray.flags.c_contiguous:
            if len(_kinds) > 10_000:
                _kinds.clear()
            _kinds[look] = out._spec
        return out
    storage = Storage.of(Value.of(ndarray, spec), spec.nbytes, spec.device)
    storage.adopt(ndarray)
    out = wrap(storage, spec)
    out._site = here()
    return out


def _lent(ndarray):
    if isinstance(ndarray, np.ndarray) and not ndarray.flags.owndata:
        raise ValueError("from_numpy(lend=True) takes an array that owns its memory, and this one looks at that of "
                         "another, which could still be written: lend that one, or a copy()")
    if isinstance(ndarray, np.ndarray) and not ndarray.flags.writeable:
        raise ValueError("from_numpy(lend=True): the array is read-only already, lent to another tensor or for good; "
                         "from_numpy(array) shares it as it is")
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type_words(ndarray)})")
    made = from_numpy(ndarray.view())                 # which can still be written: the tensor may
    made._storage.lend(ndarray)
    made._site = here()
    return made


_kinds: dict = {}             # (dtype, shape, strides) of contiguous arrays that were found fine → their spec


def type_words(thing):
    """The name of a thing's type as PyTorch writes it: without a module only if it is built in."""
    cls = type(thing)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def check_array(array):
    """Refuse an array that no tensor can look like, in PyTorch's words."""
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. Conversion between "
                         f"byte orders is currently not supported. (Its dtype is {array.dtype}; "
                         "array.astype(array.dtype.newbyteorder('=')) converts it.)")
    dtype = dtypes.from_numpy(array.dtype)
    if any(step < 0 for step in array.strides):
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides "
                         "are not currently supported. (You can probably work around this by making a copy of your "
                         f"array with array.copy().) Its strides are {array.strides} bytes.")
    if any(step % dtype.itemsize for step in array.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to "
                         f"reallocate the memory. (Its strides are {array.strides} bytes, an element has "
                         f"{dtype.itemsize}.)")


def shared(array):
    """A tensor over the memory of `array`, which has passed `check_array`."""
    plain = array if array.__class__ is np.ndarray else np.asarray(array)
    dtype = dtypes.from_numpy(plain.dtype)
    found = spec(dtype, plain.shape, tuple([step // dtype.itemsize for step in plain.strides]))
    if plain.flags.c_contiguous:
        value, nbytes = Value.of(plain, found), found.nbytes
    else:
        # The storage reaches from the first element to the last, gaps included.
        reach = shapes.extent(found.shape, found.strides) * dtype.itemsize
        value, nbytes = Value.of(host.span(plain).view(np.uint8), spec(dtypes.uint8, (reach,))), reach
        value._memory = value.array
    storage = Storage.of(value, nbytes, found.device)
    storage.adopt(array)
    out = wrap(storage, found)
    out._site = here()
    return out


def shared_foreign(found):
    """A tensor over the memory of another library's array on a GPU, a `Foreign` (backends/cuda/exchange.py)."""
    where = as_device(found.device)
    storage = Storage.of(Value.of_bytes(found.memory, where), found.memory.size, where)
    storage.adopt_foreign(found.readonly)
    out = wrap(storage, spec(found.dtype, found.shape, found.strides, where))
    out._site = here()
    return out


def on_gpu(thing):
    """A tensor over the memory that an object of another library shows as a GPU's, or None."""
    if not hasattr(type(thing), "__cuda_array_interface__") or isinstance(thing, Tensor):
        return None
    from ..backends.cuda.exchange import from_interface
    found = from_interface(thing)
    return None if found is None else shared_foreign(found)


def cuda_array_interface(self):
    """What other libraries see of the tensor's memory on a GPU, where it stays as long as the storage lives."""
    if self._spec.device.type != "cuda":
        raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data "
                             "is required use tensor.cuda() to copy tensor to device memory." + who(self))
    if requires(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't "
                           "required, use var.detach() to get Variable that doesn't require grad." + who(self))
    return self._spec.device.backend.interface(fixed(self), self._spec, self._offset)


def fixed(tensor):
    """The bytes of a tensor's storage, which stay where they are from now on: others look at them."""
    storage = tensor._storage
    if not storage.exported:
        run_all()                        # what was recorded before must not see what others will write
    storage.pin()
    return storage.value.memory


def held(tensor):
    """What holds the bytes of a tensor's storage where they are, for others to stand on."""
    storage = tensor._storage
    if not storage.exported:
        run_all()
    return storage.held()


type.__setattr__(Tensor, "__cuda_array_interface__", property(cuda_array_interface))


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A one-dimensional tensor over the memory of an object with the buffer protocol; read-only if that is.

    >>> torch.frombuffer(bytearray(b"abc"), dtype=torch.uint8)
    tensor([97, 98, 99], dtype=torch.uint8)
    """
    try:
        length = memoryview(buffer).nbytes
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    element_dtype = dtypes.given(dtype)
    size = element_dtype.itemsize
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} "
                         "bytes) minus 1")
    if count > 0:
        if offset + count * size > length:
            raise ValueError(f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not "
                             f"be greater than actual buffer length ({length} bytes)")
    elif (length - offset) % size:
        raise ValueError(f"buffer length ({length} bytes) after offset ({offset} bytes) must be a multiple of element "
                         f"size ({size})")
    out = shared(host.array_over(buffer, element_dtype.np, -1 if count < 0 else count, offset))
    return out.requires_grad_() if requires_grad else out


# --- tensors to arrays --------------------------------------------------


def numpy(self, *, force=False):
    """The tensor as a NumPy array over the same memory; with `force`, or where no graph is recorded, also of one that
    requires grad."""
    if self._spec.device is not CPU:
        if not force:
            raise TypeError(f"can't convert {self._spec.device} device type tensor to numpy. Use Tensor.cpu() to copy "
                            "the tensor to host memory first." + who(self))
        if self._spec.device is META:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!" + who(self))
        return exported(self.detach().cpu())
    if not force and modes.grad and requires(self):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
                           + who(self))
    return exported(self)


def exported(tensor):
    """An array over the tensor's memory, to hand out."""
    storage = tensor._storage
    if not storage.exported:
        run_all()                        # what was recorded before must not see what will be written to the array
    return storage.export(tensor._spec, tensor._offset)


def array(self, dtype=None, copy=None):
    """What `np.asarray(tensor)` calls: the tensor's memory, or a copy where a dtype or `copy=True` asks for one."""
    found = numpy(self)
    if dtype is not None and np.dtype(dtype) != found.dtype:
        if copy is False:
            raise ValueError(f"Unable to avoid copy while creating an array as requested: the tensor is {found.dtype}, "
                             f"and {np.dtype(dtype)} was asked for")
        return found.astype(dtype)
    return found.copy() if copy else found


def who(tensor):
    """Name, spec and birthplace, for the end of a message."""
    name = name_of(tensor, user_frame()) or "the tensor"
    return f"\n  {name} is {tensor._spec}, made at {line_of(tensor._site)}."


Tensor.numpy, Tensor.__array__ = numpy, array
