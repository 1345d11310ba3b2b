"""Streams of any size: every row once, the same bytes for any workers, shares of ranks, and any batch first."""
import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.base.locks import Flag
from flambeau.data.sql import reading, waiting_rows
from flambeau.data.sql.reading import ReadAlong
from flambeau.data.sql.source import Dialect
from flambeau.data.sql.sqlite import SQLiteSource
from flambeau.data.sql.sqlite_statements import SQLiteDialect
from tests.patience import PATIENCE
from tests.thorough import THOROUGH

from .sources import digest, together

pytestmark = pytest.mark.pinned


def table(keys):
    """A database in memory with these keys, and a dataset of it: the one feature is the key."""
    con = sqlite3.connect(":memory:")
    con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER)")
    con.executemany("INSERT INTO t VALUES (?, ?)", ((key, key) for key in keys))
    con.commit()
    data = torch.data.sql("SELECT id, x FROM t", con, key="id", dtype=torch.int64)
    con.close()
    return data


@given(keys=st.sets(st.integers(-2 ** 63, 2 ** 63 - 1), max_size=120), step=st.integers(1, 20), group=st.integers(1, 5),
       mixed=st.integers(1, 7), batch_size=st.integers(1, 40), shuffle=st.sampled_from([False, "block", "global"]),
       seed=st.integers(0, 2 ** 80), epoch=st.integers(0, 10), ranks=st.integers(1, 4),
       workers=st.integers(0, 3), helpers=st.integers(0, 2), in_file=st.booleans(), places=st.integers(1, 7),
       data=st.data())
@settings(max_examples=200 if THOROUGH else 25, deadline=None)
def test_any_stream(keys, step, group, mixed, batch_size, shuffle, seed, epoch, ranks, workers, helpers, in_file,
                    places, data):
    with pytest.MonkeyPatch.context() as patched:
        for dialect in (Dialect, SQLiteDialect):
            patched.setattr(dialect, "rows_in_block", step)
            patched.setattr(dialect, "blocks_in_group", group)
            patched.setattr(dialect, "groups_mixed", mixed)
        rows = table(keys)
        every = []
        for rank in range(ranks):
            options = dict(batch_size=batch_size, shuffle=shuffle, seed=seed, epoch=epoch, rank=rank, ranks=ranks)
            batches = list(rows.batches(**options))
            patched.setattr(SQLiteSource, "helpers", helpers)
            patched.setattr("flambeau.data.sql.waiting_rows.WAITING_BYTES_IN_MEMORY", 0 if in_file else 1 << 20)
            patched.setattr("flambeau.data.sql.waiting_rows.SLOTS_OF_PIECE", places)
            assert all(len(batch) == batch_size for batch in batches[:-1])
            assert digest(rows.batches(**options, workers=workers)) == digest(batches)
            start = data.draw(st.integers(0, len(batches)))
            assert digest(rows.batches(**options, start=start, workers=workers)) == digest(batches[start:])
            every += batches
        given_keys = together(every)[0].ravel().tolist() if every else []
        assert sorted(given_keys) == sorted(keys) and (shuffle or given_keys == sorted(keys))


@given(st.lists(st.one_of(st.none(), st.floats(width=32), st.integers(-2 ** 24, 2 ** 24)), min_size=1, max_size=300))
@settings(max_examples=100 if THOROUGH else 20, deadline=None)
def test_any_cells(cells):
    """Numbers and NULLs, as Python's own driver gives them."""
    con = sqlite3.connect(":memory:")
    con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL)")
    con.executemany("INSERT INTO t VALUES (?, ?)", enumerate(cells))
    con.commit()
    x, mask = torch.data.sql("SELECT * FROM t", con, key="id", nulls="mask").read()
    held = [cell for cell, in con.execute("SELECT x FROM t ORDER BY id")]       # SQLite keeps NaN as NULL
    con.close()
    assert mask[:, 0].tolist() == [cell is None for cell in held]
    np.testing.assert_array_equal(x[:, 0].numpy(), np.array([0 if cell is None else cell for cell in held], np.float32))


@pytest.mark.parametrize("helpers, workers", [(0, 0), (1, 0), (0, 2), (0, 4)])
def test_what_is_held_does_not_depend_on_the_number_of_rows(monkeypatch, helpers, workers):
    """Of tables of five and of forty times what is mixed: the arrays of groups and pieces, the file that rows wait in,
    and what is known of its places."""
    monkeypatch.setattr("flambeau.data.sql.waiting_rows.WAITING_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(SQLiteSource, "helpers", helpers)
    made, arrays = [], reading.untouched_arrays
    for module in (reading, waiting_rows):
        monkeypatch.setattr(module, "untouched_arrays", lambda *args: made.append(arrays(*args)) or made[-1])
    for name, value in (("rows_in_block", 8), ("blocks_in_group", 4), ("groups_mixed", 16)):
        monkeypatch.setattr(SQLiteDialect, name, value)
    held = []
    for rows in (5 * 512, 40 * 512):
        made.clear()
        iterator, file, places = table(range(rows)).batches(16, "block", 0, 0, workers), [], []
        for _ in iterator:
            waiting = iterator.pieces.waiting
            file.append(waiting.made * waiting.rows_per_slot)
            places.append(sum(len(slots.numbers) for slots in waiting.slots.values()) + len(waiting.free))
        assert 1 <= len(made) <= max(workers, 1 + helpers) + 3          # being read, read, dealt out and delivered
        assert max(file) < 512
        held.append((max(file), max(places)))
    assert held[0] == held[1]


@pytest.mark.parametrize("memories", [3, 512])
def test_small_shares_of_a_piece_lie_in_few_places(monkeypatch, memories):
    """Of 16 groups a piece has 16 shares of two rows, and more of a table's first groups."""
    for name, value in (("rows_in_block", 8), ("blocks_in_group", 4), ("groups_mixed", 16)):
        monkeypatch.setattr(SQLiteDialect, name, value)
    data = table(range(5 * 512 + 77))
    expected = digest(data.batches(16, "block", 0, 0))                 # in memory
    monkeypatch.setattr(waiting_rows, "WAITING_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(waiting_rows, "SLOTS_OF_PIECE", 4)
    monkeypatch.setattr(waiting_rows, "MEMORIES_AT_ONCE", memories)
    iterator, given, places, file = data.batches(16, "block", 0, 0), [], [], []
    for batch in iterator:
        given.append(batch)
        waiting = iterator.pieces.waiting
        places += [len(slots.numbers) for slots in waiting.slots.values()]
        file.append(waiting.made * waiting.rows_per_slot)
    assert digest(given) == expected and 4 <= max(places) <= 6 and max(file) < 512
    resumed = data.batches(16, "block", 0, 0, start=50)
    assert digest(resumed) == digest(given[50:])


class Numbers:
    """Part n is n, but for those that raise what is given."""

    def __init__(self, errors):
        self.errors, self.closed = errors, False

    def make(self, number):
        if number in self.errors:
            raise self.errors[number]
        return number

    def cancel(self):
        pass

    def close(self):
        self.closed = True


@given(st.integers(1, 3), st.integers(0, 5), st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_parts_that_are_read_along_come_in_order_up_to_one_that_fails(helpers, first, count, wrong):
    makers = [Numbers({first + wrong: ValueError("this one")}) for _ in range(helpers + 1)]
    parts = ReadAlong(makers, first, first + count)
    parts.start()
    for number in range(first, first + min(count, wrong)):
        assert parts.take() == number
    if wrong < count:
        with pytest.raises(ValueError, match="this one"):
            parts.take()
    parts.close()
    assert all(maker.closed for maker in makers) and not any(thread.is_alive() for thread in parts.threads)


def test_an_interrupt_is_not_kept_for_later():
    """The thread that asks makes part 1 while another is busy with part 0, and is interrupted in it."""
    busy, own = Numbers({}), Numbers({1: KeyboardInterrupt()})
    ready = Flag()
    busy.make = lambda number: ready.wait(PATIENCE) and number
    parts = ReadAlong([busy, own], 0, 2)
    parts.start()
    while parts.claimed == 0:
        pass
    with pytest.raises(KeyboardInterrupt):
        parts.take()
    ready.set()
    parts.close()
    assert busy.closed and own.closed
