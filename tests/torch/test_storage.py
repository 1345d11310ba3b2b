"""Storages beside PyTorch's: what they are, hold, print and refuse; files with storages in them, both ways."""
import io
import pickle
import sys

import pytest

torch = pytest.importorskip("torch")

import flambeau as fb
from tests.torch.harness import Raised, attempt

pytestmark = pytest.mark.filterwarnings("ignore")

CALLS = """
sys.getsizeof(u); sys.getsizeof(ty); sys.getsizeof(lib.UntypedStorage(0)); sys.getsizeof(lib.FloatStorage(0))
lib.UntypedStorage([1, 2, 300]); lib.UntypedStorage(3, device="meta"); lib.UntypedStorage("x"); lib.UntypedStorage(-1)
u[2]; u[-1]; u[1:3]; u[0:6:2]; u[100]; u["a"]; u.type(); u.get_device(); u.resizable(); u.filename; u.is_shared()
u.nbytes(); len(u); u.element_size(); u.is_pinned(); u.float(); u.bool(); u.new(); u == u; u.tolist(); list(u)
u.to(device="cpu") is u; u.untyped() is u; u.copy_(lib.UntypedStorage(3)); u.clone() == u; lib.is_storage(u)
ty; ty.dtype; ty.type(); ty[1]; ty[-1]; ty[1:3]; ty["a"]; ty[7]; ty.tolist(); ty.size(); ty.nbytes(); len(ty)
ty.element_size(); ty.double(); ty.int(); ty.float8_e4m3fn(); ty.untyped(); ty.cpu(); ty.is_pinned(); ty.is_cuda
ty.pickle_storage_type(); lib.is_storage(ty); lib.typename(u); lib.typename(ty); ty.clone(); ty == ty
lib.FloatStorage; lib.FloatStorage.dtype; isinstance(ty, lib.FloatStorage); isinstance(ty, lib.DoubleStorage)
lib.FloatStorage(3).size(); lib.FloatStorage([1, 2]); lib.FloatStorage(2, 3); lib.FloatStorage("ab")
lib.FloatStorage(device="cpu"); lib.FloatStorage({}); lib.TypedStorage([1, 2], dtype=lib.int64); lib.TypedStorage(3, 4)
lib.TypedStorage(wrap_storage=u, dtype=lib.int16); lib.TypedStorage(wrap_storage=u); lib.storage._LegacyStorage()
lib.TypedStorage(wrap_storage=3, dtype=lib.int16)
lib.UntypedStorage.from_buffer(b"abcdefgh", dtype=lib.uint8); lib.UntypedStorage.from_buffer(b"abcdefgh")
lib.UntypedStorage.from_buffer(b"abcdefgh", "little", dtype=lib.int16)
lib.UntypedStorage.from_buffer(b"abcdefgh", "big", dtype=lib.int16)
lib.UntypedStorage.from_buffer(b"abcdefgh", dtype=lib.int16)
lib.UntypedStorage.from_buffer(b"abcdefgh", "little", 2, 4, dtype=lib.int16)
lib.UntypedStorage.from_buffer(b"abcdefgh", "little", 5, 0, dtype=lib.int16)
lib.UntypedStorage.from_buffer(b"abc", "little", dtype=lib.int16)
lib.ByteStorage.from_buffer(b"abc"); lib.FloatStorage.from_buffer(b"abcdefgh", "little")
lib.FloatStorage.from_buffer(b"abcdefgh", "little", dtype=lib.int8)
lib.tensor([]).set_(lib.FloatStorage([1, 2, 3])); lib.tensor([]).set_(lib.FloatStorage([1, 2, 3]), 1, (2,))
lib.tensor([]).set_(lib.DoubleStorage([1, 2, 3])); lib.tensor([], dtype=lib.int16).set_(u)
lib.tensor([]).set_(lib.FloatStorage([1, 2, 3]), 2, (2,))[0]; lib.tensor([]).set_(lib.FloatStorage([1]), 2, (2,)).shape
lib.tensor([]).set_(lib.FloatStorage([1, 2, 3]), 0, (2,), (2,))
lib.FloatTensor(lib.FloatStorage([1, 2])); lib.Tensor(lib.FloatStorage([1, 2])); lib.FloatTensor(lib.DoubleStorage([1]))
lib.asarray(u, dtype=lib.uint8); lib.asarray(ty); lib.asarray(u, dtype=lib.int32)
lib.ones(2, device="meta").storage(); lib.ones(2, dtype=lib.uint16).storage(); lib.ones(2)._typed_storage().dtype
lib.ones(2).storage_type(); lib.ones(2, dtype=lib.int8).storage_type(); ty.resize_(8); ty.size(); ty.fill_(3)
ty.copy_(lib.IntStorage(range(8))); u.byteswap(lib.int16); u.tolist(); u.fill_(7); u.resize_(4).tolist()
lib.UntypedStorage.from_file(path, False, 8); lib.UntypedStorage.from_file(path, False, 80)
lib.UntypedStorage.from_file(path + "none", False, 8); lib.FloatStorage.from_file(path, False, 2)
lib.TypedStorage.from_file(path, False, 2); len(lib.UntypedStorage.from_file(path, False, 0))
lib.UntypedStorage.from_file(path, True, 8).filename; lib.from_file(path, size=4, dtype=lib.int16)
"""


def answers(lib, path):
    """What each call gives: the text of the result, or the type of the error."""
    scope = {"lib": lib, "sys": sys, "path": path, "u": lib.arange(6, dtype=lib.int16).untyped_storage(),
             "ty": lib.arange(6.0).storage()}
    found = []
    for call in CALLS.replace("\n", ";").split(";"):
        if call.strip():
            got = attempt(lambda call=call: eval(call.strip(), scope))
            found.append((call.strip(), type(got.error).__name__ if isinstance(got, Raised) else repr(got)))
    return found


def test_calls(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(32)))
    want = answers(torch, str(path))
    different = [(mine, their) for mine, their in zip(answers(fb, str(path)), want, strict=True) if mine != their]
    assert not different


def test_the_warning():
    fb.storage._reset_warn_typed_storage_removal()
    torch.storage._reset_warn_typed_storage_removal()
    with pytest.warns(UserWarning) as mine:
        fb.ones(2).storage()
    with pytest.warns(UserWarning) as theirs:
        torch.ones(2).storage()
    assert [str(w.message) for w in mine] == [str(w.message) for w in theirs]


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "complex64", "float64"])
@pytest.mark.parametrize("new", [True, False])
def test_files_of_pytorch(dtype, new):
    given = torch.arange(4).to(getattr(torch, dtype))
    file = io.BytesIO()
    torch.save({"typed": given.storage(), "tensor": given}, file, _use_new_zipfile_serialization=new)
    file.seek(0)
    found = fb.load(file)
    assert found["typed"].dtype is getattr(fb, dtype) and found["typed"].tolist() == given.tolist()
    assert found["typed"].untyped() == found["tensor"].untyped_storage()


def test_files_of_ours():
    given = fb.arange(4.0)
    file = io.BytesIO()
    fb.save({"typed": given.storage(), "bytes": given.clone().untyped_storage()}, file)
    file.seek(0)
    found = torch.load(file)
    assert found["typed"].dtype is torch.float32 and found["typed"].tolist() == [0, 1, 2, 3]
    assert found["bytes"].tolist() == given.untyped_storage().tolist()


@pytest.mark.parametrize("make", [lambda t: t.storage(), lambda t: t.untyped_storage()], ids=["typed", "untyped"])
def test_pickles_of_pytorch(make):
    """They hold a file of their own, read by `torch.storage._load_from_bytes`."""
    function, (data,) = make(torch.arange(3.0)).__reduce__()
    assert function.__name__ == "_load_from_bytes"
    assert fb.storage._load_from_bytes(data).tolist() == make(torch.arange(3.0)).tolist()
    assert pickle.loads(pickle.dumps(make(fb.arange(3.0)))).tolist() == make(torch.arange(3.0)).tolist()
