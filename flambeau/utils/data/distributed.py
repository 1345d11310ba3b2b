"""The sampler for training by several processes: each visits its own part of the dataset."""
import os

import numpy as np

from ...backends.cpu.random.draws import MersenneTwister
from .sampler import _BlockSampler

__all__ = ["DistributedSampler"]


class DistributedSampler(_BlockSampler):
    """Every `num_replicas`-th position, from the `rank`-th on, of an order that all processes agree on.

    The order is shuffled from `seed` and the epoch: call `set_epoch` before each. So that all ranks give equally many,
    the first positions come again at the end, or with `drop_last` the last ones are left out.
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            raise ValueError("Default process group has not been initialized, please make sure to call "
                             "init_process_group. (There are no process groups in Flambeau yet: give num_replicas "
                             "and rank.)")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        whole, rest = divmod(len(dataset), num_replicas)
        self.num_samples = whole if drop_last or not rest else whole + 1
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def _blocks(self):
        n = len(self.dataset)
        if self.shuffle:
            order = MersenneTwister().manual_seed(self.seed + self.epoch).permutation(n)
        else:
            order = np.arange(n)
        if n and self.total_size > n:
            order = np.resize(order, self.total_size)         # over and over again, until it is long enough
        order = order[:self.total_size][self.rank::self.num_replicas]
        if len(order) != self.num_samples:
            raise AssertionError(f"the dataset had other than {n} samples when the sampler was made: rank {self.rank} "
                                 f"has {len(order)} positions, not {self.num_samples}")
        yield order

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Shuffle differently from now on."""
        self.epoch = epoch


def rank_and_ranks(split):
    """(rank, how many ranks) that `split_by_rank` says: the pair itself, or for True what the environment says."""
    if split is True:
        try:
            split = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except (KeyError, ValueError):
            raise ValueError("split_by_rank=True takes RANK and WORLD_SIZE from the environment, where torchrun puts "
                             f"them, and they are {os.environ.get('RANK')!r} and {os.environ.get('WORLD_SIZE')!r}; "
                             "give a pair (rank, ranks) instead") from None
    try:
        rank, ranks = split
        inside = isinstance(rank, int) and isinstance(ranks, int) and 0 <= rank < ranks
    except (TypeError, ValueError):
        inside = False
    if not inside:
        raise ValueError(f"split_by_rank is True or a pair (rank, ranks) with 0 <= rank < ranks, and got {split!r}")
    return rank, ranks
