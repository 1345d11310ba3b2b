"""Transforms of transforms: in order (`Compose`), by chance (`RandomApply`, `RandomChoice`), in a random order.

In a batch, chance is each sample's own: the samples that a transform falls to are taken out of the batch, transformed
together, and put back, and what they draw is theirs (Note [Parts of a batch]).
"""
from collections.abc import Sequence

import numpy as np

from ...base.pytree import tree_flatten, tree_unflatten
from ...nn import ModuleList
from ...tensor.create import from_array
from ...tensor.tensor import Tensor
from .base import Transform, narrowed, refuse_evaluation, streams
from .functional.dispatch import samples_of


def need_transforms(transforms, classes=Sequence, also=""):
    if not isinstance(transforms, classes):
        raise TypeError(f"Argument transforms should be a sequence of callables{also}")
    if not transforms:
        raise ValueError("Pass at least one transform")


def in_turn(transforms, inputs):
    """`inputs`, the arguments of a call, after each of `transforms`."""
    for transform in transforms:
        made = transform(*inputs)
        inputs = made if len(inputs) > 1 else (made,)
    return inputs


class Compose(Transform):
    """`transforms` one after the other.

    >>> from flambeau.data import transforms
    >>> transforms.Compose([transforms.CenterCrop(10), transforms.RandomHorizontalFlip()])
    Compose(
          CenterCrop(size=(10, 10))
          RandomHorizontalFlip(p=0.5)
    )
    """

    def __init__(self, transforms):
        super().__init__()
        need_transforms(transforms)
        self.transforms = transforms

    def forward(self, *inputs):
        made = in_turn(self.transforms, inputs)
        return made if len(inputs) > 1 else made[0]

    def extra_repr(self):
        return "\n".join(f"    {transform}" for transform in self.transforms)


class _Chance(Transform):
    """A container that decides for each sample which of its transforms it gets."""

    is_random = True

    def forward(self, *inputs):
        refuse_evaluation(self)
        flat, structure = tree_flatten(inputs)
        at = next((i for i, yes in enumerate(self._needs_transform_list(flat)) if yes), None)
        n = 1 if at is None else samples_of(flat[at])
        random = streams(n)
        for which, chosen in self.turns(n, random):
            if which.all():
                flat = tree_flatten(self._run(chosen, tree_unflatten(flat, structure), random))[0]
            elif which.any():
                flat = self._run_part(chosen, flat, structure, which, random)
        made = tree_unflatten(flat, structure)
        return made if len(inputs) > 1 else made[0]

    def turns(self, n, random):
        """[(a mask of the samples, the transforms that fall to them)], in order."""
        raise NotImplementedError(f"{type(self).__name__} has to say turns(n, random)")

    def _run(self, chosen, inputs, random):
        with narrowed(random):
            made = in_turn(chosen, tuple(inputs))
        return made

    # Note [Parts of a batch]: of every tensor whose first dimension is the batch, a part is the rows of its samples
    # (labels go with their images). The streams of the part are the samples' own, so what a sample draws does not
    # depend on the others that the same transform fell to.
    def _run_part(self, chosen, flat, structure, which, random):
        n, at = len(which), np.flatnonzero(which)
        rows = from_array(at.astype(np.int64))
        batched = [isinstance(one, Tensor) and one.ndim > 0 and one.shape[0] == n for one in flat]
        part = [one.index_select(0, rows.to(one.device)) if yes else one
                for one, yes in zip(flat, batched, strict=True)]
        made = tree_flatten(self._run(chosen, tree_unflatten(part, structure), random.select(which)))[0]
        return [self._put_back(one, rows, new) if yes else one
                for one, new, yes in zip(flat, made, batched, strict=True)]

    def _put_back(self, batch, rows, part):
        if part.shape[1:] != batch.shape[1:] or part.dtype is not batch.dtype:
            raise ValueError(f"{self}: the samples of a batch keep one shape and dtype, but some of them became "
                             f"{part.dtype} {list(part.shape[1:])} and others are {batch.dtype} "
                             f"{list(batch.shape[1:])}. Transform single images where that is meant.")
        return batch.index_copy(0, rows.to(batch.device), part)


class RandomApply(_Chance):
    """All of `transforms`, to a sample with probability `p`."""

    def __init__(self, transforms, p=0.5):
        super().__init__()
        need_transforms(transforms, (Sequence, ModuleList), " or a `nn.ModuleList`")
        self.transforms = transforms
        if not 0.0 <= p <= 1.0:
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        self.p = p

    def turns(self, n, random):
        return [(random.uniform()[:, 0] < self.p, self.transforms)]

    def extra_repr(self):
        return "\n".join(f"    {transform}" for transform in self.transforms)


class RandomChoice(_Chance):
    """One of `transforms` for each sample, with the probabilities `p`, which are brought to a sum of one."""

    def __init__(self, transforms, p=None):
        need_transforms(transforms)
        if p is None:
            p = [1] * len(transforms)
        elif len(p) != len(transforms):
            raise ValueError(f"Length of p doesn't match the number of transforms: {len(p)} != {len(transforms)}")
        super().__init__()
        self.transforms = transforms
        total = sum(p)
        self.p = [probability / total for probability in p]

    def turns(self, n, random):
        bounds = np.cumsum(self.p)
        chosen = np.searchsorted(bounds / bounds[-1], random.uniform()[:, 0], side="right")
        return [(chosen == i, [transform]) for i, transform in enumerate(self.transforms)]


class RandomOrder(_Chance):
    """All of `transforms`, for each sample in an order of its own."""

    def __init__(self, transforms):
        need_transforms(transforms)
        super().__init__()
        self.transforms = transforms

    def turns(self, n, random):
        order = random.permutation(len(self.transforms))
        return [(order[:, turn] == i, [transform]) for turn in range(len(self.transforms))
                for i, transform in enumerate(self.transforms)]
