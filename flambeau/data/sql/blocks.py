"""Which rows come when: the order of an epoch, in groups of blocks, and where a batch lies in it.

An epoch is a row of groups; a group is some blocks, and in a shuffled epoch its rows are mixed with each other.
Everything is arithmetic on (number of rows, seed, epoch), so that any batch can be the first.

Which blocks are in a group decides how well a table that is sorted by its label is mixed, since a batch has its rows
from one group or a few. Blocks that were simply drawn would have each label as often as chance has it, for hundreds of
blocks and not for tens of thousands of rows. So the table is cut into strata, each of as many neighbouring blocks as
there are groups, and of each stratum every group gets one block, whichever chance says: every group is a sample of the
whole table from end to end. Of all tables none is mixed worse by that than by blocks that were simply drawn.
"""
from typing import NamedTuple

import numpy as np

from .permute import permutation, ranks_of_hashes


class BlockGroup(NamedTuple):
    """Some blocks that are fetched together."""
    number: int
    blocks: np.ndarray                  # their numbers, in the order in which they are fetched
    rows: int                           # how many rows they have
    order: np.ndarray | None            # the place of each delivered row among those fetched; None: as they are


class EpochOrder:
    """The order of the rows of one epoch: `shuffled`, or by key."""

    def __init__(self, boundaries, blocks_in_group, shuffled, seed, epoch):
        self.boundaries, self.shuffled, self.seed, self.epoch = boundaries, shuffled, seed, epoch
        count = boundaries.blocks
        self.groups = -(-count // blocks_in_group)
        if shuffled:
            group = drawn_groups(count, self.groups, seed, epoch)
            self.blocks = np.argsort(group, kind="stable")          # group by group, by key in each
            self.ends = np.cumsum(np.bincount(group, minlength=self.groups))
        else:
            self.blocks = np.arange(count)
            self.ends = np.minimum(np.arange(1, self.groups + 1) * blocks_in_group, count)
        self.ends = np.concatenate([[0], self.ends]).astype(np.int64)
        self.starts = self._group_starts()            # the row of the epoch at which each group begins, and the end

    def _group_starts(self):
        rows = self.ends * self.boundaries.step
        missing = self.boundaries.blocks * self.boundaries.step - self.boundaries.count
        if missing:                                   # the last block of the table is short, wherever it is now
            rows[self.ends > np.flatnonzero(self.blocks == len(self.blocks) - 1)[0]] -= missing
        return rows

    def group(self, number):
        blocks = self.blocks[self.ends[number]:self.ends[number + 1]]
        rows = int(self.starts[number + 1] - self.starts[number])
        order = permutation(rows, self.seed, self.epoch, number) if self.shuffled else None
        return BlockGroup(number, blocks, rows, order)

    def group_of(self, row):
        """The group that holds row `row` of the epoch."""
        return int(np.searchsorted(self.starts, row, "right")) - 1


BLOCK_STREAM, REST_STREAM = -2, -3      # numbers that no group has, so that blocks and rows are mixed independently


def drawn_groups(blocks, groups, seed, epoch):
    """For each block of the table, which group has it: of every stratum of `groups` neighbours each has one.

    The blocks behind the last whole stratum are fewer than groups: some groups have one of them, drawn as well.
    """
    whole = blocks // groups * groups if groups else 0
    drawn = ranks_of_hashes(whole, groups, seed, epoch, BLOCK_STREAM)
    return np.concatenate([drawn, permutation(groups, seed, epoch, REST_STREAM)[:blocks - whole]])


def share_of(rows, rank, ranks):
    """The rows of the epoch that are this rank's, from and to: shares are disjoint, and differ by one row at most."""
    return rows * rank // ranks, rows * (rank + 1) // ranks


def batches_in(rows, batch_size, drop_last):
    return rows // batch_size if drop_last else -(-rows // batch_size)
