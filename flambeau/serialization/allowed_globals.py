"""The globals that a checkpoint may name, and what each of them makes here.

A name in a file is looked up in a table and nowhere else; nothing is imported because a file says so. Besides the table
there are the classes that the user has declared to be trusted (`add_safe_globals`).
"""
import contextlib
import math
from collections import Counter, OrderedDict
from types import MemberDescriptorType

from ..backends.cpu import host
from ..base import dtypes, layout
from ..base.errors import here
from ..base.module_locations import torch_module, torch_name
from ..base.op import Op
from ..base.spec import CPU, META, Size, device, spec
from ..tensor.create import LEGACY_TENSOR_TYPES
from ..tensor.forms import namespace
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor, wrap
from ..tensor.typed_storage import STORAGE_NAMES, TypedStorage
from ..tensor.user_attributes import OWN_FIELDS
from ..trace.value import Storage, Value
from .errors import FileError, NotSupported, bare, shown

MAX_DIMS = 64                                       # of a NumPy array
PARAMETER_NAME = "torch.nn.parameter.Parameter"
# Never made or called, trusted or not: whole modules, and single names.
BLOCKED_GLOBALS = frozenset({"sys", "os", "posix", "nt", "subprocess", "builtins.eval", "builtins.exec",
                             "builtins.compile", "builtins.__import__", "builtins.open"})
DTYPE_PREFIXES = ("uint", "int", "float", "bfloat", "complex", "qint", "quint", "bits", "per_")  # of dtypes' names

_trusted: list = []                                 # what the user has added: objects, or (object, full name)
ALLOWED: dict = {}                                  # full name in a file → what it means
_makers: dict = {}                                  # id of that → (it, what makes one, least and most arguments)


# --- what the user trusts --------------------------------------------------


def add_safe_globals(safe_globals):
    """Let `load` make objects of these classes, and call these functions, when a file names them.

    An item is a class or function, or a pair of one and the full name that it has in the file. Do it only for classes
    that do no harm whatever they are made from: a file chooses the arguments.
    """
    for item in safe_globals:
        full_names(item)
        if item not in _trusted:
            _trusted.append(item)


def get_safe_globals():
    """What `add_safe_globals` has been given."""
    return list(_trusted)


def clear_safe_globals():
    """Trust nothing any more but what a checkpoint consists of."""
    _trusted.clear()


class safe_globals:
    """A context in which these classes and functions are trusted, as by `add_safe_globals`."""

    def __init__(self, safe_globals):
        self.safe_globals = safe_globals

    def __enter__(self):
        add_safe_globals(self.safe_globals)

    def __exit__(self, *exc):
        _trusted[:] = [item for item in _trusted if item not in self.safe_globals]


def full_names(item):
    """(object, its names in files) for an item of the user's list."""
    if isinstance(item, tuple):
        if len(item) != 2:
            raise ValueError("Expected tuple of length 2 (global, str of callable full path), but got tuple of length: "
                             f"{len(item)}")
        if type(item[1]) is not str:
            raise TypeError("Expected second item in tuple to be str of callable full path, but got: "
                            f"{type(item[1])}")
        return item[0], (item[1],)
    if not hasattr(item, "__module__") or not hasattr(item, "__qualname__"):
        raise TypeError(f"add_safe_globals takes classes and functions, got {item!r}")
    module, name = item.__module__, item.__qualname__
    modules = (module, torch_name(module), torch_module(item, module, name))
    return item, (*(f"{home}.{name}" for home in modules),
                  *(f"{home}.{name}" for home, name in operation_names(item)))


def operation_names(item):
    """(module, name) of each module where PyTorch has the operation `item`; nothing if it is not one."""
    if not isinstance(item, Op):
        return []
    return [(f"torch.{space}".rstrip("."), name) for space, operations in namespace.items()
            for name, op in operations.items() if op is item]


class GlobalNames:
    """What globals mean while one file is read."""

    def __init__(self):
        self.user = {}
        for item in _trusted:
            trusted, names = full_names(item)
            self.user.update(dict.fromkeys(names, trusted))
        self.ids = {id(trusted): trusted for trusted in self.user.values()}
        # What a trusted class is inside of, by its name: protocol 2 asks the outer class for it.
        self.outer = {full.removesuffix(inner): Outer(full.removesuffix(inner)) for full, trusted in self.user.items()
                      for inner in inner_parts(trusted)}

    def find(self, module, name):
        """What the global means, or a refusal that says what to do."""
        full = f"{module}.{name}"
        if module in BLOCKED_GLOBALS or full in BLOCKED_GLOBALS:
            raise FileError(f"Trying to load unsupported GLOBAL {bare(full)} whose module {bare(module)} is blocked.")
        if full == PARAMETER_NAME and full not in ALLOWED:
            allow(full, value=_parameter_class())(parameter)
        if full in ALLOWED:
            return ALLOWED[full]
        if full in self.user:
            return self.user[full]
        if full in self.outer:
            return self.outer[full]
        if full == "builtins.getattr" and self.outer:
            return inner_class
        refuse_absent(module, name)
        raise UnknownGlobal(full.removeprefix("builtins."))

    def trusted(self, thing):
        """Whether `thing` is an object of a class that the user trusts."""
        return id(type(thing)) in self.ids

    @contextlib.contextmanager
    def trusting(self, thing):
        """A block in which code of a trusted class may run: whatever it raises is the file's fault."""
        try:
            yield
        except FileError:
            raise
        except Exception as error:
            if not self.trusted(thing) and id(thing) not in self.ids:
                raise
            name = getattr(thing, "__qualname__", type(thing).__qualname__)
            raise FileError(f"making {name} from what the file says failed: {type(error).__name__}: {error}") from error

    def make(self, unpickler, function, args, kwargs, new):
        """What calling the global `function` gives."""
        found = _makers.get(id(function))
        if found is not None:
            _, maker, least, most = found
            if not least <= len(args) <= most or kwargs:
                raise unpickler.broken(f"{maker.__name__} is given {len(args)} arguments")
            return maker(unpickler, *args)
        if id(function) not in self.ids:
            raise unpickler.broken(f"Trying to call reduce for unrecognized function {shown(function)}")
        if new and not isinstance(function, type):
            raise unpickler.broken(f"an object is made of {shown(function)}, which is no class")
        with self.trusting(function):
            return function.__new__(function, *args, **kwargs) if new else function(*args)

    def build(self, unpickler, made, state):
        """Give `made` its state."""
        if type(made) is OrderedDict:
            set_attributes(unpickler, made, state, OrderedDict)
        elif self.trusted(made):
            with self.trusting(made):
                if has_setstate(made):
                    made.__setstate__(state)
                else:
                    set_attributes(unpickler, made, state, Tensor if isinstance(made, Tensor) else None)
        else:
            raise unpickler.broken("Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                                   f"`add_safe_globals`, but got {type(made).__name__}")


def refuse_absent(module, name):
    """Say what a file holds whose global `module.name` stands for data that Flambeau does not have."""
    full = f"{module}.{name}"
    if module in ("torch", "torch.cuda") and (name.endswith("Storage") or name.startswith(DTYPE_PREFIXES)):
        raise NotSupported(f"it holds data of torch.{bare(name.removesuffix('Storage'))}, a dtype that Flambeau "
                           "does not have; convert it in PyTorch and save it again")
    if full in ABSENT_GLOBALS:
        raise NotSupported(f"it holds {ABSENT_GLOBALS[full]}, which Flambeau does not have ({full})")


class Outer:
    """A class that is not trusted, and has one inside that is."""

    def __init__(self, full):
        self.full = full


def inner_parts(cls):
    """".B.C" and ".C" of a class A.B.C."""
    name = getattr(cls, "__qualname__", "")
    return [name[at:] for at, c in enumerate(name) if c == "." and "<locals>" not in name]


class UnknownGlobal(FileError):
    """A global that is neither in the table nor trusted; `load` adds what else the file names."""

    def __init__(self, full):
        name = bare(full)
        super().__init__(f"Weights only load failed. Unsupported global: GLOBAL {name} was not an allowed global by "
                         f"default. Please use `torch.serialization.add_safe_globals([{name}])` or the "
                         f"`torch.serialization.safe_globals([{name}])` context manager to allowlist this global if "
                         "you trust this class/function.")


# Note [What a file may set]: attributes are set in `set_attributes` and nowhere else. No name of the form __name__: by
# those Python and NumPy ask an object what it is (`__array_interface__` is an address that NumPy reads and writes,
# `__setstate__` and `__class__` choose what runs). On a tensor or an OrderedDict, names that mean nothing to the class.
# On an object of a class that the user trusts, any other name in its `__dict__`, so that no property is called; and of
# its slots, those that it has. Whether it has a `__setstate__` is asked of its class, not of what a file put into it.


def set_attributes(unpickler, made, state, base):
    """Hang what the user had hung on an object back on it; see Note [What a file may set]. `base` is Tensor or
    OrderedDict, and None for an object of a trusted class.
    """
    state, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    for attributes in (state, slots):
        if attributes is not None and type(attributes) not in (dict, OrderedDict):
            raise unpickler.broken(f"the state of a {type(made).__name__} is a {type(attributes).__name__}")
    if base is not None and (state is None or slots):
        raise unpickler.broken(f"the state of a {type(made).__name__} has slots, or nothing in it")
    unpickler.burn(32 * (len(state or ()) + len(slots or ())))
    for name in (*(state or ()), *(slots or ())):
        if type(name) is not str or name.startswith("__") and name.endswith("__") \
                or base is not None and (not name.isidentifier() or defines(base, name)) \
                or base is Tensor and name in OWN_FIELDS:
            raise unpickler.broken(f"it sets {shown(name)} of a {type(made).__name__}")
        unpickler.burn_bytes(name)
    if state:
        vars(made).update(state)
    for name, value in (slots or {}).items():
        if not isinstance(getattr(type(made), name, None), MemberDescriptorType):
            raise unpickler.broken(f"it sets {shown(name)} of a {type(made).__name__}, which has no such slot")
        setattr(made, name, value)


def has_setstate(made):
    """Whether the class of `made` has a way of its own to take a state."""
    return defines(type(made), "__setstate__")


def defines(cls, name):
    """Whether a class, or one that it comes from, has `name`; `hasattr` would look for names that are near."""
    return any(name in vars(parent) for parent in cls.__mro__)


# --- the table --------------------------------------------------


def allow(*names, value=None):
    """Enter the decorated function as what makes the things that files call by `names`; it stands for itself unless a
    `value` is what the name means."""
    def enter(maker):
        meaning = maker if value is None else value
        ALLOWED.update(dict.fromkeys(names, meaning))
        most = maker.__code__.co_argcount - 1
        _makers[id(meaning)] = meaning, maker, most - len(maker.__defaults__ or ()), most
        return maker
    return enter


class StorageClass:
    """What `torch.FloatStorage` and its kin mean in a file: a dtype; None for bytes."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __repr__(self):
        return "torch.UntypedStorage" if self.dtype is None else f"torch.{self.dtype.cname}Storage"


# PyTorch gave its newer dtypes no storage of their own: their tensors lie in storages of bytes.
ALLOWED.update({f"{module}.{name}": StorageClass(d)
                for d, name in STORAGE_NAMES.items() for module in ("torch", "torch.cuda")})
ALLOWED["torch.storage.UntypedStorage"] = StorageClass(None)
ALLOWED.update({f"torch.{d.name}": d for d in (*dtypes.ALL, *dtypes.NAMES_ONLY)})
ALLOWED.update({f"torch.{name}": cls for name, cls in LEGACY_TENSOR_TYPES.items()})
ALLOWED["torch.Tensor"] = Tensor

ABSENT_GLOBALS = {
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_sparse_csr_tensor": "a sparse tensor",
    "torch._utils._rebuild_qtensor": "a quantised tensor",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_wrapper_subclass": "a tensor that wraps others",
    "torch._utils._rebuild_device_tensor_from_numpy": "a tensor of another device",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": "a tensor of another device",
    "torch.jit._pickle.restore_type_tag": "a TorchScript object",
}


@allow("collections.OrderedDict", value=OrderedDict)
def ordered(unpickler, pairs=()):
    if type(pairs) not in (list, tuple) or not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
        raise unpickler.broken("an OrderedDict is made from something else than pairs")
    unpickler.copied(len(pairs))
    made: OrderedDict = OrderedDict()
    unpickler.put_items(made, [part for pair in pairs for part in pair])
    return made


@allow("collections.Counter", value=Counter)
def counter(unpickler, counts=None):
    counts = {} if counts is None else counts
    if type(counts) is not dict:
        raise unpickler.broken("a Counter is made from something else than a dictionary")
    unpickler.copied(len(counts))
    return Counter(counts)


def members(unpickler, items):
    """A set of what a file gives as the members of one."""
    if type(items) not in (list, tuple):
        raise unpickler.broken("a set is made from something else than a list")
    unpickler.copied(len(items))
    made: set = set()
    unpickler.put_members(made, items)
    return made


@allow("builtins.set", value=set)
def plain_set(unpickler, items=()):
    return members(unpickler, items)


@allow("builtins.frozenset", value=frozenset)
def frozen_set(unpickler, items=()):
    return frozenset(members(unpickler, items))


@allow("builtins.complex", value=complex)
def complex_number(unpickler, real, imag=0.0):
    if not {type(real), type(imag)} <= {int, float}:
        raise unpickler.broken("a complex number has parts that are not numbers")
    try:
        return complex(real, imag)
    except OverflowError:
        raise unpickler.broken("a complex number has parts that are too large") from None


@allow("builtins.bytearray", value=bytearray)
def byte_array(unpickler, data=b"", encoding=None):
    if type(data) is str and encoding is not None:      # Protocol 2 has no bytes; neither had Python 2
        data = latin1(unpickler, data, encoding)
    elif type(data) is not bytes or encoding is not None:
        raise unpickler.broken("a bytearray is made from something else than bytes")
    unpickler.copied(len(data) // 8)
    return bytearray(data)


@allow("builtins.bytes", value=bytes)
def no_bytes(unpickler):
    """Protocol 2 writes empty bytes so, and others by `latin1`."""
    return b""


@allow("_codecs.encode")
def latin1(unpickler, text, encoding):
    """Protocol 2 writes bytes as text of the same numbers. No other encoding is run: some of them unpack."""
    if type(text) is not str or type(encoding) is not str or encoding not in ("latin1", "latin-1"):
        raise unpickler.broken("bytes are written in something else than latin1")
    unpickler.copied(len(text) // 8)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise unpickler.broken("bytes are written in something else than latin1") from None


def inner_class(unpickler, outer, name):
    """A trusted class that is inside another, which a pickle of protocol 2 asks for it by `getattr`."""
    names = unpickler.names
    fulls = [outer.full] if isinstance(outer, Outer) else [full for full, cls in names.user.items() if cls is outer]
    for full in fulls:
        full = f"{full}.{name}" if type(name) is str else ""
        found = names.user.get(full, names.outer.get(full))
        if found is not None:
            return found
    raise UnknownGlobal("getattr")


_makers[id(inner_class)] = inner_class, inner_class, 2, 2


@allow("torch.Size", value=Size)
def size(unpickler, dims=()):
    return Size(whole(unpickler, dims, "size"))


@allow("torch.device", value=device)
def device_named(unpickler, device_type, index=None):
    if type(device_type) is not str or not (index is None or type(index) is int):
        raise unpickler.broken("a device has no name")
    try:
        return device(device_type, index)
    except (RuntimeError, ValueError) as error:
        raise NotSupported(f"it names a device that Flambeau does not know: {error}") from error


@allow("torch.serialization._get_layout")
def get_layout(unpickler, name):
    if type(name) is str and name == "torch.strided":
        return layout.strided
    raise NotSupported(f"it names the layout {shown(name)}; Flambeau has torch.strided alone")


# --- tensors --------------------------------------------------


def loaded_storage(cell, dtype):
    """A storage out of a file, with the dtype that the file gives it; None for bytes."""
    made = UntypedStorage(storage=cell)
    if dtype is None:
        made.dtype = None
        return made
    return TypedStorage(wrap_storage=made, dtype=dtype, _internal=True)


def whole(unpickler, numbers, what):
    """A tuple of not too many sizes that are no less than zero, as ints."""
    if not isinstance(numbers, (tuple, list)) or len(numbers) > MAX_DIMS:
        raise unpickler.broken(f"a {what} is no tuple, or longer than {MAX_DIMS}")
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
        raise unpickler.broken(f"the {what} {shown(tuple(numbers))} has parts that are no sizes")
    return tuple(numbers)


def laid_out(unpickler, dtype, shape, strides, offset, where):
    """The Spec of a tensor in a file, and the bytes of storage that it reaches into."""
    shape, strides = whole(unpickler, shape, "size"), whole(unpickler, strides, "stride")
    offset, = whole(unpickler, (offset,), "storage offset")
    if len(shape) != len(strides):
        raise unpickler.broken(f"a tensor has {len(shape)} sizes and {len(strides)} strides")
    count = reach = 1
    for n, step in zip(shape, strides, strict=True):
        count, reach = count * n, reach + (n - 1) * step
    reach = (offset + reach) * dtype.itemsize if count else 0
    if max(math.prod(n or 1 for n in shape), offset, *strides, 0) * dtype.itemsize >= 1 << 63:
        raise unpickler.broken(f"a tensor of size {shown(shape)} does not fit into memory")
    return spec(dtype, shape, strides, where), reach


def tensor_of(unpickler, storage, offset, shape, strides, requires_grad, dtype):
    if type(storage) not in (TypedStorage, UntypedStorage):
        raise unpickler.broken("a tensor has no storage")
    if type(dtype) is not dtypes.dtype:
        raise unpickler.broken("a tensor has no dtype")
    if dtype.np is None:
        raise NotSupported(f"it holds a tensor of {dtype}: {dtypes.FAMILIES[dtype.family]}")
    cell = storage._storage
    spec, reach = laid_out(unpickler, dtype, shape, strides, offset, cell.device)
    if reach > cell.nbytes:
        raise unpickler.broken(f"setStorage: sizes {list(spec.shape)}, strides {list(spec.strides)}, storage offset "
                               f"{offset}, and itemsize {dtype.itemsize} requiring a storage size of {reach} are out "
                               "of "
                               f"bounds for storage of size {cell.nbytes}")
    fit(cell, spec, offset)
    return finished(unpickler, wrap(cell, spec, offset), requires_grad)


def fit(cell, spec, offset):
    """Lay the bytes of a storage out as the tensor that fills it: operations then need not look again each time."""
    value = cell.value
    if value is not None and cell.device is CPU and value.spec.dtype is dtypes.uint8 and offset == 0 and spec.dense \
            and spec.nbytes == cell.nbytes:
        array = host.laid_out(value.array, spec.shape, spec.dtype.np, spec.np_strides)
        cell.value = Value.of(array, spec)
        cell.value._memory = value.array


def finished(unpickler, made, requires_grad):
    if type(requires_grad) is not bool or requires_grad and made._spec.dtype.category < 2:
        raise unpickler.broken(f"a tensor of {made._spec.dtype} says requires_grad={shown(requires_grad)}")
    made._site = here()
    made._requires_grad = requires_grad
    return made


@allow("torch._utils._rebuild_tensor")
def rebuild_tensor(unpickler, storage, offset, shape, strides):
    return tensor_of(unpickler, storage, offset, shape, strides, False, getattr(storage, "dtype", None))


@allow("torch._utils._rebuild_tensor_v2")
def rebuild_tensor_v2(unpickler, storage, offset, shape, strides, requires_grad, hooks, bits=None):
    made = tensor_of(unpickler, storage, offset, shape, strides, requires_grad, getattr(storage, "dtype", None))
    return lazy_bits(unpickler, made, bits)


@allow("torch._utils._rebuild_tensor_v3")
def rebuild_tensor_v3(unpickler, storage, offset, shape, strides, requires_grad, hooks, dtype, bits=None):
    return lazy_bits(unpickler, tensor_of(unpickler, storage, offset, shape, strides, requires_grad, dtype), bits)


def lazy_bits(unpickler, made, bits):
    """PyTorch's conjugate and negative views, which it saves as the plain tensor and a mark: computed here."""
    if bits is None:
        return made
    if type(bits) is not dict or not set(bits) <= {"conj", "neg"} or not {*map(type, bits.values())} <= {bool}:
        raise unpickler.broken("a tensor has marks that are not known")
    if made._spec.device is META or not any(bits.values()):
        return made
    unpickler.computed(made)
    wanted, made._requires_grad = made._requires_grad, False
    if bits.get("conj"):
        made = made.conj()
    if bits.get("neg"):
        made = -made
    made._requires_grad = wanted
    return made


@allow("torch._utils._rebuild_meta_tensor_no_storage")
def rebuild_meta(unpickler, dtype, shape, strides, requires_grad):
    if type(dtype) is not dtypes.dtype:
        raise unpickler.broken("a tensor has no dtype")
    spec, reach = laid_out(unpickler, dtype, shape, strides, 0, META)
    if reach >= 1 << 63:
        raise unpickler.broken(f"a tensor of size {shown(spec.shape)} does not fit into memory")
    return finished(unpickler, wrap(Storage.of(None, reach, META), spec), requires_grad)


@allow("torch._utils._rebuild_parameter")
def rebuild_parameter(unpickler, data, requires_grad, hooks):
    if not isinstance(data, Tensor):
        raise unpickler.broken("a Parameter has no tensor")
    finished(unpickler, data, requires_grad)
    data._requires_grad = False
    return _parameter_class()(data, requires_grad)


def _parameter_class():
    from ..nn import Parameter  # brings all of nn along, and a file may do without
    return Parameter


@allow("torch._utils._rebuild_parameter_with_state")
def rebuild_parameter_with_state(unpickler, data, requires_grad, hooks, state):
    made = rebuild_parameter(unpickler, data, requires_grad, hooks)
    set_attributes(unpickler, made, state, Tensor)
    return made


@allow("torch._tensor._rebuild_from_type_v2")
def rebuild_from_type(unpickler, function, cls, args, state):
    """A tensor of a class of the user's, or one with attributes of its own."""
    if type(args) is not tuple:
        raise unpickler.broken("arguments are not a tuple")
    if function is rebuild_from_type:
        raise unpickler.broken("a tensor is given a class again and again")
    made = unpickler.names.make(unpickler, function, args, {}, False)
    if not isinstance(made, Tensor) or not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise unpickler.broken("a tensor is given a class that is none of tensors")
    if cls is not type(made):
        if id(cls) not in unpickler.names.ids and cls is not Tensor:
            raise unpickler.broken(f"a tensor is given the class {shown(cls.__qualname__)}")
        made.__class__ = cls
    if has_setstate(made):
        with unpickler.names.trusting(made):
            made.__setstate__(state)
    else:
        set_attributes(unpickler, made, state, Tensor)
    return made


def parameter(unpickler, data, requires_grad=True):
    return rebuild_parameter(unpickler, data, requires_grad, None)
