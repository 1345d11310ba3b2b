"""Files that are damaged or made to harm: each is refused with a reason, in little memory and time; nothing runs."""

import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
import zlib

import pytest

import flambeau as torch
from flambeau import serialization
from flambeau.serialization import FileError, NotSupported
from tests.patience import PATIENCE
from tests.serialization import build
from tests.serialization.build import FLOATS, archive, checkpoint, number, numbers, program, storage, tensor, text


def load(data, **how):
    return torch.load(io.BytesIO(data), **how)


def refused(data, words, kind=FileError, **how):
    with pytest.raises(kind, match=words) as caught:
        load(data, **how)
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, pickle.UnpicklingError)
    return str(caught.value)


def test_the_builders_build_what_loads():
    """What the other tests start from is sound."""
    assert load(checkpoint(program(tensor()), _0=FLOATS)).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert load(checkpoint(program(b"]", number(5), b"a"))) == [5]


# --- damage --------------------------------------------------


@pytest.fixture(scope="module")
def saved():
    """(bytes of a file, what is in it, where each tensor's bytes are)."""
    thing = {"model": {"layer1.weight": torch.arange(100.0), "layer1.bias": torch.full((5,), 7.0)},
             "optimizer": {"state": {0: {"exp_avg": torch.full((50,), 2.5, dtype=torch.float64)}}},
             "shared": [torch.full((9,), 3, dtype=torch.int16)]}
    thing["tied"] = thing["shared"][0]
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue(), thing


def flipped(data, at, bit=0):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]


@pytest.mark.parametrize("contents, way", [
    (torch.arange(100.0), r"tensor 'model\.layer1\.weight' is damaged"),
    (torch.full((5,), 7.0), r"'model\.layer1\.bias'"),
    (torch.full((50,), 2.5, dtype=torch.float64), r"tensor 'optimizer\.state\[0\]\.exp_avg' is damaged"),
    (torch.full((9,), 3, dtype=torch.int16), r"tensor 'shared\[0\]' is damaged")],
    ids=["weight", "bias", "state", "list"])
def test_a_damaged_tensor_is_named(saved, contents, way):
    data = saved[0]
    at = data.index(contents.numpy().tobytes())
    message = refused(flipped(data, at + contents.nbytes - 1), way)
    assert "verify=False" in message
    assert load(flipped(data, at), verify=False).keys() == saved[1].keys()


def test_a_damaged_tensor_of_another_writer_is_named():
    pickled = program(b"}(", text("net"), b"](", tensor(), tensor(stored=storage("1")), b"e", text("n"), number(3),
                      b"u")
    data = checkpoint(pickled, _0=FLOATS, _1=FLOATS[::-1])
    assert load(data)["n"] == 3
    refused(flipped(data, data.index(FLOATS[::-1])), r"tensor 'net\[1\]' is damaged")
    alone = checkpoint(program(tensor()), _0=FLOATS)
    refused(flipped(alone, alone.index(FLOATS)), "the saved tensor is damaged")


def test_a_mapped_file_is_checked_when_asked(saved, tmp_path):
    path = tmp_path / "m.pt"
    at = saved[0].index(torch.arange(100.0).numpy().tobytes())
    path.write_bytes(flipped(saved[0], at))
    assert torch.load(path, mmap=True)["model"]["layer1.weight"].shape == (100,)
    with pytest.raises(FileError, match=r"m\.pt: tensor 'model\.layer1\.weight' is damaged"):
        torch.load(path, mmap=True, verify=True)
    with pytest.raises(FileError, match=r"m\.pt: tensor 'model\.layer1\.weight' is damaged"):
        torch.load(path)


@pytest.mark.parametrize("noted", [b"", b"[]", b"{}", b'{"crc32":{"data.pkl":1e999},"tensors":{}}', b"[" * 100_000,
                                   b'{"crc32":{},"tensors":[1]}', b'{"crc32":{"data/0":"x"},"tensors":{}}'])
def test_damaged_checksums(noted):
    refused(archive({"data.pkl": program(tensor()), "data/0": FLOATS, ".flambeau/checksums": noted}),
            "list of checksums")
    sound = {"crc32": {"data.pkl": 7}, "tensors": {}}
    refused(archive({"data.pkl": program(b"N"), ".flambeau/checksums": json.dumps(sound)}), "data.pkl.* is damaged")


def test_a_damaged_structure(saved):
    data = saved[0]
    at = data.index(b"exp_avg")
    refused(flipped(data, at), "data.pkl.* is damaged")


def test_checksums_of_our_own_are_compared_too(saved):
    """Zip's checksum can be put right by whoever changes the bytes; ours then tells."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved[0])) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            new.writestr(name, b"\1" + body[1:] if name == "archive/data/1" else body)
    refused(out.getvalue(), r"tensor 'model\.layer1\.bias' is damaged")


def test_files_without_crcs_load():
    """PyTorch writes zeros when it is told not to compute them."""
    data = bytearray(checkpoint(program(tensor()), _0=FLOATS))
    for signature, at in ((b"PK\3\4", 14), (b"PK\1\2", 16)):
        where = data.find(signature)
        while where >= 0:
            data[where + at:where + at + 4] = bytes(4)
            where = data.find(signature, where + 4)
    assert load(bytes(data)).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_every_truncation(saved):
    data = saved[0]
    for length in [*range(0, 200, 7), *range(200, len(data), 101), *range(len(data) - 100, len(data))]:
        with pytest.raises(FileError):
            load(data[:length])
    with pytest.raises(EOFError, match="Ran out of input"):
        load(b"")


# --- archives --------------------------------------------------


def central(data, name, at, form, value):
    """`data` with a field of the directory entry of `name` changed."""
    where = data.index(b"PK\1\2")
    while data[where + 46:where + 46 + len(name)] != name:
        where = data.index(b"PK\1\2", where + 4)
    return data[:where + at] + struct.pack(form, value) + data[where + at + struct.calcsize(form):]


SOUND = checkpoint(program(tensor()), _0=FLOATS)


@pytest.mark.parametrize("change, words", [
    ((b"archive/data/0", 24, "<I", 1 << 31), "takes"),                         # uncompressed size
    ((b"archive/data/0", 20, "<I", 1 << 31), "takes"),                         # compressed size
    ((b"archive/data/0", 42, "<I", 0), "disagree|overlaps"),                   # another record's header
    ((b"archive/data/0", 42, "<I", 100), "does not start where|overlaps"),
    ((b"archive/data/0", 42, "<I", 7), "does not start where|overlaps"),
    ((b"archive/data/0", 42, "<I", 0x7FFFFFFF), "truncated"),
    ((b"archive/data/0", 42, "<I", 0xFFFFFFFF), "truncated|64-bit"),
    ((b"archive/data/0", 34, "<H", 3), "takes"),                               # disk
    ((b"archive/data/0", 10, "<H", 99), "compressed by method 99"),
    ((b"archive/data/0", 10, "<H", 8), "disagree|damaged"),
    ((b"archive/data/0", 8, "<H", 1), "encrypted"),
    ((b"archive/data/0", 28, "<H", 60000), "garbled"),                         # length of the name
    ((b"archive/data/0", 30, "<H", 60000), "garbled"),
], ids=str)
def test_directories_that_lie(change, words):
    refused(central(SOUND, *change), words)


def test_sizes_that_reach_beyond():
    both = central(central(SOUND, b"archive/data/0", 24, "<I", 5000), b"archive/data/0", 20, "<I", 5000)
    refused(both, "overlaps what follows it")


@pytest.mark.parametrize("at, form, value, words", [
    (8, "<H", 60000, "several|does not fit"), (12, "<I", 1 << 31, "does not fit"), (16, "<I", 1 << 31, "does not fit"),
    (4, "<H", 2, "several"), (20, "<H", 9, "failed finding central directory"), (16, "<I", 3, "garbled|does not fit")])
def test_ends_of_directories_that_lie(at, form, value, words):
    where = SOUND.rindex(b"PK\5\6")
    refused(SOUND[:where + at] + struct.pack(form, value) + SOUND[where + at + struct.calcsize(form):], words)


def test_a_record_twice():
    out = io.BytesIO()
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(out, "w") as file:
        for pickled in (program(b"N"), program(b"\x88")):
            file.writestr("archive/data.pkl", pickled)
    refused(out.getvalue(), "two records are called 'archive/data.pkl'")


def test_overlapping_records():
    """Two names for the same bytes, as bombs do it."""
    data = bytearray(checkpoint(program(b"](", tensor(), tensor(stored=storage("1")), b"e"), _0=FLOATS, _1=FLOATS))
    second = data.rindex(b"archive/data/1") - 46
    first = data.index(b"archive/data/0")
    data[second + 42:second + 46] = struct.pack("<I", first - 30)
    refused(bytes(data), "disagree|overlaps")


def test_names_are_only_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    data = archive({"data.pkl": program(tensor(stored=storage("../../../evil"))), "data/../../../evil": FLOATS,
                    "/abs/olute": b"x", "..\\..\\windows": b"y", "data/0\n": b"z"})
    assert load(data).tolist() == [1.0, 2.0, 3.0, 4.0]         # a key in a table, and nothing else
    assert os.listdir(tmp_path) == ["inside"] and os.listdir(inside) == []


def test_archives_of_other_kinds():
    refused(archive({"data.pkl": program(b"N"), "constants.pkl": program(b")"), "code/x.py": b""}), "TorchScript",
            NotSupported)
    refused(archive({"archive_format": b"pt2", "models/model.json": b"{}"}), "torch.export", NotSupported)
    refused(archive({".data/extern_modules": b"", "x.py": b""}), "torch.package", NotSupported)
    refused(archive({"word/document.xml": b""}), "data.pkl")
    refused(archive({"data.pkl": program(b"N"), "version": b"99"}), "maximum supported version for reading is 10",
            NotSupported)
    refused(archive({"data.pkl": program(b"N"), "version": b"x" * 100_000}), "100000 bytes long")
    assert load(archive({"data.pkl": program(b"N"), "version": b"3\n"}, folder="any")) is None


def test_compressed_records_are_read_within_bounds():
    honest = archive({"data.pkl": program(tensor()), "data/0": FLOATS}, method=zipfile.ZIP_DEFLATED)
    assert load(honest).tolist() == [1.0, 2.0, 3.0, 4.0]
    zeros = bytes(4_000_000)
    grown = archive({"data.pkl": program(tensor((1_000_000,), stored=storage(count=1_000_000))), "data/0": zeros},
                    method=zipfile.ZIP_DEFLATED)
    assert load(grown).sum().item() == 0.0


def test_compressed_bombs():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", program(b"N"))
        with file.open("archive/data/0", "w", force_zip64=True) as record:
            for _ in range(100):
                record.write(bytes(1 << 20))
    bomb = out.getvalue()
    assert len(bomb) < 200_000
    tracemalloc.start()
    refused(bomb, "would unpack to 1048576")
    # The directory promises little, and the stream does not keep to it.
    long = archive({"data.pkl": program(b"N" * 5_000_000)}, method=zipfile.ZIP_DEFLATED)
    refused(long, "record 'archive/data.pkl' would unpack to 5000003 bytes in a file of ")
    refused(central(long, b"archive/data.pkl", 24, "<I", 2), "unpacks to more than 2 bytes")
    short = archive({"data.pkl": program(b"N" * 50_000)}, method=zipfile.ZIP_DEFLATED)
    refused(central(short, b"archive/data.pkl", 24, "<I", 60_000), "unpacks to 50003 bytes, not 60000")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_pickle_bomb_inside_the_structure():
    """One record that unpacks to the most that is allowed is still only as much as its directory says."""
    raw = program(b"]", b"N" * 1000, b"0" * 1000)
    squeezed = archive({"data.pkl": raw}, method=zipfile.ZIP_DEFLATED)
    assert load(squeezed) == []
    where = squeezed.index(b"PK\3\4") + 30 + len("archive/data.pkl")
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    assert squeezed[where:].startswith((packed.compress(raw) + packed.flush())[:4])


# --- code --------------------------------------------------


class Explodes:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("call, name", [
    ((os.system, ("touch exploded",)), "posix.system|nt.system|os.system"),
    ((eval, ("open('exploded', 'w')",)), "eval"),
    ((subprocess.Popen, (["touch", "exploded"],)), "subprocess"), ((open, ("exploded", "w")), "open"),
    ((getattr, ("x", "upper")), "getattr"), ((__import__, ("antigravity",)), "__import__"),
    ((bytes.fromhex, ("00",)), "getattr|bytes"), ((print, ("hi",)), "print"), ((range, (3,)), "range")],
    ids=lambda part: getattr(part[0], "__name__", "") if isinstance(part, tuple) else "")
def test_nothing_runs(tmp_path, monkeypatch, call, name, protocol):
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps({"w": Explodes(*call)}, protocol)
    for how in ({}, {"weights_only": True}):
        refused(checkpoint(pickled), name, **how)
        refused(build.legacy(pickled, [], []), name, **how)
    assert os.listdir(tmp_path) == []


def test_no_module_is_imported_for_a_file():
    refused(checkpoint(program(b"cantigravity\nfly\n")), "antigravity.fly")
    refused(checkpoint(program(text("this"), text("zen"), b"\x93")), "this.zen")
    assert "antigravity" not in sys.modules and "this" not in sys.modules


@pytest.mark.parametrize("module", ["os", "sys", "posix", "subprocess"])
def test_some_modules_are_blocked_even_when_trusted(module):
    with serialization.safe_globals([(print, f"{module}.system")]):
        refused(checkpoint(program(f"c{module}\nsystem\n".encode(), text("x"), b"\x85R")), "is blocked")


def test_calling_what_is_not_to_be_called():
    for thing in (text("x"), b"]", number(3), b"ctorch\nfloat32\n", b"ctorch\nFloatStorage\n", b"ctorch\nTensor\n"):
        refused(checkpoint(program(thing, b")R")), "unrecognized function")
        refused(checkpoint(program(thing, b")\x81")), "unrecognized function")


@pytest.mark.parametrize("name", ["_spec", "_storage", "_offset", "_node", "_requires_grad", "shape", "data",
                                  "__class__", "__dict__", "backward", "a b", ""])
def test_attributes_that_would_break_a_tensor(name):
    plain = tensor().removesuffix(b"R")
    state = b"}" + text(name) + number(1 << 40) + b"s"
    made = b"ctorch._tensor\n_rebuild_from_type_v2\n(" + plain.replace(build.REBUILD,
                                                                       build.REBUILD + b"ctorch\nTensor\n", 1)
    refused(checkpoint(program(made, state, b"tR"), _0=FLOATS), "it sets .* of a Tensor")
    fine = checkpoint(program(made, b"}" + text("note") + number(1) + b"s", b"tR"), _0=FLOATS)
    assert load(fine).note == 1


def test_attributes_that_would_break_a_dict():
    refused(checkpoint(program(b"ccollections\nOrderedDict\n)R}", text("items"), number(1), b"sb")), "it sets 'items'")
    found = load(checkpoint(program(b"ccollections\nOrderedDict\n)R}", text("_metadata"), b"}sb")))
    assert found._metadata == {}
    refused(checkpoint(program(b"]}b")), "Can only build")


# --- tensors --------------------------------------------------


@pytest.mark.parametrize("made, words", [
    (tensor((5,)), "out of bounds for storage of size 16"),
    (tensor((2,), (4,)), "out of bounds"),
    (tensor((4,), offset=1), "out of bounds"),
    (tensor((1,), offset=1 << 62), "out of bounds|does not fit"),
    (tensor((1 << 40, 1 << 40), (0, 0)), "does not fit into memory"),
    (tensor((1 << 62, 8), (1, 1)), "does not fit into memory"),
    (tensor((1,), (1 << 62,)), "does not fit into memory"),
    (tensor((-1,)), "no sizes"), (tensor((4,), (-1,)), "no sizes"), (tensor(offset=-1), "no sizes"),
    (tensor((1 << 70,)), "no sizes"), (tensor((2, 2), (1,)), "2 sizes and 1 strides"),
    (tensor((1,) * 100, (1,) * 100), "longer than 64"),
    (tensor(grad=number(1)), "requires_grad=1"), (tensor(grad=b"N"), "requires_grad=None"),
    (tensor(stored=b"N"), "no storage"), (tensor(stored=text("x")), "no storage"),
    (tensor(stored=storage(count=5)), "should hold 5"), (tensor(stored=storage(count=3)), "should hold 3"),
    (tensor(stored=storage(count=-4)), "described by"), (tensor(stored=storage(count=1 << 64)), "described by"),
    (tensor(stored=storage(key="7")), "mentions the storage '7'"),
    (tensor(stored=storage(kind=b"ctorch\nQInt8Storage\n")), "torch.QInt8"),
    (tensor(stored=storage(kind=b"ctorch\nfloat32\n")), "described by"),
    (tensor(stored=storage(kind=b"ctorch.storage\nUntypedStorage\n", count=16)), "no dtype"),
    (tensor(stored=storage(kind=b"ctorch\nLongStorage\n", count=2), grad=b"\x88", size=(2,)), "requires_grad=True"),
    (number(3) + b"Q", "persistent_load"), (text("module") + b"\x85Q", "persistent_load"), (b")Q", "persistent_load"),
    (build.REBUILD + b")R", "given 0 arguments"),
    (b"ctorch._utils\n_rebuild_qtensor\n", "a quantised tensor"),
    (b"ctorch._utils\n_rebuild_sparse_tensor\n", "a sparse tensor"),
], ids=lambda part: part if isinstance(part, str) else "")
def test_tensors_that_cannot_be(made, words):
    refused(checkpoint(program(made), _0=FLOATS), words)


def test_huge_but_honest():
    """Much of nothing: an expanded element and a meta tensor take no memory."""
    assert load(checkpoint(program(tensor((1 << 40,), (0,))), _0=FLOATS)).shape == (1 << 40,)
    meta = b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n"
    meta += numbers((1 << 40,)) + numbers((1,)) + b"\x89tR"
    assert load(checkpoint(program(meta))).shape == (1 << 40,)
    refused(checkpoint(program(meta.replace(number(1 << 40), number((1 << 62) - 1)))), "does not fit")


def test_one_storage_under_two_dtypes():
    other = storage(kind=b"ctorch\nIntStorage\n")
    found = load(checkpoint(program(b"(", tensor(), tensor(stored=other), b"t"), _0=FLOATS))
    assert found[0].dtype is torch.float32 and found[1].dtype is torch.int32
    assert found[1].tolist() == list(struct.unpack("<4i", FLOATS)) and found[0]._storage is found[1]._storage


@pytest.mark.parametrize("call", [
    b"c_codecs\nencode\n" + text("x") + tensor() + b"\x86R", tensor() + b"\x85Q", tensor() + b"NNNN" + b"(0t",
    b"(" + tensor() + b"NNNNtQ", b"ctorch.serialization\n_get_layout\n" + tensor() + b"\x85R",
    tensor().removesuffix(b"tR") + b"}" + text("conj") + tensor() + b"stR", b"ctorch\ndevice\n" + tensor() + b"\x85R",
    b"c__builtin__\ncomplex\n" + tensor() + b"\x85R", b"ctorch\nSize\n" + tensor() + b"\x85\x85R",
    b"ccollections\nOrderedDict\n)R" + b"N" + tensor() + b"\x86b", tensor(grad=tensor()), tensor(stored=tensor())])
def test_tensors_where_no_tensor_belongs(call):
    """Comparing one with something, or asking for its truth, would raise anything."""
    refused(checkpoint(program(call), _0=FLOATS), ".")


def test_views_that_would_be_computed_without_end():
    conj = b"}" + text("conj") + b"\x88s"
    kind = storage(kind=b"ctorch\nComplexFloatStorage\n", count=2)
    one = tensor((2,), stored=kind).removesuffix(b"tR") + conj + b"tR"
    assert load(checkpoint(program(one), _0=FLOATS)).tolist() == [1 - 2j, 3 - 4j]
    refused(checkpoint(program(b"(", one * 5, b"t"), _0=FLOATS), "compute more than it holds")
    wide = tensor((1 << 40,), (0,), stored=kind).removesuffix(b"tR") + conj + b"tR"
    refused(checkpoint(program(wide), _0=FLOATS), "compute more than it holds")


# --- pickles --------------------------------------------------


@pytest.mark.parametrize("body, words", [
    (b"", "leaves 0 objects"), (b"NN", "leaves 2 objects"), (b"(N", "leaves 1 objects and 1 marks"),
    (b"t", "mark"), (b"e", "mark"), (b"u", "mark"), (b"0", "stack"), (b"1", "mark"), (b"2", "stack"),
    (b"\x86", "tuple of 2"),
    (b"N(0t", "mark|leaves"), (b"(00t", "stack|mark"), (b"Na", "stack"), (b"NNa", "NoneType is appended"),
    (b"N(NNu", "items are set in a NoneType"), (b"}(Nu", "no value"), (b"}]Ns", "list is used as a key"),
    (b"}}Ns", "dict is used as a key"), (b"N(N\x90", "members are added"), (b"\x8f(]\x90", "list is used as a key"),
    (b"h\x05", "Memo value not found at index 5"), (b"j\x05\0\0\0", "Memo value"), (b"q\0", "stack"),
    (b"\x94", "stack"),
    (b"X\xff\xff\xff\xffabc", "announced"), (b"\x8d" + b"\xff" * 8, "announced"),
    (b"\x8e" + b"\xff" * 7 + b"\x7f", "announced"),
    (b"\x96" + b"\x00" * 7 + b"\x10", "announced"), (b"B\xff\xff\xff\x7f", "announced"),
    (b"\x8b\xff\xff\xff\xff", "announced"),
    (b"X\x01\0\0\0\xff", "not utf-8"), (b"U\x01\xff", "not utf-8"), (b"cno newline", "does not end"),
    (b"c" + b"a" * 5000 + b"\nb\n", "does not end"), (b"K", "ends early"), (b"J\0\0", "ends early"),
    (b"G\0", "announced|early"),
    (b"NN\x93", "no name"), (b"N)R", "unrecognized"), (b"ccollections\nOrderedDict\nNR", "not a tuple"),
    (b"\x95" + b"\xff" * 8, "frame"), (b"\x80\x09N", "protocol 9"),
    (b"\x82\x01", "Unsupported operand 130"), (b"\x97", "Unsupported operand"), (b"I1\n", "Unsupported operand 73"),
    (b"i__main__\nx\n", "Unsupported operand 105"), (b"o", "Unsupported operand 111"),
    (b"P1\n", "Unsupported operand 80"),
    (b"\xff", "Unsupported operand 255"),
], ids=lambda part: part.hex()[:16] if isinstance(part, bytes) else "")
def test_pickles_that_nobody_writes(body, words):
    refused(checkpoint(program(body)), words)
    refused(checkpoint(b"\x80\x02" + body), ".")              # and without the STOP
    refused(build.legacy(program(body), [], []), ".")


@pytest.mark.parametrize("call, words", [
    (b"c__builtin__\nset\nNR", "not a tuple"), (b"c__builtin__\nset\nN\x85R", "something else than a list"),
    (b"c__builtin__\nset\n](]]e\x85R", "list is used as a key"),
    (b"c__builtin__\nbytearray\n\x8a\x08" + b"\xff" * 7 + b"\x7f\x85R", "something else than bytes"),
    (b"c_codecs\nencode\n" + text("x") + text("zip") + b"\x86R", "something else than latin1"),
    (b"c_codecs\nencode\n" + text("€") + text("latin1") + b"\x86R", "something else than latin1"),
    (b"c__builtin__\ncomplex\n" + text("1e999") + b"\x85R", "not numbers"),
    (b"c__builtin__\ncomplex\n" + number(1 << 1100) + b"\x85R", "too large"),
    (b"ccollections\nOrderedDict\n](NNe\x85R", "pairs"), (b"ccollections\nCounter\n]\x85R", "dictionary"),
    (b"ctorch\nSize\n" + numbers((-1,)) + b"\x85R", "no sizes"),
    (b"ctorch\nSize\n" + text("abc") + b"\x85R", "no tuple"),
    (b"ctorch\ndevice\n" + text("toaster") + b"\x85R", "toaster"), (b"ctorch\ndevice\nN\x85R", "no name"),
    (b"ctorch\ndevice\n" + text("cuda:²") + b"\x85R", "device"),
    (b"ctorch.serialization\n_get_layout\n" + text("torch.sparse_coo") + b"\x85R", "sparse_coo"),
], ids=lambda part: part.hex()[:40] if isinstance(part, bytes) else "")
def test_calls_with_the_wrong_things(call, words):
    refused(checkpoint(program(call)), words)


def test_other_protocols_are_read():
    thing = {"a": [1, -5, 1 << 70, 2.5, None, True, "text" * 100, b"bytes" * 100, bytearray(b"x")], "t": (1, 2, 3, 4),
             "s": {1, 2}, "f": frozenset({3}), "long": "x" * 70_000}
    for protocol in (2, 3, 4, 5):
        assert load(checkpoint(pickle.dumps(thing, protocol))) == thing
    old = b"\x80\x02U\x03gr\xfc."                             # a string of Python 2
    assert load(checkpoint(old), encoding="latin1") == "grü" and load(checkpoint(old), encoding="bytes") == b"gr\xfc"


# --- bounded time and memory --------------------------------------------------


@pytest.fixture
def quick():
    """A test has to end soon and without much memory, however its file tries to keep it busy."""
    tracemalloc.start()
    begun = time.process_time()
    yield
    took, most = time.process_time() - begun, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 20 and most < 200 << 20


def laughs(depth, empty, wrap):
    """`depth` levels, each holding the one below twice."""
    return empty + b"q\0" + b"".join(wrap + b"q\0" for _ in range(depth))


def test_billion_laughs_stay_shared(quick):
    found = load(checkpoint(program(laughs(10_000, b"]", b"0](h\0h\0e"))))
    assert len(found) == 2 and found[0] is found[1]
    found = load(checkpoint(program(laughs(10_000, b")", b"0h\0h\0\x86"))))
    assert len(found) == 2 and found[0] is found[1]


@pytest.mark.parametrize("keep", [b"}h\0Ns", b"\x8f(h\0\x90", b"(h\0\x91", b"c__builtin__\nset\n]h\0a\x85R",
                                  b"ccollections\nOrderedDict\n]h\0N\x86a\x85R"],
                                  ids=["dict", "set", "frozenset", "set()", "od"])
def test_keys_that_take_for_ever_to_hash(quick, keep):
    refused(checkpoint(program(laughs(30, b")", b"0h\0h\0\x86"), b"0", keep)), "unfold without bound")
    if keep == b"(h\0\x91":                             # sets in sets remember their hashes, and compare as slowly
        refused(checkpoint(program(laughs(15, b")", b"0(h\0h\0\x86\x91h\0\x86"), b"0", keep)), "unfold without bound")


def test_deep_keys(quick):
    deep = b")" + b"\x85" * 30_000
    refused(checkpoint(program(b"}", deep, b"Ns")), "nested more than 32 deep")
    refused(checkpoint(program(deep, b"Q")), "persistent_load")
    large = b"\x8b" + struct.pack("<I", 5000) + b"\x7f" * 5000
    refused(checkpoint(program(b"ctorch\nSize\n(", large, b"t\x85R")), "of 39999 bits")
    assert len(load(checkpoint(program(deep)))) == 1


def test_messages_of_endless_things(quick):
    refused(checkpoint(program(laughs(60, b")", b"0h\0h\0\x86"), b"Q")), "persistent_load")
    refused(checkpoint(program(laughs(60, b"]", b"0](h\0h\0e"), b")R")), "unrecognized function \\(\\(a list")


def test_copies_without_end(quick):
    """A list in the memo, made into a set again and again."""
    many = b"](" + b"".join(number(n) for n in range(2000)) + b"eq\0"
    refused(checkpoint(program(many, b"0c__builtin__\nset\nq\1" + b"0](", b"h\1h\0\x85R" * 20_000, b"e")),
            "unfold without bound")
    words = text("x" * 100_000) + b"q\0"
    refused(checkpoint(program(words, b"0c_codecs\nencode\nq\1" + text("latin1") + b"q\2" + b"0](",
                               b"h\1h\0h\2\x86R" * 20_000, b"e")), "unfold without bound")


def test_keys_made_to_collide(quick):
    modulus = (1 << 61) - 1                                   # what Python's hash of an int is taken by
    same = b"".join(number(modulus * n) + b"N" for n in range(1 << 10, (1 << 10) + 20_000))
    refused(checkpoint(program(b"}(", same, b"u")), "collide")


def test_many_keys_are_fine(quick):
    table = {(n, n + 1): n for n in range(5000)} | {float(n) + 0.5: n for n in range(1000)}
    assert load(checkpoint(pickle.dumps(table, 2))) == table
    same = [{(1, 2): n} for n in range(1000)] + [frozenset({(1, 2)}) for n in range(1000)]
    assert load(checkpoint(pickle.dumps(same, 4))) == same


def test_huge_sizes_take_no_memory(quick):
    for kind, count in ((b"ctorch\nFloatStorage\n", 1 << 38), (b"ctorch\nComplexDoubleStorage\n", (1 << 63) - 1)):
        stored = storage(kind=kind, count=count)
        refused(checkpoint(program(tensor(stored=stored)), _0=FLOATS), "should hold")
        old = build.legacy(program(tensor(stored=stored.removesuffix(b"tQ") + b"NtQ")), ["0"], [(count, FLOATS)])
        refused(old, "announces")


def test_storages_announced_over_and_over(quick):
    stored = b"".join(tensor(stored=storage(key=str(n), count=4).removesuffix(b"tQ") + b"NtQ") for n in range(200))
    refused(build.legacy(program(b"(", stored, b"t"), ["0"], [(4, FLOATS)]), "not those|announces")


# --- not torch at all --------------------------------------------------


@pytest.mark.parametrize("data, words", [
    (b"hello world" * 30, "not a file that torch.save has written"), (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    (b"\x1f\x8b" + bytes(100), "gzip"), (b"\x93NUMPY" + bytes(100), "NumPy"),
    (struct.pack("<Q", 20) + b'{"a":{}}' + bytes(50), "safetensors"),
    (bytes(257) + b"ustar" + bytes(250), "tar archive"),
    (pickle.dumps([1, 2, 3]), "Invalid magic number"), (b"\x80", "damaged"), (b"P", "not a file"),
    (b"PK\3\4", "zip archive"),
    (b"PK\3\4" + bytes(100), "failed finding central directory")],
    ids=lambda part: "" if isinstance(part, bytes) else part)
def test_files_of_other_kinds(data, words):
    refused(data, words)


def test_the_file_is_named(tmp_path):
    path = tmp_path / "broken.pt"
    path.write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(FileError, match=r"broken\.pt: the file is damaged"):
        torch.load(path)
    with pytest.raises(FileError, match=r"broken\.pt: the file is damaged"):
        torch.load(path, mmap=True)


def test_a_limit_of_the_system(tmp_path):
    """A gigabyte that a small file announces is not even asked for: it loads in a process that may not have so much."""
    path = tmp_path / "x.pt"
    path.write_bytes(checkpoint(program(tensor(stored=storage(count=1 << 36))), _0=FLOATS))
    code = f"""
import resource
import flambeau as torch
import flambeau.serialization
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (256 << 20),) * 2)
try:
    torch.load({str(path)!r})
except torch.serialization.FileError:
    print("refused")
"""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs /proc")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == "refused", done.stderr
    assert resource.RLIMIT_AS is not None


@pytest.mark.parametrize("size", [(0, 1 << 62, 1 << 62), (1 << 62, 0, 4)])
def test_sizes_beyond_memory_of_no_elements(size):
    data = checkpoint(program(tensor(size, (1,) * len(size))), _0=FLOATS)
    with pytest.raises(FileError, match="does not fit into memory"):
        torch.load(io.BytesIO(data))
