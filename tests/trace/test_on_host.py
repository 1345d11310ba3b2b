"""What the CPU keeps of another device's contents: extremes are found once, and never those of other contents."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.trace import on_host

from ..backends import toy  # noqa: F401 - registers the device

TOY = torch.device("toy", 0)
WORKS = {"embedding": lambda w, i: F.embedding(i, w), "index": lambda w, i: w[i],
         "index_select": lambda w, i: w.index_select(0, i), "gather": lambda w, i: w.gather(0, i[:, None]),
         "cross_entropy": lambda w, i: F.cross_entropy(w.t()[:1].expand(len(i), -1), i),
         "index_add": lambda w, i: w.index_add(0, i, w[:1].expand(len(i), -1))}


def test_extremes_are_found_once(monkeypatch):
    i = torch.tensor([3, 49, 0]).to(TOY)
    kept = on_host.known(i)
    assert kept.min() == 0 and kept.max() == 49 and kept.tolist() == [3, 49, 0]
    monkeypatch.setattr(np, "asarray", None)                  # nothing is gone through any more
    again = on_host.known(i)
    assert again.min() == 0 and again.max() == 49
    monkeypatch.undo()
    assert on_host.known(i[:1]).max() == 3                    # another look
    assert (kept + 1).max() == 50 and kept[:1].max() == 3 and kept.max(axis=0) == 49 and kept.max(initial=60) == 60


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("made", ["on its way", "there", "written", "a part"])
def test_what_is_wrong_is_refused_at_the_call(name, made):
    w, good = torch.ones(50, 4, device=TOY), torch.tensor([1, 2, 3])
    i = (good if made == "written" else good + 60).to(TOY)
    if made == "there":
        torch.cpu.synchronize()
    if made == "written":
        WORKS[name](w, i)
        i += 60
    if made == "a part":
        i = torch.cat([i, good.to(TOY)])
        WORKS[name](w, i[3:])
        i = i[1:]
    with pytest.raises((IndexError, RuntimeError), match="6[123]"):
        WORKS[name](w, i)


def test_a_source_that_is_written_to_afterwards():
    source = torch.tensor([1, 2])
    i = source.to(TOY)
    source += 100
    assert F.embedding(i, torch.ones(50, 4, device=TOY)).sum().item() == 8
    with pytest.raises(IndexError):
        F.embedding(source.to(TOY), torch.ones(50, 4, device=TOY))


def test_compiled_checks():
    w = torch.arange(50.0, device=TOY)

    @torch.compile
    def picked(i):
        return (w[i] * 2).sum()
    for n in range(1, 5):
        assert picked(torch.tensor([n, n + 1]).to(TOY)).item() == 4 * n + 2
    with pytest.raises(IndexError, match="index 77 is out of bounds"):
        picked(torch.tensor([0, 77]).to(TOY))
