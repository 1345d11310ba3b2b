"""A fuzzer of files: real ones of every format, changed at random, with checksums that are made right again.

Each changed file loads or raises a FileError that says file and reason, in seconds and bytes that its size bounds.
`python -m tests.serialization.fuzz 20000` tries so many, prints what came of them, and shows the worst.
"""
import functools
import io
import random
import re
import struct
import sys
import tarfile
import tempfile
import time
import tracemalloc
import zipfile
from collections import Counter

import flambeau as torch
from flambeau import safetensors
from flambeau.serialization import FileError
from tests.serialization import build
from tests.serialization.bombs import TRUSTED, Trusted

SECONDS, SECONDS_PER_BYTE = 1.0, 20e-6      # of processor time
BYTES, BYTES_PER_BYTE = 80 << 20, 300       # 64 MiB may come out of compressed storages


def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


def checkpoint():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    marked = torch.nn.Parameter(torch.ones(2))
    marked.note = "mine"
    return saved({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "marked": marked, "n": 1 << 80,
                  "set": {1, 2}, "bytes": b"\0\1", "size": torch.Size([2, 3]), "c": torch.ones(2).to(torch.complex64),
                  "dtype": torch.float64, "device": torch.device("cpu"), (1, "key"): 2.5})


def deflated():
    source, out = zipfile.ZipFile(io.BytesIO(checkpoint())), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in source.namelist():
            file.writestr(name, source.read(name))
    return out.getvalue()


def older():
    one = build.tensor(stored=build.storage().removesuffix(b"tQ") + b"NtQ")
    other = build.tensor((2,), stored=build.storage("1", 2, b"ctorch\nLongStorage\n").removesuffix(b"tQ") + b"NtQ")
    return build.legacy(build.program(b"}(", build.text("w"), one, build.text("n"), other, b"u"), ["0", "1"],
                        [(4, build.FLOATS), (2, bytes(16))])


def script():
    """An archive as torch.jit.save lays it out."""
    return build.archive({"data.pkl": build.program(b"c__torch__\nNet\n)\x81}b"), "constants.pkl": build.program(b")"),
                          "code/__torch__.py": b"class Net(Module):\n  pass\n", "version": b"3\n"})


def tar():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for name, data in (("storages", b"\x80\x02K\0."), ("tensors", b"\x80\x02K\0."), ("pickle", b"\x80\x02}.")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def programs():
    """Pickles that use every opcode, and every name that a file may use."""
    parts = [build.tensor(), b"0", build.HOOKS, b"}", build.text("a"), b"Nsb0",
             TRUSTED, b")\x81}", build.text("b"), b"Nsb0",
             b"ctorch._utils\n_rebuild_parameter_with_state\n(", build.tensor(), b"\x89", build.HOOKS, b"}",
             build.text("note"), b"NstR0", b"ccollections\nCounter\n}\x85R0", b"c__builtin__\nset\n](K\1e\x85R0",
             b"\x8f(K\1K\2\x90q\0", b"0(K\1\x91q\1", b"0h\1}h\1Ns0", b"0c__builtin__\ncomplex\nG", bytes(8), b"G",
             bytes(8), b"\x86R0", TRUSTED, b")}", build.text("k"), b"Ns\x920N"]
    return build.checkpoint(build.program(*parts), _0=build.FLOATS)


SOURCES = {"zip": checkpoint, "deflated": deflated, "older": older, "script": script, "tar": tar,
           "programs": programs,
           "safetensors": lambda: safetensors.save({"a": torch.ones(2, 3), "b": torch.ones(4), "c": torch.zeros(0)})}
TOKENS = [*(bytes([code]) for code in b"(t]})eusaRbQN02.\x81\x85\x86\x87\x88\x8f\x90\x91\x92\x93\x94"),
          b"h\0", b"h\1", b"q\0", b"q\1", b"\xff\xff\xff\xff", TRUSTED, build.REBUILD, build.STORAGE, build.HOOKS,
          build.tensor(), build.storage(), *(b"c" + name + b"\n" for name in (
              b"torch\nTensor", b"torch\nSize", b"torch._tensor\n_rebuild_from_type_v2", b"__builtin__\nset",
              b"torch._utils\n_rebuild_parameter", b"_codecs\nencode", b"posix\nsystem")),
          *map(build.text, ("__array_interface__", "__setstate__", "__class__")), *map(build.number, (1 << 62, -1))]


def changed(data, draw):
    """Bytes overwritten, cut out, put in, doubled, or taken from elsewhere in the file."""
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[at:at + 4] = draw.choice((bytes(4), b"\xff" * 4, b"\xff\xff\xff\x7f", draw.randbytes(4)))
        elif kind == 2:
            del data[at:at + draw.choice((1, 4, 40, 400))]
        elif kind == 3:
            data[at:at] = draw.choice(TOKENS)
        elif kind == 4:
            data[at:at + 1] = draw.choice(TOKENS)
        elif kind == 5:
            start = draw.randrange(len(data) + 1)
            data[at:at] = data[start:start + draw.choice((4, 30, 200))]
        elif kind == 6:
            data[at:at] = data[at:at + draw.choice((2, 8, 30))] * draw.choice((2, 50, 1000))
    return bytes(data)


def inside(data, draw):
    """A zip file with one record changed and everything around it right, so that the reader gets to see it."""
    source, out = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    names = source.namelist()
    # the structure is what there is most to say about; our own checksums would give every change away
    chosen = draw.choice([name for name in names if name.endswith(".pkl")] * 6 + names)
    with zipfile.ZipFile(out, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for name in names:
            if not name.endswith("/.flambeau/checksums") or name == chosen:
                file.writestr(name, changed(source.read(name), draw) if name == chosen else source.read(name))
    return out.getvalue()


NUMBERS = (b"0", b"7", b"2147483648", b"4611686018427387904", b"9223372036854775807", b"-1", b"1e9", b"9" * 5000)
ESCAPES = (b"\\ud800", b"\\uDFFF", b"\\ud83d\\ude00", b"\\u0000", b"\\x", b"\xed\xa0\x80", b"\xff")


def header(data, draw):
    """A safetensors file with a changed header, whose length is right."""
    size = int.from_bytes(data[:8], "little")
    raw = bytearray(changed(data[8:8 + size], draw) if draw.random() < 0.5 else data[8:8 + size])
    if draw.random() < 0.3:                                 # sizes that say nothing, or far too much, of no bytes
        sizes = [draw.choice((*NUMBERS, b"0", b"1")) for _ in range(draw.randrange(1, 70))]
        raw = bytearray(raw.replace(b'"shape":[0]', b'"shape":[%s]' % b",".join(sizes)))
    if draw.random() < 0.3:
        at = draw.choice([m.end() for m in re.finditer(b'"', raw)])
        raw[at:at] = draw.choice(ESCAPES)
    for _ in range(draw.choice((0, 1, 2))):
        digits = [at for at, byte in enumerate(raw) if 48 <= byte < 58]
        if digits:
            at = draw.choice(digits)
            raw[at:at + 1] = draw.choice(NUMBERS)
    return struct.pack("<Q", len(raw)) + raw + data[8 + size:]


@functools.cache
def sources():
    return {name: make() for name, make in SOURCES.items()}


def case(seed):
    """(format, the bytes of the changed file) of a number."""
    draw, files = random.Random(seed), sources()
    name = draw.choice(list(files))
    data = files[name]
    if name == "safetensors" and draw.random() < 0.7:
        return name, header(data, draw)
    if data.startswith(b"PK") and draw.random() < 0.7:
        return name, inside(data, draw)
    return name, changed(data, draw)


HOW: tuple = ({}, {}, {}, {"map_location": "meta"}, {"verify": False}, {"encoding": "bytes"},
              {"mmap": True})


def load(name, data, how):
    with torch.serialization.safe_globals([Trusted]):
        if name == "safetensors":
            return safetensors.load(data)
        if "mmap" not in how:
            return torch.load(io.BytesIO(data), **how)
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return torch.load(file.name, verify=True, **how)


def attempt(seed, traced=False):
    """(format, outcome, size, seconds, bytes) of one case; anything but a FileError is raised."""
    name, data = case(seed)
    if traced:
        tracemalloc.start()
    begun = time.process_time()
    try:
        outcome = check(load(name, data, HOW[seed // 4 % len(HOW)]))
    except FileError as error:
        outcome = "refused"
        words = str(error)
        words.encode()
        assert words.startswith(f"{error.file}: ") and len(words) < 4000, words
    took, most = time.process_time() - begun, 0
    if traced:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return name, outcome, len(data), took, most


def check(made):
    """No object of what was loaded has an attribute by which Python or NumPy would ask it what it is."""
    stack, seen = [made], set()
    while stack:
        thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        held = getattr(thing, "__dict__", {})
        assert not [key for key in held if isinstance(key, str) and key.startswith("__")], held
        stack.extend(held.values() if isinstance(thing, Trusted) else ())
        stack.extend([*thing.keys(), *thing.values()] if isinstance(thing, dict) else
                     thing if isinstance(thing, (list, tuple, set, frozenset)) else ())
    return "loaded"


def bounded(size, took, most):
    return took <= SECONDS + SECONDS_PER_BYTE * size and most <= BYTES + BYTES_PER_BYTE * size


def main(cases):
    outcomes, slowest, largest = Counter(), (0.0,), (0.0,)
    for seed in range(cases):
        name, outcome, size, took, most = attempt(seed, traced=seed % 4 == 0)
        assert bounded(size, took, most), (seed, name, size, took, most)
        outcomes[name, outcome] += 1
        if seed % 4:                                    # a traced one takes longer
            slowest = max(slowest, (took / size, seed, name, size, took))
        largest = max(largest, (most / size, seed, name, size, most))
    for name in SOURCES:
        print(f"{name:12} {outcomes[name, 'loaded']:6} loaded {outcomes[name, 'refused']:6} refused")
    print(f"slowest for its size: case {slowest[1]} ({slowest[2]}), {slowest[3]} bytes, {slowest[4] * 1e3:.1f} ms")
    print(f"largest for its size: case {largest[1]} ({largest[2]}), {largest[3]} bytes, {largest[4]} bytes")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
