"""`x[…]` and `x[…] = value`.

An index is read part by part, front to back. Numbers, slices, None and `...` become views of views, as in PyTorch,
so that the result shares memory and its history has the same steps. Tensors, lists, arrays and booleans are
gathered on the way, each at the dimension it stands for, and applied together at the end, by `index` or `index_put_`.
"""
import operator

import numpy as np

from ..autograd.modes import modes
from ..base.errors import line_of, name_of, user_frame, warn
from ..base.op import NUMBER_CLASSES, known
from ..base.spec import CPU
from ..trace.recording.record import _local
from ..trace.running.quick import here
from ..trace.value import TensorBase
from .batched import Batched
from .create import from_array
from .forms import declared
from .infer import infer_entry, prepared, tables
from .messages import said
from .overrides import overloaded
from .reading import array_of
from .tensor import Tensor
from .views import view_one
from .write import before_write

_new = TensorBase.__new__
_rows: dict = {}              # spec → (spec of a row, how many there are, how far apart they are)
tables.append(_rows)


def getitem(self, index):
    """The part of the tensor that `index` says: a view, if that is made of numbers, slices, None and `...` only."""
    c = index.__class__
    if c is int and self.__class__ is Tensor and self._base is None:
        return row(self, index)
    if self.__class__ is not Tensor and overloaded((self,)):
        return self.__torch_function__(Tensor.__getitem__, (type(self),), (self, index), {})
    if c is int:
        return at(self, 0, index, 0)
    if c is slice:
        return cut(self, 0, index)
    view, indices = taken(self, index)
    if indices:
        return declared["index"](view, tuple(indices))
    return declared["_alias"](self) if view is self else view


def setitem(self, index, value):
    """Write `value`, a number, tensor or array that broadcasts, into the part of the tensor that `index` says."""
    if self.__class__ is not Tensor and overloaded((self,)):
        return self.__torch_function__(Tensor.__setitem__, (type(self),), (self, index, value), {})
    value = assignable(self, value)
    if index is False:
        return None
    if index.__class__ is int:
        return write(at(self, 0, index, 0), value)
    if index is True:
        return write(self.unsqueeze(0), value)
    view, indices = taken(self, index)
    if not indices:
        return write(view, value)
    if not isinstance(value, Tensor):
        value = self.new_full((), value)
    shape = without_leading_ones(value)
    view.index_put_(tuple(indices), value if shape == value._spec.shape else value.view(shape))
    noted(view)
    return None


def delitem(self, index):
    raise TypeError("Tensor does not support deleting items" + said(self))


# --- views --------------------------------------------------------------------------------------------------


def row(source, number):
    """`at` of the first dimension, short, for the common case of data: no view, and no history."""
    found = _rows.get(source._spec)
    trace, storage = _local.trace, source._storage
    if found is None or trace.special or storage.inference or source._node is not None or source._requires_grad \
            or source._cut is not None or source._data_version is not None or not 0 <= number < found[1]:
        made = at(source, 0, number, 0)
        _rows[source._spec] = (made._spec, source._spec.shape[0], source._spec.strides[0])
        return made
    tensor = _new(Tensor)
    tensor._storage = storage
    tensor._spec = found[0]
    tensor._offset = source._offset + number * found[2]
    tensor._node = tensor._cut = None
    tensor._requires_grad = False
    tensor._seen = storage.version
    tensor._site = trace.site or here()
    tensor._base = source
    if not modes.grad:
        tensor._view_of = "no_grad"
    return tensor


def at(source, dim, number, nth):
    """The view of `source` at position `number` of `dim`; `nth` is the number's place in the index."""
    spec = source._spec
    if not spec.ndim:
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ "
                         "to convert a 0-dim tensor to a number" + said(source))
    size = spec.shape[dim] if dim < spec.ndim else 0       # a second `...` may have skipped past the end
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of bounds for dimension {nth} with size {size}"
                         + said(source))
    op = declared["select"]
    if source.__class__ is Batched:
        return op(source, dim, number)
    key = (spec, dim)                         # one entry for all positions: they differ in their start only
    facts = known.get(op) or prepared(op)
    entry = facts.entries.get(key) or infer_entry(op, (source, dim, 0), key)
    moved = (number if number >= 0 else number + size) * spec.strides[dim]
    return view_one(entry, (source, dim, number), source, moved)


def cut(source, dim, part):
    """The view of `source` that the slice `part` says, along `dim`."""
    spec = source._spec
    if not spec.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor." + said(source))
    if dim >= spec.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-spec.ndim}, {spec.ndim - 1}], but got "
                         f"{dim})")
    size = spec.shape[dim]
    low, high, step = part.indices(size)
    if step < 0:
        raise ValueError("step must be greater than zero" + said(source)
                         + "\n  Use torch.flip(input, dims) to turn it around.")
    high = max(low, high)
    length = (high - low + step - 1) // step
    op = declared["_slice"]
    if source.__class__ is Batched:
        return op(source, dim, low, high, step)
    key = (spec, dim, length, step)
    facts = known.get(op) or prepared(op)
    entry = facts.entries.get(key) or infer_entry(op, (source, dim, 0, max(0, (length - 1) * step + 1), step), key)
    moved = low * spec.strides[dim]
    return view_one(entry, (source, dim, low, high, step), source, moved)


# --- reading an index ---------------------------------------------------------------------------------------


def taken(self, index):
    """(the view of `self` that the plain parts of `index` say, the index tensors for it: None skips a dimension)"""
    parts = parts_of(index)
    opened_parts = [opened(self, part) for part in parts]
    wide = sum([dims(part) for part in opened_parts])
    if wide > self._spec.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self._spec.ndim}" + said(self))
    view, dim, indices, covered = self, 0, [], 0
    for nth, part in enumerate(opened_parts):
        c = part.__class__
        if c is int:
            view = at(view, dim, part, nth)
            continue
        if c is slice:
            if not is_all(part, view._spec.shape[dim] if dim < view._spec.ndim else 0):
                view = cut(view, dim, part)
            dim += 1
            continue
        if part is None:
            view = view.unsqueeze(dim)
            dim += 1
            continue
        if part is Ellipsis:
            dim += self._spec.ndim - wide
            continue
        if c is bool:                                      # a dimension of size one, taken or not
            view = view.unsqueeze(dim)
            part = from_array(np.zeros(int(part), np.int64), where=self._spec.device)
        width = dims(part)
        indices += [None] * (dim - covered)
        indices.append(part)
        dim += width
        covered = dim
    return view, indices


def is_all(part, size):
    """Whether a slice takes all of a dimension; PyTorch then makes no view."""
    start, stop, step = part.start, part.stop, part.step
    return start in (None, 0) and step in (None, 1) and (stop is None or stop.__class__ is int and stop >= size)


def parts_of(index):
    """The parts of an index. Some lists count as tuples, with a warning, as they do in PyTorch."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, (Tensor, np.ndarray, str, bytes)) or not is_sequence(index) or len(index) >= 32:
        return (index,)
    nested = (Tensor, np.ndarray, slice, list, tuple, range)
    if any(part is None or part is Ellipsis or isinstance(part, nested) for part in index):
        warn("Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in "
             "pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as "
             "tensor index, x[torch.tensor(seq)], which will result either in an error or a different "
             "result")
        return tuple(index)
    return (index,)


def opened(self, part):
    """One part of an index as an int, bool, slice, None, `...`, or a tensor that is more than a number."""
    c = part.__class__
    if c is int or c is bool or c is slice or part is None or part is Ellipsis:
        return part
    if isinstance(part, np.ndarray) or isinstance(part, (list, tuple, range)):
        part = index_tensor(part, self._spec.device)
    if isinstance(part, Tensor):
        if part._spec.ndim == 0 and part._spec.dtype.category < 2 and (part.__class__ is not Batched
                                                                       or part._spec.dtype.category == 0):
            value = array_of(part).item()
            return bool(value) if part._spec.dtype.name in ("bool", "uint8") else value
        where = self._spec.device
        return part.to(where) if part._spec.device is CPU and where is not CPU else part
    if not isinstance(part, (np.bool_, float)) and hasattr(part, "__index__"):
        return operator.index(part)
    if isinstance(part, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(part).__name__}'")
    if is_sequence(part):
        return opened(self, list(part))
    raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                     f"(got {_type_name(part)})" + said(self))


def is_sequence(x):
    return hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, dict)


def index_tensor(data, where):
    """A list, range or array as an index tensor: masks stay masks, everything else becomes int64."""
    array = data if isinstance(data, np.ndarray) else ranks(data)
    if array.dtype != np.bool_ and array.dtype != np.uint8:
        array = array.astype(np.int64)
    return from_array(np.array(array, order="C", copy=True), where=where)


def ranks(data):
    """A nested list as an array; its tensors become the numbers they hold."""
    if isinstance(data, range):
        return np.arange(data.start, data.stop, data.step)
    try:
        array = np.array(data if not any(isinstance(d, Tensor) for d in data) else [d.tolist() for d in data])
    except ValueError:
        lengths = [len(d) if hasattr(d, "__len__") else 0 for d in data]
        other = next((n for n in lengths if n != lengths[0]), lengths[0])
        raise ValueError(f"expected sequence of length {lengths[0]} at dim 1 (got {other})") from None
    if array.dtype == object:
        raise ValueError("Overflow when unpacking long long") if _all_ints(data) else TypeError(
            f"can't use {data!r:.60} as an index: it holds more than numbers")
    if array.dtype.kind in "US":
        raise TypeError("new(): invalid data type 'str'")
    return array


def _all_ints(data):
    return all(isinstance(d, int) for d in data)


def dims(part):
    """How many dimensions of the tensor one part of an index stands for."""
    if isinstance(part, Tensor):
        return part._spec.ndim if part._spec.dtype.name in ("bool", "uint8") else 1
    return 0 if part is None or part is Ellipsis or part.__class__ is bool else 1


# --- writing ------------------------------------------------------------------------------------------------


def assignable(self, value):
    """What may stand on the right: a Python number or a tensor. Arrays and NumPy scalars are taken as such."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, NUMBER_CLASSES):
        dtype = self._spec.dtype
        if value.__class__ is int and not -2**63 <= value < 2**63:
            raise ValueError(f"Overflow when unpacking long long: {value} does not fit into int64" + said(self))
        if dtype.is_floating_point and dtype.itemsize == 2 and not isinstance(value, complex):
            return float(dtype.np.type(value))             # too large for a half type becomes infinite here
        return value
    if isinstance(value, np.ndarray):
        return from_array(np.array(value, order="C", copy=True), where=self._spec.device).to(self._spec.dtype)
    raise TypeError(f"can't assign a {_type_name(value)} to a torch.{self._spec.dtype.cname}Tensor"
                    + said(self))


def write(view, value):
    """Put `value` into the whole of `view`."""
    if not view._spec.dense:                                # fill_ would write to an expanded tensor too
        before_write(view, "an item assignment")
    if not isinstance(value, Tensor):
        view.fill_(value)
    elif value._spec.shape == view._spec.shape:
        view.copy_(value)
    elif not value._spec.ndim:
        view.fill_(value)
    else:
        view.copy_(fitted(value, view._spec))
    noted(view)


def fitted(value, part):
    """`value` broadcast to the part of a tensor that it is assigned to."""
    try:
        return value.view(without_leading_ones(value)).expand(part.shape)
    except RuntimeError as error:
        name = name_of(value, user_frame()) or "the value"
        raise RuntimeError(f"{getattr(error, 'refused', error)}\n  in an item assignment: what is indexed has shape "
                           f"{list(part.shape)}, and {name} does not broadcast to it.\n"
                           f"  {name} is {value._spec}, made at {line_of(value._site)}.") from None


def noted(view):
    """Let messages about the last write to `view` say what the user wrote, not how it was done."""
    storage = view._storage
    if storage.writer is not None:
        storage.writer = (storage.writer[0], "an item assignment")


def without_leading_ones(value):
    """The shape of `value` without its leading ones: they are no obstacle to an assignment."""
    shape = value._spec.shape
    first = next((d for d, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def _type_name(value):
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


for _form in (getitem, setitem, delitem):
    _form.__name__ = f"__{_form.__name__}__"
    _form.__qualname__ = f"Tensor.{_form.__name__}"
    setattr(Tensor, _form.__name__, _form)
