"""One lookup through all places that code is kept in: their order, what each may do wrong, and who else asks."""
import ctypes
import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from flambeau.backends.kernel_store import files, packaged
from flambeau.backends.kernel_store.object_cache import ObjectCache, say_warnings
from flambeau.backends.kernel_store.precompiled import INDEX, PrecompiledHost
from flambeau.backends.kernel_store.store import CacheTier, KernelStore, digest, reference
from tests.patience import PATIENCE

GOAL = SimpleNamespace(triple="abacus-unknown-linux", cpu="abacus", on=frozenset(), target=(1,))


class Loader:
    """Puts objects in memory that are JSON, {name: address}."""

    toolchain = "abacus 1"

    def __init__(self):
        self.placed = []

    def load(self, code, symbols):
        self.placed.append(code)
        try:
            return json.loads(code)
        except ValueError as error:
            raise RuntimeError(f"no object: {error}") from None

    def address(self, library, name):
        if name not in library:
            raise RuntimeError(f"no {name}")
        return library[name]


class Noting(CacheTier):
    """Entries in a dictionary, and what was asked of them."""

    def __init__(self, entries=()):
        self.entries, self.asked, self.distrusted = dict(entries), [], []

    def read(self, key, text=None):
        self.asked.append(key)
        return self.entries.get(key)

    def write(self, key, entry):
        self.entries[key] = entry

    def distrust(self, key, error):
        self.distrusted.append((key, str(error)))


def code(**addresses):
    return json.dumps(addresses).encode()


@pytest.fixture
def loader():
    return Loader()


def key_of(text):
    return KernelStore(Loader()).key(text)


ONE, TWO = key_of("one"), key_of("two")


# --- the lookup -------------------------------------------------------------------------------------------------------


def test_places_are_asked_in_their_order_and_what_was_found_is_remembered(loader):
    first, second, third = Noting(), Noting({ONE: code(f=2)}), Noting({ONE: code(f=3)})
    store = KernelStore(loader, first, second, third)
    assert store.read(ONE) is None and store.find(ONE, "f") == 2 and store.read(ONE) == {"f": 2}
    assert (first.asked, second.asked, third.asked) == ([ONE], [ONE], [])
    assert store.find(ONE, "f") == 2 and store.addresses == {(ONE, "f"): 2}
    assert second.asked == [ONE] and len(loader.placed) == 1


def test_what_is_nowhere_is_not_found_and_is_asked_for_again(loader):
    place = Noting()
    store = KernelStore(loader, place)
    assert store.find(ONE, "f") is None and not store.addresses
    place.entries[ONE] = code(f=1)
    assert store.find(ONE, "f") == 1


def test_nothing_is_written_by_finding(loader):
    empty, full = Noting(), Noting({ONE: code(f=1)})
    KernelStore(loader, empty, full).find(ONE, "f")
    assert empty.entries == {} and full.entries == {ONE: code(f=1)}


@pytest.mark.parametrize("entry", [b"", b"no object", code(g=1), reference(TWO), b"see nothing"],
                         ids=["empty", "damaged", "without it", "refers to nothing", "refers to no key"])
def test_a_broken_place_does_not_hide_the_next(loader, entry):
    broken, whole = Noting({ONE: entry}), Noting({ONE: code(f=1)})
    store = KernelStore(loader, broken, whole)
    assert store.find(ONE, "f") == 1 and not whole.distrusted
    assert [key for key, _ in broken.distrusted] == [ONE] * (entry in (b"no object", code(g=1)))


def test_what_cannot_be_linked_is_not_remembered(loader):
    store = KernelStore(loader, Noting({ONE: code(g=1)}))
    assert store.find(ONE, "f") is None and not store.libraries
    assert store.find(ONE, "g") == 1


def test_an_object_of_several_texts_is_put_in_memory_once(loader):
    whole = key_of("both")
    store = KernelStore(loader, Noting({ONE: reference(whole), TWO: reference(whole), whole: code(f=1, g=2)}))
    assert store.find(ONE, "f") == 1 and store.find(TWO, "g") == 2 and len(loader.placed) == 1


def test_a_reference_to_a_reference_is_none(loader):
    store = KernelStore(loader, Noting({ONE: reference(TWO), TWO: reference(ONE)}))
    assert store.find(ONE, "f") is None and not loader.placed


def test_what_is_kept_is_found_here_and_by_the_next(loader):
    place = Noting()
    store = KernelStore(loader, place)
    store.keep({"f": "one", "g": "two", "again": "one"}, code(f=1, g=2, again=1))
    assert store.find(ONE, "f") == store.find(ONE, "again") == 1 and not place.asked
    assert len(place.entries) == 3 and place.entries[ONE] == place.entries[TWO] == reference(digest(ONE + TWO))
    later = KernelStore(Loader(), place)
    assert (later.find(TWO, "g"), later.find(ONE, "f")) == (2, 1) and len(later.loader.placed) == 1


def test_what_cannot_be_linked_is_not_kept(loader):
    place = Noting()
    store = KernelStore(loader, place)
    with pytest.raises(RuntimeError, match="no g"):
        store.keep({"f": "one", "g": "two"}, code(f=1))
    assert not place.entries and not store.addresses and not store.libraries


def test_another_compiler_is_another_key(loader):
    store, before = KernelStore(loader), key_of("one")
    loader.toolchain = "abacus 2"
    assert store.key("one") != before


# --- the places -------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path):
    """`package(texts, code)` is a PackagedKernels with one object."""
    def make(texts, made, origins=()):
        folder = tmp_path / "package"
        folder.mkdir(exist_ok=True)
        packaged.write(str(folder / "kernels-abacus.bin"), "1", GOAL, [(texts, made)], origins)
        return packaged.PackagedKernels("1", GOAL, str(folder))
    return make


@pytest.fixture
def users(tmp_path):
    return ObjectCache(str(tmp_path / "users"), 1 << 20)


def test_the_package_comes_before_the_users_folder(loader, package, users):
    users.write(ONE, code(f=2))
    users.write(TWO, code(g=3))
    store = KernelStore(loader, package(["one"], code(f=1)), users)
    assert store.find(ONE, "f", "one") == 1 and store.find(TWO, "g", "two") == 3
    assert store.find(key_of("three"), "f", "three") is None


def test_a_function_of_the_package_is_found_before_its_text_is_written(loader, package, users):
    store = KernelStore(loader, users, package(["one"], code(f=1), [("words", "f", "one")]))
    name, whole = store.function("words")
    assert store.find(whole, name) == 1 and store.function("others") is None
    assert store.find(ONE, "f", "one") == 1 and len(loader.placed) == 1          # it is the same object


def test_a_damaged_package_does_not_hide_the_users_folder(loader, package, users, tmp_path):
    users.write(ONE, code(f=2))
    place, path = package(["one"], code(f=1)), tmp_path / "package" / "kernels-abacus.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert KernelStore(loader, place, users).find(ONE, "f", "one") == 2


def test_a_package_that_cannot_be_linked_is_not_asked_again(loader, package, users):
    users.write(ONE, code(f=2))
    place = package(["one", "two"], code(nothing=1))
    store = KernelStore(loader, place, users)
    assert store.find(ONE, "f", "one") == 2 and place.file is None and "cannot be linked: no f" in place.described()
    assert store.find(TWO, "g", "two") is None and len(loader.placed) == 2


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"?", lambda data: b"",
                                   lambda data: b"FLAMOBJ0" + data[8:], lambda data: data[:-2] + b"?}"],
                         ids=["cut off", "longer", "empty", "another version", "a byte"])
def test_a_damaged_file_of_the_users_counts_as_absent(loader, users, tmp_path, spoil):
    users.write(ONE, code(f=1))
    path = tmp_path / "users" / ONE
    path.write_bytes(spoil(path.read_bytes()))
    store = KernelStore(loader, users)
    assert store.find(ONE, "f") is None and not loader.placed
    with pytest.warns(UserWarning, match="damaged"):
        say_warnings()
    store.keep({"f": "one"}, code(f=1))
    assert KernelStore(loader, users).find(ONE, "f") == 1


@pytest.mark.skipif(os.name != "posix", reason="shared libraries of POSIX")
def test_a_precompiled_folder_is_asked_alone(tmp_path, monkeypatch):
    """Its entries are libraries that the system loads, and what it cannot load counts as absent."""
    index = {"format": 1, "kind": Loader.toolchain, "llvm": "LLVM", "triple": "x86_64-unknown-linux-gnu",
             "cpu": "x86-64", "features": [], "flags": "", "needs": [],
             "libraries": {ONE: "one.so", TWO: "two.so"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    (tmp_path / "one.so").write_bytes(b"nothing")
    (tmp_path / "two.so").write_bytes(b"nothing")
    monkeypatch.setattr("flambeau.backends.kernel_store.precompiled.cpuinfo_words", set)
    host = PrecompiledHost(str(tmp_path))
    assert host.store.tiers == [host] and host.store.key("one") == ONE
    assert host.store.find(ONE, "getpid") is None                # "nothing" is no library
    monkeypatch.setattr(ctypes, "CDLL", lambda path, load=ctypes.CDLL: load(None))
    assert host.store.find(TWO, "getpid") and host.store.find(TWO, "no_such_function") is None
    assert host.store.find(key_of("three"), "getpid") is None


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
def test_who_may_have_written_a_file():
    own = os.geteuid()
    stranger = own + 1

    def why(mode=0o600, owner=own, **options):
        return files.distrusted(os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0)), **options)

    assert not why() and not why(0o644) and "another user" in why(owner=stranger)
    assert not why(owner=stranger, owners=(0, stranger)) and "another user" in why(owner=stranger, owners=(own + 2,))
    assert "other users" in why(0o620) and not why(0o620, shared=0o020) and "other users" in why(0o622, shared=0o020)


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    files.write_whole(str(path), 0o600, b"first")
    with pytest.raises(TypeError):
        files.write_whole(str(path), 0o600, b"second", 2)
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["file"]


# --- others -----------------------------------------------------------------------------------------------------------


def test_a_second_process_finds_what_the_first_has_kept(tmp_path):
    pytest.importorskip("llvmlite")
    done = [subprocess.run([sys.executable, "-c", """
import ctypes
from flambeau.backends.cpu import machine_code
texts = {f"f{n}": f"define i64 @f{n}() {{\\n  ret i64 {n}\\n}}\\n" for n in range(3)}
found = machine_code.functions(texts)
print([ctypes.CFUNCTYPE(ctypes.c_int64)(address)() for address in found.values()], machine_code.compiled,
      machine_code.loaded)"""], capture_output=True, text=True, timeout=PATIENCE,
                           env={**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "users")}) for _ in range(2)]
    assert [one.stdout for one in done] == ["[0, 1, 2] 3 0\n", "[0, 1, 2] 0 3\n"], done[0].stderr + done[1].stderr


def test_two_threads_that_ask_for_one_text(monkeypatch):
    """It is compiled once, and both are told where it is."""
    pytest.importorskip("llvmlite")
    from flambeau.backends.cpu import machine_code
    host, place = machine_code.host(), Noting()
    monkeypatch.setattr(host, "store", KernelStore(host, place))
    texts, compile = [], host.compile
    monkeypatch.setattr(host, "compile", lambda asked: texts.extend(asked) or compile(asked))
    text, found, together = "define i64 @both() {\n  ret i64 7\n}\n", [], threading.Barrier(2)

    def ask():
        together.wait()
        found.append(machine_code.function("both", text))
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [text] and found[0] == found[1] and ctypes.CFUNCTYPE(ctypes.c_int64)(found[0])() == 7
    assert list(place.entries) == [host.store.key(text)]
