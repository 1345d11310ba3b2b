"""Tensors from data: `tensor`, `as_tensor`, `asarray`, and the calls of the classes (`Tensor`, `FloatTensor`)."""
import itertools
import math

import numpy as np

from ..autograd.modes import modes
from ..backends.cpu.memory import allocator
from ..base import dtypes, observers
from ..base.arguments import asked, beyond_64_bits, fits, options
from ..base.dtypes import as_dtype
from ..base.errors import warn
from ..base.op import NUMBER_CLASSES, door
from ..base.spec import CPU, META, Size, as_device, device, of_array, spec
from ..trace import on_host
from ..trace.running.quick import here
from ..trace.value import Storage, Value
from .dlpack import array_over
from .forms import declared
from .interop import check_array, frombuffer, on_gpu, shared, type_words
from .movement import pinnable
from .storage import UntypedStorage
from .tensor import Tensor, TensorType, wrap

PUBLIC = ("tensor", "as_tensor", "asarray", "from_file")
MAX_MOVED_BYTES = 1 << 20       # of an array that is moved to the beginning of a cache line


def from_array(array, requires_grad=False, where=None):
    """A tensor that takes over a dense array nothing else holds; on the meta device, only its shape."""
    found = of_array(array)
    if not array.flags.c_contiguous:
        found = spec(found.dtype, found.shape, tuple([step // found.dtype.itemsize for step in array.strides]))
    if where is None or where is CPU:
        return from_array_of(found, array, requires_grad)
    found = found.on(where)
    if where is META:
        return from_array_of(found, None, requires_grad)
    out = from_array_of(found, where.backend.from_host(array, found), requires_grad)
    on_host.remember(out._storage.value, array)
    return out


def from_array_of(spec, array, requires_grad):
    """A tensor of the dense spec `spec` that takes over an array of its device nothing else holds; None on META."""
    if array is not None and spec.device is CPU and allocator.LINED_UP_BYTES <= spec.nbytes <= MAX_MOVED_BYTES:
        array = allocator.lined_up(array, spec)
    return from_value(spec, None if array is None else Value.of(array, spec), requires_grad)


def from_value(spec, value, requires_grad=False):
    """A tensor of the dense spec `spec` over a ready Value that nothing else holds; None on META."""
    out = wrap(Storage.of(value, spec.nbytes, spec.device), spec)
    if value is not None and (tell := observers.made) is not None:
        tell(value)
    out._site = here()
    if modes.inference:
        out._storage.inference = True
    return asked(out, requires_grad)


def no_pinning(pin_memory):
    if pin_memory:
        raise RuntimeError("pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator "
                           "is available on this system.")


# --- the public functions --------------------------------------------------


@pinnable
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A new tensor that copies `data`: a number, nested sequences of numbers, an array.

    >>> torch.tensor([[1, 2], [3, 4.5]])
    tensor([[1.0000, 2.0000],
            [3.0000, 4.5000]])
    """
    dtype, where = dtypes.given(dtype), as_device(device)
    no_pinning(pin_memory)
    if isinstance(data, Tensor):
        warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
             "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).")
        return copied(data, dtype, where if device is not None else None, requires_grad)
    if (elsewhere := on_gpu(data)) is not None:
        return copied(elsewhere, dtype, where if device is not None else None, requires_grad)
    return from_array(array_from(data, dtype), requires_grad, where)


def copied(data, dtype, where, requires_grad=False):
    """A fresh leaf with the contents of the tensor `data`."""
    out = data.detach().as_subclass(Tensor).to(device=where or data.device, dtype=dtype or data.dtype, copy=True)
    return asked(out, requires_grad)


def as_tensor(data, dtype=None, device=None):
    """`data` as a tensor, sharing memory and history where it can: a tensor is itself, an array is looked at.

    >>> torch.as_tensor([1, 2])
    tensor([1, 2])
    """
    dtype = dtypes.given(dtype)
    if (elsewhere := on_gpu(data)) is not None:
        data = elsewhere
    if isinstance(data, Tensor):
        where = data.device if device is None else as_device(device)
        if (dtype is None or dtype is data.dtype) and where is data.device:
            return data
        return data.to(device=where, dtype=dtype or data.dtype)
    where = as_device(device)
    found = outside(data)
    if found is None:
        return from_array(array_from(data, dtype), False, where)
    if dtype is None or dtype.np == found.dtype:
        return shared(found) if where is CPU else from_array(copy_of(found), False, where)
    return shared(found).to(device=where, dtype=dtype)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None):
    """`obj` as a tensor: looked at where that is possible (`copy=False` insists on it), copied otherwise.

    An object with the buffer protocol is read as elements of `dtype` (the default dtype, if none is given).

    >>> torch.asarray([1, 2])
    tensor([1, 2])
    """
    wanted, where = dtypes.given(dtype), as_device(device) if device is not None else None
    if (elsewhere := on_gpu(obj)) is not None:
        obj = elsewhere
    if isinstance(obj, Tensor):
        found = obj
    elif isinstance(cell := getattr(obj, "_storage", None), Storage):
        element_dtype = getattr(obj, "dtype", None) or wanted or dtypes.int64
        found = wrap(cell, spec(element_dtype, (cell.nbytes // element_dtype.itemsize,), None, cell.device))
        found._site = here()
    else:
        array = outside(obj)
        if array is not None:
            found = shared(array)
        elif not isinstance(obj, str) and holds_buffer(obj):
            found = frombuffer(obj, dtype=wanted or dtypes.get_default_dtype())
        else:
            if copy is False:
                raise ValueError("can't alias arbitrary sequence into a tensor.")
            return from_array(array_from(obj, wanted), bool(requires_grad), where or as_device(None))
    if copy is False:
        if where is not None and where is not found.device:
            raise ValueError(f"can't alias tensor from device '{found.device}' to '{where}'.")
        if wanted is not None and wanted is not found.dtype:
            raise ValueError(f"can't alias tensor with dtype '{found.dtype.cname}' into dtype '{wanted.cname}'.")
    out = found
    if copy:
        out = found.clone()
    if (wanted or out.dtype) is not out.dtype or (where or out.device) is not out.device:
        out = out.to(device=where or out.device, dtype=wanted or out.dtype)
    if requires_grad is None:
        return out
    if not requires_grad:
        return out.detach() if out.requires_grad else out
    return out if out.requires_grad else out.requires_grad_()


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, pin_memory=False,
              requires_grad=False):
    """A tensor of `size` elements over a file, read as they are looked at. `shared`: what is written goes to the file.

    >>> import numpy, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> numpy.arange(3.0).tofile(path)
    >>> torch.from_file(path, size=3, dtype=torch.float64)
    tensor([0., 1., 2.], dtype=torch.float64)
    """
    element_dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
    if where is META:
        raise NotImplementedError("from_file on the meta device: a file has contents; use torch.empty(size, "
                                  "device='meta')")
    storage = UntypedStorage.from_file(filename, bool(shared), size * element_dtype.itemsize)
    out = wrap(storage._storage, spec(element_dtype, (size,)))
    out._site = here()
    return asked(out, requires_grad)


# --- data to arrays --------------------------------------------------


def outside(data):
    """The array that an object of another library shows its memory as, or None."""
    if isinstance(data, np.ndarray):
        check_array(data)
        return data
    if isinstance(data, np.generic):
        return None
    if hasattr(type(data), "__dlpack__"):
        return array_over(data)
    return None


def holds_buffer(thing):
    """Whether `thing` shows its memory through the buffer protocol."""
    try:
        memoryview(thing)
    except TypeError:
        return False
    return not isinstance(thing, np.generic)


def copy_of(array):
    """A dense copy whose dimensions lie in the order of `array`'s."""
    if array.nbytes > MAX_MOVED_BYTES and array.flags.c_contiguous and array.dtype.isnative:
        laid, _ = allocator.blank(of_array(array))      # see Note [Lined up] in backends/cpu/memory/allocator.py
        laid[...] = array
        return laid
    return np.array(array, copy=True, order="K", subok=False)


def array_from(data, dtype=None):
    """A fresh array of `dtype` (by default the dtype that `data` says) with the contents of `data`."""
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    array = np.asarray(data) if isinstance(data, np.generic) else outside(data)
    if array is not None:
        if isinstance(data, np.generic):
            check_array(array)
        if dtype is None or array.dtype == dtype.np:
            return copy_of(array)
        if array.dtype.kind == "c" and not dtype.is_complex and dtype is not dtypes.bool:
            warn("Casting complex values to real discards the imaginary part")
        return converted(array, dtype)
    flat, shape, found = flattened(data)
    if found is not None:                                 # a list of arrays, put together already
        return found if dtype is None or found.dtype == dtype.np else converted(found, dtype)
    types = set(map(type, flat))
    if not types.issubset(NUMBER_CLASSES):
        flat, said = unwrapped(flat, dtype)
    else:
        said = None if dtype is not None else inferred(types)
    return elements(flat, dtype or said).reshape(shape)


def converted(array, dtype):
    """`array` in `dtype`, converted as C does; integers wrap."""
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and not dtype.is_complex and dtype is not dtypes.bool:
            array = array.real
        if array.dtype.kind == "f" and dtype.category == 1:
            array = array.astype(np.int64)
        if dtype.itemsize == 2 and dtype.category == 2 and array.dtype.itemsize > 4:
            array = array.astype(np.float32)              # to a half type by way of float32, as PyTorch does
        return as_dtype(array, dtype) if dtype.family else np.array(array, dtype.np, order="K")


def is_sequence(thing):
    """Whether PyTorch would look inside `thing` for elements."""
    if isinstance(thing, (list, tuple)):
        return True
    if isinstance(thing, (Tensor, np.generic, dict, int, float, complex)):
        return False
    if isinstance(thing, np.ndarray):
        return thing.ndim > 0
    return hasattr(type(thing), "__getitem__") and hasattr(type(thing), "__len__")


def flattened(data):
    """(elements in order, shape, None) of nested sequences, or (None, shape, array) where they hold arrays."""
    flat, shape = [data], []
    while flat and is_sequence(flat[0]):
        first = flat[0]
        if isinstance(first, (str, bytes)):
            raise ValueError(f"too many dimensions '{type(first).__name__}'")
        if isinstance(first, np.ndarray) and all(isinstance(a, np.ndarray) and a.shape == first.shape for a in flat):
            own_dtypes = [dtypes.from_numpy(a.dtype) for a in flat]
            common = own_dtypes[0]
            for own_dtype in own_dtypes[1:]:
                common = dtypes.promote_types(common, own_dtype)
            joined = np.stack([np.asarray(a) for a in flat]).astype(common.np, copy=False)
            return None, None, joined.reshape(*shape, *first.shape)
        length = len(first)
        for item in flat:
            if not is_sequence(item):
                raise TypeError(f"not a sequence: {item!r:.60} stands at dim {len(shape)} beside a sequence of length "
                                f"{length}")
            if len(item) != length:
                raise ValueError(f"expected sequence of length {length} at dim {len(shape)} (got {len(item)})")
        shape.append(length)
        flat = list(itertools.chain.from_iterable(flat)) if length else []
    return flat, tuple(shape), None


def inferred(types):
    """The dtype of elements of these Python types."""
    if complex in types:
        return dtypes.get_default_dtype().to_complex()
    if float in types or not types:
        return dtypes.get_default_dtype()
    return dtypes.int64 if int in types else dtypes.bool


def unwrapped(flat, dtype):
    """(Python numbers, their common dtype) of elements that are not all Python numbers."""
    common, numbers = None, []
    for element in flat:
        if isinstance(element, Tensor):
            if element._spec.numel != 1:
                instead = ": a list of tensors is put together by torch.stack"
                if element._spec.dtype.category < 2:
                    raise TypeError("only integer tensors of a single element can be converted to an index" + instead)
                raise ValueError("only one element tensors can be converted to Python scalars" + instead)
            own_dtype, element = element._spec.dtype, element.item()
        elif isinstance(element, (np.generic, np.ndarray)):
            own_dtype, element = dtypes.from_numpy(element.dtype), element.item()
        elif isinstance(element, bool):
            own_dtype = dtypes.bool
        elif isinstance(element, (int, float, complex)):
            own_dtype = dtypes.of_number(next(c for c in (int, float, complex) if isinstance(element, c)))
        elif is_sequence(element):
            raise TypeError(f"'{type(element).__name__}' object cannot be interpreted as an integer: it stands beside "
                            "numbers")
        elif dtype is None:
            raise RuntimeError(f"Could not infer dtype of {type_words(element)}")
        else:
            own_dtype, element = dtype, number_in(element, dtype)
        numbers.append(element)
        if dtype is None:
            common = own_dtype if common is None else dtypes.promote_types(common, own_dtype)
    return numbers, common


def number_in(number, dtype):
    """An object of a foreign number type as the Python number that `dtype` asks for."""
    if dtype.is_complex:
        return complex(number)
    if dtype.is_floating_point:
        return float(number)
    return number.__index__() if hasattr(number, "__index__") else int(float(number))


def elements(flat, dtype):
    """A one-dimensional array of the Python numbers `flat` in `dtype`; what it cannot hold is refused."""
    if dtype is dtypes.bool:
        return np.array([bool(n) for n in flat], np.bool_)
    if dtype.is_complex:
        return np.array(flat, np.complex128).astype(dtype.np)
    if any(type(n) is complex for n in flat):
        raise TypeError("must be real number, not complex" if dtype.is_floating_point else
                        "'complex' object cannot be interpreted as an integer")
    if dtype.is_floating_point:
        with np.errstate(over="ignore"):
            made = np.array(flat, np.float64)
            return as_dtype(made.astype(np.float32) if dtype.itemsize <= 2 else made, dtype)
    if dtype is dtypes.uint64:
        for n in flat:
            if type(n) is float:
                raise TypeError(f"an integer is required for {dtype}, not {n!r}")
            if n < 0:
                raise OverflowError(f"can't convert negative int to unsigned: {n}")
            if n >= 1 << 64:
                beyond_64_bits(n)
        return np.array(flat, np.uint64)
    try:
        made = np.array(flat, np.int64)
    except (OverflowError, ValueError):                   # find the number that does not go in, and say so
        for n in flat:
            if isinstance(n, float) and not (math.isfinite(n) and -2**63 <= n < 2**63):
                raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: {n!r}") from None
            if not -2**63 <= n < 2**63:
                raise ValueError(f"Overflow when unpacking long long: {n} does not fit into int64") from None
        raise
    if dtype is not dtypes.int64:
        top = int(np.iinfo(dtype.np).max)
        low = int(np.iinfo(dtype.np).min) or -top         # negatives wrap into an unsigned dtype, as in PyTorch
        wrong = (made > top) | (made < low)
        if any(type(n) is float for n in flat):
            wrong |= [type(n) is float and not fits(n, dtype) for n in flat]
        if wrong.any():
            raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: "
                               f"{flat[int(wrong.argmax())]!r}")
    return made.astype(dtype.np)


# --- the classes, called --------------------------------------------------


def legacy(dtype, args, kwargs, what="new"):
    """What `Tensor(2, 3)`, `Tensor([…])`, `FloatTensor(…)`, `tensor.new(…)` make. A dtype of None is free."""
    where = kwargs.pop("device", None)
    if where is not None and (where if isinstance(where, device) else device(where)).type != "cpu":
        raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {where} was passed; use "
                           f"torch.empty or torch.tensor with device='{where}'")
    for name in ("size", "data", "other", "storage"):
        if name in kwargs:
            args = (*args, Size(kwargs.pop(name)) if name == "size" else kwargs.pop(name))
    if kwargs:
        raise TypeError(f"{what}() received an invalid combination of arguments: unexpected {', '.join(kwargs)}; "
                        "torch.tensor(data, dtype=..., device=...) takes them")
    element_dtype = dtype or dtypes.get_default_dtype()
    data = args[0] if args else Size((0,))
    if len(args) > 1 or isinstance(data, Size) or (isinstance(data, int) and not isinstance(data, bool)) \
            or isinstance(data, np.integer):
        return _empty(data if isinstance(data, Size) and len(args) < 2 else args, element_dtype)
    cell = getattr(data, "_storage", None)
    if cell is not None and not isinstance(data, Tensor):            # a storage, typed or untyped
        own_dtype = getattr(data, "dtype", None) or element_dtype
        if own_dtype is not element_dtype:
            raise RuntimeError(f"Expected a Storage of type {element_dtype.name} or an UntypedStorage, but got type "
                               f"{own_dtype.cname} for argument 1 'storage'")
        out = wrap(cell, spec(element_dtype, (cell.nbytes // element_dtype.itemsize,), None, cell.device))
        out._site = here()
        return out
    if isinstance(data, Tensor):
        if dtype is not None and data.dtype is not dtype:
            raise TypeError(f"expected {type_name(dtype)} (got {type_name(data.dtype)}): use .to({dtype!r}) to convert")
        return data.detach().as_subclass(Tensor)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if outside(data) is None and not is_sequence(data):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    return as_tensor(data, dtype=element_dtype)


def _empty(size, dtype):
    return declared["empty"](tuple(size), dtype=dtype)


def _called(cls, *args, **kwargs):
    """`Tensor(2, 3)` makes an uninitialised tensor of the default dtype, `Tensor(data)` one of the data."""
    return legacy(None, args, kwargs) if cls is Tensor else type.__call__(cls, *args, **kwargs)


def _new_of_subclass(cls, *args, **kwargs):
    """What `Subclass(…)` makes before its `__init__` runs: as `Tensor(…)`, of that class."""
    return legacy(None, args, kwargs).as_subclass(cls)


TensorType.__call__ = _called                             # type: ignore[method-assign]
Tensor.__new__ = _new_of_subclass                         # type: ignore[assignment]


def type_name(dtype):
    """`torch.FloatTensor` for float32, and so on."""
    return f"torch.{dtype.cname}Tensor"


class LegacyType(type):
    """The type of `FloatTensor` and its like: a call makes a tensor of that dtype, `isinstance` looks at the dtype."""

    def __call__(cls, *args, **kwargs):
        return legacy(cls.dtype, args, kwargs)

    def __instancecheck__(cls, thing):
        return isinstance(thing, Tensor) and thing.dtype is cls.dtype and thing.is_cpu

    def __repr__(cls):
        return f"<class 'torch.{cls.__name__}'>"


LEGACY_TENSOR_TYPES = {f"{d.cname}Tensor": LegacyType(f"{d.cname}Tensor", (), {
    "dtype": d, "is_cuda": False, "is_sparse": False, "__module__": "torch",
    "__doc__": f"Makes {d.name} tensors: sizes give uninitialised ones, a sequence its elements."})
    for d in dtypes.COMMON if not d.is_complex}


def new(self, *args, **kwargs):
    """An uninitialised tensor of this dtype from sizes, or a tensor of it from a sequence."""
    return legacy(self.dtype, args, kwargs)


@pinnable
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor that copies `data`, in the dtype and on the device of this one unless others are given."""
    no_pinning(pin_memory)
    element_dtype, where = dtypes.given(dtype, self.dtype), self.device if device is None else as_device(device)
    if isinstance(data, Tensor):
        warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
             "sourceTensor.detach().clone().requires_grad_(True), rather than "
             "tensor.new_tensor(sourceTensor).")
        return copied(data, dtypes.given(dtype), where, requires_grad)
    return from_array(array_from(data, element_dtype), requires_grad, where)


Tensor.new, Tensor.new_tensor = new, new_tensor


door.from_array = from_array
