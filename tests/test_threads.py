"""Threads that come to something for the first time together: Note [First use] in flambeau/base/once.py.

`python -m tests.first_uses` does the same many times.
"""
import threading

import pytest

import flambeau as torch
from flambeau.base import once, op as declarations
from flambeau.base.op import Pointwise, known
from flambeau.base.spec import spec
from flambeau.trace.recording import update
from tests import first_uses
from tests.patience import PATIENCE
from tests.thorough import THOROUGH

pytestmark = pytest.mark.pinned


@pytest.mark.parametrize("seed", range(60 if THOROUGH else 10))
def test_first_uses_in_a_fresh_interpreter(seed):
    assert first_uses.fresh(seed) == ""


def together(function, threads=8):
    """What `function` gives to threads that call it at the same time."""
    ready, given = threading.Barrier(threads), []

    def call():
        ready.wait(PATIENCE)
        given.append(function())
    running = [threading.Thread(target=call) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(given) == threads
    return given


def test_threads_are_given_one_object():
    inside = threading.Barrier(8)

    @once.cache
    def made(name):
        inside.wait(PATIENCE)                             # all of them are at it
        return [name]
    found = together(lambda: made("x"))
    assert all(one is found[0] for one in found) and made("x") is found[0]
    made.cache_clear()
    assert len({id(one) for one in together(lambda: made("x"))}) == 1 and made("x") is not found[0]


def test_an_operation_that_is_prepared_is_known(monkeypatch):
    """Threads met one that said it was prepared, and was not among the known."""
    class doubled_once(Pointwise):
        """Twice `input`."""
        def ref(xp, input): return input * 2
    facts = declarations.Facts

    def made(op):
        assert not op.prepared and op not in known
        return facts(op)
    monkeypatch.setattr(declarations, "Facts", made)
    doubled_once.prepare()
    first = known[doubled_once]
    assert doubled_once.prepared
    doubled_once.prepare()                                # of a thread that looked before
    assert known[doubled_once] is first
    del known[doubled_once]


def test_an_entry_is_found_whole(monkeypatch):
    class Watched(dict):
        def __setitem__(self, key, entry):
            raise AssertionError("not by setdefault: another thread may have been first")

        def setdefault(self, key, entry):
            assert entry.outs and entry.compiles is not None
            return super().setdefault(key, entry)
    monkeypatch.setattr(update, "update_entries", Watched())
    kinds = tuple(spec(torch.float32, (size,)) for size in (6, 3, 3))
    found = update.infer_update(kinds)
    assert update.infer_update(kinds) is found
