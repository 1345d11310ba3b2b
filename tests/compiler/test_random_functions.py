"""Random Python functions, compiled, do what they do: every call gives and leaves behind what the plain one does.

`FLAMBEAU_TEST_EXAMPLES=5000` tries more than the suite does; `python -m tests.compiler.functions` does as well, and
says how much was replayed.
"""
import os

import pytest

import flambeau as torch

from ..thorough import THOROUGH, takes_seconds
from . import tables
from .compare import Different
from .functions import Call, Program, Writer, check, failure, minimised

pytestmark = pytest.mark.pinned

EXAMPLES = int(os.environ.get("FLAMBEAU_TEST_EXAMPLES", 500 if THOROUGH else 30))
TOGETHER = 20


@pytest.mark.parametrize("first", range(0, EXAMPLES, TOGETHER))
def test_compiled_as_plain(first):
    for seed in range(first, min(first + TOGETHER, EXAMPLES)):
        program = Writer(seed).program()
        try:
            check(program)
        except Different as error:
            small = minimised(program, tries=500)
            pytest.fail(f"seed {seed}:\n{small}\n\n{failure(small) or error}", pytrace=False)


@takes_seconds
def test_much_of_it_is_replayed():
    """Otherwise the test above would say little."""
    outcomes = []
    for seed in range(10_000, 10_040):
        try:
            outcomes.append(check(Writer(seed).program()))
        except Different:
            continue
    assert len(outcomes) >= 20
    assert sum(o.replayed for o in outcomes) > 0.15 * sum(o.calls for o in outcomes)
    assert sum(len(o.raised) for o in outcomes) < 0.25 * sum(o.calls for o in outcomes)


# --- the test notices ------------------------------------------------------------------------------------------------


def program(body, *calls, setup=""):
    source = f"{tables.PRELUDE}\n{setup}\ndef entry(x, y, n, r):\n    {body}\n"
    calls = [Call("", f"fresh(1, 4, 3), fresh(2, 4, 3), {call}", False, True) for call in calls]
    return Program(source, "entry", calls)


class Forgetful:
    """A bad compile: from the second call on it gives what the first one gave."""

    recordings = reasons = ()

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        if not hasattr(self, "first"):
            self.first = self.function(*args)
        return self.first


WRONG = {
    "a value": ("return x * r", "holds"),
    "a number": ("return n + 1", "is 2, plain 3"),
    "the type of a number": ("return True if n == 1 else 1", "is a"),
    "state": ("state.n = n", "is 1, plain 2"),
    "a write": ("x.mul_(n)", "version 0, plain 1"),
    "an attribute of a tensor": ("x.n = 1", "plain"),
    "random numbers": ("return torch.rand(2) * 0", "random numbers"),
    "an exception": ("assert n == 1", "has the parts"),
    "whether memory is shared": ("return x if n == 2 else x.clone()", "another object"),
    "a graph": ("return leaf * 1 if n == 2 else leaf.detach() * 1", "requires grad"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_seen(what, monkeypatch):
    body, words = WRONG[what]
    wrong = program(body, "1, 0.5", "2, 0.25", setup="state = types.SimpleNamespace(n=0)")
    assert failure(wrong) is None
    monkeypatch.setattr(torch, "compile", Forgetful)
    with pytest.raises(Different, match=words):
        check(wrong)


def test_a_program_is_made_smaller(monkeypatch):
    monkeypatch.setattr(torch, "compile", Forgetful)
    body = "h = x.tanh()\n    for i in range(3):\n        y = y + i\n    return (h * 0 + n, y)"
    large = program(body, "1, 0.5", "1, 0.5", "2, 0.5")
    small = minimised(large)
    assert len(small.calls) == 2 and "tanh" not in small.source and "for" not in small.source
    assert "holds" in failure(small)


def test_a_seed_gives_one_program():
    assert str(Writer(7).program()) == str(Writer(7).program()) != str(Writer(8).program())
