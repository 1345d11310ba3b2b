"""A class or a constant has a name of its own: one word means one thing in the whole package.

Names that PyTorch has twice are twice here too. Functions, methods and local variables may be called like others.
Words that only their writers understood do not come back.
"""
import ast
import functools
import io
import re
import tokenize
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

# Who it is: the caller, another thread, an observer, the user, the program. Texts that users see may say it.
NO_PARTY = re.compile(r"\b(nobody|somebody|anybody|whoever)\b", re.IGNORECASE)
# name → what says it
PRIVATE_NAMES = {
    "like_before": "call_cached, cached_plan",
    "dressed": "with_metadata",
    "_by_owner": "run_inline",
    "_at_once": "run_as_one_call",
    "HELD_BACK": "HOLDOUT_EVERY",
    "SMALL_LOOK_BYTES": "MAX_INLINE_BYTES",
    "A_NODE_OVER_SEVERAL": "NOT_REPLAYABLE",
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


def remarks(path, text):
    """(number of the line, text) of the comments and docstrings in a file; of one of Cython's, all its lines."""
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.splitlines(), node.lineno)


def unclear(package):
    """The lines of a package that use a private name, or a remark that does not say who it speaks of."""
    private = re.compile(rf"\b({'|'.join(PRIVATE_NAMES)})\b")
    for path in sorted(file for suffix in ("py", "pyx", "pxd") for file in package.rglob(f"*.{suffix}")):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(package).as_posix()
        for name in private.findall(text):
            yield f"{where}: {name}: say {PRIVATE_NAMES[name]}"
        if NO_PARTY.search(text):
            for number, line in remarks(path, text):
                for word in NO_PARTY.findall(line):
                    yield f"{where}:{number}: {word}: say who it is, or use the passive"


def test_words_that_a_stranger_knows():
    told = list(unclear(PACKAGE))
    assert not told, "\n".join(told)


def test_unclear_words_are_found(tmp_path):
    (tmp_path / "one.py").write_text('"""Nobody reads\nthis."""\nx = "somebody else"   # whoever asks\ndressed = x\n')
    (tmp_path / "two.pxd").write_text("cdef int x      # anybody's\n")
    assert [line.rpartition(": ")[0] for line in unclear(tmp_path)] == [
        "one.py: dressed", "one.py:3: whoever", "one.py:1: Nobody", "two.pxd:1: anybody"]
