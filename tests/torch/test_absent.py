"""`absent.txt` is what PyTorch has and Flambeau has not: no name too many, none too few."""
import importlib
import types

import pytest

import flambeau
from flambeau.base.names import absent

torch = pytest.importorskip("torch")
PLACES = sorted(absent()) + ["torch.nn", "torch.optim"]


def part_of(library, place):
    """What is at a dotted place of PyTorch's, in either library."""
    found = library
    for name in place.split(".")[1:]:
        found = getattr(found, name, None) or importlib.import_module(f"{found.__name__}.{name}")
    return found


def public(owner):
    """PyTorch's names there: those it lists, or else its own functions and classes."""
    listed = getattr(owner, "__all__", None)
    for name in listed or dir(owner):
        held = getattr(owner, name, None)
        ours = str(getattr(held, "__module__", "") or "torch").startswith("torch") and callable(held)
        if not name.startswith("_") and hasattr(owner, name) and not isinstance(held, types.ModuleType) \
                and (listed or owner is torch.Tensor or ours):
            yield name


@pytest.mark.parametrize("place", PLACES)
def test_the_list_is_exact(place):
    mine = part_of(flambeau, place)
    missing = {name for name in public(part_of(torch, place)) if not hasattr(mine, name)}
    missing.discard("LinAlgError")
    assert missing == absent().get(place, set())
