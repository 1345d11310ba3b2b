"""Families of files that are made to keep a reader busy, each of any size: `FAMILIES[name](n)` gives about `n` bytes.

Every one of them does, with a few bytes each time, something that costs as much as the rest of the file is long; or it
is the densest that the format allows. `load` either loads it or refuses it with a FileError, in time and memory in
proportion to `n`. `python -m tests.serialization.bombs` prints what it takes.
"""
import io
import json
import struct
import sys
import time
import tracemalloc
import zipfile

import numpy as np

import flambeau as torch
from flambeau import safetensors
from flambeau.backends.cpu.memory import allocator
from flambeau.serialization import FileError
from flambeau.serialization.errors import naming
from flambeau.serialization.safetensors import Reader
from tests.serialization.build import (
    FLOATS,
    HOOKS,
    REBUILD,
    archive,
    checkpoint,
    legacy,
    number,
    program,
    storage,
    tensor,
    text,
)

FAMILIES: dict = {}
ORDERED = b"ccollections\nOrderedDict\n"


class Trusted:
    """A class that the user trusts, for what a file can do with one."""

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)


TRUSTED = f"c{__name__}\nTrusted\n".encode()


def family(function):
    FAMILIES[function.__name__.replace("_", " ")] = function
    return function


def attributes(n):
    """A dictionary of names, about `n` bytes of it."""
    return b"}(" + b"".join(text(f"a{i}") + b"N" for i in range(n // 13)) + b"u"


def long_text(n):
    return b"X" + struct.pack("<I", n) + b"x" * n


def repeated(n, part):
    return part * (n // len(part))


# --- pickles --------------------------------------------------


@family
def an_honest_checkpoint(n):
    file = io.BytesIO()
    torch.save({f"layer{i}.weight": torch.zeros(3, 4) for i in range(n // 500)}, file)
    return file.getvalue()


@family
def one_state_for_many_dictionaries(n):
    return checkpoint(program(attributes(n // 2), b"q\0", b"0", ORDERED, b")Rq\1", repeated(n // 2, b"h\0b")))


@family
def one_state_for_many_objects(n):
    return checkpoint(program(attributes(n // 2), b"q\0", b"0", TRUSTED, b")\x81q\1", repeated(n // 2, b"h\0b")))


@family
def one_state_for_many_parameters(n):
    call = b"h\2h\1\x89h\3h\0tR0"
    return checkpoint(program(attributes(n // 2), b"q\0", b"0", tensor(), b"q\1", b"0",
                              b"ctorch._utils\n_rebuild_parameter_with_state\nq\2", b"0", HOOKS, b"q\3", b"0",
                              repeated(n // 2, call.replace(b"h\2", b"h\2(", 1)), b"N"), _0=FLOATS)


@family
def many_unknown_globals(n):
    return checkpoint(program(b"".join(f"cm{i}\nx\n0".encode() for i in range(n // 10)), b"N"))


@family
def a_long_name_of_a_global_often(n):
    return checkpoint(program(b"cm\nx\n0", long_text(n // 2), b"q\0", b"0", repeated(n // 2, b"h\0h\0\x930"), b"N"))


@family
def shared_keywords(n):
    return checkpoint(program(attributes(n // 2), b"q\0", b"0", TRUSTED, b"q\1", b"0",
                              repeated(n // 2, b"h\1)h\0\x920"), b"N"))


@family
def shared_arguments(n):
    return checkpoint(program(b"(", b"N" * (n // 2), b"tq\0", b"0", TRUSTED, b"q\1", b"0",
                              repeated(n // 2, b"h\1h\0\x810"), b"N"))


def key_of_many(n, key):
    return checkpoint(program(key, b"q\0", b"0", repeated(n // 2, b"}h\0Ns0"), b"N"))


@family
def a_big_integer_as_key_of_many(n):
    return key_of_many(n, b"\x8b" + struct.pack("<I", n // 2) + b"\x7f" * (n // 2))


@family
def a_big_integer_in_a_tuple_as_key_of_many(n):
    return key_of_many(n, b"\x8b" + struct.pack("<I", n // 2) + b"\x7f" * (n // 2) + b"\x85")


@family
def equal_long_keys(n):
    return checkpoint(program(long_text(n // 4), b"q\0", b"0", long_text(n // 4), b"q\1", b"0",
                              repeated(n // 2, b"}h\0Nsh\1Ns0"), b"N"))


@family
def equal_long_keys_in_tuples(n):
    return checkpoint(program(long_text(n // 4), b"\x85q\0", b"0", long_text(n // 4), b"\x85q\1", b"0",
                              repeated(n // 2, b"}h\0Nsh\1Ns0"), b"N"))


@family
def keys_that_collide(n):
    modulus = (1 << 61) - 1
    return checkpoint(program(b"}(", b"".join(number(modulus * (i + 1024)) + b"N" for i in range(n // 12)), b"u"))


@family
def keys_that_take_for_ever_to_hash(n):
    return checkpoint(program(b")q\0", repeated(n, b"0h\0h\0\x86q\0"), b"0}h\0Ns"))


@family
def a_list_made_into_many_sets(n):
    return checkpoint(program(b"](", b"".join(number(i) for i in range(n // 8)), b"eq\0",
                              b"0c__builtin__\nset\nq\1", b"0", repeated(n // 2, b"h\1h\0\x85R0"), b"N"))


@family
def one_text_encoded_often(n):
    return checkpoint(program(long_text(n // 2), b"q\0", b"0c_codecs\nencode\nq\1", b"0", text("latin1"), b"q\2", b"0",
                              repeated(n // 2, b"h\1h\0h\2\x86R0"), b"N"))


@family
def a_long_key_of_a_storage_often(n):
    length = min(n // 4, 60_000)
    pid = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + long_text(length) + text("cpu") + number(4) + b"t"
    return checkpoint(program(pid, b"q\0", repeated(n // 2, b"h\0Q0")), **{"_" + "x" * length: FLOATS})


@family
def nested_rebuilds(n):
    """Each the arguments of the next."""
    names = b"ctorch._tensor\n_rebuild_from_type_v2\nq\0" + b"0ctorch\nTensor\nq\1" + b"0}q\2" + b"0"
    plain = tensor().removeprefix(REBUILD).removesuffix(b"R")
    return checkpoint(program(names, b"(", REBUILD, b"h\1", plain, b"h\2t", repeated(n, b"q\3" + b"0(h\0h\1h\3h\2t"),
                              b"q\3" + b"0h\0h\3R"), _0=FLOATS)


@family
def many_empty_sets(n):
    return checkpoint(program(b"(", b"\x8f" * n, b"t"))


@family
def many_tensors_over_one_storage(n):
    one = tensor()
    args = one.removeprefix(REBUILD).removesuffix(b"R")
    return checkpoint(program(args, b"q\0", b"0", REBUILD, b"q\1", b"0(", repeated(n, b"h\1h\0R"), b"t"), _0=FLOATS)


@family
def laughs(n):
    return checkpoint(program(b"]q\0", repeated(n, b"0](h\0h\0eq\0")))


# --- archives --------------------------------------------------


def deflated(records):
    return archive(records, method=zipfile.ZIP_DEFLATED)


@family
def a_deflated_structure(n):
    """A thousand times as long when it is unpacked."""
    return deflated({"data.pkl": program(b"(", b"]" * (n * 1000), b"t")})


@family
def a_deflated_list_of_checksums(n):
    return deflated({"data.pkl": program(b"N"), ".flambeau/checksums": b"[" + b"[]," * (n * 300) + b"0]"})


@family
def a_deflated_storage(n):
    count = min(n * 250, 1 << 27)
    return deflated({"data.pkl": program(tensor((count,), stored=storage(count=count))), "data/0": bytes(count * 4)})


@family
def many_storages_with_a_wrong_checksum(n):
    count = n // 300
    data = bytearray(checkpoint(
        program(b"(", b"".join(tensor(stored=storage(str(i))) for i in range(count)), b"t"),
        **{f"_{i}": FLOATS for i in range(count)}))
    at = data.find(FLOATS)
    while at >= 0:
        data[at] ^= 1
        at = data.find(FLOATS, at)
    return bytes(data)


@family
def many_records_without_contents(n):
    return archive({"data.pkl": program(b"N"), **{f"r{i}": b"" for i in range(n // 120)}})


# --- the older format --------------------------------------------------


@family
def many_storages_of_nothing_in_the_older_format(n):
    count = n // 130
    kinds = [storage(str(i), 0).removesuffix(b"tQ") + b"NtQ" for i in range(count)]
    return legacy(program(b"(", *[tensor((0,), stored=kind) for kind in kinds], b"t"), [str(i) for i in range(count)],
                  [(0, b"")] * count)


# --- safetensors --------------------------------------------------


def safe(header, data=b""):
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


@family
def safetensors_aliases(n):
    one = torch.zeros(n // 8)
    return safetensors.save({f"name{i}": one for i in range(n // 50)})


@family
def safetensors_without_contents(n):
    return safe({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(n // 70)})


@family
def safetensors_nested_deeply(n):
    raw = b"[" * n
    return len(raw).to_bytes(8, "little") + raw


# --- what a file takes --------------------------------------------------


def load(data):
    """Load the file, looking at every tensor of it; "loaded", or the FileError that refuses it."""
    try:
        with torch.serialization.safe_globals([Trusted]):
            if data[8:9] in (b"{", b"["):
                with naming("the data"):
                    reader = Reader(np.frombuffer(bytearray(data), np.uint8), "the data")
                    reader.read_header()
                    for name in reader.keys():
                        reader.get_tensor(name)
            else:
                torch.load(io.BytesIO(data))
    except FileError as error:
        return error
    return "loaded"


def timed(data):
    """Seconds of processor time that it takes."""
    begun = time.process_time()
    load(data)
    return time.process_time() - begun


def measured(data):
    """(what came of it, seconds of processor time, the most bytes that were held beside the file)."""
    took = timed(data)
    tracemalloc.start()
    allocator.reset_peaks()
    before = allocator.allocated()
    found = load(data)
    most = tracemalloc.get_traced_memory()[1] + allocator.stats()["allocated_bytes.all.peak"] - before
    tracemalloc.stop()
    return found, took, most


def main(sizes):
    print(f"{'':48}" + "".join(f"{f'{size >> 10} KiB':>20}" for size in sizes))
    for name, make in FAMILIES.items():
        columns = []
        for size in sizes:
            data = make(size)
            found, took, most = measured(data)
            columns.append(f"{took:8.3f} s {most / 2**20:6.1f} MiB")
        print(f"{name:48}{''.join(columns)}  {'loaded' if found == 'loaded' else 'refused'}", flush=True)


if __name__ == "__main__":
    main([int(size) << 10 for size in sys.argv[1:]] or [64 << 10, 256 << 10, 1024 << 10])
