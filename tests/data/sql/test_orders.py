"""Orders as arithmetic, without a database: permutations, groups, shares, and how well blocks are mixed."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flambeau.data.sql.blocks import EpochOrder, batches_in, share_of
from flambeau.data.sql.permute import key_from, permutation, shuffled_places
from flambeau.data.sql.source import Boundaries, BoundaryScan
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.pinned

counts = st.integers(0, 300)
some = settings(max_examples=100 if THOROUGH else 30, deadline=None)
seeds = st.integers(0, 2 ** 70)


def bounds(count, step):
    scan = BoundaryScan(["id"], step)
    scan.add([(i,) for i in range(count)])
    return scan.done()


@some
@given(counts, seeds, seeds)
def test_a_permutation_has_every_place_once(count, seed, epoch):
    order = permutation(count, seed, epoch)
    assert sorted(order.tolist()) == list(range(count))
    assert order.tolist() == permutation(count, seed, epoch).tolist()


@some
@given(counts, seeds)
def test_places_of_a_permutation_that_is_never_made(count, seed):
    places = shuffled_places(np.arange(count), count, seed)
    assert sorted(places.tolist()) == list(range(count))
    assert shuffled_places(np.arange(count)[::3], count, seed).tolist() == places[::3].tolist()


@pytest.mark.parametrize("make", [permutation, lambda count, *key: shuffled_places(np.arange(count), count, *key)])
def test_permutations_look_random(make):
    """Each of the 24 orders of four comes as often as the others: chi squared, far beyond what chance gives."""
    seen: dict = {}
    for seed in range(960):
        order = tuple(make(4, seed, 0).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24 and sum((n - 40) ** 2 / 40 for n in seen.values()) < 60      # 23 on average, 60: one in 10^5


def test_keys_tell_numbers_and_their_order_apart():
    all_numbers = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1), (0, 0, 0), (2 ** 64,), (-1,)]
    assert len({key_from(*numbers) for numbers in all_numbers}) == 8
    assert key_from(0) == key_from(2 ** 64)          # numbers count modulo 2**64


@some
@given(counts, st.integers(1, 20), st.integers(1, 5), st.booleans(), seeds)
def test_groups_cover_every_row_once(count, step, blocks_in_group, shuffled, seed):
    order = EpochOrder(bounds(count, step), blocks_in_group, shuffled, seed, 0)
    rows = []
    for number in range(order.groups):
        group = order.group(number)
        assert order.starts[number] == len(rows)
        assert all(order.group_of(len(rows) + i) == number for i in range(group.rows))
        ranges = [range(block * step, min((block + 1) * step, count)) for block in group.blocks.tolist()]
        fetched = [row for rows_of_block in ranges for row in rows_of_block]
        assert len(fetched) == group.rows
        rows += fetched if group.order is None else [fetched[place] for place in group.order.tolist()]
    assert sorted(rows) == list(range(count)) and (shuffled or rows == sorted(rows))


@some
@given(counts, st.integers(1, 9), st.data())
def test_ranges_of_blocks(count, step, data):
    found = bounds(count, step)
    blocks = data.draw(st.permutations(range(found.blocks)))
    keys = [key for (low,), (high,) in found.ranges(blocks) for key in range(low, high + 1)]
    assert keys == [key for block in blocks for key in range(block * step, min(count, (block + 1) * step))]
    assert found.rows_of(blocks).sum() == count and len(found.ranges(range(found.blocks))) == (1 if count else 0)


@some
@given(st.integers(0, 10 ** 6), st.integers(1, 100), st.integers(1, 100), st.booleans())
def test_shares_are_disjoint_and_exhaustive(rows, ranks, batch_size, drop_last):
    shares = [share_of(rows, rank, ranks) for rank in range(ranks)]
    assert shares[0][0] == 0 and shares[-1][1] == rows and all(a[1] == b[0] for a, b in zip(shares, shares[1:]))
    sizes = [end - begin for begin, end in shares]
    assert max(sizes) - min(sizes) <= 1
    whole, rest = divmod(sizes[0], batch_size)
    assert batches_in(sizes[0], batch_size, drop_last) == whole + (rest > 0 and not drop_last)


@pytest.mark.parametrize("batch_size", sample([1024, 64, 256], 3))
def test_a_table_sorted_by_label_is_mixed(batch_size):
    """Two million rows in the order of ten labels: a batch is as far from the table's share of labels as one of a true
    permutation is, or at most two and a half times as far."""
    rows = 2_000_000
    labels = np.arange(rows) * 10 // rows
    order = EpochOrder(Boundaries(["id"], 256, rows, [()], [()]), 256, True, 7, 0)

    def distance(label):
        label = label[:len(label) // batch_size * batch_size].reshape(-1, batch_size)
        shares = np.stack([(label == each).mean(1) for each in range(10)], 1)
        return np.abs(shares - 0.1).sum(1).mean()

    given = []
    for number in range(order.groups):
        group = order.group(number)
        begins = np.repeat(group.blocks * 256, order.boundaries.rows_of(group.blocks))
        within = np.concatenate([np.arange(n) for n in order.boundaries.rows_of(group.blocks).tolist()])
        given.append(labels[(begins + within)[group.order]])
    given = np.concatenate(given)
    assert np.bincount(given).tolist() == [rows // 10] * 10
    permuted = labels[np.random.default_rng(0).permutation(rows)]
    assert distance(given) <= 2.5 * distance(permuted)
