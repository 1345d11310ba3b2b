"""A save replaces the file whole or not at all: errors, full disks, kills, several writers at once."""

import errno
import io
import os
import stat
import subprocess
import sys
import threading

import pytest

import flambeau as torch
from flambeau import safetensors
from flambeau.serialization import atomic
from tests.patience import PATIENCE

posix = pytest.mark.skipif(os.name != "posix", reason="signals, permissions and links of POSIX")


def save_torch(n, path):
    torch.save({"step": n, "w": torch.full((1000,), float(n))}, path)


def load_torch(path):
    found = torch.load(path)
    assert set(found["w"].tolist()) == {float(found["step"])}
    return found["step"]


def save_safe(n, path):
    safetensors.save_file({"w": torch.full((1000,), float(n))}, path)


def load_safe(path):
    return int(safetensors.load_file(path)["w"][999].item())


both = pytest.mark.parametrize("save, load", [(save_torch, load_torch), (save_safe, load_safe)],
                               ids=["torch", "safetensors"])


@both
@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch, save, load, where):
    path = tmp_path / "model.pt"
    save(1, path)
    mode = path.stat().st_mode

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "write":
        real = open

        def opened(file, *args, **kwargs):
            found = real(file, *args, **kwargs)
            return Filled(found) if isinstance(file, int) else found
        monkeypatch.setattr("builtins.open", opened)
    else:
        monkeypatch.setattr(os, where, full)
    with pytest.raises(OSError, match="No space left on device"):
        save(2, path)
    monkeypatch.undo()
    assert load(path) == 1 and path.stat().st_mode == mode
    assert os.listdir(tmp_path) == ["model.pt"]
    save(3, path)
    assert load(path) == 3


class Filled:
    """A file on a disk that is full after 2000 bytes."""

    def __init__(self, file):
        self.file, self.room = file, 2000

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *exc):
        return self.file.__exit__(*exc)


@posix
def test_a_file_larger_than_the_system_allows(tmp_path):
    """The limit of the system, and a device that is always full."""
    code = """
import os, resource, sys
import flambeau as torch
path = sys.argv[1]
torch.save({"w": torch.zeros(100)}, path)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    torch.save({"w": torch.ones(100_000)}, path)
except OSError as error:
    print(type(error).__name__, error.errno, os.listdir(os.path.dirname(path)), torch.load(path)["w"].sum().item())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.pt")], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.stdout.split() == ["OSError", str(errno.EFBIG), "['a.pt']", "0.0"], done.stderr
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space left"):
            torch.save(torch.ones(3), "/dev/full")
    torch.save(torch.ones(3), os.devnull)


def test_what_cannot_be_saved_touches_nothing(tmp_path):
    path = tmp_path / "model.pt"
    save_torch(1, path)
    before = path.stat()
    with pytest.raises(Exception, match="lambda"):
        torch.save({"w": torch.ones(3), "f": lambda x: x}, path)
    with pytest.raises(ValueError, match="non contiguous"):
        safetensors.save_file({"w": torch.ones(2, 3).t()}, path)
    assert path.stat() == before and os.listdir(tmp_path) == ["model.pt"]


def test_an_interrupt_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic.replacing(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["x"]


KILLED = """
import os, random, signal, sys, time
import flambeau as torch
from flambeau import safetensors

path, rounds = sys.argv[1], int(sys.argv[2])
rng = random.Random(7)

def save(n):
    if path.endswith(".pt"):
        torch.save({"step": n, "w": torch.full((200_000,), float(n)), "b": [torch.full((50_000,), n)]}, path)
    else:
        safetensors.save_file({"step": torch.tensor(n), "w": torch.full((200_000,), float(n))}, path)

def load():
    if path.endswith(".pt"):
        found = torch.load(path)
        parts = [found["step"], *found["w"].unique().tolist(), *found["b"][0].unique().tolist()]
    else:
        found = safetensors.load_file(path)
        parts = [found["step"].item(), *found["w"].unique().tolist()]
    assert len(set(parts)) == 1, parts
    return parts[0]

save(0)
last = litter = round = 0
while round < rounds or not litter and round < 20 * rounds:      # until a kill came in the middle of a save
    round += 1
    child = os.fork()
    if child == 0:
        n = last
        while True:
            n += 1
            save(n)
    while round == 1 and load() == 0:                # at least one save gets through
        time.sleep(0.01)
    time.sleep(rng.random() * 0.08)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = load()
    assert found >= last, (found, last)
    last = found
    left = len(os.listdir(os.path.dirname(path))) - 1
    assert left <= 1, left
    litter += left
save(last + 1)
print(int(load()), litter, os.listdir(os.path.dirname(path)) == [os.path.basename(path)])
"""


@posix
@pytest.mark.parametrize("name, kills", [("model.pt", 20), ("model.safetensors", 10)])
def test_kill_9(tmp_path, name, kills):
    """A process that saves without end is killed at random moments; the file is always whole, and never older."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name), str(kills)], capture_output=True,
                          text=True, timeout=PATIENCE, env={**os.environ, "FLAMBEAU_EXECUTOR": "reference"})
    assert done.returncode == 0, done.stderr
    _, litter, clean = done.stdout.split()
    assert clean == "True", "the next save removes what a killed one has left"
    assert int(litter) > 0, "no kill came in the middle of a save"


@posix
def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    import fcntl
    path = tmp_path / "model.pt"
    dead, living, other = (tmp_path / name for name in (".model.pt.00000001.partial", ".model.pt.00000002.partial",
                                                        ".model2.pt.00000003.partial"))
    for each in (dead, living, other):
        each.write_bytes(b"half")
    with open(living, "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        save_torch(1, path)
        assert sorted(os.listdir(tmp_path)) == sorted([living.name, other.name, "model.pt"])
    save_torch(2, path)
    assert sorted(os.listdir(tmp_path)) == sorted([other.name, "model.pt"])


@both
def test_several_writers_at_once(tmp_path, save, load):
    path, seen, errors = tmp_path / "model.pt", [], []
    save(0, path)

    def write(n):
        try:
            for _ in range(5):
                save(n, path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(load(path))
    assert not errors and set(seen) <= set(range(5)) and load(path) in range(1, 5)
    assert os.listdir(tmp_path) == ["model.pt"]


@posix
def test_permissions(tmp_path):
    path = tmp_path / "model.pt"
    old = os.umask(0o027)
    try:
        save_torch(1, path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640            # as open() would have made it
    path.chmod(0o604)
    save_torch(2, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@posix
@pytest.mark.parametrize("old", [None, 0o644, 0o666], ids=str)
def test_a_half_written_file_is_its_owners_alone(tmp_path, old):
    """Until it is whole: others may not read it, even where they may read the file that it replaces."""
    path = tmp_path / "m.pt"
    if old is not None:
        path.touch()
        path.chmod(old)
    before = os.umask(0)
    try:
        with atomic.replacing(path) as file:
            file.write(b"half")
            file.flush()
            partial, = tmp_path.glob(".*.partial")
            assert stat.S_IMODE(partial.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == (0o666 if old is None else old) and not list(tmp_path.glob(".*"))


@posix
def test_leftovers_that_are_no_files(tmp_path):
    """A FIFO or a link of such a name is not waited for, and not followed."""
    victim = tmp_path / "victim"
    victim.touch()
    os.mkfifo(tmp_path / ".m.pt.00000001.partial")
    (tmp_path / ".m.pt.00000002.partial").symlink_to(victim)
    save_torch(1, tmp_path / "m.pt")
    assert load_torch(tmp_path / "m.pt") == 1 and victim.exists()


@posix
def test_a_file_that_may_not_be_written(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    save_torch(1, path)
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: False)   # the tests may run as root, who may do everything
    with pytest.raises(PermissionError):
        save_torch(2, path)
    assert load_torch(path) == 1


@posix
def test_links_are_followed(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    link, dangling = tmp_path / "latest.pt", tmp_path / "next.pt"
    link.symlink_to("real/model.pt")
    dangling.symlink_to(real / "not_yet.pt")
    save_torch(1, real / "model.pt")
    save_torch(2, link)
    save_torch(3, dangling)
    assert link.is_symlink() and load_torch(real / "model.pt") == 2 and load_torch(link) == 2
    assert dangling.is_symlink() and load_torch(real / "not_yet.pt") == 3
    assert sorted(os.listdir(real)) == ["model.pt", "not_yet.pt"] and sorted(os.listdir(tmp_path)) == ["latest.pt",
                                                                                                       "next.pt",
                                                                                                      "real"]


@posix
def test_a_pipe_is_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    torch.save(torch.ones(3), path)
    reader.join()
    assert torch.load(io.BytesIO(got[0])).tolist() == [1.0, 1.0, 1.0]


def test_long_names(tmp_path):
    path = tmp_path / ("n" * 252 + ".pt")
    save_torch(1, path)
    assert load_torch(path) == 1 and len(os.listdir(tmp_path)) == 1


@posix
def test_a_leftover_that_is_taken_away_too_early(tmp_path, monkeypatch):
    """Between a temporary file's creation and its lock, another save may remove it; another name is tried."""
    import fcntl
    real, removed = fcntl.flock, []

    def flock(handle, how):
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()
        return real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    save_torch(1, tmp_path / "model.pt")
    assert len(removed) == 1 and os.listdir(tmp_path) == ["model.pt"] and load_torch(tmp_path / "model.pt") == 1
