"""Processes that are killed in the middle of an epoch, a worker or the program: nothing is lost, or comes twice."""
import multiprocessing
import os
import signal

import pytest

import flambeau as torch
from flambeau.utils.data import DataLoader, default_collate
from tests.patience import PATIENCE

from .sources import digest, plain_table

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("small_blocks"),
              pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")]


def dataset(connected):
    """A table of 120 rows. It is made in the test: a dataset that was asked for rows holds a transaction."""
    plain_table(connected, 120)
    made = connected.sql("SELECT * FROM t", key="id", label="label")
    if connected.name == "duckdb":
        with pytest.raises(RuntimeError, match="cannot be used in another process than the one that opened it: give"):
            list(loader(made))
        pytest.skip("a connection of DuckDB's stays in its process, which is said")
    return made


def collated(samples):
    """A function of the user's: with it, samples are asked for by their positions, in processes."""
    return default_collate(samples)


def loader(data, workers=2):
    context = "fork" if workers else None
    return DataLoader(data, 4, shuffle=True, num_workers=workers, collate_fn=collated, multiprocessing_context=context,
                      generator=torch.Generator().manual_seed(5))


def test_a_worker_is_killed_and_another_loader_goes_on(connected):
    data = dataset(connected)
    whole = [tuple(batch) for batch in loader(data, 0)]
    broken, given = loader(data), []
    batches = iter(broken)
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly: killed by signal"):
        for batch in batches:
            given.append(tuple(batch))
            if len(given) == 7:
                os.kill(batches._workers[0].pid, signal.SIGKILL)
    assert 7 <= len(given) < len(whole)
    other = loader(data)
    other.load_state_dict(broken.state_dict())
    assert digest([*given, *(tuple(batch) for batch in other)]) == digest(whole)


def epoch(data, cache, pipe):
    """What the program does that is killed: give the batches, and where it is after each."""
    iterator = data.batches(8, "block", 3, 1, 2, cache)
    for batch in iterator:
        pipe.send((digest([batch]), iterator.state_dict()))
        pipe.recv()


@pytest.mark.parametrize("cached", [False, True])
def test_a_program_is_killed_and_another_goes_on(connected, tmp_path, cached):
    data = dataset(connected)
    cache = tmp_path / "rows.cache" if cached else None
    whole = [digest([batch]) for batch in data.batches(8, "block", 3, 1)]
    here, there = multiprocessing.Pipe()
    program = multiprocessing.get_context("fork").Process(target=epoch, args=(data, cache, there))
    program.start()
    there.close()
    given = []
    for _ in range(5):
        assert here.poll(PATIENCE)
        word, state = here.recv()
        given.append(word)
        if len(given) < 5:
            here.send("go on")
    os.kill(program.pid, signal.SIGKILL)
    program.join(PATIENCE)
    assert len(list(tmp_path.glob("rows.cache*"))) == cached               # a part of one, under another name
    for _ in range(2):
        assert given + [digest([batch]) for batch in data.resume(state, workers=1, cache=cache)] == whole
    assert [path.name for path in tmp_path.glob("rows.cache*")] == ["rows.cache"] * cached


def test_a_cache_that_is_being_written_is_left_alone(connected, tmp_path):
    data, cache = dataset(connected), tmp_path / "rows.cache"
    slow = data.batches(8, "block", 3, 1, cache=cache)
    first = next(slow)
    assert len(list(tmp_path.glob("rows.cache.*.partial"))) == 1
    quick = digest(data.batches(8, "block", 3, 1, cache=cache))
    assert digest([first, *slow]) == quick
    assert [path.name for path in tmp_path.glob("rows.cache*")] == ["rows.cache"]
