"""What PyTorch has and Flambeau lacks: it can be imported and named, and says what it is where it is used.

A program often imports more than it uses. So a module that is missing (`torch.onnx`) can be imported, and what it is
asked for is a `Missing`: something that can stand in an annotation or in an `isinstance`, and that raises
NotImplementedError, with the line of the program and what to do instead, as soon as it is called, subclassed or asked
for an attribute. A name that is missing from a module that is there (`torch.stft`) is an AttributeError, so that
`hasattr` says the truth.
"""
import functools
from importlib import import_module
from types import ModuleType

from .base.errors import here, line_of
from .base.names import attribute_error
from .tensor.forms import namespace

_EXPORT = "save the state_dict and export with PyTorch"
_QUANTISE = "quantise with PyTorch from the same state_dict"

# The modules of PyTorch 2.13 that are not here, with what to do instead; those below them are missing as well. Where a
# part of one is here, Flambeau has a module of that name, whose other names come from `rest_of`.
MODULES = {
    **dict.fromkeys("""
        torch.backends.python_native torch.backends.xeon torch.backends.xnnpack torch.compiler.config torch.contrib
        torch.cuda.comm torch.cuda.gds torch.cuda.green_contexts torch.cuda.nccl torch.cuda.nvtx torch.cuda.profiler
        torch.cuda.tunable torch.monitor torch.mps.event torch.mps.profiler torch.mtia
        torch.multiprocessing.reductions torch.nativert torch.nn.backends torch.nn.cpp torch.numa
        torch.utils.backcompat torch.utils.backend_registration torch.utils.bundled_inputs torch.utils.cpp_backtrace
        torch.utils.debug_log torch.utils.deterministic torch.utils.file_baton torch.utils.flop_counter
        torch.utils.hipify torch.utils.jit torch.utils.mkldnn torch.utils.mobile_optimizer torch.utils.model_dump
        torch.utils.module_tracker torch.utils.serialization torch.utils.viz
    """.split(), ""),
    "torch.ao": _QUANTISE,
    "torch.autograd.profiler_legacy": "use cProfile",
    "torch.autograd.profiler_util": "use cProfile",
    "torch.cuda.graphs": "flambeau.compile replays a recorded step without Python",
    "torch.cuda.jiterator": "operations fuse by themselves",
    "torch.cuda.sparse": "use dense tensors",
    "torch.export": _EXPORT,
    "torch.fft": "use numpy.fft where no gradient is needed",
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
    "torch.quasirandom": "use scipy.stats.qmc",
    "torch.signal": "use scipy.signal.windows",
    "torch.sparse": "use dense tensors",
    "torch.utils.benchmark": "use timeit, and torch.cpu.synchronize() before the clock is read",
    "torch.utils.bottleneck": "use cProfile",
    "torch.utils.collect_env": "run `flambeau info`",
    "torch.utils.cpp_extension": "operations fuse into native code by themselves; write an autograd.Function",
    "torch.utils.data.datapipes": "use an IterableDataset",
    "torch.utils.show_pickle": "use pickletools",
    "torch.utils.tensorboard": "use the tensorboardX package, or write the numbers to a file",
    "torch.utils.throughput_benchmark": "use timeit",
    "torch.utils.weak": "use the weakref module",
    "torch._dynamo": "use flambeau.compile",
    "torch._inductor": "use flambeau.compile",
    # Not part of PyTorch, but built on its compiled code.
    "torchaudio": "",
    "torchtext": "",
    "torchvision": "load images with Pillow or NumPy and make tensors of them with torch.from_numpy",
}
# Single names, where there is something to say about them.
NAMES = {
    "torch.sparse_coo_tensor": "use dense tensors",
    "torch.sparse_csr_tensor": "use dense tensors",
    "torch.quantize_per_tensor": _QUANTISE,
    "torch.utils.tensorboard.SummaryWriter": "use tensorboardX.SummaryWriter, which needs no PyTorch",
}
partly: set = set()           # modules of ours that are part of PyTorch's: what is below them is missing


def refusal(name):
    """The error that a use of `name` is, with the line of the program."""
    words = f"Flambeau has no {name} (used at {line_of(here())})"
    hint = hint_for(name)
    return NotImplementedError(f"{words}: {hint}." if hint else f"{words}.")


def hint_for(name):
    """What to do instead of using `name`: of the longest part of it that there is something to say about."""
    while name:
        if name in NAMES or name in MODULES:
            return NAMES.get(name) or MODULES.get(name)
        name = name.rpartition(".")[0]
    return ""


def no_attribute(module, name):
    """The error of asking a module that is there for something that is not; `module` by the name PyTorch has for it."""
    def names():
        try:
            return dir(import_module(f"{__package__}{module.removeprefix('torch')}"))
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
        self._use()

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

    def __getitem__(self, kinds):
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
        return Missing, (f"{self.__module__}.{self.__name__}",)


class MissingModule(ModuleType):
    """A module of PyTorch's that is not here. It can be imported; its names are `Missing`."""

    def __init__(self, name):
        hint = hint_for(name)
        super().__init__(name, f"Flambeau has no {name}" + (f": {hint}." if hint else "."))
        self.__path__: list = []                                 # its submodules can be imported too

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return Missing(f"{self.__name__}.{name}")

    def __repr__(self):
        return f"<module {self.__name__!r}, which Flambeau has not>"


def is_missing(name):
    """Whether `name` is a module of PyTorch's that is not here, or below one."""
    while name:
        if name in MODULES or name in partly:
            return True
        name = name.rpartition(".")[0]
    return False


@functools.cache
def of_torch(name):
    """What `torch.name` is, if Flambeau has nothing of that name: a module that is missing, or an AttributeError."""
    if f"torch.{name}" in MODULES:
        return MissingModule(f"torch.{name}")
    raise no_attribute("torch", name)


def rest_of(module, **hints):
    """A `__getattr__` for a module that is part of PyTorch's `module`: the other names are `Missing`."""
    partly.add(module)
    NAMES.update({f"{module}.{name}": hint for name, hint in hints.items()})

    def get(name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return Missing(f"{module}.{name}")
    return get
