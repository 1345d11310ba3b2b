"""Flambeau under PyTorch's name: after `install_as_torch()`, `import torch` and all below it give Flambeau's modules.

`torch.nn` is then `flambeau.nn`, the same object, and so on for every module that is here. Three things differ:
- `torch` itself is a module of its own with Flambeau's names, since its version is PyTorch's: `torch.__version__`;
- `torch.backends` holds the switches of PyTorch's libraries (flambeau/backends/library_switches.py), not our executors;
- a module that Flambeau lacks can be imported, and says so when it is used (flambeau/compat/missing.py).
Of PyTorch's private modules, those that packages import stand in `flambeau.compat`.
"""
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from types import ModuleType

import flambeau

from ..base.lazy import LazyModule, names_held
from ..base.module_locations import ELSEWHERE, PRIVATE_MODULES, PYTORCH_PACKAGES, exists, flambeau_name, is_pytorchs
from ..base.names import packages
from ..base.public_names import publish, published
from ..compat.missing import MissingModule, is_module, no_attribute
from ..version import __version__ as TORCH_VERSION
from .torchvision import need_of_torchvision, torchvision_spec

# They go by PyTorch's module once `torch.nn` is imported.
PARAMETER_CLASSES = ("Parameter", "UninitializedParameter", "Buffer", "UninitializedBuffer")
# Modules of PyTorch's that it has loaded with itself, and that nothing of ours is the name of.
PRIVATE_NAMES = ("_C", "_dynamo", "_guards", "_inductor", "_jit_internal", "_library", "_lowrank", "_prims_common",
                 "_tensor", "_tensor_str", "_utils_internal")
# A folder with a package `torch` that calls `install_as_torch`: for processes that get sys.path, but not our finder.
STARTUP_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")
# What PyTorch requires, packages built on it import without requiring it; pip brings it with the first of them. Left
# out are sympy and networkx, which only PyTorch's own compiler uses.
METADATA = f"""\
Metadata-Version: 2.1
Name: torch
Version: {TORCH_VERSION}
Summary: Flambeau under the name of PyTorch, for packages that require torch.
Requires-Dist: flambeau
Requires-Dist: filelock
Requires-Dist: fsspec
Requires-Dist: jinja2
Requires-Dist: typing-extensions
"""


def install_as_torch():
    """Make `import torch` give Flambeau in this process, and in those that `multiprocessing` starts from it.

    Call it before anything imports torch; it refuses if the real one is there already. Calling it again does nothing.
    """
    found = sys.modules.get("torch")
    if isinstance(found, Torch):
        return
    if found is not None and not hasattr(found, "stands_in"):
        raise RuntimeError(f"PyTorch is already imported (from {getattr(found, '__file__', None) or 'somewhere'}), and "
                           "a program cannot change over half-way: call flambeau.install_as_torch() before anything "
                           "imports torch, or start the program with `flambeau run`")
    sys.meta_path.insert(0, FacadeFinder())
    for cls in published():
        publish(cls, "torch._C" if cls is flambeau.Generator else cls.__module__.replace("flambeau", "torch", 1))
    if STARTUP_FOLDER not in sys.path:
        sys.path.insert(min(1, len(sys.path)), STARTUP_FOLDER)  # before any folder that may hold the real one
    sys.modules["torch"] = Torch()


class Torch(LazyModule):
    """The module `torch`: Flambeau's names, with PyTorch's version."""

    def __init__(self):
        super().__init__("torch", flambeau.__doc__)
        names = names_held(self)
        names.update((name, thing) for name, thing in vars(flambeau).items() if not name.startswith("__")
                    and not (name in PRIVATE_MODULES and isinstance(thing, ModuleType)))
        names.pop("backends", None)                           # asked for by its name in `__getattr__`
        names.update(torch=self, __version__=TORCH_VERSION, __file__=flambeau.__file__, __path__=[],
                    __spec__=importlib.machinery.ModuleSpec("torch", FacadeLoader(self), is_package=True),
                    _IMPORTED_WHEN_ASKED=[*(name for name in dir(flambeau) if name not in PRIVATE_MODULES), "backends",
                                          *PRIVATE_NAMES, "ao", "onnx", "quantization"])

    def __getattr__(self, name):
        full = f"torch.{name}"
        if full in ELSEWHERE or is_module(full):
            found = importlib.import_module(full)
        elif name not in PRIVATE_MODULES and hasattr(flambeau, name):
            found = getattr(flambeau, name)
        elif name.startswith("__") or importlib.util.find_spec(full) is None:
            raise no_attribute("torch", name)
        else:
            found = importlib.import_module(full)
        names_held(self)[name] = found
        return found


class FacadeFinder(importlib.abc.MetaPathFinder):
    """Finds `torch` and what is below it in Flambeau; what safetensors has for torch; torchvision, where it is not
    installed."""

    of_flambeau = True

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        if fullname in ("safetensors", "safetensors.torch"):
            return safetensors_spec(fullname, path)
        if top == "torchvision":
            return torchvision_spec(fullname, self.others, FacadeLoader)
        if top == "flambeau":
            need_of_torchvision(fullname, path)
        module = named(fullname) if is_pytorchs(top) else None
        if module is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, FacadeLoader(module), is_package=hasattr(module, "__path__"))
        if getattr(module, "__spec__", None) is None:         # one without a file
            module.__spec__ = spec
        return spec

    def others(self):
        """(finder, where it is to look) for each that Python would ask for a package if there were no Flambeau."""
        path = [folder for folder in sys.path if folder != STARTUP_FOLDER]
        for finder in sys.meta_path:
            if not hasattr(finder, "of_flambeau") and hasattr(finder, "find_spec"):
                yield finder, path if finder is importlib.machinery.PathFinder else None

    def find_distributions(self, context=None):
        """For `importlib.metadata`: packages ask which version of torch is installed before they import it."""
        name = getattr(context, "name", None)
        return [FacadeDistribution()] if name is None or name.lower() == "torch" else []


class FacadeDistribution(importlib.metadata.Distribution):
    """What is installed as torch: Flambeau, under the version of PyTorch whose behaviour it has."""

    def read_text(self, filename):
        return {"METADATA": METADATA, "top_level.txt": "\n".join(PYTORCH_PACKAGES)}.get(filename)

    def locate_file(self, path):
        return os.path.join(os.path.dirname(os.path.dirname(flambeau.__file__)), path)


def safetensors_spec(fullname, path):
    """The library's own module, if it is installed, which then runs on Flambeau; else ours."""
    found = importlib.machinery.PathFinder.find_spec(fullname, path)
    if found is None:
        return importlib.machinery.ModuleSpec(fullname, FacadeLoader(importlib.import_module("flambeau.safetensors")),
                                              is_package=fullname == "safetensors")
    if fullname == "safetensors":
        return None
    return importlib.util.spec_from_file_location(fullname, found.origin,
                                                  loader=SafetensorsLoader(fullname, found.origin))


class SafetensorsLoader(importlib.machinery.SourceFileLoader):
    """Runs `safetensors.torch` with functions of ours where the original asks tensors for their addresses."""

    def exec_module(self, module):
        super().exec_module(module)
        from ..serialization.sharing import IN_THE_LIBRARY
        vars(module).update({function.__name__: function for function in IN_THE_LIBRARY})


class FacadeLoader(importlib.abc.Loader):
    """Puts a module that exists already under another name."""

    def __init__(self, module):
        self.module = module

    def create_module(self, spec):
        return None                       # a fresh one, which is thrown away: ours keeps its own name and spec

    def exec_module(self, module):
        name, ours = module.__spec__.name, self.module
        sys.modules[name] = ours
        # A module that is imported for the first time is put into its package. Where that has something else of the
        # name (torch.autograd.gradcheck is a function and a module), the module must look imported already.
        for child, value in list(names_held(ours).items()):
            below = sys.modules.get(f"{ours.__name__}.{child}")
            if below is not None and below is not value and not isinstance(value, ModuleType):
                sys.modules[f"{name}.{child}"] = below


def named(fullname):
    """The module that `import fullname` is to give, None if PyTorch has none of that name either."""
    if fullname == "torch":
        return sys.modules.get("torch") or Torch()
    if fullname == "torch.ops":                               # flambeau.ops is the package of our declarations
        return flambeau.ops
    parent, _, name = fullname.rpartition(".")
    if exists(flambeau_name(fullname)):
        return speaking(importlib.import_module(flambeau_name(fullname)), fullname)
    found = names_held(sys.modules[parent]).get(name) if parent in sys.modules else None
    if isinstance(found, ModuleType):                         # a module without a file, as torch.backends.cudnn is
        return opened(found, fullname)
    return MissingModule(fullname) if is_module(fullname) else None


def opened(module, fullname):
    """`module`, below which can be imported what PyTorch has there."""
    if fullname in packages() and not hasattr(module, "__path__"):
        module.__path__ = []
    return module


def speaking(module, fullname):
    """`module`, which from now on says what it lacks as PyTorch's `fullname`, and imports what it is asked for."""
    opened(module, fullname)
    if fullname == "torch.nn":
        for name in PARAMETER_CLASSES:
            publish(getattr(module, name), "torch.nn.parameter")
    own = names_held(module).get("__getattr__")
    if own is None or not hasattr(own, "of_torch"):
        def get(name):
            full = f"{fullname}.{name}"
            if is_module(full):                              # a module, ours or missing
                try:
                    return importlib.import_module(full)
                except ModuleNotFoundError as error:         # it needs a package that is not installed
                    raise AttributeError(f"module {fullname!r} has no attribute {name!r}: {error}", name=name) from None
            if own is not None:
                try:
                    return own(name)
                except AttributeError:
                    if name.startswith("__"):
                        raise
            if name.startswith("__") or not hasattr(module, "__path__") or importlib.util.find_spec(full) is None:
                raise no_attribute(fullname, name)
            return importlib.import_module(full)
        get.of_torch = fullname
        module.__getattr__ = get
    return module
