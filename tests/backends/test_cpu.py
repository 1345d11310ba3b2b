"""Text becomes code that runs; the objects on disk are found again, and whatever is wrong with them does no harm."""
import ctypes
import errno
import functools
import os
import runpy
import subprocess
import sys
import threading
import time
import warnings

import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import compile_thread as thread, machine_code
from flambeau.backends.kernel_store.object_cache import ObjectCache
from flambeau.backends.kernel_store.store import REFERENCE_PREFIX, KernelStore
from flambeau.base import settings
from flambeau.base.spec import CPU
from flambeau.trace.planning import plan
from flambeau.trace.running import interpret
from tests.patience import PATIENCE

HELPER = "define internal i64 @helper(i64 %x) {\n  %y = add i64 %x, NUMBER\n  ret i64 %y\n}\n"
ADD = HELPER + "define i64 @NAME(i64 %x) {\n  %y = call i64 @helper(i64 %x)\n  ret i64 %y\n}\n"


def adding(name, number):
    return ADD.replace("NAME", name).replace("NUMBER", str(number))


def call(address, *args):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(address)(*args)


@pytest.fixture
def process(tmp_path, monkeypatch):
    """`process()` is a new process as far as compiled code goes, and gives the folder of its objects."""
    def begin(folder=tmp_path / "objects", most=1 << 28):
        until = time.monotonic() + PATIENCE
        while not thread.is_through():                        # what tests before this one had made ready
            assert time.monotonic() < until
            time.sleep(0.01)
        monkeypatch.setattr(machine_code, "compiled", 0)
        monkeypatch.setattr(machine_code, "loaded", 0)
        host = machine_code.host()
        monkeypatch.setattr(host, "store", KernelStore(host, ObjectCache(str(folder), most)))
        return folder
    return begin


def counts():
    return machine_code.compiled, machine_code.loaded


# --- compiling ---

def test_a_function_runs(process):
    process()
    assert call(machine_code.function("plus5", adding("plus5", 5)), 37) == 42


def test_a_text_is_compiled_once(process):
    process()
    first = machine_code.function("once", adding("once", 1))
    assert machine_code.function("once", adding("once", 1)) == first
    assert counts() == (1, 0)


def test_two_texts_may_use_one_name(process):
    process()
    one, two = machine_code.function("same", adding("same", 1)), machine_code.function("same", adding("same", 2))
    assert (call(one, 10), call(two, 10)) == (11, 12)


STEP = """
define void @NAME(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end) {
  %count = sub i64 %end, %begin
  %old = load i64, ptr %ints
  %new = add i64 %old, %count
  store i64 %new, ptr %ints
  ret void
}
"""


@pytest.mark.pinned              # its text is compiled once a process
def test_a_step_is_compiled_quickly_and_then_well(process, monkeypatch):
    monkeypatch.setattr(thread, "QUIET_SECONDS", 0.01)
    process()
    text, cell = STEP.replace("NAME", "counting"), ctypes.c_int64(10)
    levels, compile = [], machine_code.HostLLVM.compile

    def noted(host, texts):
        ours = [one for one in texts if "counting" in one]          # what tests before this one left may come too
        if ours:
            levels.append([one.startswith(machine_code.QUICK_MARK) for one in ours])
        return compile(host, texts)

    monkeypatch.setattr(machine_code.HostLLVM, "compile", noted)

    def add(address, count):
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
        kind(address)(None, ctypes.addressof(cell), None, 1, 1 + count)
        return cell.value

    first = machine_code.function("counting", text, quickly=True)
    assert add(first, 5) == 15 and levels[0] == [True] and counts() == (1, 0)
    until = time.monotonic() + PATIENCE
    while (better := machine_code.function("counting", text, quickly=True)) == first:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert levels == [[True], [False]] and counts() == (1, 0)               # nobody had to wait for it
    assert add(better, 5) == 20
    quick = machine_code.quick_text("counting", text)[2]
    slot = ctypes.c_void_p.from_address(machine_code.function("counting_better", quick))
    assert slot.value == better and add(first, 5) == 25            # plans that have the first address are served by it
    process()
    found = machine_code.function("counting", text, quickly=True)
    assert add(found, 1) == 26 and counts() == (0, 1) and len(levels) == 2


def test_steps_are_compiled_quickly_together_and_one_that_fails_is_told(process, monkeypatch):
    process()
    later, cell = [], ctypes.c_int64(10)
    monkeypatch.setattr(machine_code, "when_idle", lambda *work: later.append(work))
    texts = {name: STEP.replace("NAME", name) for name in ("one", "bad", "two")}
    texts["bad"] = texts["bad"].replace("ret void", "call void @nowhere_to_be_found()\n  ret void") \
        + "declare void @nowhere_to_be_found()\n"
    with pytest.raises(machine_code.NotCompiled) as error:
        machine_code.functions(texts, quickly=texts)
    assert list(error.value.failed) == ["bad"] and [name for _, _, name, _, _ in later] == ["one", "two"]
    del texts["bad"]
    found = machine_code.functions(texts, quickly=texts)
    for _, slot, name, text, goal in later[:2]:
        machine_code.undisturbed(machine_code._improve, slot, name, text, goal)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
        kind(found[name])(None, ctypes.addressof(cell), None, 1, 6)
        assert ctypes.c_void_p.from_address(slot).value == machine_code.function(name, text) != found[name]
    assert cell.value == 20 and counts() == (2, 0)


def test_names_of_one_text_share_its_variables(process):
    process()
    text = """
@cell = global i64 7
define i64 @next() {
  %old = load i64, ptr @cell
  %new = add i64 %old, 1
  store i64 %new, ptr @cell
  ret i64 %old
}
"""
    step, cell = machine_code.function("next", text), machine_code.function("cell", text)
    assert [call(step), call(step), ctypes.c_int64.from_address(cell).value] == [7, 8, 9]
    assert counts() == (1, 0)


def test_several_at_once(process):
    folder = process()
    texts = {f"f{n}": adding(f"f{n}", n) for n in range(5)}
    assert [call(address, 100) for address in machine_code.functions(texts).values()] == [100, 101, 102, 103, 104]
    assert counts() == (5, 0)
    process(folder)                                   # and each is found by itself
    assert call(machine_code.function("f3", texts["f3"]), 100) == 103
    made = machine_code.functions(texts | {"g": adding("g", 9)})
    assert [call(address, 0) for address in made.values()] == [0, 1, 2, 3, 4, 9]
    assert counts() == (1, 5)


def test_given_symbols_and_those_of_the_process(process):
    process()
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    twice = kind(lambda x: 2 * x)
    text = """
declare i64 @given(i64)
declare i64 @labs(i64)
define i64 @both(i64 %x) {
  %a = call i64 @labs(i64 %x)
  %b = call i64 @given(i64 %a)
  ret i64 %b
}
"""
    assert call(machine_code.function("both", text, {"given": ctypes.cast(twice, ctypes.c_void_p).value}), -21) == 42


@pytest.mark.parametrize("text, what", [
    ("define i64 @f() { ret i65 0 }", "value doesn't match"),
    ("define i64 @f() {\n  %x = add i64 %y, 1\n  %y = add i64 %x, 1\n  ret i64 %x\n}", "dominate"),
    ("define i64 @g() { ret i64 0 }", "f"),
])
def test_a_text_that_makes_no_sense_is_refused(process, text, what):
    process()
    with pytest.raises(RuntimeError, match=what):
        machine_code.function("f", text)
    assert call(machine_code.function("fine", adding("fine", 1)), 1) == 2


# --- what cannot be linked ---

BROKEN = "declare i64 @nobody_has_this(i64)\ndefine i64 @NAME(i64 %x) {\n  %y = call i64 @nobody_has_this(i64 %x)\n" \
         "  ret i64 %y\n}\n"


def broken(name):
    return BROKEN.replace("NAME", name)


def test_a_text_that_cannot_be_linked_takes_no_other_with_it(process):
    folder = process()
    texts = {"f0": adding("f0", 0), "bad": broken("bad"), "f1": adding("f1", 1)}
    for _ in range(2):                                # the second time as the first: it is not remembered as good
        with pytest.raises(machine_code.NotCompiled, match="bad") as error:
            machine_code.functions(texts)
        assert list(error.value.failed) == ["bad"]
        assert [call(machine_code.function(name, texts[name]), 5) for name in ("f0", "f1")] == [5, 6]
    assert counts() == (2, 0)
    process(folder)                                   # nor on the disk
    assert [call(machine_code.function(name, texts[name]), 5) for name in ("f0", "f1")] == [5, 6]
    assert counts() == (0, 2)
    with pytest.raises(machine_code.NotCompiled, match="bad"):
        machine_code.function("bad", texts["bad"])


def test_an_object_that_cannot_be_linked_any_more_is_compiled_anew(process):
    """Whole and with its checksum, but of no use: it was linked with something that this process does not have."""
    folder = process()
    texts = {f"f{n}": adding(f"f{n}", n) for n in range(2)}
    host = machine_code.host()
    useless = host.compile([broken("f0")])
    machine_code.functions(texts)
    for entry in list(folder.iterdir()):
        if entry.stat().st_size > 1000:               # the object of both, not what points at it
            host.store.tiers[0].write(entry.name, useless)
    process()
    with pytest.warns(UserWarning, match="cannot be used") as said:
        assert [call(address, 5) for address in machine_code.functions(texts).values()] == [5, 6]
    assert len(said) == 1 and counts() == (2, 0)
    process()
    with warnings.catch_warnings(action="error"):
        assert [call(address, 5) for address in machine_code.functions(texts).values()] == [5, 6]
    assert counts() == (0, 2)


def test_assembly():
    assert "plus:" in machine_code.assembly(adding("plus", 5)).replace("_plus", "plus")
    assert machine_code.vector_bytes() in (16, 32, 64)


# --- objects on disk ---

def test_objects_are_found_by_a_later_process(process):
    folder = process()
    machine_code.function("kept", adding("kept", 3))
    process()
    assert call(machine_code.function("kept", adding("kept", 3)), 1) == 4
    assert counts() == (0, 1)
    if os.name == "posix":
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600]


def test_an_empty_name_keeps_nothing(process, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        process(folder="")
        assert call(machine_code.function("lost", adding("lost", 3)), 1) == 4
        assert counts() == (1, 0)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [
    lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    lambda whole: whole[:20] + bytes([whole[20] ^ 128]) + whole[21:],
    lambda whole: whole[:len(whole) // 2],
    lambda whole: whole[:10],
    lambda whole: whole + b"more",
    lambda whole: b"",
], ids="last_byte checksum half header longer empty".split())
def test_a_damaged_file_is_compiled_anew(process, damage):
    folder = process()
    machine_code.function("hurt", adding("hurt", 3))
    file, = folder.iterdir()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    process()
    with pytest.warns(UserWarning, match="damaged"):
        assert call(machine_code.function("hurt", adding("hurt", 3)), 1) == 4
    assert counts() == (1, 0) and file.read_bytes() == good
    process()
    with warnings.catch_warnings(action="error"):
        machine_code.function("hurt", adding("hurt", 3))
    assert counts() == (0, 1)


def test_damage_is_said_once(process):
    folder = process()
    for n in range(3):
        machine_code.function(f"f{n}", adding(f"f{n}", n))
    for file in folder.iterdir():
        file.write_bytes(b"")
    process()
    with pytest.warns(UserWarning) as said:
        for n in range(3):
            machine_code.function(f"f{n}", adding(f"f{n}", n))
    assert len(said) == 1 and counts() == (3, 0)


def test_an_object_whose_companions_are_gone_is_compiled(process):
    folder = process()
    texts = {f"f{n}": adding(f"f{n}", n) for n in range(2)}
    machine_code.functions(texts)
    max(folder.iterdir(), key=lambda file: file.stat().st_size).unlink()
    process()
    assert [call(address, 5) for address in machine_code.functions(texts).values()] == [5, 6]
    assert counts() == (2, 0)


def refused(process, folder, match):
    """A folder that is not used: said once, and everything works."""
    with pytest.warns(UserWarning, match=match) as said:
        process(folder)
        for n in range(2):
            assert call(machine_code.function(f"f{n}", adding(f"f{n}", n)), 1) == 1 + n
    assert len(said) == 1 and str(folder) in str(said[0].message) and "FLAMBEAU_CACHE_DIR" in str(said[0].message)
    assert counts() == (2, 0)


posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_is_not_used(process, tmp_path, mode):
    tmp_path.joinpath("open").mkdir()
    tmp_path.joinpath("open").chmod(mode)
    refused(process, tmp_path / "open", "other users")
    assert not any(tmp_path.joinpath("open").iterdir())


@posix
def test_a_folder_of_somebody_else_is_not_used(process, tmp_path, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    refused(process, tmp_path, "another user")
    assert not any(tmp_path.iterdir())


def as_link(file, good):
    """To a whole file elsewhere."""
    elsewhere = file.parent.parent / "elsewhere"
    elsewhere.write_bytes(good)
    elsewhere.chmod(0o600)
    file.symlink_to(elsewhere)


def of_another(file, good):
    file.write_bytes(good)
    file.chmod(0o600)
    os.chown(file, 12345, -1)


def open_to_others(file, good):
    file.write_bytes(good)
    file.chmod(0o620)


def endless(file, good):
    """A terabyte, were it read."""
    file.write_bytes(good)
    os.truncate(file, 1 << 40)


@posix
@pytest.mark.parametrize("put", [lambda file, good: os.mkfifo(file), as_link, of_another, open_to_others, endless],
                         ids="fifo link owner mode endless".split())
def test_an_entry_that_may_not_be_run_is_compiled_anew(process, put):
    """What is found is run, so it has to be a plain file that this user alone can write; and nobody waits for it."""
    if put is of_another and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = process()
    machine_code.function("mine", adding("mine", 3))
    file, = folder.iterdir()
    good = file.read_bytes()
    file.unlink()
    put(file, good)
    process()
    with pytest.warns(UserWarning, match="compiled anew|cannot be read"):
        assert call(machine_code.function("mine", adding("mine", 3)), 1) == 4
    assert counts() == (1, 0) and file.read_bytes() == good and not file.is_symlink()
    process()
    with warnings.catch_warnings(action="error"):
        machine_code.function("mine", adding("mine", 3))
    assert counts() == (0, 1)


@pytest.mark.parametrize("meant", [b"../secret", b"/etc/passwd", b"\xff\xfe", b"", b"0" * 63, b"0" * 64 + b"\n",
                                   b"0" * 64, b"itself"])
def test_an_entry_that_refers_elsewhere_is_compiled_anew(process, tmp_path, meant):
    """`see` means an object in the same folder; one that is not there, or only refers on, is no object."""
    folder = process()
    machine_code.function("mine", adding("mine", 3))
    file, = folder.iterdir()
    good = file.read_bytes()
    disk, = machine_code.host().store.tiers
    (tmp_path / "secret").write_bytes(good)
    disk.write(file.name, REFERENCE_PREFIX + (file.name.encode() if meant == b"itself" else meant))
    process()
    with warnings.catch_warnings(action="ignore"):
        assert call(machine_code.function("mine", adding("mine", 3)), 1) == 4
    assert counts() == (1, 0) and file.read_bytes() == good


def test_a_folder_that_cannot_be_made(process, tmp_path):
    tmp_path.joinpath("file").touch()
    refused(process, tmp_path / "file" / "objects", "cannot be made")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_frozen_disk(process, tmp_path, monkeypatch, code):
    def replace(source, target):
        raise OSError(code, os.strerror(code))
    monkeypatch.setattr(os, "replace", replace)
    refused(process, tmp_path / "objects", os.strerror(code))
    assert not any(tmp_path.joinpath("objects").iterdir())


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read(process):
    folder = process()
    machine_code.function("old", adding("old", 1))
    folder.chmod(0o500)
    process()
    assert call(machine_code.function("old", adding("old", 1)), 1) == 2
    with pytest.warns(UserWarning, match="cannot be written"):
        assert call(machine_code.function("new", adding("new", 2)), 1) == 3
    assert counts() == (1, 1)
    folder.chmod(0o700)


def test_the_oldest_are_dropped(process):
    folder = process()
    for n in range(6):
        machine_code.function(f"f{n}", adding(f"f{n}", n))
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for age, file in enumerate(reversed(files)):
        os.utime(file, (1e9 - age, 1e9 - age))
    size = files[0].stat().st_size
    process(folder, most=5 * size)
    machine_code.function("f0", adding("f0", 0))               # used again, so no longer the oldest
    assert files[0].stat().st_mtime > 1e9 + 1
    machine_code.function("new", adding("new", 7))      # six were there, three quarters of five stay, and this one
    assert [file.exists() for file in files] == [True, False, False, False, True, True]
    assert len(list(folder.iterdir())) == 4


def test_two_processes_at_once(tmp_path):
    code = f"""
import ctypes
import flambeau as torch
from flambeau.backends.cpu import compile_thread as thread, machine_code
for n in range(8):
    name = f"f{{n}}"
    text = {ADD!r}.replace("NAME", name).replace("NUMBER", str(n))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(machine_code.function(name, text))(1) == 1 + n
"""
    run = [subprocess.Popen([sys.executable, "-W", "error", "-c", code], stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "objects")}) for _ in range(2)]
    for process in run:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    disk = ObjectCache(str(tmp_path / "objects"), 1 << 28)
    names = [file.name for file in (tmp_path / "objects").iterdir()]
    assert len(names) == 8 and all(disk.read(name) for name in names)


@pytest.mark.parametrize("said, folder", [
    ({"FLAMBEAU_CACHE_DIR": "/a/b"}, "/a/b"),
    ({"FLAMBEAU_CACHE_DIR": "", "XDG_CACHE_HOME": "/x"}, ""),
    ({"XDG_CACHE_HOME": "/x"}, "/x/flambeau"),
    ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/flambeau"),
    ({"HOME": "/home/me"}, "/home/me/.cache/flambeau"),
])
@posix
def test_where_objects_are_kept(monkeypatch, said, folder):
    for name in ("FLAMBEAU_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert runpy.run_path(settings.__file__)["object_dir"] == folder


def test_without_a_compiler_the_reference_runs_and_says_so_once():
    code = """
import sys, warnings
sys.modules["llvmlite"] = None
import flambeau as torch
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    x = torch.ones(1000, 1000)
    assert ((x * 2 + 1).sum().item(), (x * 3).sum().item()) == (3e6, 3e6)
assert len(said) == 1 and "llvmlite" in str(said[0].message) and said[0].filename == "<string>", said
torch.config.executor = "native"
try:
    (x + 1).sum().item()
except ImportError as error:
    assert "llvmlite" in str(error)
else:
    raise AssertionError("the native executor without a compiler")
"""
    env = {**os.environ, "FLAMBEAU_EXECUTOR": "auto"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert done.returncode == 0, done.stderr


# --- the thread on which LLVM works ---


def test_a_program_ends_while_an_error_of_the_thread_is_held():
    code = """
from flambeau.backends.cpu.compile_thread import undisturbed
try:
    undisturbed(int, "x")
except ValueError as error:
    held = error                                              # and with it the frames of the thread
assert undisturbed(lambda: 3) == 3
print("ends")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_a_thread_that_cannot_be_started_or_ends_is_done_without(monkeypatch):
    """As it is where there is no memory for one: the work is done by whoever asks, or fails, and nobody waits."""
    monkeypatch.setattr(thread, "THREAD_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(thread, "_life", None)
    monkeypatch.setattr(thread, "_tasks", None)

    def refuse(*args):
        raise RuntimeError("can't start new thread")
    with monkeypatch.context() as patch:
        patch.setattr(thread._thread, "start_new_thread", refuse)
        assert thread.undisturbed(threading.get_ident) == threading.get_ident()
    with monkeypatch.context() as patch:
        patch.setattr(thread, "_serve", lambda tasks, life: None)              # it ends before it begins
        with pytest.raises(MemoryError, match="has ended for want of memory"):
            thread.undisturbed(threading.get_ident)
    assert thread.undisturbed(threading.get_ident) != threading.get_ident()
    thread._tasks.put(None)


def test_work_is_shared_with_helpers(monkeypatch):
    meet = threading.Barrier(3)

    def work(number):
        meet.wait(PATIENCE)                                   # all three are at it at once
        return number, threading.get_ident()

    found = thread.side_by_side([functools.partial(work, n) for n in range(3)], 3)
    assert [number for number, _ in found] == [0, 1, 2] and len({who for _, who in found}) == 3

    def refused(number):
        raise ValueError(number) if number else None
    done = []
    with pytest.raises(ValueError, match="1"):
        thread.side_by_side([functools.partial(refused, 1), lambda: done.append(1)], 2)
    assert done                                               # an error stops nobody else
    here = thread.side_by_side([threading.get_ident] * 4, 1)
    assert here == [threading.get_ident()] * 4 and thread.side_by_side([], 2) == []


def test_a_helper_that_cannot_be_started_or_ends_is_done_without(monkeypatch):
    monkeypatch.setattr(thread, "THREAD_CHECK_SECONDS", 0.05)

    def refuse(*args):
        raise RuntimeError("can't start new thread")
    with monkeypatch.context() as patch:
        patch.setattr(thread._thread, "start_new_thread", refuse)
        assert thread.side_by_side([threading.get_ident] * 3, 3) == [threading.get_ident()] * 3
    with monkeypatch.context() as patch:
        patch.setattr(thread, "_help", lambda left, done, life: None)          # it ends before it begins
        assert thread.side_by_side([threading.get_ident] * 3, 3) == [threading.get_ident()] * 3

    def lose(left, done, life):                                                # it ends with a piece in its hands
        left.pop()
    first = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(thread, "_help", lambda *given: (lose(*given), first.set()))
        with pytest.raises(MemoryError, match="has ended for want of memory"):
            thread.side_by_side([lambda: first.wait(PATIENCE)] * 3, 2)


@pytest.mark.pinned
def test_the_first_parameter_says_that_work_will_come(process, monkeypatch):
    folder, asked = process(), []
    monkeypatch.setattr(CPU.backend, "_expects", False)
    monkeypatch.setattr(thread, "beforehand", lambda work, *args: asked.append((work, args)))
    monkeypatch.setattr(machine_code, "beforehand", lambda work, *args: asked.append((work, args)))
    with torch.config.using(executor="reference"):
        torch.nn.Parameter(torch.ones(2))
    assert not asked
    torch.nn.Linear(2, 2)
    assert len(asked) == 1                                    # nobody waits, and it is said once
    while asked:
        work, args = asked.pop(0)
        work(*args)
    assert counts() == (0, 0) and any(folder.iterdir())       # nobody has asked for what it compiles
    found = (torch.ones(40, 30) @ torch.ones(30, 50)).sum().item()
    assert found == 40 * 30 * 50


@pytest.mark.parametrize("processors", [1, 2, 16])
def test_texts_that_are_shared_out_give_the_same_objects_functions(process, monkeypatch, processors):
    """Whichever object a function comes to stand in; a text that cannot be compiled spoils no other."""
    monkeypatch.setattr(machine_code, "processors", lambda: processors)
    monkeypatch.setattr(machine_code, "quota", lambda: 99)
    monkeypatch.setattr(machine_code, "SHARE_CHARACTERS", 100)
    folder = process()
    texts = {f"s{n}": adding(f"s{n}", n) for n in range(9)}
    assert [call(address, 100) for address in machine_code.functions(texts).values()] == [100 + n for n in range(9)]
    assert counts() == (9, 0)
    objects = [path for path in folder.iterdir() if path.stat().st_size > 200]
    assert len(objects) == min(processors, 1 + sum(map(len, texts.values())) // 100, 9)
    process(folder)
    with pytest.raises(machine_code.NotCompiled) as caught:
        machine_code.functions({"bad": BROKEN.replace("NAME", "bad"), **texts, "t": adding("t", 20)})
    assert list(caught.value.failed) == ["bad"] and counts() == (1, 9)


def test_llvm_is_not_asked_where_there_is_no_room(process, monkeypatch):
    process()
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "has_room", lambda nbytes: False)
        with pytest.raises(MemoryError, match="LLVM needs up to 32.* MiB to compile a kernel, and there is less"):
            machine_code.function("plus5", adding("plus5", 5))
        with torch.config.using(executor="native"):
            monkeypatch.setattr(plan, "_plans", {})
            monkeypatch.setattr(interpret, "_tight", [])
            with pytest.warns(UserWarning, match="no memory to compile with.*reference executor"):
                assert (torch.arange(3.0) * 1.375 + 2.5).tolist() == [2.5, 3.875, 5.25]
    assert call(machine_code.function("plus5", adding("plus5", 5)), 37) == 42
