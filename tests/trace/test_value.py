"""Values and storages: copies that cost nothing until somebody writes, and memory that the outside shares."""
import gc
import weakref

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import dtypes
from flambeau.base.spec import spec
from flambeau.trace.recording.record import current
from flambeau.trace.value import Storage, Value


def value_of(array):
    return Value.of(array, spec(dtypes.from_numpy(array.dtype), array.shape,
                             tuple(s // array.itemsize for s in array.strides)))


# --- values ---------------------------------------------------------------------------------------------------------


def test_memory_is_the_bytes_in_memory_order():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert value_of(array).memory.tobytes() == array.tobytes()
    turned = value_of(array.T)
    assert turned.memory.tobytes() == array.tobytes() and np.shares_memory(turned.memory, array)


def test_a_look_is_a_view_of_the_bytes():
    value = value_of(np.arange(6, dtype=np.int32))
    assert value.look(value.spec, 0) is value.array
    assert value.look(spec(dtypes.int32, (2, 2), (1, 2)), 1).tolist() == [[1, 3], [2, 4]]
    assert value.look(spec(dtypes.int16, (2,)), 2).tolist() == [1, 0]            # the same bytes as shorter numbers
    assert value.look(spec(dtypes.int32, (0, 3)), 6).shape == (0, 3)
    assert np.shares_memory(value.look(spec(dtypes.int32, (3,)), 2), value.array)


# --- copies on write ------------------------------------------------------------------------------------------------


COPIES = {"clone": lambda x: x.clone(), "copy_": lambda x: torch.empty(6).copy_(x),
          "to": lambda x: x.to("cpu", copy=True),
          "assignment": lambda x: torch.empty(6).__setitem__(slice(None), x) or x.clone(),
          "clone of clone": lambda x: x.clone().clone()}


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "pending"])
@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_copy_and_its_source_part_when_either_is_written(copy, ready):
    for write_copy in (True, False):
        x = torch.arange(6.0)
        if ready:
            x.tolist()
        y = copy(x)
        if ready:
            y.tolist()
        written, other = (y, x) if write_copy else (x, y)
        written[2] = 100
        written[3:].add_(1)
        assert written.tolist() == [0, 1, 100, 4, 5, 6] and other.tolist() == [0, 1, 2, 3, 4, 5]
        other[0] = -1
        assert written.tolist() == [0, 1, 100, 4, 5, 6] and other.tolist() == [-1, 1, 2, 3, 4, 5]


def test_copies_part_before_numpy_gets_the_memory():
    x = torch.arange(3.0)
    y = x.clone()
    z = torch.empty(3).copy_(x)
    x.numpy()[0] = 100
    assert (x.tolist(), y.tolist(), z.tolist()) == ([100, 1, 2], [0, 1, 2], [0, 1, 2])
    y.numpy()[1] = 50
    assert (x.tolist(), y.tolist(), z.tolist()) == ([100, 1, 2], [0, 50, 2], [0, 1, 2])


def test_views_share_where_copies_do_not():
    x = torch.arange(6.0)
    view, copy, detached, data = x.view(2, 3), x.clone(), x.detach(), x.data
    x[0] = 7
    assert view[0, 0].item() == detached[0].item() == data[0].item() == 7 and copy[0].item() == 0
    view[1, 1] = 8
    assert x[4].item() == 8 and copy[4].item() == 4


def test_assigning_data_shares_with_the_other_tensor():
    x, y = torch.zeros(2), torch.ones(2)
    x.data = y
    y[0] = 5
    assert x.tolist() == [5, 1]


# --- storages -------------------------------------------------------------------------------------------------------


def test_a_storage_counts_its_writes():
    x = torch.zeros(3)
    assert x._version == 0
    x.add_(1)
    x[1:].mul_(2)
    x.detach()[0] = 9
    with torch.no_grad():
        x.zero_()
    assert x._version == 4 and x.view(3)._version == 4 and (x + 1)._version == 0


def test_exported_memory_is_seen_by_both_sides_at_once():
    x = torch.arange(4.0)
    array = x.numpy()
    array[0] = 10
    y = x * 2                                  # runs now: it reads memory that may change any moment
    array[1] = 20
    assert y.tolist() == [20, 2, 4, 6] and x.tolist() == [10, 20, 2, 3]
    x[2] = 30
    x.add_(1)
    x.view(2, 2)[1].mul_(2)
    assert array.tolist() == [11, 21, 62, 8] and not current().code


def test_a_write_to_exported_memory_reads_its_sources_first():
    x = torch.arange(4.0)
    array = x.numpy()
    x[1:] = x[:-1].clone()
    assert array.tolist() == [0, 0, 1, 2]
    x.copy_(x.flip(0))
    assert array.tolist() == [2, 1, 0, 0]
    x.add_(x)
    assert array.tolist() == [4, 2, 0, 0]


def test_memory_stays_exported_until_the_last_array_is_gone():
    x = torch.arange(4.0)
    array = x.numpy()
    part = array[1:3]
    assert x._storage.still_exported()
    del array
    part[0] = 50                               # an array over an array keeps it
    assert x.tolist() == [0, 50, 2, 3] and x._storage.still_exported()
    del part
    gc.collect()
    assert not x._storage.still_exported() and not x._storage.exported
    y = x + 1
    assert current().code                      # recorded again
    assert y.tolist() == [1, 51, 3, 4]


def test_a_tensor_keeps_the_array_it_was_made_from():
    array = np.arange(3.0)
    gone = weakref.ref(array)
    x = torch.from_numpy(array)
    view = x[1:]
    del array, x
    gc.collect()
    assert gone() is not None and view.tolist() == [1, 2]
    del view
    gc.collect()
    assert gone() is None


def test_freeing_the_last_tensor_frees_the_memory():
    x = torch.ones(1_000_000)     # no array that is kept for the next one: see backends/cpu/memory/array_pool.py
    torch.cpu.synchronize()
    array = weakref.ref(x._storage.value.array)
    view = x[10:20]
    del x
    assert array() is not None
    del view
    assert array() is None


def test_an_address_once_asked_for_holds():
    x = torch.zeros(8)
    at = x.data_ptr()
    x[2] = 1
    x.add_(1)
    x.index_put_((torch.tensor([0]),), torch.tensor(5.0))
    assert x.data_ptr() == at and x[3:].data_ptr() == at + 12
    assert x.tolist() == [5, 1, 2, 1, 1, 1, 1, 1]


def test_a_storage_alone():
    value = value_of(np.arange(4, dtype=np.uint8))
    storage = Storage.of(value, 4, value.spec.device)
    assert storage.version == 0 and not storage.exported and not storage.still_exported()
    out = storage.export(value.spec, 0)
    out[0] = 9
    assert storage.value.memory[0] == 9 and storage.still_exported()
