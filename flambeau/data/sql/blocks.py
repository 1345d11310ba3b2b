"""Which rows come when: the order of an epoch, and where a batch lies in it.

Rows are fetched in groups of blocks, and delivered in pieces. In an epoch by key a piece is a group. In a shuffled one
the rows of a group are dealt out to several pieces, and a piece, whose rows are mixed with each other, has them from
several groups: so a batch has its rows from hundreds of blocks, of which half wait, in memory or in a file. Everything
is arithmetic on (number of rows, seed, epoch), so that any batch can be the first.

Which blocks are in a group decides how well a table that is sorted by its label is mixed. Blocks that were simply drawn
would have each label as often as chance has it, for hundreds of blocks and not for tens of thousands of rows. So the
table is cut into strata, each of as many neighbouring blocks as there are rounds, and of each stratum every round gets
one block, whichever chance says. A round is as many groups as are mixed at a time, and all rounds go through the strata
in the same order: whichever groups follow each other, as many as make a round are a sample of the whole table from end
to end. Of all tables none is mixed worse by that than by blocks that were simply drawn.
"""
from typing import NamedTuple

import numpy as np

from ...utils.data import sample_random
from .permute import key_from, permutation, ranks_of_hashes

ORDER_VERSION = 7                 # counted up when the same (number of rows, seed, epoch) come to give another order


class BlockGroup(NamedTuple):
    """Some blocks that are fetched together."""
    number: int
    blocks: np.ndarray                  # their numbers, in the order in which they are fetched
    rows: int                           # how many rows they have
    dealt: np.ndarray | None            # the order in which these are dealt out to pieces; None: as they are
    delivered: np.ndarray | None        # the order of the rows of the piece that is complete with them, if there is one


class EpochOrder:
    """The order of the rows of one epoch: `shuffled`, with `groups_mixed` groups at a time, or by key."""

    def __init__(self, boundaries, blocks_in_group, groups_mixed, shuffled, seed, epoch):
        self.boundaries, self.shuffled, self.seed, self.epoch = boundaries, shuffled, seed, epoch
        count = boundaries.blocks
        if shuffled:
            group, self.groups, window = drawn_groups(count, blocks_in_group, groups_mixed, seed, epoch)
            head = groups_mixed if window == self.groups else window
            ends = np.cumsum(np.bincount(group, minlength=self.groups))
            self.blocks = np.argsort(group, kind="stable").astype(group.dtype)      # group by group, by key in each
        else:
            self.blocks, self.groups, window, head = np.arange(count), -(-count // blocks_in_group), 1, 1
            ends = np.minimum(np.arange(1, self.groups + 1) * blocks_in_group, count)
        self.ends = np.concatenate([[0], ends]).astype(np.int64)
        self.group_starts = self._group_starts()
        self.dealing = Dealing(np.diff(self.group_starts), window, (head - 1) // 2)
        self.starts = self.dealing.starts             # the row of the epoch at which each piece begins, and the end

    def _group_starts(self):
        """The row at which each group begins, and the end, in the order in which they are fetched."""
        rows = self.ends * self.boundaries.step
        missing = self.boundaries.blocks * self.boundaries.step - self.boundaries.count
        if missing:                                   # the last block of the table is short, wherever it is now
            rows[self.ends > np.flatnonzero(self.blocks == len(self.blocks) - 1)[0]] -= missing
        return rows

    @property
    def most_rows(self):
        """Of a group, or of a piece."""
        return int(max(self.dealing.rows.max(initial=0), np.diff(self.starts).max(initial=0)))

    def group(self, number):
        blocks = self.blocks[self.ends[number]:self.ends[number + 1]].astype(np.int64)
        rows = int(self.group_starts[number + 1] - self.group_starts[number])
        if not self.shuffled:
            return BlockGroup(number, blocks, rows, None, None)
        dealt = permutation(rows, self.seed, self.epoch, number) if len(self.dealing.shares(number)) > 1 else None
        piece = number - self.dealing.head
        return BlockGroup(number, blocks, rows, dealt, self.delivered(piece) if piece >= 0 else None)

    def delivered(self, piece):
        """The order in which the rows of a piece are delivered; None: as they are."""
        if not self.shuffled:
            return None
        rows = int(self.starts[piece + 1] - self.starts[piece])
        return permutation(rows, self.seed, self.epoch, PIECE_STREAM, piece)


class Dealing:
    """Which rows of which group come in which piece, for groups of these many `rows`: there are as many of both.

    Group g is dealt out to `window` pieces in equal shares, those from g - head on; so a piece has as much of each of
    the last `window` groups, of which half the rows are still held. The first `head` groups are read before there is a
    piece: they are as many as are held later on, and give each of the first pieces what the groups behind them do not.
    The last groups have fewer pieces before them, and give each of those more, so that all are about as large as a
    group. Where `window` is all groups there are, `head` may be more than half of them, up to all but one.
    """

    def __init__(self, rows, window, head):
        self.rows, self.window = rows, window
        self.head = min(head, max(len(rows) - 1, 0)) if window > 1 else 0
        self.pieces = len(rows)
        self.of_head = np.cumsum(self._lacking()).tolist()        # the ends of shares of the first groups, in parts
        self.starts = np.concatenate([[0], np.cumsum(self._sizes())]).astype(np.int64)

    def _lacking(self):
        """How much of the first pieces has to come from the first groups, in parts of whatever."""
        if self.window < self.pieces or self.window == 1:
            return np.arange(self.window - 1, 0, -1)
        later = [PARTS_OF_PIECE // (self.pieces - first) for first in range(self.pieces - self.head)]
        return np.maximum(PARTS_OF_PIECE - np.cumsum(later + [0] * self.head, dtype=np.int64), 0)

    def _sizes(self):
        sizes = np.zeros(self.pieces, np.int64)
        few = [*range(self.head), *range(max(self.head, self.pieces - self.window + self.head + 1), self.pieces)]
        for group in few:
            for piece, begin, end in self.shares(group):
                sizes[piece] += end - begin
        many = self.rows[self.head:self.pieces - self.window + self.head + 1]     # those with `window` equal shares
        for i in range(self.window if len(many) else 0):
            sizes[i:i + len(many)] += many * (i + 1) // self.window - many * i // self.window
        return sizes

    def shares(self, group):
        """(piece, from, to) for each piece that has some rows of this group, of its rows in the order of dealing."""
        first, rows = max(group - self.head, 0), int(self.rows[group])
        parts = self.of_head if group < self.head else range(1, min(self.window, self.pieces - first) + 1)
        ends = [rows * part // parts[-1] for part in parts]
        return [(first + i, begin, end) for i, (begin, end) in enumerate(zip([0, *ends], ends))]

    def groups_of(self, piece):
        """The groups that have to be read for a piece, from and to; those before them have no row in it or later."""
        first = 0 if piece < len(self.of_head) else piece - self.window + 1 + self.head
        return first, min(piece + self.head + 1, self.pieces)


PARTS_OF_PIECE = 2 ** 40                      # of which shares are counted where they are no whole part of a window
BLOCK_STREAM, REST_STREAM, PIECE_STREAM, STRATA_STREAM = -2, -3, -4, -5      # numbers that no group has


def drawn_groups(blocks, blocks_in_group, groups_mixed, seed, epoch):
    """(for each block of the table, which group has it; how many groups there are; how many of them make a round).

    Of a large table there are many blocks, so what is known of each is small: a number of the smallest type that holds
    those of all groups and of all blocks.
    """
    if not blocks:
        return np.zeros(0, np.int64), 0, 1
    # The nearest whole number: a table a little larger than a round is one round, not two halves of one.
    rounds = max((2 * blocks // (blocks_in_group * groups_mixed) + 1) // 2, 1)
    strata = -(-blocks // rounds)
    groups_in_round = -(-strata // blocks_in_group)
    small = np.min_scalar_type(-max(blocks, rounds * groups_in_round) - 1)
    group = drawn_rounds(blocks, rounds, seed, epoch).astype(small)
    group *= groups_in_round
    in_round = spread_order(strata, seed, epoch) * groups_in_round // strata
    group += np.repeat(in_round.astype(small), rounds)[:blocks]
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
    the golden ratio, without the whole part, from a start on that is drawn."""
    turns = np.arange(strata, dtype=np.uint64) * np.uint64(sample_random.GOLDEN_STEP)
    return np.argsort(turns + np.uint64(key_from(seed, epoch, STRATA_STREAM)), kind="stable")


def share_of(rows, rank, ranks):
    """The rows of the epoch that are this rank's, from and to: shares are disjoint, and differ by one row at most."""
    return rows * rank // ranks, rows * (rank + 1) // ranks


def batches_in(rows, batch_size, drop_last):
    return rows // batch_size if drop_last else -(-rows // batch_size)
