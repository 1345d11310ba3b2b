"""Put samples together into a batch, by the type of the first one.

Tensors and arrays are stacked, numbers become a tensor, dictionaries, named tuples and sequences are taken apart and
each part is put together by itself. What a type does stands in `default_collate_fn_map`, where programs may add theirs.

Small tensors are stacked at once, by one copy of their memory: a recorded instruction with a thousand inputs would
cost more than all the rest of the loading.
"""
import collections.abc
import contextlib
import copy
import re
from operator import attrgetter

import numpy as np

from ....autograd.edges import requires
from ....autograd.modes import modes
from ....backends.cpu import host
from ....backends.cpu.memory.allocator import blank
from ....base import dtypes
from ....base.spec import CPU, spec as make_spec
from ....tensor.create import as_tensor, from_array, tensor
from ....tensor.forms import namespace
from ....tensor.interop import check_array
from ....tensor.reading import array_of
from ....tensor.tensor import Tensor

np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = ("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                                  "found {}")
_layout = attrgetter("_spec", "_storage", "_node", "_requires_grad")
_spec_and_history = attrgetter("_spec", "_node", "_requires_grad")
_array_spec = attrgetter("dtype", "shape", "strides")
_offset = attrgetter("_offset")
_base = attrgetter("_base")


# --- a batch --------------------------------------------------


def default_collate(batch):
    """Put a list of samples together into a batch.

    >>> default_collate([(torch.ones(2), 1, "a"), (torch.zeros(2), 2, "b")])
    [tensor([[1., 1.],
            [0., 0.]]), tensor([1, 2]), ('a', 'b')]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch, *, collate_fn_map=None):
    """Put samples together; `collate_fn_map` says how for each type: `{type: function(batch, *, collate_fn_map)}`."""
    first = batch[0]
    cls = type(first)
    if collate_fn_map is not None:
        found = collate_fn_map.get(cls)
        if found is None:
            found = next((function for known, function in collate_fn_map.items() if isinstance(first, known)), None)
        if found is not None:
            return found(batch, collate_fn_map=collate_fn_map)

    def together(parts):
        return collate(parts, collate_fn_map=collate_fn_map)

    if isinstance(first, collections.abc.Mapping):
        return like_mapping(first, {key: together([sample[key] for sample in batch]) for key in first})
    if isinstance(first, collections.abc.Sequence):
        if is_named_tuple(first):
            return cls(*map(together, zip(*batch)))
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size; their sizes are "
                               f"{sorted({len(sample) for sample in batch})}")
        return like_sequence(first, [together(part) for part in zip(*batch)])
    raise TypeError(default_collate_err_msg_format.format(cls))


def is_named_tuple(thing):
    return isinstance(thing, tuple) and hasattr(thing, "_fields")


def like_mapping(first, parts):
    """A mapping of the kind of `first` that holds `parts`; a plain dictionary, if that kind cannot be made."""
    with contextlib.suppress(TypeError):
        if isinstance(first, collections.abc.MutableMapping):
            made = copy.copy(first)           # with whatever else a subclass holds
            made.update(parts)
            return made
        return type(first)(parts)
    return parts


def like_sequence(first, parts):
    """A sequence of the kind of `first` that holds `parts`; a list for a tuple, and if that kind cannot be made."""
    if isinstance(first, tuple):
        return parts
    with contextlib.suppress(TypeError):
        if isinstance(first, collections.abc.MutableSequence):
            made = copy.copy(first)
            for i, part in enumerate(parts):
                made[i] = part
            return made
        return type(first)(parts)
    return parts


# --- tensors and arrays --------------------------------------------------


def collate_tensor_fn(batch, *, collate_fn_map=None):
    """Stack tensors."""
    stacked = None
    if set(map(type, batch)) == {Tensor} and modes.level < 0:
        if batch[0]._storage is batch[-1]._storage:
            stacked = from_one_storage(batch)
        if stacked is None:
            stacked = from_many(batch)
    if stacked is not None:
        return stacked
    try:
        return namespace[""]["stack"](batch, 0)
    except RuntimeError as error:
        error.add_note("in default_collate, which stacks the samples of a batch: bring them to one shape (pad or crop "
                       "them), or give the DataLoader a collate_fn")
        raise


def from_one_storage(batch):
    """The stack of views of one storage that look alike: one gather by where they start. None for others."""
    found = set(map(_layout, batch))
    if len(found) != 1 or len(set(map(id, map(_base, batch)))) != 1:          # a view follows its base
        return None
    (spec, storage, *_), = found
    if spec.device is not CPU or requires(batch[0]):
        return None
    starts = np.fromiter(map(_offset, batch), np.int64, len(batch))
    out, _ = blank(make_spec(spec.dtype, (len(batch), *spec.shape)))
    if spec.numel:
        memory = storage.value.ready().memory
        memory = memory[:memory.size - memory.size % spec.dtype.itemsize].view(spec.dtype.np)
        if spec.contiguous and not (starts % spec.numel).any() and memory.size % spec.numel == 0:
            np.take(memory.reshape(-1, spec.numel), starts // spec.numel, 0, out.reshape(len(batch), -1), "clip")
        else:
            out[...] = host.windows(memory, spec.shape, spec.np_strides)[starts]
    return from_array(out)


def from_many(batch):
    """The stack of tensors of one spec that have their own memory; None where they differ or one has a history."""
    found = set(map(_spec_and_history, batch))
    if len(found) != 1:
        return None
    (spec, node, wanted), = found
    views = set(map(id, map(_base, batch))) != {id(None)}
    if spec.device is not CPU or node is not None or wanted or views and any(map(requires, batch)):
        return None
    return from_array(stack_of([array_of(tensor) for tensor in batch], spec.dtype, spec.shape))


def stack_of(arrays, dtype, shape):
    """The stack of arrays that have the same dtype and shape, an array of its own."""
    out, _ = blank(make_spec(dtype, (len(arrays), *shape)))
    if shape:
        np.concatenate(arrays, 0, out.reshape(len(arrays) * shape[0], *shape[1:]))
    else:
        out[...] = arrays
    return out


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    """Stack NumPy arrays, as a tensor."""
    first = batch[0]
    if np_str_obj_array_pattern.search(first.dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(first.dtype))
    if set(map(type, batch)) == {np.ndarray} and len(set(map(_array_spec, batch))) == 1:
        check_array(first)                    # and with it the others
        return from_array(stack_of(batch, dtypes.from_numpy(first.dtype), first.shape))
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


# --- numbers and texts --------------------------------------------------


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    """NumPy numbers as a tensor, of their dtype."""
    return from_array(np.array(batch)) if len(set(map(type, batch))) == 1 else as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map=None):
    """Python numbers as a tensor of float64."""
    return from_array(np.array(batch)) if set(map(type, batch)) == {float} else tensor(batch, dtype=dtypes.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    """Python numbers as a tensor, of the dtype that holds them all."""
    if set(map(type, batch)) == {int}:
        with contextlib.suppress(OverflowError):          # `tensor` says which one is too large
            return from_array(np.array(batch, np.int64))
    return tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    """Texts as they are."""
    return batch


default_collate_fn_map = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


# --- one sample --------------------------------------------------


def default_convert(data):
    """`data` with the NumPy arrays and numbers in it as tensors.

    >>> import numpy
    >>> default_convert({"x": numpy.zeros(2), "name": "a"})
    {'x': tensor([0., 0.], dtype=torch.float64), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        if np_str_obj_array_pattern.search(data.dtype.str) is not None:
            return data
        return as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return like_mapping(data, {key: default_convert(data[key]) for key in data})
    if is_named_tuple(data):
        return type(data)(*map(default_convert, data))
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, str | bytes):
        return like_sequence(data, [default_convert(part) for part in data])
    return data
