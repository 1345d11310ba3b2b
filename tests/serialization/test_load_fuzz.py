"""Bytes changed at random: a file loads with the contents it had, or is refused with a FileError; nothing else."""

import io
import struct

import numpy as np
from hypothesis import example, given, settings, strategies as st

import flambeau as torch
from flambeau import safetensors
from flambeau.serialization import FileError
from tests.serialization import build

THING = {"w": torch.arange(6.0).view(2, 3), "n": 3, "list": [torch.ones(2, dtype=torch.int16), "text", (1, 2.5)],
         "od": {"state": {0: {"step": torch.tensor(4.0)}}}}
STATE = {"layer.weight": torch.arange(6.0).view(2, 3), "layer.bias": torch.ones(3, dtype=torch.bfloat16)}


def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


SOUND = saved(THING)
OLD = build.legacy(build.program(b"}(", build.text("w"),
                                 build.tensor(stored=build.storage().removesuffix(b"tQ") + b"NtQ"), b"u"), ["0"],
                   [(4, build.FLOATS)])
SAFE = safetensors.save(STATE, {"who": "me"})


def plain(thing):
    """Contents that can be compared: dtypes, shapes and bits of tensors."""
    if isinstance(thing, torch.Tensor):
        return str(thing.dtype), tuple(thing.shape), thing.detach().to(torch.float64).numpy().tobytes()
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items()}
    return [plain(part) for part in thing] if isinstance(thing, (list, tuple)) else thing


def changes(data):
    """Some bytes overwritten, cut out, put in or swapped."""
    places = st.integers(0, len(data) - 1)
    overwrite = st.tuples(st.just("over"), places, st.binary(min_size=1, max_size=8))
    cut = st.tuples(st.just("cut"), places, st.integers(1, 300))
    insert = st.tuples(st.just("in"), places, st.binary(min_size=1, max_size=40))
    copy = st.tuples(st.just("copy"), places, places)
    return st.lists(st.one_of(overwrite, overwrite, cut, insert, copy), min_size=1, max_size=3)


def changed(data, steps):
    for kind, at, what in steps:
        if kind == "over":
            data = data[:at] + what + data[at + len(what):]
        elif kind == "cut":
            data = data[:at] + data[at + what:]
        elif kind == "in":
            data = data[:at] + what + data[at:]
        else:
            data = data[:at] + data[what:what + 60] + data[at + 60:]
    return data


def check(load, data, expected):
    try:
        found = load(data)
    except FileError:
        return
    if expected is not None:
        assert plain(found) == plain(expected)


def load_bytes(data):
    return torch.load(io.BytesIO(data))


@settings(max_examples=150, deadline=None)
@given(changes(SOUND))
def test_changed_checkpoints(steps):
    check(load_bytes, changed(SOUND, steps), THING)


@settings(max_examples=150, deadline=None)
@given(changes(SAFE))
def test_changed_safetensors(steps):
    data = changed(SAFE, steps)
    # Without their name the checksums are a note like any other.
    check(safetensors.load, data, STATE if b'"flambeau.crc32"' in data else None)


@settings(max_examples=100, deadline=None)
@given(changes(OLD))
def test_changed_files_of_the_older_format(steps):
    check(load_bytes, changed(OLD, steps), None)              # it has no checksums: any contents will do


OPCODES = [bytes([code]) for code in range(256)]
PARTS = st.one_of(
    st.sampled_from(OPCODES),
    st.sampled_from([b"(", b"t", b"]", b"}", b")", b"e", b"u", b"s", b"a", b"R", b"b", b"\x81", b"Q",
                                               b"q\0", b"h\0", b"q\1", b"h\1", b"N", b"0", b"2", b"\x85", b"\x86",
                                               b"\x94"]),
    st.binary(min_size=1, max_size=6).map(lambda raw: b"X" + struct.pack("<I", len(raw)) + raw),
    st.integers(-2**70, 2**70).map(build.number), st.integers(0, 255).map(lambda n: b"K" + bytes([n])),
    st.sampled_from([b"c" + name + b"\n" for name in (
        b"torch._utils\n_rebuild_tensor_v2", b"torch._utils\n_rebuild_tensor_v3", b"torch._utils\n_rebuild_parameter",
        b"torch._utils\n_rebuild_parameter_with_state", b"torch._utils\n_rebuild_meta_tensor_no_storage",
        b"torch._tensor\n_rebuild_from_type_v2", b"torch\nFloatStorage", b"torch\nfloat32", b"torch\nSize",
        b"torch\ndevice",
        b"torch\nTensor", b"torch.nn.parameter\nParameter", b"collections\nOrderedDict", b"collections\nCounter",
        b"__builtin__\nset", b"__builtin__\nfrozenset", b"__builtin__\ncomplex", b"__builtin__\nbytearray",
        b"_codecs\nencode", b"os\nsystem", b"x\ny")]),
    st.sampled_from([build.tensor(), build.storage(), build.tensor((2, 2), (1, 2)), build.HOOKS]))


@settings(max_examples=400, deadline=None)
@given(st.lists(PARTS, max_size=30))
@example([build.tensor(), b"\x88", build.HOOKS, b"\x87"])
def test_random_programs(parts):
    """Any sequence of opcodes, in archives whose checksums are right."""
    check(load_bytes, build.checkpoint(build.program(*parts), _0=build.FLOATS), None)
    check(load_bytes, build.legacy(build.program(*parts), ["0"], [(4, build.FLOATS)]), None)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\3\4", b"\x80\x02", OLD[:40]]))
def test_random_bytes(data, start):
    check(load_bytes, start + data, None)
    check(safetensors.load, start + data, None)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=10),
              st.binary(max_size=10),
              st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4),
                            st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner,
                                                                          max_size=4),
                            st.tuples(inner, inner), st.frozensets(st.integers(), max_size=3)), max_leaves=12)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_any_plain_value_comes_back(value):
    assert load_bytes(saved(value)) == value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_view_comes_back(data):
    base = torch.tensor(np.arange(24, dtype=np.float32))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
    strides = data.draw(st.lists(st.integers(0, 4), min_size=len(shape), max_size=len(shape)))
    offset = data.draw(st.integers(0, 23))
    if offset + sum((n - 1) * step for n, step in zip(shape, strides)) >= 24:
        offset, strides = 0, [0] * len(shape)
    view = base.as_strided(shape, strides, offset)
    back = load_bytes(saved([view, base]))
    assert (back[0].shape, back[0].stride(), back[0].storage_offset()) == (tuple(shape), tuple(strides), offset)
    assert back[0].tolist() == view.tolist() and back[0].untyped_storage() == back[1].untyped_storage()
