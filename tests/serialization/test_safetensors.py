"""safetensors files: what is written can be read by the format's own rules, and nothing else is read."""

import json
import os
import struct
import zlib

import numpy as np
import pytest

import flambeau as torch
from flambeau import safetensors
from flambeau.serialization import FileError, NotSupported

CODES = {torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
         torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
         torch.complex64: "C64"}


def parts(data):
    """(header as JSON, bytes of the tensors) of a file."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), data[8 + size:]


def built(header, body=b"", size=None):
    """A file from a header (JSON, or its bytes) and the bytes behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


FLOATS = struct.pack("<2f", 1.5, 2.5)


# --- there and back --------------------------------------------------


@pytest.mark.parametrize("dtype", CODES, ids=str)
def test_dtypes(dtype, tmp_path):
    tensors = {"a": torch.arange(6).view(2, 3).to(dtype), "scalar": torch.tensor(1).to(dtype),
               "empty": torch.zeros(0, 3).to(dtype)}
    path = tmp_path / "x.safetensors"
    safetensors.save_file(tensors, path)
    header, _ = parts(path.read_bytes())
    assert {name: (info["dtype"], info["shape"]) for name, info in header.items() if name != "__metadata__"} == {
        "a": (CODES[dtype], [2, 3]), "scalar": (CODES[dtype], []), "empty": (CODES[dtype], [0, 3])}
    for back in (safetensors.load_file(path), safetensors.load(path.read_bytes()),
    safetensors.load(safetensors.save(tensors))):
        assert set(back) == set(tensors)
        for name, x in tensors.items():
            assert (back[name].dtype, back[name].shape, back[name].tolist()) == (dtype, x.shape, x.tolist())


def test_the_file_by_the_rules_of_the_format():
    data = safetensors.save({"b": torch.tensor([1.5, 2.5]), "a": torch.tensor([7], dtype=torch.int8),
                             "c": torch.arange(3)}, {"made": "here"})
    header, body = parts(data)
    size = int.from_bytes(data[:8], "little")
    assert (8 + size) % 64 == 0 and data[8:9] == b"{"
    infos = {name: info["data_offsets"] for name, info in header.items() if name != "__metadata__"}
    assert infos == {"c": [0, 24], "b": [24, 32], "a": [32, 33]}          # widest first, no holes
    assert body == np.arange(3).tobytes() + FLOATS + b"\7"
    assert header["__metadata__"]["made"] == "here"
    assert json.loads(header["__metadata__"]["flambeau.crc32"]) == {
        name: f"{zlib.crc32(text.encode() + body[slice(*infos[name])]):08x}"
        for name, text in (("a", "a:I8:[1]"), ("b", "b:F32:[2]"), ("c", "c:I64:[3]"))}
    assert all(type(text) is str for text in header["__metadata__"].values())


def test_views_of_a_larger_storage():
    x = torch.arange(10.0)
    back = safetensors.load(safetensors.save({"head": x[:4], "tail": x[4:].view(2, 3)}))
    assert back["head"].tolist() == [0.0, 1.0, 2.0, 3.0] and back["tail"].tolist() == [[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


def test_shared_weights_are_written_once_and_shared_again(tmp_path):
    w = torch.arange(1000.0)
    path = tmp_path / "tied.safetensors"
    safetensors.save_file({"embed": w, "head": w, "also": w.view(10, 100).view(-1)}, path)
    header, body = parts(path.read_bytes())
    assert len(body) == 4000 and [name for name in header if name != "__metadata__"] == ["embed"]
    back = safetensors.load_file(path)
    back["head"][0] = 77.0
    assert set(back) == {"embed", "head", "also"} and back["embed"][0].item() == back["also"][0].item() == 77.0
    with safetensors.safe_open(path) as file:
        assert file.keys() == ["also", "embed", "head"] and file.get_tensor("head")[1].item() == 1.0


@pytest.mark.parametrize("tensors, kind, words", [
    (lambda x: {"a": x[:3], "b": x[2:]}, RuntimeError, "share memory.*'a', 'b'"),
    (lambda x: {"a": x, "b": x.view(2, 2)}, RuntimeError, "share memory"),
    (lambda x: {"a": x.view(2, 2).t()}, ValueError, "non contiguous tensor: `a`"),
    (lambda x: {"a": x.to(torch.complex128)}, KeyError, "complex128"),
    (lambda x: {"a": 3}, ValueError, "Key `a` is invalid, expected torch.Tensor"),
    (lambda x: {1: x}, TypeError, "strings"), (lambda x: [x], ValueError, "Expected a dict"),
    (lambda x: {"__metadata__": x}, ValueError, "__metadata__"),
    (lambda x: {"a": x.to("meta")}, ValueError, "meta device")])
def test_what_is_not_saved(tensors, kind, words):
    with pytest.raises(kind, match=words):
        safetensors.save(tensors(torch.arange(4.0)))


def test_metadata(tmp_path):
    path = tmp_path / "x.safetensors"
    for wrong in ({"a": 1}, {1: "a"}, "text"):
        with pytest.raises(TypeError, match="metadata"):
            safetensors.save_file({}, path, wrong)
    with pytest.raises(ValueError, match="flambeau.crc32"):
        safetensors.save_file({}, path, {"flambeau.crc32": "{}"})
    assert not path.exists()
    safetensors.save_file({}, path, {"grün": "ß"})
    with safetensors.safe_open(path) as file:
        assert file.metadata() == {"grün": "ß"} and file.keys() == []
    safetensors.save_file({}, path)
    with safetensors.safe_open(path) as file:
        assert file.metadata() is None


def test_reading_piece_by_piece(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"w": torch.arange(12.0).view(3, 4), "b": torch.ones(2, dtype=torch.int16)}, path)
    with safetensors.safe_open(path, framework="pt", device="cpu") as file:
        assert file.offset_keys() == ["w", "b"] and file.keys() == ["b", "w"]
        piece = file.get_slice("w")
        assert piece.get_shape() == [3, 4] and piece.get_dtype() == "F32"
        assert piece[1:, ::2].tolist() == [[4.0, 6.0], [8.0, 10.0]] and piece[0].storage_offset() == 0
        assert set(file.get_tensors()) == {"w", "b"} and list(file.get_tensors(["b"])) == ["b"]
        with pytest.raises(FileError, match="does not contain tensor z"):
            file.get_tensor("z")
    with safetensors.safe_open(path, framework="np") as file:
        assert isinstance(file.get_tensor("w"), np.ndarray) and file.get_slice("w")[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(NotImplementedError, match="framework 'tf'"):
        safetensors.safe_open(path, "tf")
    assert safetensors.load_file(path, device="meta")["w"].is_meta


def test_tensors_look_at_the_mapped_file(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"w": torch.zeros(1000)}, path)
    before = path.read_bytes()
    w = safetensors.load_file(path)["w"]
    w += 1
    assert w.sum().item() == 1000 and path.read_bytes() == before
    with open(path,
              "r+b") as file:                                  # a page that nobody has written to is still the file's
        fresh = safetensors.load_file(path)["w"]
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 5.0))
        file.flush()
        assert fresh[-1].item() == 5.0
    safetensors.save_file({"w": torch.ones(1)}, path)
    assert w.sum().item() == 1000


def test_modules(tmp_path):
    def made():
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model
    path = tmp_path / "m.safetensors"
    model, other = made(), made()
    safetensors.save_model(model, path)
    assert len(parts(path.read_bytes())[1]) == 4 * (9 + 3 + 3)
    assert safetensors.load_model(other, path) == (set(), [])
    assert torch.equal(other[0].weight, model[0].weight) and other[1].weight is other[0].weight
    safetensors.save_file({"0.weight": model[0].weight.detach(), "extra": torch.ones(1)}, path)
    with pytest.raises(RuntimeError, match="(?s)Missing key.*'0.bias', '1.bias'.*Unexpected key.*'extra'"):
        safetensors.load_model(other, path)
    assert safetensors.load_model(other, path, strict=False) == ({"0.bias", "1.bias"}, ["extra"])


# --- damaged and hostile --------------------------------------------------


def test_a_damaged_tensor_is_named(tmp_path):
    data = safetensors.save({"layer.weight": torch.full((50,), 3.0), "layer.bias": torch.full((5,), 7.0)})
    at = data.index(struct.pack("<f", 7.0))
    broken = data[:at] + b"\xff" + data[at + 1:]
    with pytest.raises(FileError, match="tensor 'layer.bias' is damaged"):
        safetensors.load(broken)
    path = tmp_path / "x.safetensors"
    path.write_bytes(broken)
    with pytest.raises(FileError, match=r"x\.safetensors: tensor 'layer.bias' is damaged"):
        safetensors.load_file(path)
    assert safetensors.load_file(path, verify=False)["layer.weight"][0].item() == 3.0
    with safetensors.safe_open(path) as file:
        assert file.get_tensor("layer.weight").sum().item() == 150.0     # the others are as they were
        with pytest.raises(FileError, match="layer.bias"):
            file.get_tensor("layer.bias")


@pytest.mark.parametrize("old, new", [(b'"F32"', b'"I32"'), (b"[2,3]", b"[3,2]"), (b'"w":{', b'"v":{')])
def test_a_damaged_header_is_noticed(old, new):
    data = safetensors.save({"w": torch.arange(6.0).view(2, 3)})
    assert data.count(old) == 1
    with pytest.raises(FileError, match="tensor '[vw]'"):
        safetensors.load(data.replace(old, new))


def test_checksums_that_another_program_has_copied(tmp_path):
    """Metadata may be carried over to other tensors: it says so, and there is a way around."""
    old = parts(safetensors.save({"a": torch.ones(2), "b": torch.ones(3)}))[0]["__metadata__"]
    path = tmp_path / "x.safetensors"
    path.write_bytes(built({"__metadata__": {**old, "flambeau.aliases": '{"a":"a"}'}, "a": entry()}, FLOATS))
    with pytest.raises(FileError, match="copied the metadata.*verify=False"):
        safetensors.load_file(path)
    assert safetensors.load_file(path, verify=False)["a"].tolist() == [1.5, 2.5]


def test_every_truncation():
    data = safetensors.save({"a": torch.ones(7), "b": torch.ones(3, dtype=torch.int8)})
    for length in range(len(data)):
        with pytest.raises(FileError):
            safetensors.load(data[:length])
    with pytest.raises(FileError, match="not fully covered"):
        safetensors.load(data + b"x")


@pytest.mark.parametrize("data, words", [
    (b"", "header too small"), (b"\0" * 7, "header too small"), (b"\xff" * 16, "header too large"),
    (struct.pack("<Q", 100_000_001), "header too large"), (struct.pack("<Q", 1000) + b"{}", "invalid header length"),
    (built(b""), "invalid JSON"), (built(b"{"), "invalid JSON"), (built(b"[]"), "not an object"),
    (built(b"\xff\xff"), "invalid JSON"),
    (built(b"[" * 100_000), "invalid JSON"), (built(b'{"a":' * 10_000), "invalid JSON"),
    (built(b"1" * 5000), "invalid JSON"),
    (built(b'{"a":{},"a":{}}'), "twice"),
    (built(b'{"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}}'), "twice"),
    (built({"a": 3}), "not described by"), (built({"a": {}}), "not described by"),
    (built({"a": {**entry(), "x": 1}}), "not described"),
    (built({"a": entry("F31")}, FLOATS), "invalid dtype for tensor `a`: 'F31'"),
    (built({"a": entry(3)}, FLOATS), "invalid dtype"),
    (built({"a": entry(shape=[2.0])}, FLOATS), "invalid shape"),
    (built({"a": entry(shape=[-2])}, FLOATS), "invalid shape"),
    (built({"a": entry(shape=[True])}, FLOATS), "invalid shape"),
    (built({"a": entry(shape=[1 << 64])}, FLOATS), "invalid shape"),
    (built({"a": entry(shape=[1] * 65)}, FLOATS), "invalid shape"),
    (built({"a": {**entry(), "shape": "2"}}, FLOATS), "invalid shape"),
    (built({"a": entry(shape=[3])}, FLOATS), "has 8 bytes"),
    (built({"a": entry(shape=[1 << 40, 1 << 40])}, FLOATS), "has 8 bytes"),
    (built({"a": entry(offsets=[8, 0])}, FLOATS), "invalid offset"),
    (built({"a": entry(offsets=[0])}, FLOATS), "invalid offset"),
    (built({"a": entry(offsets=[-8, 0])}, FLOATS), "invalid offset"),
    (built({"a": entry(offsets=[0.0, 8])}, FLOATS), "invalid offset"),
    (built({"a": entry(offsets=[8, 16])}, FLOATS * 2), "starts at 8"),
    (built({"a": entry()}, FLOATS[:4]), "not fully covered"),
    (built({"a": entry()}, FLOATS * 2), "not fully covered"),
    (built({"a": entry(), "b": entry()}, FLOATS), "invalid offset"),
    (built({"a": entry(), "b": entry(offsets=[4, 12])}, FLOATS * 2), "invalid offset"),
    (built({"a": entry(offsets=[0, 1 << 62], shape=[1 << 60])}, FLOATS), "not fully covered"),
    (built({"__metadata__": {"a": 1}}), "not an object of strings"),
    (built({"__metadata__": [1]}), "not an object of strings"),
    (built({"__metadata__": {"flambeau.crc32": "{"}}), "invalid JSON"),
    (built({"__metadata__": {"flambeau.crc32": "[]"}}), "damaged"),
    (built({"__metadata__": {"flambeau.crc32": '{"a":"00000000"}'}}), "tensor 'a' has a checksum and is not there"),
    (built({"__metadata__": {"flambeau.crc32": "{}"}, "a": entry()}, FLOATS),
     "tensor 'a' has a checksum and is not there"),
    (built({"__metadata__": {"flambeau.crc32": '{"a":7}'}, "a": entry()}, FLOATS), "checksum for 'a'"),
    (built({"__metadata__": {"flambeau.aliases": '{"b":"c"}'}, "a": entry()}, FLOATS), "alias"),
    (built({"__metadata__": {"flambeau.aliases": '{"b":3}'}, "a": entry()}, FLOATS), "alias"),
], ids=lambda part: part if isinstance(part, str) else "")
def test_headers_that_lie(data, words, tmp_path):
    with pytest.raises(FileError, match=words):
        safetensors.load(data)
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    for read in (safetensors.load_file, safetensors.safe_open):
        with pytest.raises(FileError, match=words):
            read(path)


def test_files_of_other_writers():
    assert safetensors.load(built({"a": entry()}, FLOATS))["a"].tolist() == [1.5, 2.5]
    assert safetensors.load(built(b'{"a":{"data_offsets":[0,8],"shape":[2],"dtype":"F32"}}   ',
                                  FLOATS))["a"].shape == (2,)
    odd = built({"x": entry("U8", [1], [0, 1]), "a": entry(offsets=[1, 9])}, b"\5" + FLOATS)          # not aligned
    assert safetensors.load(odd)["a"].tolist() == [1.5, 2.5]
    assert safetensors.load(built({})) == {}


def test_dtypes_that_are_not_here():
    data = built({"a": entry(), "b": entry("F6_E2M3", [4], [8, 11])}, FLOATS + b"123")
    with pytest.raises(NotSupported, match="F6_E2M3"):
        safetensors.load(data)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        safetensors.load_file(tmp_path / "no")
    with pytest.raises(FileError, match="header too small"):
        (tmp_path / "empty").touch()
        safetensors.load_file(tmp_path / "empty")


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [2**62, 2**62, 0], [2**62, 0, 4], [0, 2**63 - 1]])
def test_sizes_beyond_memory_of_no_elements(shape):
    """No bytes are missing, and there is no such array; the original library refuses it too."""
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    with pytest.raises(FileError, match="invalid shape for tensor `a`: .* does not fit into memory"):
        safetensors.load(struct.pack("<Q", len(header)) + header)


@pytest.mark.parametrize("header", [{"\ud800": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}},
                                    {"__metadata__": {"a": "\udfff"}}, {"__metadata__": {"\ud800b": "x"}}], ids=ascii)
def test_half_a_surrogate_pair(header, tmp_path):
    text = json.dumps(header).encode()
    with pytest.raises(FileError, match="invalid JSON in header") as raised:
        safetensors.load(struct.pack("<Q", len(text)) + text)
    str(raised.value).encode()
    for name, metadata in ("\ud800", None), ("a", {"b": "\ud800"}), ("a", {"\udfff": "b"}):
        with pytest.raises(ValueError, match="has half of a surrogate pair at 0"):
            safetensors.save_file({name: torch.ones(1)}, tmp_path / "f", metadata)
    assert not [*tmp_path.iterdir()]
    pair = safetensors.load(safetensors.save({"\U0001f600": torch.ones(1)}))
    assert [*pair] == ["\U0001f600"]
