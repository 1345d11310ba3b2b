"""`absent.txt` is what PyTorch has and Flambeau has not: no name too many, none too few."""
import importlib
import textwrap
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


if __name__ == "__main__":                        # python -m tests.torch.test_absent > flambeau/base/absent.txt
    print("# Public names of PyTorch 2.13 that are not here, by where they are there; an AttributeError says so.\n")
    for place in PLACES:
        there = part_of(flambeau, place)
        names = sorted({name for name in public(part_of(torch, place)) if not hasattr(there, name)} - {"LinAlgError"})
        if names:
            print(f"{place}:")
            print(textwrap.fill(" ".join(names), 120, initial_indent="    ", subsequent_indent="    ",
                                break_on_hyphens=False))
