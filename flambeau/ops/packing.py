"""Sequences of different lengths in one tensor: padded, [steps, samples, …], or packed, the rows that are real only.

Both are the same rows in another order, so that packing and padding are one operation, and each other's derivative.
A packed batch holds the rows of step 0 of all samples, then those of step 1, …; samples are sorted by falling length,
and `batch_sizes` says how many still go on at each step.
"""
import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, door
from ..base.spec import CPU
from .pieces import cat


class _placed_rows(Composite):
    """The rows of `input` at the positions in the array `index`, each at most once, and `value` where it says -1."""

    node = "PackPaddedSequenceBackward0"

    def of(input, index, value):
        if not input._spec.shape[0]:
            return input.new_full((len(index), *input._spec.shape[1:]), value)
        blank, where = index < 0, input._spec.device
        if not blank.any():
            return input.index_select(0, door.from_array(index, where=where))
        out = input.index_select(0, door.from_array(index.clip(0), where=where))
        return out.masked_fill(door.from_array(blank.reshape(-1, *[1] * (input.dim() - 1)), where=where), value)

    def d_input(g, input_spec, index):
        back = np.full(input_spec.shape[0], -1, np.int64)
        real = index >= 0
        back[index[real]] = np.arange(len(index))[real]
        return _placed_rows(g, back, 0)


def positions(sizes):
    """The (step, sample) of each row of a packed batch, as two arrays."""
    sizes = np.asarray(sizes)
    step = np.repeat(np.arange(len(sizes)), sizes)
    return step, np.arange(len(step)) - (np.cumsum(sizes) - sizes)[step]


class _pack_padded_sequence(Composite):
    """(rows, batch sizes) of a padded batch whose samples have falling `lengths`."""

    names = "_pack_padded_sequence"
    forms = "function"

    def of(input, lengths, batch_first):
        need(input.dim() >= 2, "Dimension out of range (expected to be in range of [-1, 0], but got 1): a padded batch "
                               f"has at least two dimensions, got {list(input.shape)}", IndexError)
        need(input.numel(), "Cannot pack empty tensors.")
        samples, steps = input.shape[:2] if batch_first else input.shape[1::-1]
        need(lengths.dim() == 1 and lengths.dtype is dtypes.int64 and lengths._spec.device is CPU,
             "'lengths' argument should be a 1D CPU int64 tensor, but got "
             f"{lengths.dim()}D {lengths.device} {lengths.dtype.cname} tensor")
        need(len(lengths) == samples, "Expected `len(lengths)` to be equal to batch_size, but got "
                                      f"{len(lengths)} (batch_size={samples})")
        found = np.array(lengths.tolist())
        need((found > 0).all(), "Length of all samples has to be greater than 0, but found an element in 'lengths' "
                                f"that is <= 0: {found.min()}")
        need((found[1:] <= found[:-1]).all(), "`lengths` array must be sorted in decreasing order when "
             "`enforce_sorted` is True. You can pass `enforce_sorted=False` to pack_padded_sequence and/or "
             "pack_sequence to sidestep this requirement if you do not need ONNX exportability.")
        need(found[0] <= steps, f"Expected lengths of at most {steps}, the number of steps in the input, got "
                                f"{found[0]}")
        sizes = (found > np.arange(found[0])[:, None]).sum(1)
        step, sample = positions(sizes)
        rows = input.reshape(steps * samples, *input.shape[2:])
        index = sample * steps + step if batch_first else step * samples + sample
        return _placed_rows(rows, index, 0), door.from_array(sizes)


class _pad_packed_sequence(Composite):
    """(padded batch, lengths) of packed rows; `total_length` steps, if it is positive."""

    names = "_pad_packed_sequence"
    forms = "function"

    def of(data, batch_sizes, batch_first, padding_value, total_length):
        sizes = np.array(batch_sizes.tolist())
        steps, samples = len(sizes), int(sizes[0])
        if total_length > 0:
            need(total_length >= steps, "Expected total_length to be at least the length of the longest sequence in "
                 f"input, but got total_length={total_length} and max sequence length being {steps}")
            steps = total_length
        step, sample = positions(sizes)
        index = np.full((samples, steps) if batch_first else (steps, samples), -1, np.int64)
        index[(sample, step) if batch_first else (step, sample)] = np.arange(len(step))
        out = _placed_rows(data, index.reshape(-1), padding_value).reshape(*index.shape, *data.shape[1:])
        return out, door.from_array((sizes[:, None] > np.arange(samples)).sum(0))


class _pad_sequence(Composite):
    """The tensors `sequences`, of different lengths, side by side along a new dimension."""

    forms = "function"
    lists = True

    def of(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
        need(len(sequences) > 0, "received an empty list of sequences")
        need(padding_side in ("left", "right"), "Expected padding_side to be one of left or right, but got "
                                                f"{padding_side}.")
        rest, dtype = sequences[0].shape[1:], sequences[0].dtype
        for number, one in enumerate(sequences):
            need(one.dim() > 0, f"a sequence has at least one dimension, sequence {number} has none")
            for d, (a, b) in enumerate(zip(rest, one.shape[1:], strict=False)):
                need(a == b, f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton "
                             f"dimension {d + 1}: tensor b is sequence {number}, tensor a sequence 0")
            need(one.dim() == len(rest) + 1, f"the shape of sequence 0 doesn't match that of sequence {number} after "
                 f"the first dimension: {list(sequences[0].shape)} and {list(one.shape)}")
        lengths = np.array([one.shape[0] for one in sequences])
        longest = int(lengths.max())
        offset = np.arange(longest) - (longest - lengths[:, None] if padding_side == "left" else 0)
        index = np.where((offset >= 0) & (offset < lengths[:, None]),
                         (np.cumsum(lengths) - lengths)[:, None] + offset, -1)
        index = index if batch_first else index.T
        rows = _placed_rows(cat(sequences).to(dtype), np.ascontiguousarray(index).reshape(-1), padding_value)
        return rows.reshape(*index.shape, *rest)


class _invert_permutation(Composite):
    """Where each number stands in `permutation`."""

    def of(permutation):
        need(permutation.dim() == 1 and permutation.dtype in (dtypes.int64, dtypes.int32),
             f"a permutation is a vector of integers, got {list(permutation.shape)} of {permutation.dtype}")
        back = np.empty(permutation.shape[0], np.int64)
        back[permutation.tolist()] = np.arange(len(back))
        return door.from_array(back, where=permutation._spec.device)
