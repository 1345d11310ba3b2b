"""Who walks a module sees all of it, as in PyTorch: by `vars`, by `dir` and by `__all__`, in a process that has done
nothing but `import torch`."""
import importlib
import json
import subprocess
import sys
from types import ModuleType

import pytest

from tests.patience import PATIENCE
from tests.test_submodules import NAMES

torch = pytest.importorskip("torch")

# Names that are answered without being in `vars`, and why.
ANSWERS = {
    "torch": "_foreach_*: any function of that beginning",
    "torch.autograd.forward_ad": "_current_level changes",
    "torch.cuda": "_initialized, default_generators: others once CUDA is started",
}
# Modules whose __all__ differs, and why.
OTHER_STARS = {
    "torch.fft": "PyTorch's leaves hfft2, hfftn, ihfft2 and ihfftn out",
    "torch.utils.data": "has DevicePrefetcher, of ours",
}

LOOK = """
import importlib, json, sys
import flambeau
from flambeau.compat.missing import Missing, MissingModule

def is_here(module, name):
    return hasattr(module, name) and not isinstance(getattr(module, name), (Missing, MissingModule))

if sys.argv[1] == "torch":
    flambeau.install_as_torch()
found = {}
for name, theirs in json.load(sys.stdin).items():
    module = importlib.import_module(name.replace("torch", sys.argv[1], 1))
    held, listed = dict(vars(module)), dir(module)
    found[name] = {"unlisted": sorted(held.keys() - set(listed)), "all": list(getattr(module, "__all__", ())),
                   "later": [one for one in theirs if one not in held and is_here(module, one)],
                   "has": [one for one in theirs if is_here(module, one)]}
print(json.dumps(found))
"""


def looked(names, library):
    """What a fresh process sees of these modules of PyTorch's, there called `library`."""
    theirs = {name: sorted({one for one, held in vars(module).items() if not one.startswith("__")
                            and (not isinstance(held, ModuleType) or f"{name}.{one}" in NAMES)}
                           | set(getattr(module, "__all__", ())))
              for name in names for module in [importlib.import_module(name)]}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LOOK, library], input=json.dumps(theirs),
                          capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ours():
    return looked(["torch", *NAMES], "torch")


def test_vars_are_whole(ours):
    assert {name: seen["later"] for name, seen in ours.items() if seen["later"] and name not in ANSWERS} == {}
    assert [name for name in ANSWERS if not ours[name]["later"]] == []


def test_dir_lists_vars(ours):
    assert {name: seen["unlisted"] for name, seen in ours.items() if seen["unlisted"]} == {}


def test_stars(ours):
    """`__all__` is PyTorch's, without what is not here."""
    wrong = {}
    for name, seen in ours.items():
        theirs = getattr(importlib.import_module(name), "__all__", None)
        if theirs is not None:
            mine, here = set(seen["all"]), set(seen["has"])
            difference = (here & set(theirs) - mine) | mine - set(theirs)
            if bool(difference) != (name in OTHER_STARS):
                wrong[name] = sorted(difference)
    assert wrong == {}


def test_without_the_stand_in():
    names = ["torch.distributions", "torch.testing", "torch.utils", "torch.cuda", "torch.mps", "torch.multiprocessing",
             "torch.return_types", "torch.cpu", "torch.version", "torch.hub", "torch.autograd"]
    found = looked(names, "flambeau")
    changes = {"_initialized", "default_generators"}
    assert {name: seen["later"] for name, seen in found.items() if set(seen["later"]) - changes} == {}
    assert {name: seen["unlisted"] for name, seen in found.items() if seen["unlisted"]} == {}


def test_classes_of_distributions():
    """pyro makes classes of its own of every class that it finds in the module."""
    import flambeau.distributions as mine
    classes = lambda module, base: {name for name, held in vars(module).items()
                                    if isinstance(held, type) and issubclass(held, base)}
    assert classes(mine, mine.Distribution) == classes(torch.distributions, torch.distributions.Distribution)
