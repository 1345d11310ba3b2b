"""The random numbers of samples: evenly spread, each sample's own, and going on where they were."""
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.utils.data.sample_random import SampleRandom, addressing, sample_keys, sample_random

pytestmark = pytest.mark.pinned
INDICES = st.lists(st.integers(0, 10**6), min_size=1, max_size=20, unique=True)


def of(indices, seed=0, epoch=0):
    return SampleRandom(sample_keys(seed, epoch, indices))


def far_from(counts, expected):
    """How many standard deviations chi-squared is from its mean."""
    chi = ((counts - expected)**2 / expected).sum()
    return abs(chi - (counts.size - 1)) / np.sqrt(2 * (counts.size - 1))


# --- they are random --------------------------------------------------


@pytest.mark.parametrize("way", ["samples", "numbers", "epochs", "seeds"])
def test_numbers_are_evenly_spread_whichever_way_one_goes(way):
    n = 1 << 16
    if way == "samples":
        drawn = of(range(n)).uniform()
    elif way == "numbers":
        drawn = of([3]).uniform(n)
    else:
        step = 16
        drawn = np.concatenate([of(range(step), **{way[:-1]: i}).uniform() for i in range(n // step)])
    drawn = drawn.ravel()
    assert far_from(np.histogram(drawn, 256, (0, 1))[0], n / 256) < 5
    pairs = np.histogram2d(drawn[:-1], drawn[1:], 16, [[0, 1], [0, 1]])[0].ravel()
    assert far_from(pairs, (n - 1) / 256) < 5
    for lag in (1, 2, 3, 16):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 5 / np.sqrt(n)


def test_every_bit_is_a_coin():
    words = np.ascontiguousarray(of(range(2000))._words(32))
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
    assert abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(words.size)


def test_normal_has_the_moments_and_tails_of_one():
    drawn = of(range(1000)).normal(200).ravel()
    n = drawn.size
    assert abs(drawn.mean()) < 5 / np.sqrt(n) and abs(drawn.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((drawn**4).mean() - 3) < 5 * np.sqrt(96 / n)
    for bound, beyond in ((1, 0.3173105), (2, 0.0455003), (3, 0.0026998)):
        assert abs((abs(drawn) > bound).mean() - beyond) < 5 * np.sqrt(beyond / n)


def test_integers_reach_both_ends_evenly():
    drawn = of(range(7000)).integers(-3, 4, 10)
    assert drawn.dtype == np.int64 and drawn.min() == -3 and drawn.max() == 3
    assert far_from(np.bincount((drawn + 3).ravel()), 10_000) < 5


def test_permutations_are_all_there_evenly():
    drawn = of(range(24_000)).permutation(4)
    assert (np.sort(drawn, 1) == np.arange(4)).all() and drawn.dtype == np.int64
    assert far_from(np.unique(drawn @ [64, 16, 4, 1], return_counts=True)[1], 1000) < 5


def test_no_two_samples_of_an_epoch_have_the_same_key():
    assert len(np.unique(sample_keys(1, 2, range(1 << 18)))) == 1 << 18


# --- they are the sample's --------------------------------------------------


DRAWS = {
    "uniform": lambda r, count: r.uniform(count, -1.0, 2.0),
    "normal": lambda r, count: r.normal(count),
    "integers": lambda r, count: r.integers(0, 10**12, count),
    "permutation": lambda r, count: r.permutation(count),
}


@pytest.mark.parametrize("name", DRAWS)
@settings(deadline=None, max_examples=25)
@given(indices=INDICES, seed=st.integers(-2**63, 2**64), epoch=st.integers(0, 1000), data=st.data())
def test_a_sample_draws_the_same_in_any_batch(name, indices, seed, epoch, data):
    counts = data.draw(st.lists(st.integers(0, 5), max_size=4))
    together = of(indices, seed, epoch)
    whole = [DRAWS[name](together, count) for count in counts]
    for i, index in enumerate(indices):
        alone = of([index], seed, epoch)
        for count, drawn in zip(counts, whole):
            assert (DRAWS[name](alone, count)[0] == drawn[i]).all()


@pytest.mark.parametrize("name", ["uniform", "normal", "integers"])
def test_a_stream_goes_on(name):
    one, other = of([4, 5]), of([4, 5])
    parts = np.concatenate([DRAWS[name](one, count) for count in (1, 3, 0, 2)], 1)
    assert (parts == DRAWS[name](other, 6)).all()


@settings(deadline=None, max_examples=50)
@given(indices=INDICES, data=st.data())
def test_a_part_goes_on_with_the_whole(indices, data):
    n = len(indices)
    whole, drawn = of(indices), [0] * n
    alone = of(indices).uniform(40)
    for _ in range(data.draw(st.integers(1, 4))):
        mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        rows = np.flatnonzero(mask)
        part = whole.select(np.array(mask) if data.draw(st.booleans()) else rows)
        inner = part.select(slice(0, None))
        for one in (part, inner, part):
            given_ = one.uniform(2)
            for row, numbers in zip(rows, given_):
                assert (numbers == alone[row, drawn[row]:drawn[row] + 2]).all()
                drawn[row] += 2
    last = whole.uniform()
    assert all(last[i, 0] == alone[i, drawn[i]] for i in range(n))


def test_bounds_may_be_each_samples_own():
    drawn = of(range(3)).uniform(1000, low=np.array([0.0, 10.0, 20.0]), high=np.array([1.0, 11.0, 21.0]))
    assert (np.floor(drawn) == [[0], [10], [20]]).all()
    drawn = of(range(2)).integers([0, 5], [1, 6], 9)
    assert (drawn == [[0], [5]]).all()
    assert (of([1]).integers(-2**63, 2**63 - 1, 64) < 0).any()


def test_indices_of_all_kinds_are_known():
    keys = sample_keys(0, 0, [3, 9])
    for same in (np.array([3, 9], np.int32), range(3, 10, 6), [np.int64(3), True * 9]):
        assert (keys == sample_keys(0, 0, same)).all()
    wrapped = sample_keys(0, 0, np.array([-1, 3]))                # a word has 64 bits
    for same in ([-1, 3], (2 ** 64 - 1, 3), [2 ** 64 - 1, 2 ** 64 + 3], [torch.tensor(-1), torch.tensor(3)]):
        assert (wrapped == sample_keys(0, 0, same)).all()
    named = sample_keys(0, 0, ["a", ("b", 1)])
    assert (named == sample_keys(0, 0, ["a", ("b", 1)])).all() and named[0] != named[1]
    assert len(of([]).uniform(3)) == 0 and len(of([1, 2]).select([]).normal()) == 0


def test_refused():
    with pytest.raises(ValueError, match="high is exclusive and has to be above low: low is 3, high is 3"):
        of([1, 2]).integers([0, 3], [1, 3])
    with pytest.raises(ValueError, match="each sample once"):
        of([1, 2]).select([0, 0])
    with pytest.raises(ValueError, match="how many numbers"):
        of([1]).uniform(-1)


# --- which sample is being made --------------------------------------------------


class Drawn:
    """A dataset whose samples are what they draw."""

    def __init__(self, times):
        self.times = times

    def __getitem__(self, index):
        return [sample_random(1).uniform()[0, 0] for _ in range(self.times)]


def test_addressing_gives_samples_their_streams_and_they_go_on():
    indices = [10, 20, 30]
    alone = [of([i], 5, 6).uniform(4)[0].tolist() for i in indices]
    with addressing(5, 6, indices) as batch:
        one_by_one = batch.each(Drawn(2))
        together = sample_random(3).uniform(2).tolist()
    assert [first + then for first, then in zip(one_by_one, together)] == alone


def test_one_draw_for_a_whole_batch_is_a_stream_of_its_own():
    seen = []
    for indices in ([1, 2, 3], [1, 3, 2], [1, 2], [1, 2, 4]):
        with addressing(0, 0, indices) as batch:
            drawn = [*sample_random(1).uniform()[0], *sample_random(1).uniform()[0], *sample_random(6).uniform()[:, 0]]
            samples = sample_random(len(indices)).uniform()[:, 0]
            views = [number for _ in batch.one_by_one() for number in sample_random(2).uniform()[:, 0]]
            batch.all_at_once()
            drawn += [*sample_random(1).uniform()[0]]
        seen += drawn
        assert not {*drawn} & {*samples, *views} and len({*samples, *views}) == 3 * len(indices)
        with addressing(0, 0, indices):
            assert sample_random(1).uniform()[0, 0] == drawn[0]
    assert len({*seen}) == len(seen)


def test_generators_of_everybody_are_seeded_for_each_sample():
    def seeds(indices, epoch=0):
        told = []
        with addressing(0, epoch, indices, told.append) as batch:
            batch.each(range(100))
        return told
    first, *each, last = seeds([7, 8, 9])
    assert first == last and len({first, *each}) == 4
    assert seeds([9, 7])[1:-1] == [each[2], each[0]] and not {*seeds([9, 7, 8], 1)} & {first, *each}


def test_outside_of_a_loader_the_default_generator_decides():
    torch.manual_seed(3)
    first, second = sample_random(2).uniform(2), sample_random(2).uniform(2)
    assert (first != second).all()
    torch.manual_seed(3)
    assert (sample_random(2).uniform(2) == first).all()


def test_threads_make_samples_of_their_own():
    got = []
    with addressing(0, 0, [1]):
        thread = threading.Thread(target=lambda: got.append(sample_random(1).keys[0]))
        thread.start()
        thread.join()
        assert got[0] != sample_random(1).keys[0]
    with pytest.raises(ZeroDivisionError), addressing(0, 0, [1]):
        raise ZeroDivisionError
    torch.manual_seed(0)
    one = sample_random(1).keys[0]
    torch.manual_seed(1)
    assert sample_random(1).keys[0] != one
