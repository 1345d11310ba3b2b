"""Which rows come when: the order of an epoch, in groups of blocks, and where a batch lies in it.

An epoch is a row of groups; a group is some blocks, in key order or permuted, and its rows are mixed with each other.
Everything is arithmetic on (number of rows, seed, epoch), so that any batch can be the first.
"""
from typing import NamedTuple

import numpy as np

from .permute import permutation


class BlockGroup(NamedTuple):
    """Some blocks that are fetched together."""
    number: int
    blocks: np.ndarray                  # their numbers, in the order in which they are fetched
    rows: int                           # how many rows they have
    order: np.ndarray | None            # the place of each delivered row among those fetched; None: as they are


class EpochOrder:
    """The order of the rows of one epoch: `shuffled`, or by key."""

    def __init__(self, boundaries, blocks_in_group, shuffled, seed, epoch):
        self.boundaries, self.blocks_in_group = boundaries, blocks_in_group
        self.shuffled, self.seed, self.epoch = shuffled, seed, epoch
        count = boundaries.blocks
        self.blocks = permutation(count, seed, epoch, BLOCK_STREAM) if shuffled else np.arange(count)
        self.starts = self._group_starts()            # the row of the epoch at which each group begins, and the end

    def _group_starts(self):
        ends = np.append(np.arange(0, len(self.blocks), self.blocks_in_group), len(self.blocks))
        rows = ends * self.boundaries.step
        missing = self.boundaries.blocks * self.boundaries.step - self.boundaries.count
        if missing:                                   # the last block of the table is short, wherever it is now
            rows[ends > np.flatnonzero(self.blocks == len(self.blocks) - 1)[0]] -= missing
        return rows

    @property
    def groups(self):
        return len(self.starts) - 1

    def group(self, number):
        blocks = self.blocks[number * self.blocks_in_group:(number + 1) * self.blocks_in_group]
        rows = int(self.starts[number + 1] - self.starts[number])
        order = permutation(rows, self.seed, self.epoch, number) if self.shuffled else None
        return BlockGroup(number, blocks, rows, order)

    def group_of(self, row):
        """The group that holds row `row` of the epoch."""
        return int(np.searchsorted(self.starts, row, "right")) - 1


BLOCK_STREAM = -2                       # a number that no group has, so that blocks and rows are mixed independently


def share_of(rows, rank, ranks):
    """The rows of the epoch that are this rank's, from and to: shares are disjoint, and differ by one row at most."""
    return rows * rank // ranks, rows * (rank + 1) // ranks


def batches_in(rows, batch_size, drop_last):
    return rows // batch_size if drop_last else -(-rows // batch_size)
