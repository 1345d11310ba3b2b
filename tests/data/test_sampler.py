"""Samplers: every position as often as it should come, the last batch, and what is drawn from which generator."""
import itertools
from collections import Counter

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_sequential():
    sampler = SequentialSampler("abcd")
    assert list(sampler) == [0, 1, 2, 3] == list(sampler) and len(sampler) == 4


@pytest.mark.parametrize("wanted", [None, 3, 10, 20, 25])
def test_random_visits_all_before_any_comes_again(wanted):
    sampler = RandomSampler(range(10), num_samples=wanted, generator=seeded(1))
    found = list(sampler)
    assert len(found) == len(sampler) == sampler.num_samples == (wanted or 10)
    assert all(type(i) is int for i in found)
    for start in range(0, len(found), 10):
        part = found[start:start + 10]
        assert len(set(part)) == len(part) and set(part) <= set(range(10))
    assert found != sorted(found) and list(sampler) != found           # the generator has moved on


def test_random_with_replacement_is_uniform():
    found = list(RandomSampler(range(5), replacement=True, num_samples=10_001, generator=seeded(2)))
    counts = Counter(found)
    assert len(found) == 10_001 and set(counts) == set(range(5))
    # 2000 expected of each, with a standard deviation of 40
    assert all(abs(count - 2000) < 200 for count in counts.values())


def test_random_takes_one_seed_from_the_default_generator():
    torch.manual_seed(7)
    order = list(RandomSampler(range(1000)))
    after = torch.get_rng_state().tolist()
    torch.manual_seed(7)
    seed = torch.empty((), dtype=torch.int64).random_().item()
    assert torch.get_rng_state().tolist() == after
    assert torch.randperm(1000, generator=seeded(seed)).tolist() == order


def test_nothing_is_drawn_before_a_position_is_asked_for():
    before = torch.get_rng_state().tolist()
    order = iter(RandomSampler(range(4)))
    assert torch.get_rng_state().tolist() == before
    next(order)
    assert torch.get_rng_state().tolist() != before


def test_a_subset_in_random_order():
    found = list(SubsetRandomSampler([5, 9, "x", 7], generator=seeded(0)))
    assert sorted(map(str, found)) == ["5", "7", "9", "x"]
    assert [[5, 9, "x", 7][i] for i in torch.randperm(4, generator=seeded(0)).tolist()] == found


def test_weights():
    found = list(WeightedRandomSampler([0, 1, 3], 8000, generator=seeded(4)))
    assert 0 not in found and abs(found.count(2) / 8000 - 0.75) < 0.03             # a standard deviation of 0.005
    assert sorted(WeightedRandomSampler([1, 1, 1e-9], 3, replacement=False, generator=seeded(4))) == [0, 1, 2]
    assert len(WeightedRandomSampler([1, 2], 9)) == 9


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("source", [lambda: range(10), lambda: SequentialSampler(range(10)),
                                    lambda: RandomSampler(range(10), generator=seeded(3)),
                                    lambda: RandomSampler(range(10), True, 70, seeded(3)),
                                    lambda: iter(list(range(10)))])
@pytest.mark.parametrize("size", [1, 3, 5, 10, 11])
def test_batches_are_the_order_cut_in_pieces(source, size, drop_last):
    flat = list(source())
    batches = list(BatchSampler(source(), size, drop_last))
    expected = [flat[i:i + size] for i in range(0, len(flat), size)]
    if drop_last:
        expected = [batch for batch in expected if len(batch) == size]
    assert batches == expected and all(type(batch) is list for batch in batches)
    if hasattr(source(), "__len__"):
        assert len(BatchSampler(source(), size, drop_last)) == len(expected)


def test_a_sampler_of_ones_own_is_asked():
    class Backwards(SequentialSampler):
        def __iter__(self):
            return iter(range(len(self) - 1, -1, -1))
    assert list(BatchSampler(Backwards("abcde"), 2, False)) == [[4, 3], [2, 1], [0]]

    class Fixed(Sampler):
        def __iter__(self):
            yield from "xyz"
    assert list(BatchSampler(Fixed(), 2, True)) == [["x", "y"]]


@pytest.mark.parametrize("length, replicas", [(10, 3), (12, 3), (2, 3), (1, 4), (7, 1)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_the_dataset(length, replicas, shuffle):
    def parts(**options):
        return [list(DistributedSampler(range(length), replicas, rank, shuffle, **options)) for rank in range(replicas)]
    whole = parts()
    assert {len(part) for part in whole} == {-(-length // replicas)}
    assert set(itertools.chain(*whole)) == set(range(length))
    dropped = parts(drop_last=True)
    assert {len(part) for part in dropped} == {length // replicas}
    visited = list(itertools.chain(*dropped))
    assert len(visited) == len(set(visited))
    if not shuffle:
        order = np.resize(np.arange(length), len(whole[0]) * replicas)
        assert whole == [order[rank::replicas].tolist() for rank in range(replicas)]


def test_an_epoch_shuffles_anew_and_alike_on_all_ranks():
    samplers = [DistributedSampler(range(20), 2, rank, seed=3) for rank in (0, 1)]
    first = [list(sampler) for sampler in samplers]
    assert sorted(first[0] + first[1]) == list(range(20)) and first == [list(sampler) for sampler in samplers]
    for sampler in samplers:
        sampler.set_epoch(1)
    second = [list(sampler) for sampler in samplers]
    assert second != first and sorted(second[0] + second[1]) == list(range(20))


@pytest.mark.parametrize("make, error, words", [
    (lambda: RandomSampler([], generator=None), ValueError, "num_samples should be a positive integer value.*=0"),
    (lambda: RandomSampler([1], num_samples=1.5), ValueError, "num_samples should be a positive integer value.*=1.5"),
    (lambda: RandomSampler([1], replacement=1), TypeError, "replacement should be a boolean value"),
    (lambda: WeightedRandomSampler([1.0], 0), ValueError, "num_samples should be a positive integer value"),
    (lambda: WeightedRandomSampler([1.0], True), ValueError, "num_samples should be a positive integer value"),
    (lambda: WeightedRandomSampler([1.0], 1, 1), ValueError, "replacement should be a boolean value"),
    (lambda: WeightedRandomSampler([[1.0]], 1), ValueError, r"weights should be a 1d sequence.*\(1, 1\)"),
    (lambda: list(WeightedRandomSampler([1.0], 2, False)), RuntimeError, "without replacement"),
    (lambda: list(WeightedRandomSampler([-1.0, 1.0], 2)), RuntimeError, "probability entry < 0"),
    (lambda: BatchSampler([1], 0, False), ValueError, "batch_size should be a positive integer value"),
    (lambda: BatchSampler([1], True, False), ValueError, "batch_size should be a positive integer value"),
    (lambda: BatchSampler([1], 1, 0), ValueError, "drop_last should be a boolean value"),
    (lambda: DistributedSampler([1], 2, 2), ValueError, r"Invalid rank 2, rank should be in the interval \[0, 1\]"),
    (lambda: DistributedSampler([1]), ValueError, "process group has not been initialized"),
    (lambda: iter(Sampler()), NotImplementedError, "__iter__"),
    (lambda: list(RandomSampler([1, 2], generator=3)), TypeError, "must be torch.Generator"),
])
def test_refusals(make, error, words):
    with pytest.raises(error, match=words):
        make()
