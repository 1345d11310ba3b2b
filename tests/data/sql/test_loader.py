"""A DataLoader over a query: it asks for whole batches, counts epochs, shuffles, and takes several workers."""
import pytest

import flambeau as torch
from flambeau.utils.data import DataLoader

from .sources import SQLiteEngine, digest, plain_table, together

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("small_blocks")]


@pytest.fixture
def data(tmp_path):
    engine = SQLiteEngine(tmp_path)
    engine.rows = plain_table(engine, 150)
    made = engine.sql("SELECT * FROM t", key="id", label="label")
    made.rows = engine.rows[0]
    return made


def tuples(loader):
    return [tuple(batch) for batch in loader]


def test_in_order(data):
    loader = DataLoader(data, batch_size=32)
    assert len(loader) == 5
    assert together(tuples(loader))[0].tolist() == data.rows.tolist()
    assert [len(y) for _, y in DataLoader(data, batch_size=32, drop_last=True)] == [32] * 4


@pytest.mark.parametrize("shuffle", [True, "block", "global"])
def test_shuffled_the_same_for_any_number_of_workers_and_anew_each_epoch(data, shuffle):
    given = []
    for workers in (0, 1, 2):
        torch.manual_seed(4)
        loader = DataLoader(data, batch_size=16, shuffle=shuffle, num_workers=workers)
        given.append([digest(tuples(loader)) for _ in range(2)])
    assert given[0] == given[1] == given[2] and given[0][0] != given[0][1]
    rows = together(tuples(DataLoader(data, batch_size=16, shuffle=shuffle)))[0]
    assert sorted(rows.tolist()) == sorted(data.rows.tolist()) and rows.tolist() != data.rows.tolist()


def test_a_loader_is_resumed(data):
    torch.manual_seed(1)
    whole = tuples(DataLoader(data, batch_size=16, shuffle=True))
    torch.manual_seed(1)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=1)
    iterator = iter(loader)
    first = [tuple(next(iterator)) for _ in range(4)]
    state = loader.state_dict()
    del iterator
    other = DataLoader(data, batch_size=16, shuffle=True)
    other.load_state_dict(state)
    assert digest(first + tuples(other)) == digest(whole)
