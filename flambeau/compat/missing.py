"""What PyTorch has and Flambeau lacks: it can be imported and named, and says what it is where it is used.

A program often imports more than it uses. So every module of PyTorch's can be imported (base/modules.txt lists them),
and what one that is missing (`torch.export`) is asked for is a `Missing`: something that can stand in an annotation,
in an `isinstance` and among the bases of a class, and that raises NotImplementedError, with the line of the program
and what to do instead, as soon as it, or a class made of it, is called, or it is asked for an attribute. A name that
is missing from a module that is there (`torch.lobpcg`) is an AttributeError, so that `hasattr` says the truth.
"""
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from ..base.errors import here, line_of
from ..base.module_locations import flambeau_name
from ..base.names import attribute_error, modules, packages
from ..base.once import cache
from ..tensor.forms import namespace

_EXPORT = "save the state_dict and export with PyTorch"
_QUANTISE = "quantise with PyTorch from the same state_dict"

# What to do instead of using a module that is not here, or one below it. Where a part of one is here, Flambeau has a
# module of that name, whose other names come from `rest_of`.
MISSING_MODULES = {
    "torch.ao": _QUANTISE,
    "torch.autograd.profiler_legacy": "use torch.profiler.profile",
    "torch.cuda.jiterator": "operations fuse by themselves",
    "torch.cuda.sparse": "use dense tensors",
    "torch.distributed": "there is one process; leave it out where torch.distributed.is_available() is False",
    "torch.export": _EXPORT,
    "torch.futures": "use concurrent.futures",
    "torch.masked": "use torch.where and masked_fill",
    "torch.multiprocessing.pool": "use torch.multiprocessing.Pool",
    "torch.multiprocessing.queue": "use torch.multiprocessing.Queue",
    "torch.nested": "pad the tensors, or use torch.nn.utils.rnn.PackedSequence",
    "torch.nn.grad": "use torch.autograd.grad",
    "torch.nn.intrinsic": _QUANTISE,
    "torch.nn.parallel": "use the module itself: it runs in one process, on all cores",
    "torch.nn.qat": _QUANTISE,
    "torch.nn.quantizable": _QUANTISE,
    "torch.nn.quantized": _QUANTISE,
    "torch.onnx": _EXPORT,
    "torch.package": "use torch.save of a state_dict",
    "torch.quantization": _QUANTISE,
    "torch.sparse": "use dense tensors",
    "torch.utils.benchmark.op_fuzzers": "draw arguments with hypothesis, or with random",
    "torch.utils.bottleneck": "use cProfile",
    "torch.utils.collect_env": "run `flambeau info`",
    "torch.utils.cpp_extension": "operations fuse into native code by themselves; write an autograd.Function",
    **{f"torch.utils.data.{name}": "write a Dataset or an IterableDataset"
       for name in ("datapipes", "DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe")},
    "torch.utils.show_pickle": "use pickletools",
    "torch.utils.tensorboard": "use tensorboardX.SummaryWriter, which writes the same files",
    "torch.utils.throughput_benchmark": "use timeit",
    "torch.utils.weak": "use the weakref module",
    "torch._dynamo": "use flambeau.compile",
    "torch._inductor": "use flambeau.compile",
}
# Single names, where there is something to say about them.
MISSING_NAMES = {
    "torch.PyTorchFileReader": "use torch.load(path, mmap=True)",
    "torch.cuda.CUDAPluggableAllocator": "memory comes from CuPy's pool",
    "torch.cuda.MemPool": "memory comes from CuPy's pool",
    "torch.cuda.change_current_allocator": "memory comes from CuPy's pool",
    "torch.cuda.current_blas_handle": "cupy.cuda.get_cublas_handle() has one",
    "torch.cuda.current_solver_handle": "cupy.cuda.get_cusolver_handle() has one",
    "torch.sparse_csr_tensor": "use dense tensors",
    "torch.quantize_per_tensor": _QUANTISE,
}


def refusal(name):
    """The error that a use of `name` is, with the line of the program."""
    words = f"Flambeau has no {name} (used at {line_of(here())})"
    hint = hint_for(name)
    return NotImplementedError(f"{words}: {hint}." if hint else f"{words}.")


def hint_for(name):
    """What to do instead of using `name`: of the longest part of it that there is something to say about."""
    while name:
        if name in MISSING_NAMES or name in MISSING_MODULES:
            return MISSING_NAMES.get(name) or MISSING_MODULES.get(name)
        name = name.rpartition(".")[0]
    return ""


def no_attribute(module, name):
    """The error of asking a module that is there for something that is not; `module` by the name PyTorch has for it."""
    def names():
        try:
            return dir(import_module(flambeau_name(module)))
        except ImportError:
            return ()
    hint = hint_for(f"{module}.{name}")
    if module == "torch" and not hint and name in namespace["nn.functional"]:
        hint = f"use torch.nn.functional.{name}"
    return attribute_error(module, name, names, hint)


class Missing:
    """Something of PyTorch's that is not here. It can be named; any use raises NotImplementedError."""

    def __init__(self, name):
        self.__module__, _, self.__name__ = name.rpartition(".")
        self.__qualname__ = self.__name__

    def _use(self):
        raise refusal(f"{self.__module__}.{self.__name__}")

    def __call__(self, *args, **kwargs):
        self._use()

    def __mro_entries__(self, bases):
        return (_as_base(self),)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):        # Python looks for these by itself
            raise AttributeError(name)
        raise refusal(f"{self.__module__}.{self.__name__}.{name}")

    def __enter__(self):
        self._use()

    def __exit__(self, *exc):
        self._use()

    def __iter__(self):
        self._use()

    # In annotations and checks it is a type that nothing is of.

    def __instancecheck__(self, instance):
        return False

    def __subclasscheck__(self, cls):
        return False

    def __getitem__(self, types):
        return self

    def __or__(self, other):
        from typing import Union
        return Union[self, other]  # noqa: UP007

    def __ror__(self, other):
        from typing import Union
        return Union[other, self]  # noqa: UP007

    def __repr__(self):
        return f"<{self.__module__}.{self.__name__}, which Flambeau has not>"

    def __reduce__(self):
        return missing, (f"{self.__module__}.{self.__name__}",)


@cache
def missing(name):
    """What `name`, something of PyTorch's, is here."""
    return Missing(name)


@cache
def _as_base(found):
    """The class that stands for a `Missing` among the bases of a class: nothing can be made of it."""
    def refuse(cls, *args, **kwargs):
        found._use()

    def below(cls, **kwargs):
        super(made, cls).__init_subclass__(**kwargs)
        cls.__new__ = refuse                                     # another base may have one of its own
    made = type(found.__name__, (), {"__module__": found.__module__, "__new__": refuse, "__init_subclass__": below})
    return made


class MissingModule(ModuleType):
    """A module of PyTorch's that is not here. It can be imported; its names are `Missing`."""

    def __init__(self, name):
        hint = hint_for(name)
        super().__init__(name, f"Flambeau has no {name}" + (f": {hint}." if hint else "."))
        self.__spec__ = ModuleSpec(name, None, is_package=name in packages())
        if name in packages():
            self.__path__: list = []                             # its submodules can be imported too

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        full = f"{self.__name__}.{name}"
        if is_module(full):
            found = self.__dict__[name] = MissingModule(full)
            return found
        return missing(full)

    def __repr__(self):
        return f"<module {self.__name__!r}, which Flambeau has not>"


def is_module(name):
    """Whether PyTorch has a module of that name. One that Flambeau has not is missing."""
    return name in modules()


@cache
def of_torch(name):
    """What `torch.name` is, if Flambeau has nothing of that name: a module that is missing, or an AttributeError."""
    if is_module(f"torch.{name}"):
        is_there = find_spec(f"{__package__}.{name}") is not None
        return import_module(f"{__package__}.{name}") if is_there else MissingModule(f"torch.{name}")
    raise no_attribute("torch", name)


def rest_of(module, **hints):
    """A `__getattr__` for a module that is part of PyTorch's `module`: the other names are `Missing`."""
    MISSING_NAMES.update({f"{module}.{name}": hint for name, hint in hints.items()})

    def get(name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        full = f"{module}.{name}"
        return MissingModule(full) if is_module(full) else missing(full)
    return get
