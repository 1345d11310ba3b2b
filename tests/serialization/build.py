"""Files for the tests, made by Python's own zipfile and pickle opcodes by hand, not by the code under test."""
import io
import pickle
import struct
import zipfile

STORAGE = b"c" + b"torch\nFloatStorage\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
HOOKS = b"ccollections\nOrderedDict\n)R"


def archive(records, folder="archive", method=zipfile.ZIP_STORED):
    """The bytes of a zip file with these records, in this order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in records.items():
            file.writestr(f"{folder}/{name}", data)
    return out.getvalue()


def checkpoint(pickled, **storages):
    """A checkpoint whose structure is the pickle `pickled`, with storages of the given keys (after an underscore)."""
    return archive({"data.pkl": pickled, "byteorder": b"little", "version": b"3\n",
                    **{f"data/{key[1:]}": data for key, data in storages.items()}})


def number(n):
    """The opcode that pushes `n`."""
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def text(words):
    raw = words.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def numbers(ns):
    return b"(" + b"".join(map(number, ns)) + b"t"


def storage(key="0", count=4, kind=STORAGE, location="cpu"):
    """A persistent id."""
    return b"(" + text("storage") + kind + text(key) + text(location) + number(count) + b"tQ"


def tensor(size=(4,), stride=(1,), offset=0, grad=b"\x89", stored=None):
    """The opcodes of a tensor over four floats."""
    stored = storage() if stored is None else stored
    return REBUILD + b"(" + stored + number(offset) + numbers(size) + numbers(stride) + grad + HOOKS + b"tR"


def program(*parts):
    return b"\x80\x02" + b"".join(parts) + b"."


FLOATS = struct.pack("<4f", 1.0, 2.0, 3.0, 4.0)


def legacy(structure, keys, storages, magic=0x1950A86A20F9469CFC6C, version=1001):
    """A file in PyTorch's format from before 1.6; `storages` are (number of elements, bytes)."""
    parts = [pickle.dumps(magic, 2), pickle.dumps(version, 2),
             pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2}}, 2),
             structure, pickle.dumps(keys, 2)]
    return b"".join(parts) + b"".join(struct.pack("<q", count) + data for count, data in storages)
