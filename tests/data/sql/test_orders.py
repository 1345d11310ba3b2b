"""Orders as arithmetic, without a database: permutations, groups, shares, and how well blocks are mixed."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flambeau.data.sql.blocks import EpochOrder, batches_in, share_of
from flambeau.data.sql.keys import KeyColumn
from flambeau.data.sql.permute import key_from, permutation, shuffled_positions
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
    places = shuffled_positions(np.arange(count), count, seed)
    assert sorted(places.tolist()) == list(range(count))
    assert shuffled_positions(np.arange(count)[::3], count, seed).tolist() == places[::3].tolist()


@pytest.mark.parametrize("make", [permutation, lambda count, *key: shuffled_positions(np.arange(count), count, *key)])
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
@given(counts, st.integers(1, 20), st.integers(1, 5), st.integers(1, 9), st.booleans(), seeds, st.data())
def test_pieces_have_every_row_once(count, step, blocks_in_group, groups_mixed, shuffled, seed, data):
    order = EpochOrder(bounds(count, step), blocks_in_group, groups_mixed, shuffled, seed, 0)
    pieces, most = delivered(order)
    rows = [row for piece in pieces for row in piece.tolist()]
    assert sorted(rows) == list(range(count)) and (shuffled or rows == sorted(rows))
    assert order.starts.tolist() == [0, *np.cumsum([len(piece) for piece in pieces])]
    # half of the groups that are mixed, the one that was read last, and a row of each that is not a whole share
    window = max(order.dealing.window, groups_mixed) if order.dealing.window < order.groups else groups_mixed
    assert most <= ((window + 1) // 2 + 1) * blocks_in_group * step + window
    if pieces:
        first = data.draw(st.integers(0, len(pieces) - 1))          # a pass may begin with any piece
        assert [piece.tolist() for piece in delivered(order, first)[0]] == [piece.tolist() for piece in pieces[first:]]


def delivered(order, first=0):
    """The rows of the table, by their place in it, as an epoch delivers them piece by piece, from piece `first` on;
    and the most of them that are held at a time."""
    step, pieces, unfinished, held, most = order.boundaries.step, [], {}, 0, 0
    group = order.dealing.groups_of(first)[0]
    for number in range(first, len(order.starts) - 1):
        while group < order.dealing.groups_of(number)[1]:
            fetched = order.group(group)
            rows = np.concatenate([[], *(np.arange(block * step, min((block + 1) * step, order.boundaries.count))
                                         for block in fetched.blocks.tolist())]).astype(np.int64)
            assert len(rows) == fetched.rows
            rows = rows if fetched.dealt is None else rows[fetched.dealt]
            for piece, begin, end in order.dealing.shares(group):
                if piece >= first:
                    unfinished.setdefault(piece, []).append(rows[begin:end])
                    held += end - begin
            assert fetched.delivered is None or np.array_equal(fetched.delivered,
                                                               order.delivered(group - order.dealing.head))
            most, group = max(most, held), group + 1
        piece = np.concatenate(unfinished.pop(number))
        held -= len(piece)
        arranged = order.delivered(number)
        pieces.append(piece if arranged is None else piece[arranged])
    return pieces, most


@some
@given(counts, st.integers(1, 9), st.data())
def test_ranges_of_blocks(count, step, data):
    found = bounds(count, step)
    blocks = data.draw(st.permutations(range(found.blocks)))
    keys = [key for (low,), (high,) in found.ranges(blocks) for key in range(low, high + 1)]
    assert keys == [key for block in blocks for key in range(block * step, min(count, (block + 1) * step))]
    assert found.rows_of(blocks).sum() == count and len(found.ranges(range(found.blocks))) == (1 if count else 0)


KEY_VALUES = [st.integers(), st.integers(-2 ** 63, 2 ** 63 - 1), st.floats(allow_nan=False), st.text(max_size=5),
              st.binary(max_size=5), st.dates(), st.booleans()]


@some
@given(st.one_of(*(st.lists(kind, max_size=6) for kind in (*KEY_VALUES, st.one_of(*KEY_VALUES)))))
def test_keys_come_back_as_they_were_given(values):
    column = KeyColumn(values)
    assert len(column) == len(values) and column == KeyColumn(values)
    for places in (range(len(values)), range(len(values) - 1, -1, -2)):
        expected = [values[place] for place in places]
        assert [(type(value), repr(value)) for value in column.take(places)] == [(type(v), repr(v)) for v in expected]
    assert column.whole is all(type(value) is int and -2 ** 63 <= value < 2 ** 63 for value in values)
    assert not values or column != KeyColumn(values[:-1])


def test_numbers_are_appended_as_numbers_are():
    numbers, column, mixture = np.array([3, -2 ** 63, 2 ** 63 - 1]), KeyColumn([1]), KeyColumn(["a"])
    column.extend(numbers)
    mixture.extend(numbers)
    assert column.whole and column.take(range(4)) == [1, *numbers.tolist()]
    assert not mixture.whole and mixture.take(range(4)) == ["a", *numbers.tolist()]


@some
@given(st.integers(0, 10 ** 6), st.integers(1, 100), st.integers(1, 100), st.booleans())
def test_shares_are_disjoint_and_exhaustive(rows, ranks, batch_size, drop_last):
    shares = [share_of(rows, rank, ranks) for rank in range(ranks)]
    assert shares[0][0] == 0 and shares[-1][1] == rows and all(a[1] == b[0] for a, b in zip(shares, shares[1:]))
    sizes = [end - begin for begin, end in shares]
    assert max(sizes) - min(sizes) <= 1
    whole, rest = divmod(sizes[0], batch_size)
    assert batches_in(sizes[0], batch_size, drop_last) == whole + (rest > 0 and not drop_last)


# rows of a block, blocks of a group, groups that are mixed: of databases in general, of DuckDB, and of Parquet files.
# Mixed worst are tables a little larger than one round and a half: 6.4 and 24 million rows of the last two. How large
# blocks are is nothing to that, so that it is also seen, and sooner, with small ones.
BLOCKS, DUCKDB, FILES = (256, 256, 4), (8192, 4, 128), (30720, 1, 512)
SORTED_TABLES = sample([(300_000, 10, 16_384, BLOCKS), (6_400_000, 10, 16_384, DUCKDB),
                        (400_000, 100, 16_384, BLOCKS), (6_400_000, 100, 4096, DUCKDB),
                        (200_000, 10, 4096, (256, *DUCKDB[1:])), (8_000_000, 100, 16_384, DUCKDB),
                        (2_400_000, 100, 16_384, (3072, *FILES[1:])), (12_000_000, 10, 16_384, FILES),
                        (1_000_000, 10, 16_384, DUCKDB), (24_000_000, 100, 16_384, FILES),
                        (1_000_000, 10, 16_384, FILES), (2_000_000, 10, 16_384, BLOCKS),
                        (70_001, 10, 16_384, BLOCKS), (1_000_000, 100, 16_384, BLOCKS),
                        (300_000, 2, 16_384, BLOCKS), (400_000, 1000, 4096, BLOCKS), (70_001, 10, 16_384, DUCKDB),
                        (2_400_000, 1000, 4096, (3072, *FILES[1:]))], 2)


@pytest.mark.parametrize("rows, labels, largest, how", SORTED_TABLES)
def test_a_table_sorted_by_label_is_mixed(rows, labels, largest, how):
    """A batch of up to `largest` rows is as far from the table's share of labels as one of a true permutation is, or at
    most two and a half times as far. (What is measured is 1.7 times at most, of DuckDB's larger blocks 2.4; and seeds
    are fixed.)"""
    step, blocks_in_group, groups_mixed = how
    label = np.arange(rows) * labels // rows
    order = EpochOrder(Boundaries(["id"], step, rows, [()], [()]), blocks_in_group, groups_mixed, True, 7, 0)
    places = np.concatenate(delivered(order)[0])
    assert np.array_equal(np.sort(places), np.arange(rows))
    permuted = np.random.default_rng(0).permutation(rows)
    for batch_size in {64, 256, 1024, min(4096, largest), largest}:
        given, true = (distance(label[where], batch_size, labels) for where in (places, permuted))
        assert given <= 2.5 * true, (batch_size, given, true)


def test_blocks_are_those_that_are_measured_above():
    from flambeau.data.sql.source import Dialect
    duckdb = pytest.importorskip("flambeau.data.sql.duckdb", exc_type=ImportError)
    for dialect, how in (Dialect, BLOCKS), (duckdb.DuckDBDialect, DUCKDB), (duckdb.FilesDialect, FILES):
        assert (dialect.rows_in_block, dialect.blocks_in_group, dialect.groups_mixed) == how


def distance(label, batch_size, labels):
    """How far the shares of labels in a batch are from those in the table, on average."""
    batches = label[:len(label) // batch_size * batch_size].reshape(-1, batch_size)
    numbered = np.arange(len(batches))[:, None] * labels + batches
    shares = np.bincount(numbered.ravel(), minlength=len(batches) * labels).reshape(-1, labels) / batch_size
    return np.abs(shares - np.bincount(label) / len(label)).sum(1).mean()


@some
@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 5), seeds)
def test_groups_that_follow_each_other_are_of_all_the_table(blocks, blocks_in_group, groups_mixed, seed):
    order = EpochOrder(bounds(blocks, 1), blocks_in_group, groups_mixed, True, seed, 0)
    window, full = order.dealing.window, blocks_in_group * groups_mixed
    rounds = order.groups // window
    assert order.groups == window * rounds and np.diff(order.ends).max() <= blocks_in_group
    assert abs(2 * (blocks - rounds * full)) <= full or rounds == 1 and blocks < full      # as many as come nearest
    strata = blocks // rounds
    for first in range(order.groups - window + 1):
        some = np.concatenate([order.group(first + i).blocks for i in range(window)]) // rounds
        assert sorted(some[some < strata].tolist()) == list(range(strata)) and len(some) <= strata + 1


@pytest.mark.parametrize("blocks, blocks_in_group, groups_mixed", [
    *[(blocks, *how) for blocks in (126, 127, 128, 129, 255, 256, 257) for how in ((1, 1), (1, 25), (2, 3), (1, 999))],
    *[(blocks, *how) for blocks in (32_766, 32_767, 32_768, 32_769, 65_537) for how in ((1, 1), (1, 25), (2, 3))]])
def test_numbers_of_blocks_and_groups_fit_their_type(blocks, blocks_in_group, groups_mixed):
    """It is as small as it can be; here the numbers are at its edges, and of groups there may be more than blocks."""
    order = EpochOrder(Boundaries(["id"], 256, 256 * blocks - 3, [()], [()]), blocks_in_group, groups_mixed, True, 5, 1)
    assert np.array_equal(np.sort(order.blocks.astype(np.int64)), np.arange(blocks)) and order.ends[-1] == blocks
    assert order.blocks.dtype.itemsize <= (4 if blocks > 1 << 14 else 2)
    for number in {0, 1, order.groups // 2, order.groups - 1}:
        group = order.group(number)
        assert group.blocks.dtype == np.int64 and (np.diff(group.blocks) > 0).all()
        assert len(group.blocks) <= blocks_in_group
        assert group.rows == 256 * len(group.blocks) - 3 * (blocks - 1 in group.blocks)


def test_every_block_comes_in_every_round_as_often():
    """A table of 11 blocks in rounds of 4, so that the last stratum is short: chi squared, far beyond what chance
    gives."""
    seen = np.zeros((11, 3))
    for seed in range(900):
        order = EpochOrder(bounds(11, 1), 2, 2, True, seed, 0)
        for number in range(order.groups):
            seen[order.group(number).blocks, number // 2] += 1
    assert (seen.sum(1) == 900).all() and ((seen - 300) ** 2 / 300).sum(1).max() < 25    # 2 on average; 25: 1 in 10^5
