"""The pickle of what is saved, in protocol 2 and PyTorch's own names, so that its `weights_only` reader takes it.

Objects are walked with a list of half-done containers, so depth costs nothing, and the way to each tensor
(`optimizer.state[0].exp_avg`) is known when it is met.
"""
import copyreg
import struct
import sys
from collections import Counter
from pickle import PicklingError
from types import BuiltinFunctionType, FunctionType

from ..autograd.edges import requires
from ..base import dtypes, layout
from ..base.errors import warn
from ..base.module_locations import torch_module
from ..base.op import Op
from ..base.public_names import home
from ..base.spec import META, Size, device
from ..tensor.create import LEGACY_TENSOR_TYPES
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor
from ..tensor.typed_storage import LEGACY_STORAGES, STORAGE_NAMES, TypedStorage
from .allowed_globals import operation_names
from .errors import shown
from .locations import location_tag

BATCH_ITEMS = 1000              # items between a mark and the opcode that collects them
SMALL_INT_OPCODES = [b"K%c" % n for n in range(256)]
OLD_MODULES = {"builtins": "__builtin__", "copyreg": "copy_reg"}
PUBLIC_NAMES: dict = {Tensor: ("torch", "Tensor"), Size: ("torch", "Size"), device: ("torch", "device"),
                      UntypedStorage: ("torch.storage", "UntypedStorage"),
                      TypedStorage: ("torch.storage", "TypedStorage"),
                      **{cls: ("torch", name) for name, cls in LEGACY_STORAGES.items()},
                      **{cls: ("torch", name) for name, cls in LEGACY_TENSOR_TYPES.items()}}
plain_reduce = Tensor.__reduce_ex__


def written(path):
    """A way through containers as text: names are joined by dots, everything else stands in brackets."""
    path = path if len(path) <= 60 else [*path[:30], "…", *path[-30:]]
    parts = [f".{key}" if type(key) is str else f"[{shown(key)}]" for key in path if key is not None]
    return "".join(parts).removeprefix(".")


class Pickler:
    """Pickles one object. Storages are only numbered: `storages` holds them, `tensors` says which tensor looks at
    which."""

    def __init__(self):
        self.out = bytearray()
        self.memo: dict = {}                        # id of an object → its number
        self.texts: dict = {}                       # text → its number
        self.names: dict = {}                       # (module, name) of a global → its number
        self.kept: list = []                        # objects that are known by their id must stay alive
        self.count = 0
        self.path: list = []                        # the keys on the way to the object at hand
        self.open: list = []                        # ids of the objects on that way
        self.begun: Counter = Counter()             # how often each of them is on it
        self.storages: list = []                    # (cell, Value): holding a Value keeps the contents it has
        self.numbers: dict = {}                     # id of a cell → its index in `storages`
        self.types: dict = {}                       # id of a cell → the dtype it is written with
        self.tensors: dict = {}                     # way to a tensor → number of its storage

    def dump(self, root):
        """The bytes of the pickle of `root`."""
        self.out += b"\x80\x02"
        frames: list = []
        self._one(root, frames)
        while frames:
            for child in frames[-1]:
                depth = len(frames)
                self._one(child, frames)
                if len(frames) != depth:            # a container: its parts come first
                    break
            else:
                frames.pop()
                del self.path[len(frames):]
                self.begun[self.open.pop()] -= 1
        self.out += b"."
        return self.out

    def _one(self, thing, frames):
        """Write `thing`, or begin to: what has parts is put on `frames`."""
        atom = ATOM_WRITERS.get(type(thing))
        if atom is not None:
            atom(self, thing)
            return
        found = self.memo.get(id(thing))
        if found is not None:
            self._get(found)
            return
        if isinstance(thing, (UntypedStorage, TypedStorage)):
            self._stored(thing)
            return
        if isinstance(thing, Tensor) and type(thing).__reduce_ex__ is plain_reduce:
            steps = self._tensor(thing)
        else:
            steps = CONTAINER_WRITERS.get(type(thing), Pickler._object)(self, thing)
        frames.append(steps)
        self.path.append(None)
        self.open.append(id(thing))
        self.begun[id(thing)] += 1
        # What holds itself is met again while it is written. Once or twice is enough for its parts to have numbers.
        if self.begun[id(thing)] > 3:
            raise PicklingError(f"Can't pickle a {type(thing).__name__} that is made from itself{self._where()}")

    # --- the memo --------------------------------------------------

    def _number(self):
        """Give what was just written the next number."""
        n = self.count
        self.count += 1
        self.out += b"q%c" % n if n < 256 else b"r" + n.to_bytes(4, "little")
        return n

    def _get(self, n):
        self.out += b"h%c" % n if n < 256 else b"j" + n.to_bytes(4, "little")

    def _remember(self, thing):
        self.memo[id(thing)] = self._number()
        self.kept.append(thing)

    def _made(self, thing):
        """Number what its parts have made, unless one of them held the thing itself, so that it is there by now."""
        found = self.memo.get(id(thing))
        if found is None:
            self._remember(thing)
        else:
            self.out += b"0"
            self._get(found)

    # --- what has no parts --------------------------------------------------

    def _none(self, thing):
        self.out += b"N"

    def _bool(self, thing):
        self.out += b"\x88" if thing else b"\x89"

    def _int(self, n):
        if 0 <= n < 256:
            self.out += SMALL_INT_OPCODES[n]
        elif 0 <= n < 65536:
            self.out += b"M" + n.to_bytes(2, "little")
        elif -1 << 31 <= n < 1 << 31:
            self.out += b"J" + n.to_bytes(4, "little", signed=True)
        else:
            raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
            self.out += (b"\x8a%c" % len(raw) if len(raw) < 256 else b"\x8b" + len(raw).to_bytes(4, "little")) + raw

    def _float(self, x):
        self.out += b"G" + struct.pack(">d", x)

    def _text(self, text):
        found = self.texts.get(text)
        if found is not None:
            self._get(found)
            return
        raw = text.encode("utf-8", "surrogatepass")
        if len(raw) >= 1 << 32:
            raise PicklingError("a string of 4 GiB or more does not go into a pickle of protocol 2")
        self.out += b"X" + len(raw).to_bytes(4, "little") + raw
        self.texts[text] = self._number()

    def _bytes(self, data):
        found = self.memo.get(id(data))
        if found is not None:
            self._get(found)
            return
        self._global("_codecs", "encode")
        self._text(data.decode("latin-1"))
        self._text("latin1")
        self.out += b"\x86R"
        self._remember(data)

    def _bytearray(self, data):
        found = self.memo.get(id(data))
        if found is not None:
            self._get(found)
            return
        self._global("builtins", "bytearray")
        self._bytes(bytes(data))
        self.out += b"\x85R"
        self._remember(data)

    def _complex(self, z):
        self._global("builtins", "complex")
        self._float(z.real)
        self._float(z.imag)
        self.out += b"\x86R"

    def _dtype(self, dtype):
        self._global("torch", dtype.name)

    def _device(self, where):
        self._global("torch", "device")
        self._text(where.type)
        if where.index is None:
            self.out += b"\x85R"
        else:
            self._int(where.index)
            self.out += b"\x86R"

    def _size(self, shape):
        self._global("torch", "Size")
        self._ints(shape)
        self.out += b"\x85R"

    def _layout(self, layout):
        self._global("torch.serialization", "_get_layout")
        self._text(repr(layout))
        self.out += b"\x85R"

    def _ints(self, numbers):
        if not numbers:
            self.out += b")"
            return
        self.out += b"(" if len(numbers) > 3 else b""
        for n in numbers:
            self._int(n)
        self.out += b"t" if len(numbers) > 3 else b"%c" % (0x84 + len(numbers))

    def _global(self, module, name):
        found = self.names.get((module, name))
        if found is not None:
            self._get(found)
            return
        outer, *inner = name.split(".")
        for _ in inner:                             # protocol 2 has no names with dots: it is asked of the outer class
            self._global("builtins", "getattr")
        if inner:
            self._global(module, outer)
        else:
            self.out += f"c{OLD_MODULES.get(module, module)}\n{name}\n".encode()
        for part in inner:
            self._text(part)
            self.out += b"\x86R"
        self.names[module, name] = self._number()

    def _by_name(self, thing):
        """A class or function: its name, under which the reader has to find the same one."""
        if thing in PUBLIC_NAMES:
            self._global(*PUBLIC_NAMES[thing])
            return
        for module, name in operation_names(thing):          # of an operation any of its names will do
            self._global(module, name)
            return
        module, name = getattr(thing, "__module__", None), thing.__qualname__
        found = sys.modules.get(module) or sys.modules.get(home(thing))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not thing:
            raise PicklingError(f"Can't pickle {thing!r}: attribute lookup {name} on {module} failed{self._where()}")
        self._global(torch_module(thing, module, name), name)

    def way(self):
        """The way to the object at hand, as in `optimizer.state[0].exp_avg`; empty for the root."""
        return written(self.path)

    def _where(self):
        return f" (it is {self.way()} of what is saved)" if self.way() else ""

    # --- storages and tensors --------------------------------------------------

    def numbered(self, handle, dtype):
        """The number of a storage, its class (module and name) in a file, and how many elements it has."""
        cell = handle._storage
        if cell.device is META:
            raise PicklingError(f"a storage on the meta device has no contents to save{self._where()}")
        n = self.numbers.get(id(cell))
        if n is None:
            n = self.numbers[id(cell)] = len(self.storages)
            self.storages.append((cell, cell.value.ready()))
            self.types[id(cell)] = dtype
        storage_class = ("torch.storage", "UntypedStorage") if dtype is None else ("torch", STORAGE_NAMES[dtype])
        return n, storage_class, cell.nbytes // (1 if dtype is None else dtype.itemsize)

    def _storage(self, handle, dtype):
        """The persistent id of a storage; the bytes follow in a record of their own."""
        n, storage_class, count = self.numbered(handle, dtype)
        self.out += b"("
        self._text("storage")
        self._global(*storage_class)
        self._text(str(n))
        self._text(location_tag(handle))
        self._int(count)
        self.out += b"tQ"
        return n

    def _stored(self, handle):
        dtype = getattr(handle, "dtype", None)
        self.tensors[self.way()] = self._storage(handle, dtype if dtype in STORAGE_NAMES else None)

    def class_and_state(self, tensor):
        """The class of a tensor, and what was hung on it."""
        if tensor._leaf_hooks or tensor._post_hooks:
            warn("backward hooks of a tensor are not saved" + self._where())
        cls, state = type(tensor), dict(vars(tensor))
        if hasattr(cls, "__getstate__") and cls.__getstate__ is not object.__getstate__:
            state = tensor.__getstate__()
        return cls, state

    @staticmethod
    def is_parameter(cls):
        """Whether it is Parameter itself, not a class that the user derived."""
        return cls.__dict__.get("_prints_as_parameter")

    def _tensor(self, tensor):
        """A tensor over its storage, as PyTorch's rebuilding functions take it."""
        cls, state = self.class_and_state(tensor)
        if self.is_parameter(cls):
            self._global("torch._utils", "_rebuild_parameter_with_state" if state else "_rebuild_parameter")
            self.out += b"("
            self._contents(tensor, False)
            self._bool(requires(tensor))
            self._no_hooks()
            if state:
                yield state
            self.out += b"tR"
        elif cls is Tensor and not state:
            self._contents(tensor, requires(tensor))
        else:
            self._global("torch._tensor", "_rebuild_from_type_v2")
            self.out += b"("
            self._contents(tensor, requires(tensor), called=False, cls=cls)
            yield state
            self.out += b"tR"
        self._made(tensor)

    def function_and_storage_dtype(self, tensor):
        """The name of the function that rebuilds a tensor, and the dtype of its storage in the file."""
        dtype = tensor._spec.dtype
        # Two dtypes over one storage: the first names the storage's, each other one is given to its tensor. A storage
        # of no whole number of elements is one of bytes, and so is one of a dtype that PyTorch has no storage name for.
        whole = dtype in STORAGE_NAMES and tensor._storage.nbytes % dtype.itemsize == 0
        named = self.types.get(id(tensor._storage), dtype if whole else None)
        return ("_rebuild_meta_tensor_no_storage" if tensor._spec.device is META
                else "_rebuild_tensor_v2" if named is dtype else "_rebuild_tensor_v3"), named

    def _contents(self, tensor, requires_grad, called=True, cls=None):
        """The call that makes the plain tensor; or its function, the class `cls`, and its arguments."""
        spec, dtype = tensor._spec, tensor._spec.dtype
        function, named = self.function_and_storage_dtype(tensor)
        self._global("torch._utils", function)
        if cls is not None:
            self._by_name(cls)
        self.out += b"("
        if spec.device is META:
            self._dtype(dtype)
        else:
            handle = UntypedStorage(storage=tensor._storage)
            self.tensors[self.way()] = self._storage(handle, named)
            self._int(tensor._offset)
        self._ints(spec.shape)
        self._ints(spec.strides)
        self._bool(requires_grad)
        if spec.device is not META:
            self._no_hooks()
            if named is not dtype:
                self._dtype(dtype)
        self.out += b"tR" if called else b"t"

    def _no_hooks(self):
        self._global("collections", "OrderedDict")
        self.out += b")R"

    # --- what has parts: each step yields a part, whose bytes come before the next step -----------------------------

    def _list(self, items):
        self.out += b"]"
        self._remember(items)
        yield from self._appended(items)

    def _appended(self, items):
        depth, n = len(self.path) - 1, 0
        for item in items:
            if n % BATCH_ITEMS == 0:
                self.out += b"e(" if n else b"("
            n += 1
            atom = ATOM_WRITERS.get(type(item))
            if atom is not None:
                atom(self, item)
            else:
                self.path[depth] = n - 1
                yield item
        if n:
            self.out += b"e"

    def _dict(self, mapping):
        self.out += b"}"
        self._remember(mapping)
        yield from self._set(mapping.items())

    def _set(self, items):
        depth, n = len(self.path) - 1, 0
        for key, value in items:
            if n % BATCH_ITEMS == 0:
                self.out += b"u(" if n else b"("
            n += 1
            atom = ATOM_WRITERS.get(type(key))
            if atom is not None:
                atom(self, key)
            else:
                self.path[depth] = None
                yield key
            atom = ATOM_WRITERS.get(type(value))
            if atom is not None:
                atom(self, value)
            else:
                self.path[depth] = key
                yield value
        if n:
            self.out += b"u"

    def _tuple(self, items):
        depth = len(self.path) - 1
        if not items:
            self.out += b")"
            return
        self.out += b"(" if len(items) > 3 else b""
        for at, item in enumerate(items):
            self.path[depth] = at
            yield item
        found = self.memo.get(id(items))
        if found is not None:                       # a part held the tuple itself, so that it is there by now
            self.out += b"1" if len(items) > 3 else b"0" * len(items)
            self._get(found)
            return
        self.out += b"t" if len(items) > 3 else b"%c" % (0x84 + len(items))
        self._remember(items)

    def _members(self, members):
        self._global("builtins", type(members).__name__)
        yield list(members)
        self.out += b"\x85R"
        self._made(members)

    @staticmethod
    def for_files(thing, parts):
        """The six parts that say how `thing` is made, with the state that PyTorch's objects have."""
        function, args, state, *more = [*parts, None, None, None, None][:6]
        if hasattr(type(thing), "_state_for_files") and type(state) is dict:
            state = thing._state_for_files(state)
        return function, args, state, *more

    def _object(self, thing):
        """Anything else, by what its class says about copying it."""
        if isinstance(thing, (type, FunctionType, BuiltinFunctionType, Op)):
            self._by_name(thing)
            return
        reducer = copyreg.dispatch_table.get(type(thing))
        try:
            parts = reducer(thing) if reducer is not None else thing.__reduce_ex__(2)
        except TypeError as error:
            raise TypeError(f"{error}{self._where()}") from error
        if isinstance(parts, str):
            self._global(torch_module(thing, thing.__module__, parts), parts)
            return
        function, args, state, items, pairs, setter = self.for_files(thing, parts)
        if setter is not None:
            raise PicklingError(f"Can't pickle {type(thing).__name__}: its state is set by a function of its "
                                f"own{self._where()}")
        depth = len(self.path) - 1
        if getattr(function, "__name__", "") == "__newobj__":
            self.path[depth] = None
            yield args[0]
            yield args[1:]
            self.out += b"\x81"
        elif getattr(function, "__name__", "") == "__newobj_ex__":
            yield from args
            self.out += b"\x92"
        else:
            yield function
            yield args
            self.out += b"R"
        self._made(thing)
        if items is not None:
            yield from self._appended(items)
        if pairs is not None:
            yield from self._set(pairs)
        if state is not None:
            self.path[depth] = None
            yield state
            self.out += b"b"


ATOM_WRITERS = {type(None): Pickler._none, bool: Pickler._bool, int: Pickler._int, float: Pickler._float,
                complex: Pickler._complex, str: Pickler._text, bytes: Pickler._bytes, bytearray: Pickler._bytearray,
                dtypes.dtype: Pickler._dtype, device: Pickler._device, Size: Pickler._size,
                layout.layout: Pickler._layout}
CONTAINER_WRITERS = {list: Pickler._list, dict: Pickler._dict, tuple: Pickler._tuple, set: Pickler._members,
                     frozenset: Pickler._members}
