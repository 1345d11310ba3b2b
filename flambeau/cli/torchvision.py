"""Under the name of torchvision, where that package is not installed, the part of it that Flambeau has.

`torchvision.transforms`, `.datasets` and `.utils` are then modules of `flambeau.data`; of everything else the import
says what to install. Where the package is installed it is what a program gets, and nothing here is asked.
"""
import importlib
import importlib.machinery
import sys
from types import ModuleType

from ..base.errors import need
from ..base.names import attribute_error

STANDIN_VERSION = "0.28.0+flambeau"                           # whose torch is 2.13
# What a module of torchvision's is called here. Versions 1 and 2 of the transforms are one.
STANDIN_MODULES = {
    "torchvision.datasets": "flambeau.data.datasets",
    **{f"torchvision.datasets.{name}": f"flambeau.data.datasets.{name}"
       for name in ("cifar", "fakedata", "folder", "mnist", "utils", "vision")},
    "torchvision.transforms": "flambeau.data.transforms",
    "torchvision.transforms.autoaugment": "flambeau.data.transforms.auto",
    "torchvision.transforms.functional": "flambeau.data.transforms.functional",
    "torchvision.transforms.transforms": "flambeau.data.transforms",
    "torchvision.transforms.v2": "flambeau.data.transforms",
    "torchvision.transforms.v2.functional": "flambeau.data.transforms.functional",
    "torchvision.utils": "flambeau.data.pictures",
}
STANDIN_PACKAGES = {ours: theirs for theirs, ours in reversed(STANDIN_MODULES.items())}      # by the first of its names
TORCHVISION_PARTS = ("_C", "_internally_replaced_utils", "extension", "io", "models", "ops", "tv_tensors")


def torchvision_spec(fullname, elsewhere, loader):
    """The spec of a module of torchvision's: the installed package's (or None, for others to find), or ours.

    `elsewhere()` gives the finders to ask for the package, and where they are to look; `loader(module)` puts a module
    of ours under another name.
    """
    if fullname == "torchvision":
        found = next(filter(None, (finder.find_spec(fullname, path) for finder, path in elsewhere())), None)
        if found is not None and found.origin is not None:    # a folder that has the name and no code is not it
            return found
        module = Torchvision()
        module.__spec__ = importlib.machinery.ModuleSpec(fullname, loader(module), is_package=True)
        return module.__spec__
    if not isinstance(sys.modules.get("torchvision"), Torchvision):
        return None
    if fullname not in STANDIN_MODULES:
        # As if the package were not there at all, which `from torchvision import models` needs to say it.
        raise ModuleNotFoundError(what_to_install(fullname), name="torchvision", path=fullname)
    module = importlib.import_module(STANDIN_MODULES[fullname])
    return importlib.machinery.ModuleSpec(fullname, loader(module), is_package=hasattr(module, "__path__"))


def need_of_torchvision(fullname, path):
    """Say what to install, where `from torchvision.datasets import LSUN` asks our module of that name for what it does
    not have: Python then looks for a module below it, `flambeau.data.datasets.LSUN`."""
    parent, _, name = fullname.rpartition(".")
    if isinstance(sys.modules.get("torchvision"), Torchvision) and parent in STANDIN_PACKAGES \
            and importlib.machinery.PathFinder.find_spec(fullname, path) is None:
        raise ModuleNotFoundError(what_to_install(f"{STANDIN_PACKAGES[parent]}.{name}"), name="torchvision")


def what_to_install(name):
    """What to do about a name of torchvision's that Flambeau does not have."""
    return (f"Flambeau has no {name}: of torchvision it has transforms, datasets and utils, and the package itself "
            "runs on Flambeau too: flambeau provide-torch, then pip install torchvision==0.28.0")


class Torchvision(ModuleType):
    """The module `torchvision` where the package is not installed."""

    def __init__(self):
        super().__init__("torchvision", __doc__)
        self.__dict__.update(__version__=STANDIN_VERSION, __path__=[], __file__=__file__,
                             disable_beta_transforms_warning=disable_beta_transforms_warning,
                             get_image_backend=get_image_backend, set_image_backend=set_image_backend,
                             get_video_backend=get_video_backend)

    def __getattr__(self, name):
        full = f"torchvision.{name}"
        if full in STANDIN_MODULES:
            return importlib.import_module(full)
        if name in TORCHVISION_PARTS:
            raise AttributeError(f"module 'torchvision' has no attribute {name!r}: {what_to_install(full)}", name=name,
                                 obj=self)
        raise attribute_error("torchvision", name, self.__dir__)

    def __dir__(self):
        return sorted({*vars(self), *[name.split(".")[1] for name in STANDIN_MODULES]})


def get_image_backend():
    """What pictures in files are read with."""
    return "PIL"


def set_image_backend(backend):
    """Choose what pictures in files are read with; there is Pillow."""
    need(backend == "PIL", f"Invalid backend '{backend}'. Options are 'PIL'", ValueError)


def get_video_backend():
    """What films are read with: torchvision's own code, which is not here."""
    return "pyav"


def disable_beta_transforms_warning():
    """There is no such warning any more; older programs ask to be spared it."""
