"""What is saved comes back: contents, kinds, views, sharing; the file is a zip archive as PyTorch writes them."""

import collections
import gzip
import io
import json
import mmap
import os
import pathlib
import pickle
import struct
import sys
import warnings
import zipfile
import zlib

import numpy as np
import pytest

import flambeau as torch
from flambeau import serialization
from tests.serialization import build

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128]


def there_and_back(thing, **how):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4)], ids=str)
def test_dtypes_and_shapes(dtype, shape):
    count = int(np.prod(shape))
    x = torch.tensor(np.arange(count).reshape(shape) % 3, dtype=torch.float64).to(dtype)
    y = there_and_back(x)
    assert y.dtype is dtype and y.shape == shape and y.stride() == x.stride()
    assert y.tolist() == x.tolist()


def test_plain_containers():
    Counter, OrderedDict = collections.Counter, collections.OrderedDict
    thing = {
        "none": None, "truth": [True, False],
        "ints": [0, 255, 256, 65535, 65536, -1, -2**31, 2**31, 2**63, -2**64, 10**600],
        "floats": [0.0, -0.0, 1e300, float("inf")], "complex": 1 - 2j, "text": "grün \ud800 \n\0" * 3,
        "bytes": bytes(range(256)),
        "bytearray": bytearray(b"\0\xff"), "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "set": {1, "a", (2, 3)},
        "frozen": frozenset({1, 2}), "ordered": OrderedDict([("b", 1), ("a", 2)]), "counts": Counter("abca"),
        1: "int key", (1, 2): "tuple key", 2.5: "float key", None: "none key",
        "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "gpu": torch.device("cuda", 1),
        "layout": torch.strided, "many": list(range(2500)), "wide": {str(n): n for n in range(2500)},
    }
    back = there_and_back(thing)
    assert back == thing
    assert list(back["ordered"]) == ["b", "a"] and type(back["ordered"]) is OrderedDict
    assert type(back["counts"]) is Counter and type(back["size"]) is torch.Size
    assert str(back["floats"][1]) == "-0.0" and type(back["bytearray"]) is bytearray
    assert back["dtype"] is torch.bfloat16 and back["layout"] is torch.strided
    assert np.isnan(there_and_back(float("nan")))


def test_views_share_their_storage_and_it_is_written_once(tmp_path):
    x = torch.arange(12.0).view(3, 4)
    path = tmp_path / "views.pt"
    torch.save({"x": x, "t": x.t(), "row": x[1], "step": x[:, ::2], "wide": x[0, :1].expand(5),
                "bits": x.view(torch.int32)},
               path)
    with zipfile.ZipFile(path) as file:
        assert [name for name in file.namelist() if "/data/" in name] == ["views/data/0"]
        assert file.read("views/data/0") == np.arange(12, dtype=np.float32).tobytes()
    back = torch.load(path)
    back["x"][1, 2] = 100.0
    assert back["t"][2, 1].item() == back["row"][2].item() == back["step"][1, 1].item() == 100.0
    assert back["wide"].stride() == (0,) and back["wide"].shape == (5,)
    assert back["row"].storage_offset() == 4 and back["step"].stride() == (4, 2)
    assert back["bits"].dtype is torch.int32
    assert back["bits"][1, 2].item() == struct.unpack("<i", struct.pack("<f", 100.0))[0]


def test_copies_that_still_share_their_contents_are_two():
    x = torch.ones(3)
    y = x.clone()                                    # free until somebody writes
    back = there_and_back([x, y])
    back[0].zero_()
    assert back[1].tolist() == [1.0, 1.0, 1.0]


def test_one_object_twice_is_one_object():
    x, inner = torch.ones(2), [1]
    back = there_and_back([x, x, inner, inner])
    assert back[0] is back[1] and back[2] is back[3]


def test_cycles_and_depth():
    ring: list = [1]
    ring.append({"ring": ring, "pair": (ring, 2)})
    back = there_and_back(ring)
    assert back[1]["ring"] is back and back[1]["pair"][0] is back
    knot: tuple = ([],)
    knot[0].append(knot)
    assert (back := there_and_back(knot))[0][0] is back
    held = Holder()
    held.all = {held}
    with pytest.warns(UserWarning, match="Holder"):
        file = io.BytesIO()
        torch.save(held, file)
    with serialization.safe_globals([Holder]):
        back = load_bytes(file.getvalue())
    assert back.all == {back}
    p = torch.nn.Parameter(torch.ones(1))
    p.owner = {"p": p}
    assert (back := there_and_back(p)).owner["p"] is back
    with pytest.raises(pickle.PicklingError, match="a Loop that is made from itself"):
        torch.save([Loop()], io.BytesIO())
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    back = there_and_back(deep)
    depth = 0
    while back:
        back, depth = back[0], depth + 1
    assert depth == 20_000


def test_parameters_and_grad():
    p = torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    leaf = torch.ones(2, requires_grad=True)
    back = there_and_back([p, frozen, leaf, leaf * 2])
    assert [type(t).__name__ for t in back] == ["Parameter", "Parameter", "Tensor", "Tensor"]
    assert [t.requires_grad for t in back] == [True, False, True, True]
    assert all(t.is_leaf for t in back) and back[3].tolist() == [2.0, 2.0]
    (back[0] * back[2]).sum().backward()
    assert back[0].grad.tolist() == [1.0, 1.0]


def test_attributes_of_tensors():
    x, p = torch.ones(2), torch.nn.Parameter(torch.ones(2))
    x.note, p.role = "hello", {"kind": 3}
    back = there_and_back([x, p])
    assert back[0].note == "hello" and back[1].role == {"kind": 3}
    assert type(back[1]) is torch.nn.Parameter


def test_a_module_and_its_state():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model(torch.ones(2, 3))
    back = there_and_back(model.state_dict())
    assert type(back) is collections.OrderedDict and list(back) == list(model.state_dict())
    assert back._metadata == model.state_dict()._metadata
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    other.load_state_dict(back)
    assert torch.equal(other[0].weight, model[0].weight) and other[1].num_batches_tracked.item() == 1


def test_what_was_only_recorded_is_computed():
    x = torch.ones(3)
    for _ in range(3):
        x = x * 2 + 1
    assert there_and_back({"x": x})["x"].tolist() == [15.0, 15.0, 15.0]


def test_loaded_tensors_are_like_any_other():
    w = there_and_back(torch.arange(6.0).view(2, 3))
    w.requires_grad_()
    (w @ torch.ones(3)).square().sum().backward()
    assert w.grad.tolist() == [[6.0] * 3, [24.0] * 3]
    with torch.no_grad():
        w -= 0.5 * w.grad
    assert w.tolist() == [[-3.0, -2.0, -1.0], [-9.0, -8.0, -7.0]]


def test_storages_themselves():
    x = torch.arange(3.0)
    back = there_and_back([x, x.untyped_storage()])
    assert back[1].nbytes() == 12 and back[1] == back[0].untyped_storage()


def test_storages_of_no_whole_number_of_elements():
    raw = torch.arange(10, dtype=torch.uint8)
    back = there_and_back([raw[:8].view(torch.float32), raw])
    assert back[0].shape == (2,) and back[1].tolist() == list(range(10))
    back[1].zero_()
    assert back[0].tolist() == [0.0, 0.0]


def test_meta_tensors():
    back = there_and_back(torch.empty(4, 5, device="meta", dtype=torch.float16).t())
    assert (back.is_meta, back.shape, back.stride(), back.dtype) == (True, (5, 4), (1, 5), torch.float16)


# --- the file --------------------------------------------------


def test_the_archive(tmp_path):
    path = tmp_path / "model.best.pt"
    x = torch.arange(5.0)
    torch.save({"net": {"w": x, "b": torch.zeros(2, dtype=torch.int16)}, "list": [x[1:]]}, path)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        names = [name.removeprefix("model.best/") for name in file.namelist()]
        assert names == ["data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "data/1",
                         ".flambeau/checksums", "version", ".data/serialization_id"]
        assert file.read("model.best/byteorder").decode() == sys.byteorder
        assert file.read("model.best/version") == b"3\n"
        assert len(file.read("model.best/.data/serialization_id")) == 40
        for info in file.infolist():
            name_length, extra_length = struct.unpack_from("<HH", raw, info.header_offset + 26)
            assert (info.header_offset + 30 + name_length + extra_length) % 64 == 0 and info.compress_type == 0
        noted = json.loads(file.read("model.best/.flambeau/checksums"))
        assert noted["tensors"] == {"net.w": "data/0", "net.b": "data/1", "list[0]": "data/0"}
        assert noted["crc32"] == {name: zlib.crc32(file.read(f"model.best/{name}"))
                                  for name in ("data.pkl", "data/0", "data/1")}


def test_equal_contents_give_equal_files():
    def bytes_of(value):
        file = io.BytesIO()
        torch.save({"a": torch.full((3,), value), "b": [1, "x"]}, file)
        return file.getvalue()
    assert bytes_of(1.0) == bytes_of(1.0) != bytes_of(2.0)


def test_sizes_beyond_32_bits(monkeypatch):
    """With a lower limit, the fields for four gigabytes and more are used on small files."""
    monkeypatch.setattr("flambeau.serialization.archive.LIMIT32", 1000)
    file = io.BytesIO()
    from flambeau.serialization.archive import ArchiveWriter
    writer = ArchiveWriter(file.write, "a")
    writer.record("large", b"x" * 5000)
    writer.record("small", b"y" * 10)
    writer.close()
    raw = file.getvalue().replace(struct.pack("<I", 1000), b"\xff" * 4)        # what says "see the 64-bit field"
    with zipfile.ZipFile(io.BytesIO(raw)) as read:
        assert read.testzip() is None
        assert read.read("a/large") == b"x" * 5000 and read.read("a/small") == b"y" * 10
    monkeypatch.undo()
    from flambeau.serialization.archive import Archive, Source
    found = Archive(Source(io.BytesIO(raw)))
    assert bytes(found.read(found.records["a/large"])[0]) == b"x" * 5000
    assert bytes(found.read(found.records["a/small"])[0]) == b"y" * 10


def test_kinds_of_files(tmp_path):
    thing = {"w": torch.arange(3.0)}
    for path in (str(tmp_path / "a.pt"), tmp_path / "b.pt", tmp_path / ".hidden", tmp_path / "ünicode.pt"):
        torch.save(thing, path)
        assert torch.load(path)["w"].tolist() == [0.0, 1.0, 2.0]
    with open(tmp_path / "c.pt", "wb") as file:
        torch.save(thing, file)
    with open(tmp_path / "c.pt", "rb") as file:
        assert torch.load(file)["w"].tolist() == [0.0, 1.0, 2.0]
    with gzip.open(tmp_path / "d.gz", "wb") as file:
        torch.save(thing, file)
    with gzip.open(tmp_path / "d.gz", "rb") as file:
        assert torch.load(file)["w"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(serialization.FileError, match="gzip"):
        torch.load(tmp_path / "d.gz")
    behind = io.BytesIO(b"12345")
    behind.seek(5)
    torch.save(thing, behind)
    behind.seek(5)
    assert torch.load(behind)["w"].tolist() == [0.0, 1.0, 2.0]

    class Reads:                                     # the least that a file has to do
        def __init__(self, data):
            self.file = io.BytesIO(data)
            self.read, self.seek, self.tell = self.file.read, self.file.seek, self.file.tell

    assert torch.load(Reads((tmp_path / "a.pt").read_bytes()))["w"].tolist() == [0.0, 1.0, 2.0]


def test_wrong_files(tmp_path):
    with pytest.raises(AttributeError, match="'write' attribute"):
        torch.save(1, 3)
    with pytest.raises(AttributeError,
                       match="'int' object has no attribute 'read'. You can only torch.load from a file"):
        torch.load(3)
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        torch.save(1, tmp_path / "no" / "where.pt")
    with pytest.raises(IsADirectoryError):
        torch.save(1, tmp_path)
    with pytest.raises(IsADirectoryError):
        torch.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "nothing.pt")
    with pytest.raises(TypeError, match="binary mode"):
        torch.load(io.StringIO("text"))
    reading, writing = os.pipe()
    with open(reading, "rb") as file, pytest.raises(OSError, match="You can only torch.load from a file that"):
        torch.load(file)
    os.close(writing)


def test_arguments():
    file = io.BytesIO()
    torch.save(1, file, pickle_module=pickle, pickle_protocol=4)
    file.seek(0)
    assert torch.load(file, None, pickle) == 1
    with pytest.raises(RuntimeError, match="Can not safely load weights when explicit pickle_module is specified"):
        torch.load(file, pickle_module=pickle, weights_only=True)
    with pytest.raises(ValueError, match="f must be a file path in order to use the mmap argument"):
        torch.load(file, mmap=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        torch.load(file, colour=3)
    with pytest.raises(NotImplementedError, match="before 1.6"):
        torch.save(1, file, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="pickle_protocol"):
        torch.save(1, file, pickle_protocol=9)


# --- mapped --------------------------------------------------


def test_mapped_tensors_are_copied_when_written(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.arange(1000.0).view(10, 100), "v": torch.ones(3, dtype=torch.float64)}, path)
    before = path.read_bytes()
    back = torch.load(path, mmap=True)
    w = back["w"]
    assert w[9, 99].item() == 999.0
    w += 1
    w[0, 0] = -5.0
    assert w.sum().item() == 999 * 1000 / 2 + 1000 - 6
    assert path.read_bytes() == before and torch.load(path)["w"][0, 0].item() == 0.0
    torch.save({"w": torch.zeros(1)}, path)          # the mapped file lives on without its name
    assert back["v"].tolist() == [1.0, 1.0, 1.0] and torch.load(path)["w"].tolist() == [0.0]
    (back["v"].requires_grad_() * 2).sum().backward()
    assert back["v"].grad.tolist() == [2.0, 2.0, 2.0]


def test_mapping_an_archive_that_does_not_align(tmp_path):
    path = tmp_path / "odd.pt"
    path.write_bytes(build.archive({"data.pkl": build.program(build.tensor()), "byteorder": b"little",
                                    "data/0": build.FLOATS},
                                   folder="odd"))
    assert torch.load(path, mmap=True).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_mapping_options():
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    with serialization.set_default_mmap_options(mmap.MAP_PRIVATE):
        pass
    with pytest.raises(NotImplementedError, match="memmap"):
        serialization.set_default_mmap_options(mmap.MAP_SHARED)
    with pytest.raises(ValueError, match="expected mmap.MAP_PRIVATE"):
        serialization.set_default_mmap_options(77)


# --- places --------------------------------------------------


def placed(location, count=4):
    return build.checkpoint(build.program(build.tensor(stored=build.storage(location=location))), _0=build.FLOATS)


def load_bytes(data, **how):
    return torch.load(io.BytesIO(data), **how)


@pytest.mark.parametrize("where", ["cpu", torch.device("cpu"), {"cuda:1": "cpu"}, lambda storage, location: storage,
                                   {"cuda:1": torch.device("cpu")}],
                         ids=["name", "device", "dict", "function", "dict of devices"])
def test_map_location_to_the_cpu(where):
    assert load_bytes(placed("cuda:1"), map_location=where).tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("where", ["meta", torch.device("meta"), {"cpu": "meta"}], ids=str)
def test_map_location_to_meta(where):
    found = load_bytes(placed("cpu"), map_location=where)
    assert found.is_meta and found.shape == (4,)


def test_map_location_functions():
    seen = []

    def where(storage, location):
        seen.append((type(storage), storage.nbytes(), storage.tolist()[:4], location))
    assert load_bytes(placed("cpu"), map_location=where).tolist() == [1.0, 2.0, 3.0, 4.0]     # None: the default
    assert seen == [(torch.UntypedStorage, 16, list(build.FLOATS[:4]), "cpu")]
    with pytest.raises(TypeError, match="is not callable"):
        load_bytes(placed("cpu"), map_location=3)


@pytest.mark.parametrize("location, words", [
    ("cuda:0",
     "Attempting to deserialize object on a CUDA device but torch.cuda.is_available\\(\\) is False.*map_location"),
    ("mps", "Attempting to deserialize object on a MPS device"),
    ("xpu:0", "don't know how to restore data location of torch.storage.UntypedStorage \\(tagged with xpu:0\\)")])
def test_places_that_are_not_here(location, words):
    with pytest.raises(RuntimeError, match=words):
        load_bytes(placed(location))


def test_registered_packages(monkeypatch):
    from flambeau.serialization import locations
    monkeypatch.setattr(locations, "_package_registry", list(locations._package_registry))
    serialization.register_package(5, lambda storage: "toy:0" if storage.nbytes() == 16 else None,
                                   lambda storage, location: storage if location == "toy:0" else None)
    x = torch.ones(4)
    assert serialization.location_tag(x.untyped_storage()) == "toy:0"
    assert serialization.location_tag(torch.ones(1).untyped_storage()) == "cpu"
    assert there_and_back(x).tolist() == [1.0] * 4


# --- byte order --------------------------------------------------


def test_files_of_the_other_byte_order():
    other = {"little": "big", "big": "little"}[sys.byteorder]
    swapped = np.frombuffer(build.FLOATS, "<f4").astype(">f4").tobytes()
    pickled = build.program(build.tensor())
    assert load_bytes(build.archive({"data.pkl": pickled, "byteorder": other.encode(), "data/0": swapped})).tolist() \
        == [1.0, 2.0, 3.0, 4.0]
    silent = build.archive({"data.pkl": pickled, "data/0": swapped})
    try:
        serialization.set_default_load_endianness(getattr(serialization.LoadEndianness, other.upper()))
        assert load_bytes(silent).tolist() == [1.0, 2.0, 3.0, 4.0]
    finally:
        serialization.set_default_load_endianness(None)
    assert load_bytes(silent).tolist() != [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(TypeError, match="set_default_load_endianness"):
        serialization.set_default_load_endianness("big")
    with pytest.raises(serialization.FileError, match="Unknown endianness type"):
        load_bytes(build.archive({"data.pkl": pickled, "byteorder": b"middle", "data/0": swapped}))


# --- PyTorch's format from before 1.6 --------------------------------------------------


def test_the_older_format():
    stored = build.storage().removesuffix(b"tQ") + b"NtQ"
    structure = build.program(b"}(", build.text("w"), build.tensor((2, 2), (1, 2), stored=stored), b"u")
    data = build.legacy(structure, ["0"], [(4, build.FLOATS)])
    assert load_bytes(data)["w"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    two = io.BytesIO(data + data)                   # one behind the other
    assert torch.load(two)["w"].shape == torch.load(two)["w"].shape == (2, 2)
    assert load_bytes(data, map_location="meta")["w"].is_meta
    cuda = build.legacy(structure.replace(build.text("cpu"), build.text("cuda:0")), ["0"], [(4, build.FLOATS)])
    assert load_bytes(cuda, map_location="cpu")["w"][0, 1].item() == 3.0


@pytest.mark.parametrize("change, words", [
    (dict(magic=7), "Invalid magic number"), (dict(version=3), "Invalid protocol version"),
    (dict(storages=[(4, build.FLOATS[:-1])]), "truncated"), (dict(storages=[(5, build.FLOATS)]), "should hold 4"),
    (dict(storages=[]), "truncated"), (dict(keys=["1"]), "not those that the file lists"),
    (dict(keys=[]), "not those that the file lists"), (dict(keys={}), "not those that the file lists")], ids=str)
def test_broken_files_of_the_older_format(change, words):
    structure = build.program(build.tensor(stored=build.storage().removesuffix(b"tQ") + b"NtQ"))
    made = build.legacy(**{"structure": structure, "keys": ["0"], "storages": [(4, build.FLOATS)], **change})
    with pytest.raises(serialization.FileError, match=words):
        load_bytes(made)


def test_mapping_the_older_format(tmp_path):
    path = tmp_path / "old.pt"
    structure = build.program(build.tensor(stored=build.storage().removesuffix(b"tQ") + b"NtQ"))
    path.write_bytes(build.legacy(structure, ["0"], [(4, build.FLOATS)]))
    assert torch.load(path).tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(RuntimeError, match="mmap can only be used with files saved with"):
        torch.load(path, mmap=True)


# --- classes that the user trusts --------------------------------------------------


class Settings:
    def __init__(self, depth):
        self.depth = depth

    def __eq__(self, other):
        return vars(self) == vars(other)


class Holder:
    pass


class Loop:
    def __reduce__(self):
        return Loop, ([self],)


class Slotted:
    __slots__ = ("a", "b")


class Stateful:
    def __getstate__(self):
        return {"kept": self.kept}

    def __setstate__(self, state):
        self.kept = state["kept"] + 1


class Tagged(torch.Tensor):
    pass


Point = collections.namedtuple("Point", "size w")


def strange(thing):
    """The bytes of a saved object that is not plain, and the warning that says so."""
    file = io.BytesIO()
    with pytest.warns(UserWarning, match="add_safe_globals"):
        torch.save(thing, file)
    return file.getvalue()


@pytest.fixture
def trust():
    yield serialization.safe_globals
    assert serialization.get_safe_globals() == []


def test_unknown_classes_are_refused_by_name():
    data = strange({"settings": Settings(3)})
    with pytest.raises(pickle.UnpicklingError,
                       match=r"Unsupported global: GLOBAL tests.serialization.test_saving.Settings was "
                                                     r"not an allowed global by default.*add_safe_globals\(\["):
        load_bytes(data)
    assert serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data)) == [f"{__name__}.Settings"]


def test_trusted_classes(trust):
    slotted, stateful = Slotted(), Stateful()
    slotted.a, slotted.b, stateful.kept = 1, [2], 5
    thing = {"settings": Settings(3), "point": Point(torch.Size([2]), torch.ones(2)), "slotted": slotted,
             "state": stateful,
             "deque": collections.deque([1, 2]), "default": collections.defaultdict(list, a=[1])}
    data = strange(thing)
    with trust([Settings, Point, Slotted, Stateful, collections.deque, collections.defaultdict, list]):
        back = load_bytes(data)
    assert back["settings"] == Settings(3) and back["slotted"].b == [2] and back["state"].kept == 6
    assert type(back["point"]) is Point and back["point"].size == (2,) and back["point"].w.tolist() == [1.0, 1.0]
    assert back["deque"] == thing["deque"] and back["default"]["new"] == []


def test_trusted_tensor_classes(trust):
    x = torch.ones(2).as_subclass(Tagged)
    x.tag = "seven"
    data = strange(x)
    with pytest.raises(serialization.FileError, match="Tagged"):
        load_bytes(data)
    with trust([Tagged]):
        back = load_bytes(data)
    assert type(back) is Tagged and back.tag == "seven" and back.tolist() == [1.0, 1.0]


def test_trust_under_another_name(trust):
    data = strange(Settings(1)).replace(b"test_saving\nSettings", b"old_place__\nSettings")
    with trust([(Settings, "tests.serialization.old_place__.Settings")]):
        assert load_bytes(data, verify=False) == Settings(1)


def test_the_list_of_trusted_classes():
    try:
        serialization.add_safe_globals([Settings, (Point, "elsewhere.Point")])
        assert serialization.get_safe_globals() == [Settings, (Point, "elsewhere.Point")]
        with serialization.safe_globals([Slotted]):
            assert Slotted in serialization.get_safe_globals()
        assert Slotted not in serialization.get_safe_globals()
    finally:
        serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []
    with pytest.raises(ValueError, match="Expected tuple of length 2"):
        serialization.add_safe_globals([(Settings,)])
    with pytest.raises(TypeError, match="str of callable full path"):
        serialization.add_safe_globals([(Settings, 3)])
    with pytest.raises(TypeError, match="classes and functions"):
        serialization.add_safe_globals([7])


def test_what_a_trusted_class_raises_is_the_files_fault(trust):
    data = build.checkpoint(build.program(b"ctests.serialization.test_saving\nPoint\n", b")\x81"))
    with trust([Point]), pytest.raises(serialization.FileError, match="making Point from what the .* TypeError"):
        load_bytes(data)


def test_arrays_of_numpy_when_trusted(trust):
    from numpy._core.multiarray import _reconstruct, scalar
    data = strange({"array": np.arange(6.0).reshape(2, 3), "scalar": np.float32(2.5)})
    with trust([_reconstruct, scalar, np.ndarray, np.dtype, type(np.dtype(np.float64)), type(np.dtype(np.float32))]):
        back = load_bytes(data)
    assert np.array_equal(back["array"], np.arange(6.0).reshape(2, 3)) and back["scalar"] == np.float32(2.5)


def test_whole_modules():
    data = strange({"model": torch.nn.Linear(2, 2)})
    for how in ({}, {"weights_only": True}):
        with pytest.raises(pickle.UnpicklingError, match="torch.nn.modules.linear.Linear.*save.*state_dict") as caught:
            load_bytes(data, **how)
    assert "weights_only=False" in str(caught.value)
    with serialization.safe_globals([torch.nn.Linear]):
        back = load_bytes(data)["model"]
    assert back(torch.zeros(1, 2)).tolist() == [back.bias.tolist()]


def test_files_that_are_trusted(tmp_path):
    """Everything comes back, whole modules with their optimizer too, and what the file names is called."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
    held = {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "rows": torch.arange(4.0).view(2, 2)}
    held["row"] = held["rows"][1]
    torch.save(held, tmp_path / "whole.pt")
    for options in ({}, {"mmap": True}, {"map_location": "cpu"}, {"pickle_module": pickle}):
        back = torch.load(tmp_path / "whole.pt", weights_only=False, **options)
        x = torch.ones(1, 2)
        assert back["model"](x).equal(model(x)) and not back["model"].training
        assert back["optimizer"].param_groups[0]["params"][0] is back["model"][0].weight
        back["row"].zero_()
        assert back["rows"].tolist() == [[0, 1], [0, 0]]


def test_trust_is_none_in_the_disk(tmp_path):
    """Checksums are compared, and sizes checked, in a file that is trusted too."""
    torch.save({"model": torch.nn.Linear(2, 2)}, tmp_path / "whole.pt")
    data = bytearray((tmp_path / "whole.pt").read_bytes())
    with zipfile.ZipFile(tmp_path / "whole.pt") as file:
        at = data.index(file.read("whole/data/0"))
    data[at] ^= 1
    with pytest.raises(serialization.FileError, match="model.*weight.*checksum"):
        load_bytes(bytes(data), weights_only=False)


@pytest.mark.parametrize("older", [False, True])
def test_what_a_trusted_file_names_is_run(older):
    class Calls:
        def __reduce__(self):
            return sorted, ([3, 1, 2],)
    pickled = pickle.dumps({"made": Calls()}, 2)
    data = build.legacy(pickled, [], []) if older else build.checkpoint(pickled)
    assert torch.load(io.BytesIO(data), weights_only=False) == {"made": [1, 2, 3]}
    with pytest.raises(serialization.FileError, match="sorted"):
        torch.load(io.BytesIO(data))


def test_names_that_are_not_there():
    for name, error, words in (("torch.export.ExportedProgram", serialization.NotSupported, "save the state_dict"),
                               ("torch.no_such_module.Thing", serialization.NotSupported, "no_such_module.Thing"),
                               ("torch._utils._rebuild_sparse_tensor", serialization.NotSupported, "a sparse tensor"),
                               ("torch.nn.Linearr", serialization.NotSupported, "Linearr"),
                               ("no_such_module.Thing", ModuleNotFoundError, "no_such_module"),
                               ("collections.Thing", AttributeError, "Thing")):
        module, _, thing = name.rpartition(".")
        pickled = f"\x80\x02c{module}\n{thing}\n.".encode("latin-1")
        with pytest.raises(error, match=words):
            torch.load(io.BytesIO(build.checkpoint(pickled)), weights_only=False)


def test_a_class_inside_a_class(trust):
    """Protocol 2 asks the outer class for it, which need not be trusted for that."""
    data = strange(Outer.Inner.Innermost())
    for trusted in ([Outer.Inner.Innermost], [Outer, Outer.Inner, Outer.Inner.Innermost]):
        with trust(trusted), warnings.catch_warnings():
            warnings.simplefilter("error")
            assert type(load_bytes(data)) is Outer.Inner.Innermost
            torch.save(Outer.Inner.Innermost(), io.BytesIO())                     # and nothing is said about it
    for trusted in ([], [Outer], [Outer.Inner]):
        with trust(trusted), pytest.raises(serialization.FileError, match="getattr"):
            load_bytes(data)
    assert type(load_bytes(data, weights_only=False)) is Outer.Inner.Innermost


class Outer:
    class Inner:
        class Innermost:
            pass


def test_what_cannot_be_saved_names_its_place():
    with pytest.raises(pickle.PicklingError, match=r"<lambda>.*it is a\.f\[0\] of what is saved"):
        torch.save({"a": {"f": [lambda x: x]}}, io.BytesIO())
    with pytest.raises(TypeError, match=r"cannot pickle.*it is lock of"):
        torch.save({"lock": sys._getframe()}, io.BytesIO())


def test_hooks_are_not_saved():
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="backward hooks"):
        torch.save({"x": x}, io.BytesIO())


def test_plain_contents_raise_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save({"w": torch.nn.Parameter(torch.ones(2)), "n": 1}, tmp_path / "x.pt")
        torch.load(tmp_path / "x.pt")


def test_what_a_package_saves_raises_no_warning(tmp_path):
    """It is not the user's to change: a Trainer that saves its own settings."""
    package = tmp_path / "site-packages" / "trains" / "__init__.py"
    program = tmp_path / "program.py"
    for file in (package, program):
        exec(compile("import flambeau as torch\ndef save(thing, f):\n    torch.save(thing, f)\n", file, "exec"),
             made := {})
        if file is program:
            with pytest.warns(UserWarning, match="what is saved holds more than tensors"):
                made["save"](Holder(), io.BytesIO())
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                made["save"](Holder(), io.BytesIO())


def test_options_that_are_accepted():
    serialization.set_crc32_options(False)
    assert serialization.get_crc32_options() is True
    with pytest.raises(TypeError):
        serialization.set_crc32_options(3)
    with pytest.raises(NotImplementedError, match="complete"):
        serialization.skip_data()
    assert isinstance(pathlib.Path("a"), os.PathLike)
