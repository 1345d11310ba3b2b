"""Checks of data on another device: nothing is copied from there that was seen before or is on its way, and what is
wrong is refused at the call all the same."""
import pytest

import flambeau as torch
from flambeau.nn import functional as F

from ..backends import toy  # noqa: F401 - registers the device

TOY = torch.device("toy", 0)


@pytest.fixture
def copies():
    """How many copies from the device there were so far."""
    torch.zeros(0, device=TOY)
    log = TOY.backend.log
    log.clear()
    yield lambda: log.count("to_host")
    log.clear()


WORKS = {"embedding": lambda w, i: F.embedding(i, w), "index": lambda w, i: w[i],
         "index_select": lambda w, i: w.index_select(0, i), "gather": lambda w, i: w.gather(0, i[:, None]),
         "cross_entropy": lambda w, i: F.cross_entropy(w.t()[:1].expand(len(i), -1), i),
         "index_add": lambda w, i: w.index_add(0, i, w[:1].expand(len(i), -1))}


@pytest.mark.parametrize("name", WORKS)
def test_a_batch_on_its_way_is_read_where_it_comes_from(copies, name):
    w, i = torch.ones(50, 4, device=TOY), torch.tensor([3, 49, 0]).to(TOY)
    WORKS[name](w, i)
    assert copies() == 0


@pytest.mark.parametrize("name", WORKS)
def test_what_was_seen_is_not_copied_again(copies, name):
    w, i = torch.ones(50, 4, device=TOY), torch.arange(5, device=TOY)
    torch.cpu.synchronize()
    WORKS[name](w, i)
    before = copies()
    WORKS[name](w, i)
    assert copies() == before
    i += 1                                                    # written to: it has to be looked at once more
    WORKS[name](w, i)
    assert copies() <= before + 1


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("made", ["on its way", "there", "written", "a part"])
def test_what_is_wrong_is_refused_at_the_call(copies, name, made):
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


def test_a_source_that_is_written_to_afterwards(copies):
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
