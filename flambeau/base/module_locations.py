"""Where a module of PyTorch's stands here, and what PyTorch calls a thing of ours: for `import torch` and for files."""
import importlib
import importlib.util
import sys

from .names import modules
from .public_names import home

# Modules of PyTorch's that Flambeau has elsewhere.
ELSEWHERE = {
    "torch.autograd.grad_mode": "flambeau.autograd.modes",
    "torch.autograd.profiler": "flambeau.profiler.autograd_profiler",
    "torch.autograd.profiler_util": "flambeau.profiler.events",
    "torch.backends": "flambeau.backends.library_switches",
    "torch.jit.annotations": "flambeau.compat.annotations",
    "torch.nn.quantized": "flambeau.ao.nn.quantized",
    "torch.quantization": "flambeau.ao.quantization",
    "torch": "flambeau",
    "functorch": "flambeau.compat.functorch",
}
# Modules of ours that PyTorch has no counterpart of, or one of another meaning.
PRIVATE_MODULES = frozenset("base cli compat loops memory ops tensor trace".split())
# Modules of ours whose names PyTorch has in other modules, which are asked in this order.
GATHERED = {
    "autograd.engine": ("torch.autograd",),
    "autograd.graph": ("torch.autograd.anomaly_mode",),
    "autograd.modes": ("torch.autograd.grad_mode",),
    "base": ("torch", "torch.utils._pytree", "torch.linalg"),
    "compat": ("torch",),
    "distributions": ("torch.distributions.transforms",),
    "func": ("torch.func",),
    "jit": ("torch.jit",),
    "nn.modules": ("torch.nn.modules.module", "torch.utils.hooks"),
    "optim": ("torch.optim.lr_scheduler",),
    "serialization": ("torch.serialization",),
    "tensor": ("torch", "torch._C", "torch.random"),
}
# Names that only files have: of what PyTorch has renamed, and of its compiled functions. Of a module, all names: (the
# module that has them, what they begin with in the file).
RENAMED_MODULES = {
    "torch.tensor": ("torch._tensor", ""), "torch.functional": ("torch", ""),
    **{f"torch._C._{name}": (f"torch.{name}", f"{name}_") for name in ("fft", "linalg", "special")}}
RENAMED = {"torch.nn.functional._threshold": "torch.nn.functional.threshold",
           "torch.nn.attention._SDPBackend": "torch.nn.attention.SDPBackend"}
PYTORCH_PACKAGES = ("torch", "functorch")          # the packages that come with PyTorch


def flambeau_name(fullname):
    """What the module `fullname` of PyTorch's is called in Flambeau, whether it is there or not."""
    if fullname in ELSEWHERE:
        return ELSEWHERE[fullname]
    parent, _, name = fullname.rpartition(".")
    if parent == "torch" and (name in PRIVATE_MODULES or fullname in modules() and not exists(f"flambeau.{name}")):
        return f"flambeau.compat.{name}"
    return f"{flambeau_name(parent)}.{name}"


def exists(ours):
    """Whether Flambeau has the module `ours`."""
    parent = ours.rpartition(".")[0]
    if not parent:
        return ours == "flambeau"
    if not exists(parent) or parent != "flambeau" and not hasattr(importlib.import_module(parent), "__path__"):
        return False
    return importlib.util.find_spec(ours) is not None


def torch_module(thing, module, name):
    """The module in which PyTorch has the class or function `thing`, which is `name` in `module`; `module` itself if
    it is none of ours, or PyTorch has none."""
    if isinstance(thing, type) and thing.__module__ == module:
        module = home(thing)
    if module == "flambeau" and holds(module, name, thing):
        return "torch"
    own = module.removeprefix("flambeau.")
    if own == module:
        return module
    first = [theirs for theirs, ours in ELSEWHERE.items() if ours == module]
    gathered = next((GATHERED[part] for part in parents(own) if part in GATHERED), ())
    for candidate in (*first, torch_name(module), *gathered):
        if candidate in modules() and holds(flambeau_name(candidate), name, thing):
            return candidate
    return module


def torch_name(module):
    """What PyTorch would call a module of ours; another one keeps its name."""
    return f"torch{module.removeprefix('flambeau').removeprefix('.compat')}" \
        if f"{module}.".startswith("flambeau.") else module


def is_pytorchs(module):
    """Whether PyTorch comes with the module."""
    return module.partition(".")[0] in PYTORCH_PACKAGES


def look_up(module, name):
    """What stands here for `name`, which may be dotted, in PyTorch's `module`; None if nothing does. Both may be names
    that only files have."""
    found = _held(module, name)
    if found is None and f"{module}.{name}" in RENAMED:
        module, _, name = RENAMED[f"{module}.{name}"].rpartition(".")
        found = _held(module, name)
    if found is None and module in RENAMED_MODULES:
        module, start = RENAMED_MODULES[module]
        found = _held(module, name.removeprefix(start))
    return found


def _held(module, name):
    full_name = flambeau_name(module)
    if not exists(full_name):
        return None
    found = importlib.import_module(full_name)      # `exists` has imported the packages that it is inside of
    for part in name.split("."):
        try:
            found = getattr(found, part, None)
        except NotImplementedError:                 # what is below something that is missing
            return None
    return found


def parents(dotted):
    """"a.b.c", "a.b", "a"."""
    while dotted:
        yield dotted
        dotted = dotted.rpartition(".")[0]


def holds(module, name, thing):
    """Whether the module that is called `module` here, if it is, has `thing` under the dotted `name`."""
    if module not in sys.modules and not exists(module):
        return False
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing
