"""Take a batch out of a dataset of tensors whole: one copy for each tensor, instead of one look for each sample.

`gather_form(dataset)` says whether that is possible, `gather(dataset, positions)` does it. The result is what fetching
the samples one by one and `default_collate` would give, in memory of its own. It is for the datasets of this package,
as long as a subclass has no `__getitem__` of its own, and for tensors without a history. `gather` gives None where it
cannot; then the samples are fetched one by one, and what is wrong with the positions, say, is said there.

Positions are a range, or an int64 array.
"""
import bisect

import numpy as np

from ....autograd.edges import requires
from ....backends.cpu.memory.allocator import blank
from ....base.spec import CPU, spec
from ....tensor.create import from_array
from ....tensor.reading import array_of
from ....tensor.tensor import Tensor
from ..dataset import ConcatDataset, StackDataset, Subset, TensorDataset

GATHERED_DATASETS = (TensorDataset, Subset, StackDataset, ConcatDataset)


def gathered_class(dataset):
    """The class of ours that a dataset is of, if it fetches samples the way that was written here. None for others."""
    own = type(dataset)
    if own is Tensor:
        return Tensor
    for cls in GATHERED_DATASETS:
        if issubclass(own, cls):
            same = own.__getitem__ is cls.__getitem__ \
                and getattr(own, "__getitems__", None) is getattr(cls, "__getitems__", None)
            return cls if same else None
    return None


def plain(tensor):
    """Whether the rows of `tensor` can be copied just like that."""
    return tensor.__class__ is Tensor and tensor._spec.ndim > 0 and tensor._spec.device is CPU \
        and tensor._tangent is None and not requires(tensor)


def gather_form(dataset):
    """What a sample looks like: the dtype and shape of each tensor in it. None where batches cannot be gathered."""
    cls = gathered_class(dataset)
    if cls is Tensor:
        return (dataset._spec.dtype, dataset._spec.shape[1:]) if plain(dataset) else None
    if cls is Subset:
        return gather_form(dataset.dataset)
    if cls is ConcatDataset:
        forms = {gather_form(part) for part in dataset.datasets}
        return forms.pop() if len(forms) == 1 else None
    if cls is TensorDataset or cls is StackDataset:
        parts = dataset.tensors if cls is TensorDataset else tuple(dataset._all())
        forms = tuple([gather_form(part) for part in parts])
        names = tuple(dataset.datasets) if cls is StackDataset and isinstance(dataset.datasets, dict) else None
        return None if None in forms else (names, *forms)
    return None


def gather(dataset, positions):
    """The batch of the samples at `positions`, put together; None if it must be fetched sample by sample."""
    picked = pick(dataset, positions)
    return None if picked is None else wrapped(picked)


def wrapped(picked):
    """Arrays in lists and dictionaries as tensors in the same."""
    if picked.__class__ is list:
        return [wrapped(part) for part in picked]
    if picked.__class__ is dict:
        return {name: wrapped(part) for name, part in picked.items()}
    return from_array(picked)


def pick(dataset, positions):
    """The arrays of a batch, in lists and dictionaries; None where they cannot be picked."""
    cls = gathered_class(dataset)
    if cls is Tensor:
        return rows(dataset, positions)
    if cls is TensorDataset:
        return whole([rows(tensor, positions) for tensor in dataset.tensors])
    if cls is Subset:
        inner = taken(dataset.indices, positions)
        return None if inner is None else pick(dataset.dataset, inner)
    if cls is StackDataset:
        parts = whole([pick(part, positions) for part in dataset._all()])
        return dict(zip(dataset.datasets, parts)) if parts and isinstance(dataset.datasets, dict) else parts
    if cls is ConcatDataset:
        return across(dataset, positions)
    return None


def whole(parts):
    return None if any(part is None for part in parts) else parts


def inside(positions, length):
    """Whether all positions are within 0..length - 1."""
    if positions.__class__ is range:
        return positions.stop <= length
    return len(positions) == 0 or positions.view(np.uint64).max() < length       # a negative one is a huge one there


def rows(tensor, positions):
    """A copy of the rows of `tensor` at `positions`."""
    if not (plain(tensor) and inside(positions, tensor._spec.shape[0])):
        return None
    own = tensor._spec
    source = array_of(tensor)
    out, _ = blank(spec(own.dtype, (len(positions), *own.shape[1:])))
    if positions.__class__ is range:
        out[...] = source[positions.start:positions.stop]
    elif own.contiguous and own.numel:
        np.take(source, positions, 0, out, "clip")            # they are inside; `raise` would make another copy
    else:
        out[...] = source[positions]                          # `take` would copy all of a strided source first
    return out


def taken(indices, positions):
    """`indices[position]` for each position, as positions themselves; None where they are not plain integers."""
    if not inside(positions, len(indices)):
        return None
    if isinstance(indices, range):
        return array_from(positions) * indices.step + indices.start
    if isinstance(indices, Tensor):
        indices = array_of(indices)
    at = slice(positions.start, positions.stop) if positions.__class__ is range else positions
    if isinstance(indices, np.ndarray):
        found = indices[at]
        return found.astype(np.int64) if found.ndim == 1 and found.dtype.kind in "iu" else None
    if not isinstance(indices, list | tuple):
        return None
    found = indices[at] if at.__class__ is slice else list(map(indices.__getitem__, at.tolist()))
    return integers(found)


def integers(numbers):
    """A list of integers as an array; None if there is something else in it."""
    if all(issubclass(cls, int | np.integer) and cls is not bool for cls in set(map(type, numbers))):
        try:
            return np.array(numbers, np.int64)
        except OverflowError:
            return None
    return None


def array_from(positions):
    return np.arange(positions.start, positions.stop) if positions.__class__ is range else positions


def across(dataset, positions):
    """Picked from the datasets that a ConcatDataset is made of."""
    ends = dataset.cumulative_sizes
    if not inside(positions, ends[-1]):
        return None
    if positions.__class__ is range and len(positions):
        nth = bisect.bisect_right(ends, positions.start)
        before = ends[nth - 1] if nth else 0
        if positions.stop <= ends[nth]:
            return pick(dataset.datasets[nth], range(positions.start - before, positions.stop - before))
    positions = array_from(positions)
    owner = np.searchsorted(ends, positions, "right")
    parts, targets = [], []
    for nth in np.unique(owner).tolist():
        targets.append(np.flatnonzero(owner == nth))
        parts.append(pick(dataset.datasets[nth], positions[targets[-1]] - (ends[nth - 1] if nth else 0)))
    if whole(parts) is None:
        return None
    return merged(parts, targets, len(positions)) if parts else pick(dataset.datasets[0], positions)


def merged(parts, targets, length):
    """One batch of several that look alike: that of `parts[i]` goes to `targets[i]`."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if first.__class__ is list:
        return [merged(each, targets, length) for each in zip(*parts)]
    if first.__class__ is dict:
        return {name: merged([part[name] for part in parts], targets, length) for name in first}
    out = np.empty((length, *first.shape[1:]), first.dtype)
    for part, target in zip(parts, targets):
        out[target] = part
    return out
