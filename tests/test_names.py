"""A class or a constant has a name of its own: one word means one thing in the whole package.

Names that PyTorch has twice are twice here too. Functions, methods and local variables may be called like others.
"""
import ast
import functools
from collections import defaultdict

import pytest

from .sources import parsed
from .test_layers import PACKAGE

pytestmark = pytest.mark.pinned

# name → why more than one module has it
TWINS = {
    **dict.fromkeys(("Attribute", "Backend", "Event", "GradScaler", "Identity", "Node", "Stream", "Transformer",
                     "autocast", "device", "profile"), "PyTorch's"),
    "PUBLIC": "what a module gives to the top of the package, wherever there is such a list",
    "T": "a type variable",
    "RGB": "torchvision's transform, and its number of a mode of pictures in files",
    "Transform": "PyTorch's, in distributions, and torchvision's",
}


def named_at_the_top(tree):
    """The classes and constants that a module makes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(part, ast.Name) and part.id.strip("_").isupper():
                        yield part.id


@functools.cache
def twins(package):
    """{name: the modules that make it}, of those that more than one does."""
    found = defaultdict(set)
    for module, _, tree in parsed(package):
        for name in named_at_the_top(tree):
            found[name].add(module)
    return {name: sorted(places) for name, places in found.items() if len(places) > 1}


def test_one_name_for_one_thing():
    told = {name: places for name, places in twins(PACKAGE).items() if name not in TWINS}
    assert not told, "say in the name what each of them is:\n" + "\n".join(
        f"  {name}: {', '.join(places)}" for name, places in sorted(told.items()))


def test_no_reason_is_left_over():
    assert TWINS.keys() <= twins(PACKAGE).keys()


def test_twins_are_found(tmp_path):
    (tmp_path / "one.py").write_text("LIMIT, OTHER = 1, 2\nclass Plan: pass\ndef run(): pass\nlocal = 3\n")
    (tmp_path / "two.py").write_text("LIMIT: int = 2\nclass Plan: pass\ndef run(): pass\nlocal = 4\n")
    assert twins(tmp_path) == {"LIMIT": ["one", "two"], "Plan": ["one", "two"]}
