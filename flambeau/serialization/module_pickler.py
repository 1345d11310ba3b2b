"""The pickle of what is saved, by the `Pickler` of a module like dill, which writes what pickle does not.

Tensors and storages are handed to it as what PyTorch's files have for them, and the names of ours in its pickle are
then changed to PyTorch's. What it writes by value, a function with its globals, keeps the names that are in it.
"""
import io
import pickletools
from collections import OrderedDict
from importlib import import_module

from ..autograd.edges import requires
from ..base import dtypes, layout
from ..base.module_locations import torch_module
from ..base.spec import META
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor
from ..tensor.typed_storage import STORAGE_NAMES, TypedStorage
from .locations import location_tag
from .pickler import Pickler, plain_reduce


class ModulePickler(Pickler):
    """Pickles one object with the `Pickler` of a module. It notes what `Pickler` notes, but not the ways to tensors."""

    def __init__(self, module, protocol):
        super().__init__()
        self.module, self.protocol = module, protocol

    def dump(self, root):
        """The bytes of the pickle of `root`."""
        file, outer = io.BytesIO(), self

        class Writer(self.module.Pickler):
            def persistent_id(self, thing):
                if isinstance(thing, (UntypedStorage, TypedStorage)):
                    dtype = getattr(thing, "dtype", None)
                    thing = StorageOfDtype(thing, dtype if dtype in STORAGE_NAMES else None)
                return outer.pid(thing) if isinstance(thing, StorageOfDtype) else None

            def reducer_override(self, thing):
                if isinstance(thing, Tensor) and type(thing).__reduce_ex__ is plain_reduce:
                    return outer.parts(thing)
                if isinstance(thing, dtypes.dtype):
                    return thing.name
                if isinstance(thing, layout.layout):
                    return stand_in("torch.serialization", "_get_layout"), (repr(thing),)
                inherited = getattr(super(), "reducer_override", None)
                reduced = NotImplemented if inherited is None else inherited(thing)
                if reduced is NotImplemented and hasattr(type(thing), "_state_for_files"):
                    reduced = outer.for_files(thing, thing.__reduce_ex__(2))
                return reduced

        Writer(file, protocol=self.protocol).dump(root)
        return renamed(file.getvalue(), self.names)

    def pid(self, storage):
        """The persistent id of a storage; the bytes follow in a record of their own."""
        number, storage_class, count = self.numbered(storage.handle, storage.dtype)
        return "storage", stand_in(*storage_class), str(number), location_tag(storage.handle), count

    def parts(self, tensor):
        """A tensor as what rebuilds it, and its arguments."""
        cls, state = self.class_and_state(tensor)
        if cls is Tensor and not state:
            return self.rebuilt(tensor, requires(tensor))
        if self.is_parameter(cls):
            function, args = self.rebuilt(tensor, False)
            name = "_rebuild_parameter_with_state" if state else "_rebuild_parameter"
            return stand_in("torch._utils", name), (PickledCall(function, args), requires(tensor), OrderedDict(),
                                                      *([state] if state else []))
        function, args = self.rebuilt(tensor, requires(tensor))
        return stand_in("torch._tensor", "_rebuild_from_type_v2"), (function, cls, args, state)

    def rebuilt(self, tensor, requires_grad):
        """The function that makes the plain tensor, and its arguments."""
        name, named = self.function_and_storage_dtype(tensor)
        spec = tensor._spec
        layout_args = (tuple(spec.shape), tuple(spec.strides), requires_grad)
        if spec.device is META:
            return stand_in("torch._utils", name), (spec.dtype, *layout_args)
        storage = StorageOfDtype(UntypedStorage(storage=tensor._storage), named)
        more = () if named is spec.dtype else (spec.dtype,)
        return stand_in("torch._utils", name), (storage, tensor._offset, *layout_args, OrderedDict(), *more)


class StorageOfDtype:
    """A storage as a file describes it."""

    def __init__(self, handle, dtype):
        self.handle, self.dtype = handle, dtype


class PickledCall:
    """Pickled as what a function makes of its arguments."""

    def __init__(self, function, args):
        self.parts = function, args

    def __reduce__(self):
        return self.parts


def stand_in(module, name):
    """A class that is written where PyTorch's `module.name` is meant, which may not be here; `renamed` changes it."""
    full = f"{module} {name}".replace(".", "/")              # a dot would be looked up
    found = globals().get(full)
    if found is None:
        found = globals()[full] = type(full, (), {"__module__": __name__})
    return found


def torchs(module, name):
    """What PyTorch calls the global `module.name` of a pickle."""
    if module == __name__ and " " in name:
        return tuple(name.replace("/", ".").split(" "))
    if not f"{module}.".startswith("flambeau."):
        return module, name
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return torch_module(found, module, name), name


def renamed(pickled, names):
    """A pickle with the names of PyTorch's for ours; `names` takes those that are in it.

    Frames are left out: they announce a number of bytes, which changes, and they are not needed.
    """
    out, start, skipped = bytearray(), 0, []
    texts: list = []                    # what was pushed, if it was text, for the opcode that takes a name from there
    memo: dict = {}
    for op, argument, position in pickletools.genops(pickled):
        if skipped:
            start, skipped = position, []
        if op.name == "FRAME":
            out += pickled[start:position]
            skipped.append(op)
        elif op.name in ("GLOBAL", "STACK_GLOBAL"):
            module, name = argument.split(" ", 1) if op.name == "GLOBAL" else texts[-2:]
            out += pickled[start:position] + b"00" * (op.name == "STACK_GLOBAL")
            skipped.append(op)
            module, name = torchs(module, name)
            names[module, name] = len(names)
            out += f"c{module}\n{name}\n".encode()
            texts.append(None)
        elif op.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = texts[-1] if texts else None
        elif op.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if texts else None
        elif op.name in ("GET", "BINGET", "LONG_BINGET"):
            texts.append(memo[argument])
        elif op.stack_after:
            texts.append(argument if type(argument) is str else None)
    return bytes(out + pickled[start:])
