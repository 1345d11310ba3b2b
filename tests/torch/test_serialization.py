"""Files go both ways between Flambeau and PyTorch, and between Flambeau and the safetensors library."""

import collections
import io
import json
import os
import types
import zipfile

import numpy as np
import pytest

real = pytest.importorskip("torch")

import flambeau
from flambeau import safetensors as ours, serialization
from flambeau.compat import _C as private

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128"]
WAYS = {"zip": {}, "older": {"_use_new_zipfile_serialization": False},
        **{f"protocol {n}": {"pickle_protocol": n} for n in (3, 4, 5)}}


def bits(tensor):
    """A tensor of either kind as bytes, in row-major order."""
    kind = real if isinstance(tensor, real.Tensor) else flambeau
    flat = tensor.detach().contiguous().reshape(-1)
    return (flat.view(kind.int16) if tensor.dtype == kind.bfloat16 else flat).numpy().tobytes()


def same(a, b):
    """Whether two structures, of one library or of both, hold the same."""
    if isinstance(a, (real.Tensor, flambeau.Tensor)):
        assert isinstance(b, (real.Tensor, flambeau.Tensor)) and type(a).__name__ == type(b).__name__
        assert (str(a.dtype), tuple(a.shape), a.stride(), a.storage_offset(), a.requires_grad, str(a.device)) == \
            (str(b.dtype), tuple(b.shape), b.stride(), b.storage_offset(), b.requires_grad, str(b.device))
        assert a.device.type == "meta" or bits(a) == bits(b)
        assert a.untyped_storage().nbytes() == b.untyped_storage().nbytes()
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for key in a:
            same(a[key], b[key])
        same(getattr(a, "_metadata", None), getattr(b, "_metadata", None))
    elif isinstance(a, (list, tuple)):
        assert type(a).__name__ == type(b).__name__ and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, (real.dtype, flambeau.dtype, real.device, flambeau.device, real.layout, flambeau.layout)):
        assert str(a) == str(b)
    else:
        assert type(a) is type(b) and a == b


def structure(torch):
    """Everything that a checkpoint is made of, in either library."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3, bias=False))
    model[2].weight = torch.nn.Parameter(model[0].weight.detach()[:, :3])
    x = torch.arange(24.0).view(2, 3, 4)
    metadata = collections.OrderedDict([("b", 1), ("a", x)])
    metadata._metadata = {"version": 2}
    tagged = torch.nn.Parameter(torch.ones(2))
    tagged.role = "bias"
    noted = torch.ones(1)
    noted.note = [1, 2]
    return {
        "model": model.state_dict(), "parameters": list(model.parameters()), "ordered": metadata,
        "views": [x, x[1], x.permute(2, 0, 1), x[:, ::2, 1:], x[0, 0, :1].expand(7), x.flatten()[5:5]],
        "dtypes": {name: torch.tensor([[0, 1], [1, 0]]).to(getattr(torch, name)) for name in DTYPES},
        "odd": [torch.tensor(2.5), torch.zeros(0), torch.zeros(2, 0, 3), torch.ones(3, 3, requires_grad=True),
                torch.ones(2, requires_grad=True) * 2, torch.empty(3, 2, device="meta"), tagged, noted],
        "plain": [None, True, 0, -1, 255, 256, 70_000, -2**31, 2**40, -2**70, 2.5, float("inf"), "text", "grün", "",
                  b"\0\xff", b"", bytearray(b"ab"), 1 - 2j, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}, {1, 2},
                  set(), collections.Counter("aab")],
        "kinds": [torch.float32, torch.bfloat16, torch.bool, torch.device("cpu"), torch.device("cuda:1"), torch.strided,
                  x.shape, torch.Size([])],
        5: {(1, "a"): x, None: 1, 2.5: 2, True: 3},
        "again": x,
    }


@pytest.mark.parametrize("how", WAYS)
def test_from_torch(how, tmp_path):
    thing = structure(real)
    if how.startswith("protocol"):
        del thing["ordered"]._metadata
    path = tmp_path / "x.pt"
    real.save(thing, path, **WAYS[how])
    back = flambeau.load(path)
    same(thing, back)
    assert back["views"][0] is back["again"] is back["ordered"]["a"]
    back["again"][1, 0, 0] = -1.0
    assert back["views"][1][0, 0].item() == back["views"][2][0, 1, 0].item() == -1.0
    assert back["odd"][-2].role == "bias" and back["odd"][-1].note == [1, 2]
    with open(path, "rb") as file:
        same(thing["dtypes"], flambeau.load(file)["dtypes"])
    if how != "older":
        mapped = flambeau.load(path, mmap=True)
        mapped["again"][0] = 5.0
        same(thing, flambeau.load(path, mmap=True, verify=True))


def test_to_torch(tmp_path):
    thing = structure(flambeau)
    path = tmp_path / "x.pt"
    flambeau.save(thing, path)
    back = real.load(path, weights_only=True)
    same(thing, back)
    assert back["views"][0] is back["again"]
    back["again"][1, 0, 0] = -1.0
    assert back["views"][1][0, 0].item() == back["views"][2][0, 1, 0].item() == -1.0
    assert back["odd"][-2].role == "bias" and back["odd"][-1].note == [1, 2]
    same(thing["dtypes"], real.load(path, mmap=True)["dtypes"])
    same(thing, real.load(path, weights_only=False))
    with open(path, "rb") as file:
        same(thing["dtypes"], real.load(io.BytesIO(file.read()))["dtypes"])
    from torch.utils.serialization import config
    with config.patch("load.calculate_storage_offsets", True):       # without reading the headers of the records
        same(thing["dtypes"], real.load(path, mmap=True)["dtypes"])
    assert real.serialization.get_unsafe_globals_in_checkpoint(path) == []
    again = tmp_path / "y.pt"
    real.save(back, again)
    same(real.load(again, weights_only=False), flambeau.load(again))     # PyTorch's weights_only takes no b""


def test_the_records_are_pytorchs(tmp_path):
    names = {}
    for torch in (real, flambeau):
        path = tmp_path / f"{torch.__name__}.pt"
        torch.save({"a": torch.ones(3), "b": [torch.zeros(2), 1]}, path)
        with zipfile.ZipFile(path) as file:
            names[torch] = [(info.filename.partition("/")[2], info.flag_bits, info.date_time)
                            for info in file.infolist()]
            small = [file.read(f"{torch.__name__}/{name}") for name in ("version", "byteorder", ".format_version",
                                                                       ".storage_alignment", "data/0")]
        names[torch].append(small)
    assert [entry for entry in names[flambeau] if entry[0] != ".flambeau/checksums"] == names[real]


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_several_dtypes_over_one_storage():
    """PyTorch refuses to save these; it can load them all the same."""
    x = flambeau.arange(4.0)
    file = io.BytesIO()
    flambeau.save({"f": x, "i": x.view(flambeau.int32), "bytes": x.view(flambeau.uint8), "s": x.untyped_storage()},
                  file)
    file.seek(0)
    back = real.load(file)
    assert bits(back["f"]) == bits(back["i"]) == bits(back["bytes"]) == bits(x)
    assert len({back[key].untyped_storage().data_ptr() for key in ("f", "i", "bytes")} | {back["s"].data_ptr()}) == 1


def test_lazy_conjugates():
    x = real.tensor([[1 + 2j, 3 - 1j]])
    file = io.BytesIO()
    real.save({"conj": x.conj(), "neg": x.clone().conj().imag, "plain": x}, file)
    file.seek(0)
    back = flambeau.load(file)
    assert back["conj"].tolist() == [[1 - 2j, 3 + 1j]] and back["neg"].tolist() == [[-2.0, 1.0]]
    assert back["plain"].tolist() == x.tolist()
    file = io.BytesIO()
    real.save(x.conj(), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    with pytest.raises(serialization.NotSupported, match="resolve_conj"):
        flambeau.load(file)


def test_files_written_without_crcs():
    real.serialization.set_crc32_options(False)
    try:
        file = io.BytesIO()
        real.save({"w": real.arange(5.0)}, file)
    finally:
        real.serialization.set_crc32_options(True)
    file.seek(0)
    assert flambeau.load(file)["w"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_damaged_file_of_torchs_names_the_tensor():
    file = io.BytesIO()
    real.save({"net": {"w": real.full((20,), 3.0)}, "list": [real.full((7,), 5.0)]}, file)
    data = file.getvalue()
    at = data.index(np.full(7, 5.0, np.float32).tobytes())
    with pytest.raises(serialization.FileError, match=r"tensor 'list\[0\]' is damaged"):
        flambeau.load(io.BytesIO(data[:at] + b"\1" + data[at + 1:]))


def test_optimizers(tmp_path):
    """The state of a training run, from either library into the other."""
    def trained(torch):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().sum().backward()
            optimizer.step()
        return model, optimizer
    for torch, other in ((real, flambeau), (flambeau, real)):
        model, optimizer = trained(torch)
        path = tmp_path / "run.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
        back = other.load(path)
        fresh = other.nn.Linear(3, 2)
        tuned = other.optim.Adam(fresh.parameters())
        fresh.load_state_dict(back["model"])
        tuned.load_state_dict(back["optimizer"])
        same(model.state_dict(), fresh.state_dict())
        same(optimizer.state_dict(), tuned.state_dict())
        for one, two, library in ((model, optimizer, torch), (fresh, tuned, other)):
            two.zero_grad()
            one(library.ones(4, 3)).square().sum().backward()
            two.step()
        np.testing.assert_allclose(model.weight.detach().numpy(), fresh.weight.detach().numpy(), rtol=1e-5)


# --- what is refused --------------------------------------------------


def test_whole_modules():
    file = io.BytesIO()
    real.save(real.nn.Sequential(real.nn.Linear(2, 2), real.nn.ReLU()), file)
    names = real.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(file.getvalue()))
    assert set(serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(file.getvalue()))) == set(names)
    for weights_only in (None, True):
        with pytest.raises(serialization.FileError,
                           match="torch.nn.modules.container.Sequential.*state_dict") as caught:
            flambeau.load(io.BytesIO(file.getvalue()), weights_only=weights_only)
    assert all(name in str(caught.value) for name in names)
    nn = flambeau.nn
    with serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU]):
        back = flambeau.load(io.BytesIO(file.getvalue()))
    expected = real.load(io.BytesIO(file.getvalue()), weights_only=False)
    x = [[0.5, -1.5]]
    np.testing.assert_allclose(back(flambeau.tensor(x)).detach().numpy(), expected(real.tensor(x)).detach().numpy(),
                               rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_module_of_ours_in_torch():
    file = io.BytesIO()
    flambeau.save(flambeau.nn.Linear(2, 2), file)
    names = real.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(file.getvalue()))
    assert names == ["torch.nn.modules.linear.Linear"]


@pytest.mark.filterwarnings("ignore")
def test_other_archives(tmp_path):
    scripted = tmp_path / "script.pt"
    real.jit.save(real.jit.script(real.nn.ReLU()), scripted)
    with pytest.raises(serialization.NotSupported, match="TorchScript"):
        flambeau.load(scripted)
    for thing, words in ((real.ones(2).to_sparse(), "sparse"), (real.ones(2, dtype=real.complex32), "complex32"),
                         (real.quantize_per_tensor(real.ones(2), 0.1, 0, real.qint8), "QInt8|quantised"),
                         (real.empty(2, dtype=real.bits8), "bits8")):
        file = io.BytesIO()
        real.save({"x": thing}, file)
        file.seek(0)
        with pytest.raises(serialization.FileError, match=words):
            flambeau.load(file)


class Point:
    def __init__(self):
        self.x = 1


def outcome(torch, call):
    try:
        return call(torch)
    except Exception as error:
        return error


def located(torch, location):
    file = io.BytesIO()
    torch.save({"w": torch.ones(3)}, file)
    with zipfile.ZipFile(file) as old:
        records = {name: old.read(name) for name in old.namelist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name, data in records.items():
            if name.endswith("data.pkl"):
                data = data.replace(b"X\3\0\0\0cpu", b"X" + len(location).to_bytes(4, "little") + location.encode())
            if "checksums" not in name:
                new.writestr(name, data)
    out.seek(0)
    return out


def strange(torch):
    file = io.BytesIO()
    torch.save({"p": Point()}, file)
    file.seek(0)
    return file


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call, words", [
    (lambda t: t.load(io.BytesIO(b"")), ""),
    (lambda t: t.load(io.BytesIO(b"PK\3\4" + bytes(60))), "failed finding central directory"),
    (lambda t: t.load(located(t, "cuda:0")), "map_location=torch.device('cpu') to map your storages to the CPU."),
    (lambda t: t.load(located(t, "nowhere")),
     "don't know how to restore data location of torch.storage.UntypedStorage (tagged "
                                              "with nowhere)"),
    (lambda t: t.load(located(t, "cuda:0"), map_location="cpu"), None),
    (lambda t: t.load(located(t, "cuda:3"), map_location={"cuda:3": "cpu"}), None),
    (lambda t: t.load(located(t, "cuda:3"), map_location={"cuda:2": "cpu"}), "Attempting to deserialize object on"),
    (lambda t: t.load(located(t, "cuda:3"), map_location=lambda storage, where: storage), None),
    (lambda t: t.load(located(t, "cuda:3"), map_location=lambda storage, where: None),
     "Attempting to deserialize object on"),
    (lambda t: t.load(located(t, "cuda:3"), map_location="meta"), None),
    (lambda t: t.load(located(t, "cpu"), map_location=t.device("meta")), None),
    (lambda t: t.load(located(t, "cpu"), map_location=7), "is not callable"),
    (lambda t: t.load(strange(t)),
     "Unsupported global: GLOBAL tests.torch.test_serialization.Point was not an allowed global"),
    (lambda t: t.load(strange(t), weights_only=True),
     "torch.serialization.add_safe_globals([tests.torch.test_serialization.Point])"),
    (lambda t: t.load("/does/not/exist.pt"), "No such file"),
    (lambda t: t.save(1, "/does/not/exist.pt"), "Parent directory /does/not does not exist."),
    (lambda t: t.load(located(t, "cpu"), mmap=True), "f must be a file path in order to use the mmap argument"),
    (lambda t: t.load(7), "You can only torch.load from a file that is seekable."),
    (lambda t: t.save(1, 7), "expected 'f' to be string, path, or a file-like object with a 'write' attribute"),
    (lambda t: t.save(1), "missing 1 required positional argument: 'f'"),
    (lambda t: t.serialization.add_safe_globals([(Point,)]) or t.load(strange(t)), "Expected tuple of length 2"),
    (lambda t: t.serialization.set_default_load_endianness("x"),
     "Invalid argument type in function set_default_load_endianness"),
], ids=lambda part: part if isinstance(part, str) else "")
def test_the_same_outcome(call, words):
    try:
        theirs, mine = outcome(real, call), outcome(flambeau, call)
    finally:
        real.serialization.clear_safe_globals()
        serialization.clear_safe_globals()
    if isinstance(theirs, Exception):
        assert isinstance(mine, type(theirs)), repr(mine)
        assert words in str(theirs) and words in str(mine), f"{theirs}\n{mine}"
    else:
        same(theirs, mine)


def test_trusted_classes(tmp_path):
    """Objects of a class of the user's, and NumPy's scalars, cross when they are declared to be trusted."""
    from numpy._core.multiarray import scalar
    trusted = [Point, scalar, np.dtype, type(np.dtype(np.float64))]
    for torch, other in ((real, flambeau), (flambeau, real)):
        path = tmp_path / "x.pt"
        point = Point()
        point.w = torch.ones(2)
        with pytest.warns(UserWarning) if torch is flambeau else pytest.MonkeyPatch.context():
            torch.save({"p": point, "loss": np.float64(0.25)}, path)
        assert set(other.serialization.get_unsafe_globals_in_checkpoint(path)) \
            == set(torch.serialization.get_unsafe_globals_in_checkpoint(path))
        with other.serialization.safe_globals(trusted):
            back = other.load(path)
        assert back["p"].x == 1 and back["p"].w.tolist() == [1.0, 1.0] and back["loss"] == 0.25


def test_public_names():
    constants = ["DEFAULT_PROTOCOL", "INT_SIZE", "IS_WINDOWS", "LONG_SIZE", "MAGIC_NUMBER", "PROTOCOL_VERSION",
                 "SHORT_SIZE", "STORAGE_KEY_SEPARATOR"]
    assert not {name for name in real.serialization.__all__ if not hasattr(serialization, name)}
    assert [getattr(serialization, name) for name in constants] \
        == [getattr(real.serialization, name) for name in constants]


def test_helpers():
    found = []
    for torch in (flambeau, real):
        s = torch.serialization
        FloatStorage = type("FloatStorage", (), {"__module__": "torch.cuda"})
        assert s.normalize_storage_type(FloatStorage) is torch.FloatStorage
        assert s._get_layout("torch.strided") is torch.strided
        assert s.StorageType("HalfStorage").dtype is torch.float16
        with s.mkdtemp() as folder:
            assert os.path.isdir(folder)
        assert not os.path.exists(folder)
        version = types.SimpleNamespace(__name__="m", __version__="1.2.3")
        found.append([s.check_module_version_greater_or_equal(version, (1, n)) for n in (1, 2, 3)])
        version.__version__ = "new"
        with pytest.raises(RuntimeError, match="malformed"):
            s.check_module_version_greater_or_equal(version, (1, 2))
        with pytest.raises(RuntimeError, match="CUDA"):
            s.validate_cuda_device("cuda:0")
        with pytest.raises(KeyError):
            s.StorageType("NoStorage")
    assert found[0] == found[1] == [True, True, False]


def test_storage_base():
    for torch in (flambeau, real):
        assert isinstance(torch.ones(2).untyped_storage(), torch.StorageBase)
        assert not isinstance(torch.ones(2), torch.StorageBase)
        with pytest.raises(RuntimeError, match="Cannot directly construct StorageBase"):
            torch.StorageBase(3)
    assert private.StorageBase is flambeau.StorageBase


# --- safetensors --------------------------------------------------


library = pytest.importorskip("safetensors")
theirs = pytest.importorskip("safetensors.torch")


def tensors(torch):
    return {"w": torch.arange(12.0).view(3, 4), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
            "é ü": torch.ones(1),
            **{name: torch.tensor([[0, 1], [1, 0]]).to(getattr(torch, name))
               for name in DTYPES if name != "complex128"}}


def test_safetensors_both_ways(tmp_path):
    path = tmp_path / "x.safetensors"
    ours.save_file(tensors(flambeau), path, {"who": "me"})
    back = theirs.load_file(path)
    same(dict(sorted(tensors(flambeau).items())), dict(sorted(back.items())))
    same(dict(sorted(tensors(flambeau).items())), dict(sorted(theirs.load(path.read_bytes()).items())))
    with library.safe_open(path, "pt") as file, ours.safe_open(path) as mine:
        assert file.metadata()["who"] == "me" and mine.metadata() == {"who": "me"}
        assert sorted(file.keys()) == mine.keys() and file.offset_keys() == mine.offset_keys()
        assert file.get_slice("w")[1:, :2].tolist() == mine.get_slice("w")[1:, :2].tolist()
        assert file.get_slice("w").get_shape() == mine.get_slice("w").get_shape()
        assert file.get_slice("w").get_dtype() == mine.get_slice("w").get_dtype()
    theirs.save_file(tensors(real), path, {"who": "them"})
    same(dict(sorted(tensors(real).items())), dict(sorted(ours.load_file(path).items())))
    with ours.safe_open(path) as file:
        assert file.metadata() == {"who": "them"}
    assert set(ours.load(theirs.save(tensors(real)))) == set(tensors(real))


def test_the_same_layout():
    """But for our two notes, the same header and the same bytes."""
    def parts(data):
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        return header, data[8 + size:]
    assert parts(ours.save(tensors(flambeau))) == parts(theirs.save(tensors(real)))


@pytest.mark.parametrize("make", [
    lambda t: {"a": (x := t.arange(4.0))[:3], "b": x[2:]}, lambda t: {"a": t.ones(2, 3).t()}, lambda t: {"a": 3},
    lambda t: {1: t.ones(1)}, lambda t: [t.ones(1)], lambda t: {"a": t.ones(1, dtype=t.complex128)}])
def test_the_same_refusals(make):
    results = [outcome(torch, lambda torch: library.save(make(torch))) for torch,
               library in ((real, theirs), (flambeau, ours))]
    assert isinstance(results[0], Exception) and isinstance(results[1], type(results[0]))


def tied(torch):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def test_models_with_shared_weights(tmp_path):
    path = tmp_path / "m.safetensors"
    model, other = tied(flambeau), tied(real)
    ours.save_model(model, path)
    assert theirs.load_model(other, path) == (set(), [])
    same(model.state_dict(), other.state_dict())
    model = tied(flambeau)
    theirs.save_model(other, path)
    assert ours.load_model(model, path) == (set(), [])
    same(model.state_dict(), other.state_dict())
    assert set(ours.load_file(path)) == set(theirs.load_file(path))
