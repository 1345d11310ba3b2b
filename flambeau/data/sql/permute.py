"""Permutations out of a key: the same numbers give the same order on every machine, and no state has to be kept.

Position i gets the hash of (key, i), as a counter-based generator would give it, and positions are sorted by their
hashes.
"""
import numpy as np

from ...utils.data import sample_random


def key_from(*numbers):
    """One 64-bit number out of several, in whose order it matters which comes first."""
    key = 0
    for number in numbers:
        key = sample_random.mixed_number(key + sample_random.GOLDEN_STEP * (int(number) + 1) & sample_random.WORD)
    return key


def permutation(count, *numbers):
    """The numbers 0 to count - 1 in an order that `numbers` decide, of the smallest type that holds them: two orders
    wait with each group that is read ahead.

    The position is kept in the low bits of its hash: sorting numbers is several times as fast as sorting positions by
    them.
    """
    positions = np.arange(count, dtype=np.uint64)
    bits = np.uint64(max(count - 1, 0).bit_length())
    words = positions * np.uint64(sample_random.GOLDEN_STEP)
    words += np.uint64(key_from(*numbers))
    sample_random.mixed(words)
    words <<= bits                                        # the high bits of a hash fall out
    words |= positions
    del positions
    words.sort()
    words &= np.uint64((1 << int(bits)) - 1)
    return words.astype(np.min_scalar_type(max(count - 1, 0)))


def ranks_of_hashes(count, length, *numbers):
    """`count` numbers, a permutation of 0 … length - 1 behind the other: the rank of each by hash in its stretch."""
    hashes = np.arange(count, dtype=np.uint64)
    hashes *= np.uint64(sample_random.GOLDEN_STEP)
    hashes += np.uint64(key_from(*numbers))
    sample_random.mixed(hashes)
    order = hashes.reshape(-1, length).argsort(1, kind="stable") if count else np.empty((0, 1), np.int64)
    del hashes
    ranks = np.empty(order.shape, np.min_scalar_type(max(length - 1, 0)))
    np.put_along_axis(ranks, order, np.arange(order.shape[1], dtype=ranks.dtype)[None], 1)
    return ranks.reshape(-1)


FEISTEL_ROUNDS = 6                # of the network below: four make a permutation that looks random, two are in reserve


def shuffled_positions(indices, count, *numbers):
    """Where a permutation of 0 … count - 1, decided by `numbers`, sends these indices; the others are not computed.

    A Feistel network permutes the numbers below a power of four; what falls outside is sent on until it is inside.
    """
    half = np.uint64(max(1, (max(count - 1, 0).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = [np.uint64(key_from(*numbers, turn)) for turn in range(FEISTEL_ROUNDS)]

    def sent(positions):
        left, right = positions >> half, positions & mask
        for key in keys:
            left, right = right, left ^ (sample_random.mixed(right + key) & mask)
        return (left << half) | right

    positions = sent(np.asarray(indices).astype(np.uint64))
    while (outside := np.flatnonzero(positions >= count)).size:
        positions[outside] = sent(positions[outside])
    return positions.astype(np.int64)
