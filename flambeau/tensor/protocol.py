"""The tensor as a Python object: numbers, truth, iteration, printing, copying, pickling."""
import copyreg
import sys

import numpy as np

from ..autograd.edges import requires
from ..autograd.forward_ad import tangent_of
from ..autograd.modes import modes
from ..backends.cpu import host
from ..base import dtypes
from ..base.errors import here, warn
from ..base.spec import CPU, META, as_device, spec as make_spec
from ..trace.shared_memory import can_be_shared, shared_parts
from ..trace.value import Storage, Value
from .create import elements, from_array
from .interop import who
from .printing import TENSOR_PREFIX, format_tensor, format_with_spec, kept_positions
from .reading import array_of, lists_of, number_of
from .tensor import Tensor, wrap
from .write import before_write, put

# --- numbers --------------------------------------------------


def item(self):
    """The only element as a Python number."""
    return number_of(self)


def tolist(self):
    """The elements as nested lists of Python numbers; the number itself for a zero-dimensional tensor."""
    return lists_of(self)


def scalar(self):
    """The only element, for `float(t)` and its like."""
    if self._spec.numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars" + who(self))
    if requires(self):
        warn("Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
             "Consider using tensor.detach() first.")
    return number_of(self)


def to_float(self):
    found = scalar(self)
    if isinstance(found, complex):
        if found.imag:
            raise RuntimeError(f"value cannot be converted to type double without overflow: {found}" + who(self))
        found = found.real
    return float(found)


def to_int(self):
    found = scalar(self)
    if isinstance(found, complex):
        if found.imag:
            raise RuntimeError(f"value cannot be converted to type int64_t without overflow: {found}" + who(self))
        found = found.real
    return int(found)


def to_complex(self):
    return complex(scalar(self))


def to_index(self):
    if self._spec.numel != 1 or self._spec.dtype.category > 1 or self._spec.device is META:
        raise TypeError("only integer tensors of a single element can be converted to an index" + who(self))
    return int(number_of(self))


def truth(self):
    count = self._spec.numel
    if count != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no values' if count == 0 else 'more than one value'} is "
                           "ambiguous"
                           + who(self) + ("\n  Use .any() or .all(), or compare with torch.equal." if count else ""))
    return bool(number_of(self))


def is_nonzero(self):
    """Whether the only element is not zero."""
    return truth(self)


# --- a container --------------------------------------------------


def iterate(self):
    if self._spec.ndim == 0:
        raise TypeError("iteration over a 0-d tensor" + who(self))
    return iter(self.unbind(0))


def contains(self, element):
    if not isinstance(element, (Tensor, bool, int, float, complex, np.generic)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((element == self).any())


def backwards(self):
    return self if self._spec.ndim == 0 else self.flip(0)


# --- text --------------------------------------------------


def text(self, *, tensor_contents=None):
    spec, cls = self._spec, type(self)
    parameter = getattr(cls, "_prints_as_parameter", False)
    prefix = TENSOR_PREFIX if cls in (Tensor, ) or cls.__dict__.get("_prints_as_parameter") else f"{cls.__name__}("
    node = self.grad_fn
    tangent = tangent_of(self) if modes.level >= 0 else None
    extras = [] if tangent is None else [f"tangent={tangent!r}"]
    array = None
    if spec.device is not META:
        array = array_of(self)
        kept = kept_positions(spec.shape)
        if kept is not None and 0 not in spec.shape:
            array = array[np.ix_(*kept)]
    return format_tensor(array, spec.dtype.name, dtypes.get_default_dtype().name, str(spec.device), requires(self),
                         None if node is None else node.name().rpartition("::")[2], spec.device is META, spec.shape,
                         prefix, parameter=parameter,
                         marked=not parameter and getattr(self, "_is_param", False), extras=extras)


def formatted(self, spec):
    return format_with_spec(self, spec, plain=type(self) is Tensor)


# --- copies --------------------------------------------------


def rebuild_cell(memory, nbytes, device):
    """A storage from its pickled bytes."""
    if memory is None:
        return Storage.of(None, nbytes, device)
    if not host.is_writeable(memory):                         # the pickle handed out a buffer that is not ours to write
        memory = memory.copy()
    value = Value.of_bytes(memory)
    if device is not CPU:
        spec = value.spec.on(as_device(device))
        value = Value.of(spec.device.backend.from_host(memory, spec), spec)
    return Storage.of(value, nbytes, device)


def reduce_cell(cell):
    """How to pickle a storage: its bytes. But what `multiprocessing` sends is shared, be it that its pickler was made
    before it could be told."""
    if MULTIPROCESSING_PICKLER in sys.modules:
        tell_multiprocessing()
        if sys._getframe(1).f_globals.get("__name__") == MULTIPROCESSING_PICKLER:
            return reduce_shared(cell)
    memory = None if cell.value is None else cell.value.ready().bytes_on_host()
    return rebuild_cell, (memory, cell.nbytes, cell.device)


copyreg.pickle(Storage, reduce_cell)
MULTIPROCESSING_PICKLER = "multiprocessing.reduction"         # the module that pickles what goes to other processes
_known_to_multiprocessing: list = []


def rebuild(cls, cell, dtype, shape, strides, offset, device, requires_grad, state):
    """A tensor from its pickled parts."""
    made = wrap(cell, make_spec(dtype, shape, strides, device), offset)
    made._site = here()
    made._requires_grad = requires_grad
    if cls is not Tensor:
        made.__class__ = cls
    if state:
        vars(made).update(state)
    return made


def reduce(self, protocol):
    """How to pickle: the storage by itself, so that tensors that share it still do afterwards."""
    if self._leaf_hooks or self._post_hooks:
        warn("backward hooks of a tensor are not pickled")
    spec, cls = self._spec, type(self)
    state = dict(vars(self))                      # what the user hung on it travels with it
    if hasattr(cls, "__getstate__") and cls.__getstate__ is not object.__getstate__:
        state = self.__getstate__()
    return rebuild, (cls, self._storage, spec.dtype, tuple(spec.shape), spec.strides, self._offset, spec.device,
                     requires(self), state)


def tell_multiprocessing():
    """Tell Python's `multiprocessing` how tensors go to other processes: with their storage moved to shared memory."""
    if _known_to_multiprocessing:
        return
    from multiprocessing import reduction
    reduction.register(Storage, reduce_shared)
    reduction.register(Tensor, reduce_leaf)       # a subclass is pickled as it says itself
    _known_to_multiprocessing.append(True)


def reduce_shared(cell):
    """How a storage goes to another process: it is moved to shared memory, where it can be."""
    return shared_parts(cell) if can_be_shared(cell) else reduce_cell(cell)


def reduce_leaf(tensor):
    """How a tensor goes to another process: without a history, so that one which has none may go."""
    if requires(tensor) and not tensor.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does "
                           "not support crossing process boundaries. If you just want to transfer the data, call "
                           "detach() on the tensor before serializing (e.g., putting it on the queue).")
    return reduce(tensor, 4)


def deep(self, memo):
    """A copy with memory of its own; tensors copied under one `memo` that shared a storage share the copy of it."""
    if self.grad_fn is not None:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol "
                           "at the moment. If you were attempting to deepcopy a module, this may be because of a "
                           "torch.nn.utils.weight_norm usage, see "
                           "https://github.com/pytorch/pytorch/pull/103001" + who(self) +
                           "\n  Use .detach().clone() to copy its value.")
    from copy import deepcopy
    found = memo.get(id(self))
    if found is not None:
        return found
    cell = memo.get(id(self._storage))
    if cell is None:
        old, value = self._storage, None
        if old.value is not None:
            value = old.value.ready().copy_of_bytes()
        cell = Storage.of(value, old.nbytes, old.device)
        memo[id(old)] = cell
        memo.setdefault(id(memo), []).append(old)          # as copy does: what is known by its id must stay alive
    made = wrap(cell, self._spec, self._offset)
    made._site = here()
    made.__class__ = type(self)
    made._requires_grad = requires(self)
    memo[id(self)] = made
    if self._grad is not None:
        made._grad = deepcopy(self._grad, memo)
    vars(made).update((name, deepcopy(attribute, memo)) for name, attribute in vars(self).items())
    return made


# --- element by element in Python --------------------------------------------------


def apply_(self, callable):
    """Replace every element by `callable(element)`. Slow: Python is called once for each."""
    return elementwise(self, callable, "apply_")


def map_(self, tensor, callable):
    """Replace every element by `callable(element, element of tensor)`. Slow: Python is called once for each."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"map_(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    if tensor.dtype is not self.dtype:
        raise TypeError(f"map_(): expected a tensor of {self.dtype}, got {tensor.dtype}")
    return elementwise(self, callable, "map_", tensor.expand(self.shape))


def elementwise(self, callable, what, *others):
    if any(map(requires, (self, *others))):
        raise RuntimeError(f"Can't call {what}() on Variable that requires grad. Use var.detach().{what}() "
                           "instead." + who(self))
    before_write(self, what)
    if self._spec.device is not CPU:
        raise TypeError(f"{what} is only implemented on CPU tensors, and this one is on {self._spec.device}: "
                        f"self.cpu().{what}(...)")
    columns = [np.ravel(array_of(t)).tolist() for t in (self, *others)]
    if self._spec.numel == 0:
        return self
    made = elements([callable(*row) for row in zip(*columns, strict=True)], self.dtype).reshape(self._spec.shape)
    put(self, from_array(made), what)
    return self


TENSOR_METHODS = {"item": item, "tolist": tolist, "is_nonzero": is_nonzero, "apply_": apply_, "map_": map_,
                  "__float__": to_float, "__int__": to_int, "__complex__": to_complex, "__index__": to_index,
                  "__bool__": truth, "__iter__": iterate, "__contains__": contains, "__reversed__": backwards,
                  "__repr__": text, "__format__": formatted, "__reduce_ex__": reduce, "__deepcopy__": deep}
for name, form in TENSOR_METHODS.items():
    setattr(Tensor, name, form)
del name, form
