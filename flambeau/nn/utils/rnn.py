"""Batches of sequences of different lengths: padded to one length, or packed without the padding."""
from collections import namedtuple

from ...base import dtypes
from ...tensor.forms import declared
from ...tensor.functions import _pack_padded_sequence, _pad_packed_sequence, as_tensor
from ...tensor.tensor import Tensor

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pad_packed_sequence", "pad_sequence",
           "unpad_sequence", "pack_sequence", "unpack_sequence"]

PackedSequence_ = namedtuple("PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])


class PackedSequence(PackedSequence_):
    """A batch of sequences without padding: the rows of all first steps, then of all second steps, and so on.

    `batch_sizes` says how many samples go on at each step. The functions of this module make it; recurrent layers take
    and give it.

    >>> padded = torch.tensor([[1, 2, 0], [3, 4, 5]])
    >>> packed = torch.nn.utils.rnn.pack_padded_sequence(padded, [2, 3], batch_first=True, enforce_sorted=False)
    >>> packed.data, packed.batch_sizes
    (tensor([3, 1, 4, 2, 5]), tensor([2, 2, 1]))
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2 (data, batch_sizes), got "
                                     f"{type(data)}")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError("batch_sizes should always be on CPU. Instances of PackedSequence should never be created "
                             "manually. They should be instantiated by functions like pack_sequence and "
                             f"pack_padded_sequences in nn.utils.rnn; got {batch_sizes.device}")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, change):
        """The packed batch with `change` made to its data, and its indices beside it."""
        data = change(self.data)
        if data is self.data:
            return self
        order, back = [None if t is None else t.to(data.device) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, order, back)

    def to(self, *args, **kwargs):
        """The same with its data brought to a dtype or a device."""
        return self._with(lambda data: data.to(*args, **kwargs))

    def pin_memory(self):
        """The same in page-locked memory."""
        pinned = [None if t is None else t.pin_memory() for t in self]
        return type(self)(*pinned)

    def cuda(self, *args, **kwargs):
        """The same on a GPU."""
        return self._with(lambda data: data.cuda(*args, **kwargs))

    def cpu(self, *args, **kwargs):
        """The same on the CPU."""
        return self.to(*args, device="cpu", **kwargs)

    def double(self):
        """The same with its data as float64."""
        return self._with(lambda data: data.double())

    def float(self):
        """The same with its data as float32."""
        return self._with(lambda data: data.float())

    def half(self):
        """The same with its data as float16."""
        return self._with(lambda data: data.half())

    def long(self):
        """The same with its data as int64."""
        return self._with(lambda data: data.long())

    def int(self):
        """The same with its data as int32."""
        return self._with(lambda data: data.int())

    def short(self):
        """The same with its data as int16."""
        return self._with(lambda data: data.short())

    def char(self):
        """The same with its data as int8."""
        return self._with(lambda data: data.char())

    def byte(self):
        """The same with its data as uint8."""
        return self._with(lambda data: data.byte())

    @property
    def is_cuda(self):
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self):
        """Whether the data is in page-locked memory."""
        return self.data.is_pinned()


def invert_permutation(permutation):
    """Where each number stands in `permutation`; None for None.

    >>> torch.nn.utils.rnn.invert_permutation(torch.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else declared["_invert_permutation"](permutation)


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """The real rows of a padded batch, [steps, samples, …], as a PackedSequence.

    With `enforce_sorted`, `lengths` must fall; without, the samples are sorted here, and sorted back later.
    """
    if not isinstance(lengths, Tensor):
        lengths = as_tensor(lengths, dtype=dtypes.int64)
    lengths = lengths.detach().to("cpu", dtypes.int64)
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True, stable=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    data, batch_sizes = _pack_padded_sequence(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, order, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """(the padded batch, the lengths) of a PackedSequence, its samples in the order they had before packing."""
    steps = sequence.batch_sizes.size(0)
    if total_length is not None and total_length < steps:
        raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but got "
                         f"total_length={total_length} and max sequence length being {steps}")
    padded, lengths = _pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value,
                                           total_length or steps)
    back = sequence.unsorted_indices
    if back is not None:
        padded, lengths = padded.index_select(0 if batch_first else 1, back), lengths[back.cpu()]
    return padded, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors of different lengths side by side, padded to the longest.

    >>> torch.nn.utils.rnn.pad_sequence([torch.ones(2), torch.ones(3)], batch_first=True)
    tensor([[1., 1., 0.],
            [1., 1., 1.]])
    """
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not hasattr(sequences, "__iter__"):
        raise RuntimeError("pad_sequence: Expected iterable for input sequences, but got arg of type: "
                           f"{type(sequences)}")
    return declared["_pad_sequence"](tuple(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The samples of a padded batch, each cut to its length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    lengths = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    return [one[:n].clone() for one, n in zip(padded_sequences, lengths)]


def pack_sequence(sequences, enforce_sorted=True):
    """Tensors of different lengths as a PackedSequence."""
    lengths = [one.size(0) for one in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The tensors that a PackedSequence was packed from."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
