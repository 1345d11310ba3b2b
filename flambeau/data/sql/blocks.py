"""Which rows come when: the order of an epoch, and where a batch lies in it.

Rows are fetched in groups of blocks, and delivered in pieces. In an epoch by key a piece is a group. In a shuffled one
the rows of a group are dealt out to several pieces, and a piece, whose rows are mixed with each other, has them from
several groups: so a batch has its rows from hundreds of blocks, and the memory that takes is half of theirs. Everything
is arithmetic on (number of rows, seed, epoch), so that any batch can be the first.

Which blocks are in a group decides how well a table that is sorted by its label is mixed. Blocks that were simply drawn
would have each label as often as chance has it, for hundreds of blocks and not for tens of thousands of rows. So the
table is cut into strata, each of as many neighbouring blocks as there are rounds, and of each stratum every round gets
one block, whichever chance says. A round is as many groups as are mixed at a time, and all rounds go through the strata
in the same order: whichever groups follow each other, as many as make a round are a sample of the whole table from end
to end. Of all tables none is mixed worse by that than by blocks that were simply drawn.
"""
import itertools
from typing import NamedTuple

import numpy as np

from ...utils.data.sample_random import GOLDEN_STEP
from .permute import key_from, permutation, ranks_of_hashes

ORDER_VERSION = 4                 # counted up when the same (number of rows, seed, epoch) come to give another order


class BlockGroup(NamedTuple):
    """Some blocks that are fetched together."""
    number: int
    blocks: np.ndarray                  # their numbers, in the order in which they are fetched
    rows: int                           # how many rows they have
    dealt: np.ndarray | None            # the order in which these are dealt out to pieces; None: as they are
    delivered: np.ndarray | None        # the order of the rows of the piece that is complete with them


class EpochOrder:
    """The order of the rows of one epoch: `shuffled`, with `groups_mixed` groups at a time, or by key."""

    def __init__(self, boundaries, blocks_in_group, groups_mixed, shuffled, seed, epoch):
        self.boundaries, self.shuffled, self.seed, self.epoch = boundaries, shuffled, seed, epoch
        count = boundaries.blocks
        if shuffled:
            group, self.groups, window = drawn_groups(count, blocks_in_group, groups_mixed, seed, epoch)
            self.blocks = np.argsort(group, kind="stable")          # group by group, by key in each
            ends = np.cumsum(np.bincount(group, minlength=self.groups))
        else:
            self.blocks, self.groups, window = np.arange(count), -(-count // blocks_in_group), 1
            ends = np.minimum(np.arange(1, self.groups + 1) * blocks_in_group, count)
        self.ends = np.concatenate([[0], ends]).astype(np.int64)
        self.group_starts = self._group_starts()
        self.dealing = Dealing(np.diff(self.group_starts), window, groups_mixed)
        self.starts = self.dealing.starts             # the row of the epoch at which each piece begins, and the end

    def _group_starts(self):
        """The row at which each group begins, and the end, in the order in which they are fetched."""
        rows = self.ends * self.boundaries.step
        missing = self.boundaries.blocks * self.boundaries.step - self.boundaries.count
        if missing:                                   # the last block of the table is short, wherever it is now
            rows[self.ends > np.flatnonzero(self.blocks == len(self.blocks) - 1)[0]] -= missing
        return rows

    def group(self, number):
        blocks = self.blocks[self.ends[number]:self.ends[number + 1]]
        rows = int(self.group_starts[number + 1] - self.group_starts[number])
        if not self.shuffled:
            return BlockGroup(number, blocks, rows, None, None)
        dealt = permutation(rows, self.seed, self.epoch, number) if len(self.dealing.shares(number)) > 1 else None
        piece, delivered = number - self.dealing.head, None
        if piece >= 0:
            rows_of_piece = int(self.starts[piece + 1] - self.starts[piece])
            delivered = permutation(rows_of_piece, self.seed, self.epoch, PIECE_STREAM, piece)
        return BlockGroup(number, blocks, rows, dealt, delivered)


class Dealing:
    """Which rows of which group come in which piece, for groups of these many `rows`.

    Group g is dealt out to `window` pieces in equal shares, those from g - head on; so a piece has as much of each of
    the last `window` groups, of which half the rows are still held. The first `head` groups are read before there is a
    piece: they are as many as are held later on, and are dealt out in shares that become smaller, as those of the
    groups behind them become more. The last piece is all that is left when the last group is read.
    """

    def __init__(self, rows, window, groups_mixed):
        self.rows, self.window = rows, window
        self.head = min((groups_mixed - 1) // 2 if window > 1 else 0, max(len(rows) - 1, 0))
        self.pieces = len(rows) - self.head
        self.equal = range(1, window + 1)                                          # the ends of shares, in parts
        self.smaller = list(itertools.accumulate(range(max(window - 1, 1), 0, -1)))        # of the last of them
        sizes = np.zeros(self.pieces, np.int64)
        for group in range(len(rows)):
            for piece, begin, end in self.shares(group):
                sizes[piece] += end - begin
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def shares(self, group):
        """(piece, from, to) for each piece that has some rows of this group, of its rows in the order of dealing."""
        first, rows = max(group - self.head, 0), int(self.rows[group])
        parts = self.smaller if group < self.head else self.equal
        ends = [rows * part // parts[-1] for part in parts[:self.pieces - first]]
        ends[-1] = rows
        return [(first + i, begin, end) for i, (begin, end) in enumerate(zip([0, *ends], ends))]

    def groups_of(self, piece):
        """The groups that have to be read for a piece, from and to; those before them have no row in it or later."""
        return (0 if piece < self.window - 1 else piece - self.window + 1 + self.head), piece + self.head + 1


BLOCK_STREAM, REST_STREAM, PIECE_STREAM, STRATA_STREAM = -2, -3, -4, -5      # numbers that no group has


def drawn_groups(blocks, blocks_in_group, groups_mixed, seed, epoch):
    """(for each block of the table, which group has it; how many groups there are; how many of them make a round)."""
    rounds = -(-blocks // (blocks_in_group * groups_mixed))
    if not rounds:
        return np.zeros(0, np.int64), 0, 1
    strata = -(-blocks // rounds)
    groups_in_round = -(-strata // blocks_in_group)
    turn = spread_order(strata, seed, epoch)[np.arange(blocks) // rounds]
    group = drawn_rounds(blocks, rounds, seed, epoch) * groups_in_round + turn * groups_in_round // strata
    return group, rounds * groups_in_round, groups_in_round


def drawn_rounds(blocks, rounds, seed, epoch):
    """For each block of the table, which round has it: of every stratum of `rounds` neighbours each has one.

    The blocks behind the last whole stratum are fewer than rounds: some rounds have one of them, drawn as well.
    """
    whole = blocks // rounds * rounds
    drawn = ranks_of_hashes(whole, rounds, seed, epoch, BLOCK_STREAM)
    return np.concatenate([drawn, permutation(rounds, seed, epoch, REST_STREAM)[:blocks - whole]])


def spread_order(strata, seed, epoch):
    """For each stratum, when its turn is in a round. Any that follow each other lie far apart and evenly: multiples of
    the golden ratio, without the whole part, from a place on that is drawn."""
    places = np.arange(strata, dtype=np.uint64) * np.uint64(GOLDEN_STEP)
    return np.argsort(places + np.uint64(key_from(seed, epoch, STRATA_STREAM)), kind="stable")


def share_of(rows, rank, ranks):
    """The rows of the epoch that are this rank's, from and to: shares are disjoint, and differ by one row at most."""
    return rows * rank // ranks, rows * (rank + 1) // ranks


def batches_in(rows, batch_size, drop_last):
    return rows // batch_size if drop_last else -(-rows // batch_size)
