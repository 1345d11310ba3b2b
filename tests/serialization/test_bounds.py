"""What a file may cost, and what it may set: every family of bombs, thousands of changed files, every kind of name."""

import collections

import numpy as np
import pytest

import flambeau as torch
from flambeau.serialization import FileError
from tests.serialization import bombs, fuzz
from tests.serialization.build import FLOATS, REBUILD, checkpoint, number, program, tensor, text
from tests.serialization.test_hostile import load, refused
from tests.thorough import sample

pytestmark = pytest.mark.pinned

SMALL, LARGE = 1 << 15, 1 << 17


@pytest.mark.parametrize("name", sample(bombs.FAMILIES, 6))
def test_work_is_in_proportion_to_the_file(name):
    """Four times the file takes about four times as long, and what is held has a bound."""
    little = bombs.timed(bombs.FAMILIES[name](SMALL))
    data = bombs.FAMILIES[name](LARGE)
    found, took, most = bombs.measured(data)
    # Generous: what is looked for is work that grows with the square, sixteen times as long, and bombs.
    assert took < 2 + 10e-6 * len(data) and (took < 2 or took < 10 * little), (little, took)
    spare = 68 << 20 if name == "a deflated storage" else 4 << 20
    assert most < spare + 300 * len(data), most
    if found != "loaded":
        assert found.file is not None and str(found).startswith(f"{found.file}: ")


def test_changed_files_of_every_format():
    """Each loads or raises a FileError, within its bounds; `python -m tests.serialization.fuzz` tries many more."""
    outcomes = collections.Counter()
    for seed in range(1500):
        name, outcome, size, took, most = fuzz.attempt(seed, traced=seed % 8 == 0)
        assert fuzz.bounded(size, took, most), (seed, name, size, took, most)
        outcomes[name, outcome] += 1
    assert {name for name, _ in outcomes} == set(fuzz.SOURCES)
    assert {outcome for name, outcome in outcomes if name == "programs"} == {"loaded", "refused"}


# --- what a file may set: see the Note of that name in serialization/allowed_globals.py ------------------------------


class Plain:
    pass


class Slots:
    __slots__ = ("kept", "__dict__")

    @property
    def computed(self):
        raise AssertionError("a property was called")

    @computed.setter
    def computed(self, value):
        raise AssertionError("a property was called")


class Owned(torch.Tensor):
    pass


def state(name, value=b"K\1"):
    return b"}" + text(name) + value + b"s"


def rebuilt(cls, held):
    """A tensor of a class, with this state."""
    plain = tensor().removeprefix(REBUILD).removesuffix(b"R")
    return b"ctorch._tensor\n_rebuild_from_type_v2\n(" + REBUILD + cls + plain + held + b"tR"


def named(cls):
    return f"c{cls.__module__}\n{cls.__qualname__}\n".encode()


CARRIERS = {
    "OrderedDict": lambda held: b"ccollections\nOrderedDict\n)R" + held + b"b",
    "Tensor": lambda held: rebuilt(b"ctorch\nTensor\n", held),
    "subclass": lambda held: rebuilt(named(Owned), held),
    "Parameter": lambda held: (b"ctorch._utils\n_rebuild_parameter_with_state\n(" + tensor() + b"\x89"
                               b"ccollections\nOrderedDict\n)R" + held + b"tR"),
    "trusted": lambda held: named(Plain) + b")\x81" + held + b"b",
    "trusted, both parts": lambda held: named(Plain) + b")\x81" + held + b"N\x86b",
    "slots": lambda held: named(Slots) + b")\x81N" + held + b"\x86b",
}
SPECIAL = sorted({"__array_interface__", "__array_struct__", "__array__", "__array_function__", "__array_ufunc__",
                  "__setstate__", "__reduce__", "__class__", "__dict__", "__del__", "__torch_function__", "__dlpack__",
                  "__getstate__", "__deepcopy__", "__iter__", "__len__", "__anything__", "____", *dir(object)})


@pytest.mark.parametrize("carrier", CARRIERS)
def test_no_file_sets_a_special_name(carrier):
    with torch.serialization.safe_globals([Plain, Slots, Owned]):
        for name in SPECIAL:
            refused(checkpoint(program(CARRIERS[carrier](state(name))), _0=FLOATS), f"it sets '{name}' of a ")
        for name in ("note", "_own"):
            if carrier == "slots":
                refused(checkpoint(program(CARRIERS[carrier](state(name))), _0=FLOATS), "no such slot")
            else:
                assert vars(load(checkpoint(program(CARRIERS[carrier](state(name))), _0=FLOATS)))[name] == 1


def test_numpy_does_not_read_where_a_file_says():
    """As it was done: an address in an OrderedDict, which NumPy would read and write."""
    interface = b"}(" + text("data") + number(1 << 40) + b"\x89\x86" + text("shape") + number(4) + b"\x85" + \
        text("typestr") + text("<f8") + text("version") + number(3) + b"u"
    for make in CARRIERS.values():
        with torch.serialization.safe_globals([Plain, Slots, Owned]):
            refused(checkpoint(program(make(state("__array_interface__", interface))), _0=FLOATS), "sets '__array_in")
    harmless = load(checkpoint(program(CARRIERS["OrderedDict"](state("data", number(1 << 40))))))
    assert np.asarray(harmless).dtype == object


def test_a_class_is_asked_by_its_type():
    """A first state cannot say what is done with a second, and a property is no slot."""
    with torch.serialization.safe_globals([Plain, Slots, print]):
        twice = named(Plain) + b")\x81" + state("__setstate__", b"cbuiltins\nprint\n") + b"b" + state("x") + b"b"
        refused(checkpoint(program(twice)), "it sets '__setstate__' of a Plain")
        assert load(checkpoint(program(CARRIERS["slots"](state("kept"))))).kept == 1
        refused(checkpoint(program(CARRIERS["slots"](state("computed")))), "no such slot")
        found = load(checkpoint(program(named(Slots) + b")\x81" + state("computed") + b"b")))
        assert vars(found) == {"computed": 1}
        refused(checkpoint(program(b"cbuiltins\nprint\n)\x81")), "no class")


# --- one exception --------------------------------------------------


def test_an_error_says_file_record_and_reason(tmp_path):
    path = tmp_path / "net.pt"
    for data, record, reason in (
            (checkpoint(program(b"t")), "data.pkl", "data.pkl is damaged, at byte 2: a mark is missing"),
            (checkpoint(program(b"cm\nx\n")), "data.pkl", "data.pkl: Weights only load failed. Unsupported global"),
            (checkpoint(program(tensor()), _0=FLOATS).replace(FLOATS, FLOATS[::-1]), "data/0",
             "the saved tensor is damaged"),
            (fuzz.build.legacy(program(b"t"), [], []), "the structure", "the structure is damaged, at byte "),
            (b"PK\3\4" + bytes(40), None, "the file is damaged or was cut off")):
        path.write_bytes(data)
        with pytest.raises(FileError) as caught:
            torch.load(path)
        assert str(caught.value).startswith(f"{path}: {reason}")
        assert (caught.value.file, caught.value.record) == (str(path), record)
