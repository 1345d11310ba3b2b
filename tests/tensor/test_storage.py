"""Storages as objects: of bytes, of elements, over files; what is seen through whom."""
import copy
import ctypes
import io
import pickle
import sys
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau.tensor import typed_storage


@pytest.fixture(autouse=True)
def warned_before():
    """As in a program that has got its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ones(1).storage()


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_bytes_of_a_tensor():
    x = torch.arange(4, dtype=torch.int16)
    held = x.untyped_storage()
    assert held.tolist() == [0, 0, 1, 0, 2, 0, 3, 0] and held.nbytes() == len(held) == held.size() == 8
    held[0] = 5
    assert x.tolist() == [5, 1, 2, 3]
    held.fill_(1)
    assert x.tolist() == [257] * 4
    assert held[-1] == 1 and held.data_ptr() == x.data_ptr() and held == x[1:].untyped_storage()
    assert held != x.clone().untyped_storage()


def test_an_address_holds_while_its_storage_object_lives():
    x, other = torch.zeros(4), torch.zeros(4)
    address = x.untyped_storage().data_ptr()
    assert address == x[1:].untyped_storage().data_ptr() == x.view(2, 2).untyped_storage().data_ptr()
    assert address != other.untyped_storage().data_ptr() and address != x.clone().untyped_storage().data_ptr()
    assert not x._storage.still_exported()                        # asked to compare: it is recorded as others are
    held = x.untyped_storage()
    address = held.data_ptr()
    outside = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (4,))
    x.add_(1)
    assert outside.tolist() == [1, 1, 1, 1] and x._storage.still_exported() and held.data_ptr() == address
    outside[2] = 7
    assert x.tolist() == [1, 1, 7, 1] and x.data_ptr() == address
    assert torch.empty(0).untyped_storage().data_ptr() == torch.ones(2, device="meta").untyped_storage().data_ptr() == 0


def test_a_slice_is_the_same_memory():
    x = torch.zeros(4)
    part = x.untyped_storage()[4:8]
    part.copy_(torch.tensor(2.0).untyped_storage())
    assert x.tolist() == [0, 2, 0, 0]
    x.fill_(1)
    assert part.tolist() == [0, 0, 128, 63]
    with pytest.raises(RuntimeError, match="only a step of 1 is supported"):
        x.untyped_storage()[::2]
    with pytest.raises(IndexError, match="index 16 out of range for storage of size 16"):
        x.untyped_storage()[16]


def test_made_of_numbers():
    assert torch.UntypedStorage([1, 2, 300]).tolist() == [1, 2, 44]
    assert len(torch.UntypedStorage()) == 0 and len(torch.UntypedStorage(7)) == 7
    assert torch.UntypedStorage(3, device="meta").device.type == "meta"
    with pytest.raises(RuntimeError, match="one of the items was of type str instead of int"):
        torch.UntypedStorage("x")
    swapped = torch.UntypedStorage([1, 2, 3, 4])
    swapped.byteswap(torch.int16)
    assert swapped.tolist() == [2, 1, 4, 3]
    swapped.byteswap(torch.complex64)                      # of each part
    assert swapped.tolist() == [3, 4, 1, 2]


def test_copies_are_apart():
    held = torch.arange(3, dtype=torch.uint8).untyped_storage()
    for made in (copy.copy(held), copy.deepcopy(held), held.clone(), pickle.loads(pickle.dumps(held))):
        held.fill_(9)
        assert made.tolist() == [0, 1, 2]
        held.copy_(made)
    x = torch.ones(2)
    again, both = copy.deepcopy([x.untyped_storage(), x])
    both.fill_(3)
    assert again.tolist()[:4] == [0, 0, 64, 64]


@pytest.mark.parametrize("order, expected", [("little", [0x6261, 0x6463]), ("big", [0x6162, 0x6364])])
def test_from_buffer(order, expected):
    made = torch.UntypedStorage.from_buffer(b"abcd", order, dtype=torch.int16)
    assert torch.tensor([], dtype=torch.int16).set_(made).tolist() == expected
    assert torch.ShortStorage.from_buffer(b"xxab", order, 1, 2).size() == 1
    with pytest.raises(RuntimeError, match="byte_order"):
        torch.UntypedStorage.from_buffer(b"abcd", dtype=torch.int16)


@pytest.mark.parametrize("name", ["_share_fd_cpu_", "_share_filename_cpu_", "_weak_ref"])
def test_there_are_no_handles_on_shared_memory(name):
    with pytest.raises(NotImplementedError, match="send the tensors or the storage through torch.multiprocessing"):
        getattr(torch.UntypedStorage(1), name)()
    assert torch.UntypedStorage._new_shared(4).is_shared()


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "numbers"
    np.arange(6, dtype=np.float32).tofile(path)
    held = torch.UntypedStorage.from_file(str(path), False, 24)
    x = torch.tensor([]).set_(held)
    x.add_(1)
    assert x.tolist() == [1, 2, 3, 4, 5, 6] and np.fromfile(path, np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert held.filename is None and not held.is_shared()


def test_a_shared_file(tmp_path):
    path = tmp_path / "numbers"
    x = torch.from_file(path, shared=True, size=3, dtype=torch.int32)          # made where it is not there
    x.copy_(torch.tensor([7, 8, 9]))
    assert np.fromfile(path, np.int32).tolist() == [7, 8, 9]
    held = torch.IntStorage.from_file(str(path), True, 3)
    held[0] = 1
    assert x.tolist() == [1, 8, 9] and held.filename == str(path) and held.is_shared()


def test_files_that_do_not_do(tmp_path):
    with pytest.raises(RuntimeError, match="No such file"):
        torch.UntypedStorage.from_file(str(tmp_path / "none"), False, 4)
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(RuntimeError, match="size <3> is smaller than the required mapping size <4>"):
        torch.UntypedStorage.from_file(str(tmp_path / "short"), False, 4)
    with pytest.raises(RuntimeError, match="derived classes"):
        torch.TypedStorage.from_file(str(tmp_path / "short"), False, 1)


def test_parts_of_a_file(tmp_path):
    """Checkpoints are read through them: their tensors are recorded as others, and keep their writes to themselves."""
    path = tmp_path / "numbers"
    np.arange(64, dtype=np.uint8).tofile(path)
    held = torch.UntypedStorage.from_file(str(path), False, 64)
    first, other = (torch.asarray(held[a:b], dtype=torch.uint8) for a, b in ((8, 16), (16, 24)))
    assert not first._storage.exported and torch.asarray(held[8:16], dtype=torch.uint8)._storage is first._storage
    over = torch.asarray(held[12:20], dtype=torch.uint8)
    odd = torch.asarray(held[33:37], dtype=torch.uint8).view(torch.int32)
    later = over + 1
    first.fill_(0), other.fill_(0)
    assert later.tolist() == list(range(13, 21)) and over.tolist() == list(range(12, 20))
    assert odd.item() == int.from_bytes(bytes(range(33, 37)), sys.byteorder)


# --- elements -------------------------------------------------------------------------------------------------------


def test_the_warning_comes_once():
    typed_storage._reset_warn_typed_storage_removal()
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        held = torch.ones(2).storage()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert held.tolist() == [1, 1]


def test_elements_of_a_tensor():
    x = torch.arange(4.0)
    held = x[1:].storage()
    assert held.tolist() == [0, 1, 2, 3] and held.dtype is torch.float32 and len(held) == 4 and held.nbytes() == 16
    held[1] = 9
    held[2:] = 5
    assert x.tolist() == [0, 9, 5, 5] and held[1] == 9.0
    assert held.untyped() == x.untyped_storage() and held == x.storage() and held.data_ptr() == x.data_ptr()
    held.copy_(torch.FloatStorage([1, 2, 3, 4]))
    assert x.tolist() == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="slices are only supported in UntypedStorage"):
        held[1:]


def test_classes_by_dtype():
    assert isinstance(torch.ones(2).storage(), torch.FloatStorage)
    assert not isinstance(torch.ones(2).storage(), torch.DoubleStorage)
    assert torch.FloatStorage([1, 2]).tolist() == [1, 2] and torch.LongStorage(3).size() == 3
    assert torch.ones(2).storage_type() is torch.FloatStorage and torch.FloatStorage([1]).type() == "torch.FloatStorage"
    assert torch.FloatStorage([1.5]).double().dtype is torch.float64
    assert torch.TypedStorage([1, 2], dtype=torch.uint16).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="Too many positional arguments"):
        torch.FloatStorage(2, 3)
    with pytest.raises(RuntimeError, match="cannot be specified"):
        torch.FloatStorage(2, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="got type Double"):
        torch.tensor([]).set_(torch.DoubleStorage([1]))
    assert torch.tensor([]).set_(torch.FloatStorage([1, 2, 3]), 1, (2,)).tolist() == [2, 3]
    assert torch.FloatTensor(torch.FloatStorage([1, 2])).tolist() == [1, 2]


def test_size_counts_the_elements():
    small, large = torch.ones(1), torch.ones(1001)
    for held in (lambda t: t.untyped_storage(), lambda t: t.storage()):
        assert sys.getsizeof(held(large)) - sys.getsizeof(held(small)) == 4000


@pytest.mark.parametrize("shared", [True, False])
def test_saved(shared):
    x = torch.arange(3.0)
    file = io.BytesIO()
    torch.save({"typed": x.storage(), "bytes": x.untyped_storage(), "tensor": x if shared else x + 1}, file)
    file.seek(0)
    found = torch.load(file)
    assert found["typed"].dtype is torch.float32 and found["typed"].tolist() == [0, 1, 2]
    assert found["bytes"] == found["typed"].untyped()
    assert (found["tensor"].untyped_storage() == found["bytes"]) is shared
