"""`flambeau doctor`, `flambeau.doctor()`, `flambeau.expect()`: what is seen, what is wrong, and when it fails."""
import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends import Backend, register
from flambeau.backends.cpu import threads
from flambeau.cli import device_check, doctor as doctors, expected, facts, main as cli_main
from flambeau.cli.expected import DeviceExpected
from tests.cuda.conftest import simulated  # noqa: F401  (a fixture)
from tests.cuda.test_chain import ABSENCE, machine  # noqa: F401  (a fixture)
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned
ROOT = Path(torch.__file__).parents[1]
NOWHERE = {"CUDA_VISIBLE_DEVICES": ""}            # so that no GPU is there, on a machine that has one too


def command(*words, **environment):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": path, **environment})


@pytest.fixture
def quick_checks(monkeypatch):
    """Little is measured: these tests are about what is made of it."""
    monkeypatch.setattr(device_check, "MEASURE_SECONDS", 0.001)
    monkeypatch.setattr(device_check, "LONG_ROUND_SECONDS", 0)
    monkeypatch.setattr(device_check, "SMALLEST_COUNT", 1 << 12)
    monkeypatch.setattr(doctors, "import_times", lambda: {"milliseconds": 1.0, "parts": {"numpy": 1.0}})


# --- expectations -----------------------------------------------------------------------------------------------------


def test_the_cpu_can_always_be_expected():
    assert torch.expect("cpu") == torch.device("cpu") == torch.expect(torch.device("cpu"))
    assert torch.expect("cpu:0").type == "cpu"


@pytest.mark.parametrize("form", ABSENCE)
def test_an_expected_gpu_that_is_not_there_raises_with_the_link_and_the_remedy(machine, form):
    changes, link, _, fact, mend = ABSENCE[form]
    machine(**changes)
    with pytest.raises(DeviceExpected) as got:
        torch.expect("cuda")
    text = str(got.value)
    assert fact in text and mend[1:] in text and f"the {link} is broken" in text and got.value.device == "cuda"
    assert str(pickle.loads(pickle.dumps(got.value))) == text
    seen = torch.doctor("cuda", quick=True)
    assert not seen.ok and fact in repr(seen).replace("\n" + " " * doctors.LABEL_COLUMNS, " ")
    assert seen.as_dict()["expected"]["missing"]["cuda"]["mend"] == chain_mend(seen)


def chain_mend(seen):
    return seen.known["cuda"]["broken"]["mend"]


def test_as_many_as_are_expected(machine):
    machine(count=2)
    assert torch.expect("cuda") == torch.device("cuda") and torch.expect("cuda:1") == torch.device("cuda:1")
    assert torch.expect("cuda:0, cuda:1") == torch.expect("cuda:0", "cuda:1") == torch.device("cuda:0")
    with pytest.raises(DeviceExpected, match="the 2 devices are cuda:0 to cuda:1"):
        torch.expect("cuda:0,cuda:2")
    machine(count=2, visible="1")
    with pytest.raises(DeviceExpected, match="only cuda:0.*CUDA_VISIBLE_DEVICES=1"):
        torch.expect("cuda:1")


def test_what_can_never_be_expected():
    with pytest.raises(DeviceExpected, match="Apple's GPUs"):
        torch.expect("mps")
    with pytest.raises(DeviceExpected, match="one CPU"):
        torch.expect("cpu:3")
    for text in ("gpu", "", "cuda:", "cuda:-1", "cuda;cpu", "cuda,", 1.5):
        with pytest.raises(ValueError, match="'cuda:1'"):
            torch.expect(text)


def test_the_variable(machine, monkeypatch):
    machine(packages={})
    monkeypatch.delenv(expected.VARIABLE, raising=False)
    assert torch.expect() is None
    monkeypatch.setenv(expected.VARIABLE, "cpu")
    assert torch.expect().type == "cpu" and torch.doctor(quick=True).expected == ["cpu"]
    monkeypatch.setenv(expected.VARIABLE, "cuda:1")
    with pytest.raises(DeviceExpected, match="^FLAMBEAU_EXPECT_DEVICE=cuda:1: the device cuda:1 is expected"):
        torch.expect()
    assert not torch.doctor(quick=True).ok and torch.doctor("cpu", quick=True).ok


@pytest.mark.parametrize("argv, original, ours", [
    (["/usr/bin/flambeau", "doctor"], [], True), (["C:\\x\\flambeau.exe"], [], os.name == "nt"),
    (["flambeau-script.py"], [], True), (["train.py", "flambeau"], [], False), (["flambeau_train.py"], [], False),
    (["-m", "doctor"], ["python", "-m", "flambeau", "doctor"], True),
    (["-m"], ["python", "-Im", "flambeau"], True), (["-m"], ["python", "-mflambeau"], True),
    (["-m"], ["python", "-m", "pytest"], False), (["-c"], ["python", "-c", "x"], False), ([], [], False)])
def test_the_command_is_known_from_a_program(monkeypatch, argv, original, ours):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert expected.is_our_command() is ours


def test_a_program_ends_at_its_import():
    done = command("-c", "import flambeau; print('went on')", FLAMBEAU_EXPECT_DEVICE="cuda", **NOWHERE)
    assert done.returncode == 1 and "went on" not in done.stdout
    assert "FLAMBEAU_EXPECT_DEVICE=cuda: the device cuda is expected" in done.stderr.splitlines()[-1]
    done = command("-c", "import flambeau; print('went on')", FLAMBEAU_EXPECT_DEVICE="cpu")
    assert done.stdout == "went on\n", done.stderr
    done = command("-m", "flambeau", "run", "-c", "print('went on')", FLAMBEAU_EXPECT_DEVICE="cuda", **NOWHERE)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("flambeau run: FLAMBEAU_EXPECT_DEVICE")
    assert len(done.stderr.splitlines()) == 1


# --- devices ----------------------------------------------------------------------------------------------------------


def test_simulated_gpus_are_seen_and_checked(simulated, quick_checks):
    seen = torch.doctor("cuda:1")
    assert seen.ok and [found["device"] for found in seen.checks] == ["cpu", "cuda:0", "cuda:1"]
    assert all(found["correct"] and not found["wrong"] for found in seen.checks), seen.checks
    assert [gpu["device"] for gpu in seen.devices] == ["cuda:0", "cuda:1"] and seen.devices[0]["total"] == 1 << 30
    assert "cuda:1 can be used" in repr(seen) and "capability" in repr(seen)
    with pytest.raises(DeviceExpected, match="cuda:0 to cuda:1"):
        torch.expect("cuda:2")


def test_a_gpu_slower_than_the_processor_is_not_plausible(simulated):
    found = device_check.check("cuda:0")
    assert found["correct"] and "product" in found["slow"] and not found["plausible"], found
    assert found["seconds"] < PATIENCE / 10


def test_a_gpu_that_fails_counts_where_it_is_expected(simulated, quick_checks, monkeypatch):
    real = device_check.COMPUTATIONS["a product"]

    def breaks(device):
        if str(device).startswith("cuda"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return real(device)
    monkeypatch.setitem(device_check.COMPUTATIONS, "a product", breaks)
    seen = torch.doctor()
    assert seen.ok and "illegal memory access" in repr(seen) and not seen.devices
    seen = torch.doctor("cuda")
    assert not seen.ok and "nvidia-smi" in repr([one for one in seen.problems if one.fails][0])
    assert torch.doctor("cpu").ok


class LyingBackend(Backend):
    """Computes with NumPy, and one number of each long result is wrong."""

    def execute(self, entry, arrays, params, own=False):
        outs = super().execute(entry, arrays, params, own)
        for out in outs:
            if out.size > 100 and out.dtype == np.float32:
                out.reshape(-1)[7] += 1
        return outs

    def to_host(self, array):
        return np.array(array, order="K")

    def from_host(self, array, spec):
        made = self.allocate(spec)
        made[...] = array
        return made


def test_a_device_that_computes_wrongly_is_found_out(quick_checks, monkeypatch):
    register("brass", LyingBackend)
    found = device_check.check("brass")
    assert not found["correct"] and "a softmax" in found["wrong"] and found["error"] is None
    monkeypatch.setattr(doctors, "check", lambda device: device_check.check("brass") | {"device": device})
    seen = torch.doctor()
    assert not seen.ok and "cpu computes wrongly: " in repr(seen) and seen.as_dict()["problems"][0]["fails"]


@pytest.mark.parametrize("name", device_check.COMPUTATIONS)
def test_every_computation_of_the_check_can_fail(name, monkeypatch):
    """Off by one in a thousand, somewhere: each has to be refused; and as it is, accepted."""
    compute = device_check.COMPUTATIONS[name]
    assert device_check._agrees(compute, "cpu")

    def off(device):
        ours, numpys = compute(device)
        wrong = np.array(numpys)
        wrong.reshape(-1)[-1] += 0.001 * (1 + np.abs(numpys).max())
        return ours, wrong
    assert not device_check._agrees(off, "cpu")


def test_the_check_takes_about_a_second_and_leaves_no_trace():
    torch.manual_seed(5)
    state, mode, dtype = torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype()
    device_check.check("cpu")                     # compiles
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            found = device_check.check("cpu")
    finally:
        torch.set_default_dtype(dtype)
    assert found["correct"], found
    assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled() is mode


# --- surroundings -----------------------------------------------------------------------------------------------------

HEALTHY = {"threads": {"used": 8, "processors": 8, "allowed": 8, "quota": None, "asked": None}, "variables": {},
           "memory": {"limit": 1 << 34, "available": 1 << 33, "held": 1 << 20,
                      "shared": {"folder": "/dev/shm", "total": 1 << 33, "free": 1 << 33}},
           "processor": {"name": "x", "features": []}, "executor": "auto", "blas": {"name": "openblas", "version": "1"},
           "lapack": None,
           "caches": {"kernels": {"folder": "/x", "writable": True, "why": None}},
           "cuda": {"links": {}, "gpu_seen": None, "broken": None}}


@pytest.mark.parametrize("place, given, said", [
    ("threads", {"quota": 1.5, "used": 2}, "grants 1.5 processors and 8 are seen.*OPENBLAS_NUM_THREADS=2"),
    ("threads", {"used": 1, "asked": 1}, "1 of 8 processors are used, since OMP_NUM_THREADS.*Unset OMP_NUM_THREADS"),
    ("memory", {"available": 100 << 20}, "100 MiB of memory can be had"),
    ("memory", {"shared": {"folder": "/dev/shm", "total": 64 << 20, "free": 0}}, "/dev/shm has 64 MiB.*--shm-size=1g"),
    ("processor", {"no_compiler": "llvmlite, which compiles kernels, cannot be imported"}, "pip install llvmlite"),
    ("cuda", {"gpu_seen": "/dev/nvidia0", "broken": {"link": "library", "fact": "CuPy is not installed",
                                                     "mend": "run pip install 'flambeau[cuda13]'"}},
     r"NVIDIA GPU \(/dev/nvidia0\) and CUDA cannot be used: CuPy is not installed. Run pip install")])
def test_what_slows_a_program_down_is_said_with_what_mends_it(place, given, said):
    assert [*doctors.slow_surroundings(HEALTHY)] == []
    known = copy.deepcopy(HEALTHY)
    known[place] |= given
    (problem,) = doctors.slow_surroundings(known)
    assert not problem.fails
    assert re.search(said, repr(problem)), repr(problem)


def test_what_was_set_on_purpose_is_not_said():
    known = copy.deepcopy(HEALTHY)
    known["threads"] |= {"quota": 2.0, "used": 2}
    known["variables"] = {"OMP_NUM_THREADS": "2"}
    known["processor"]["no_compiler"], known["executor"] = "none", "reference"
    assert [*doctors.slow_surroundings(known)] == []


@pytest.mark.parametrize("groups, files, granted", [
    ("", {}, None), ("0::/", {"cpu.max": "max 100000"}, None), ("0::/", {"cpu.max": "150000 100000"}, 1.5),
    ("3:cpu,cpuacct:/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
     2.5)])
def test_the_quota_is_read_in_both_versions_of_control_groups(tmp_path, groups, files, granted):
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads.time_granted(f"{tmp_path}/") == granted


def test_folders_that_can_and_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("12345")
    assert facts.folder(str(tmp_path)) == {"folder": str(tmp_path), "writable": True, "why": None, "files": 1,
                                           "bytes": 5}
    new = facts.folder(str(tmp_path / "not" / "there"))
    assert new["writable"] and not (tmp_path / "not").exists()
    assert "file is not a folder" in facts.folder(str(tmp_path / "file" / "below"))["why"]
    assert facts.folder("")["why"] == "none is set"
    tmp_path.chmod(0o777)
    if os.name == "posix":
        assert "other users" in facts.folder(str(tmp_path), trusted=True)["why"]
    if hasattr(os, "geteuid") and os.geteuid():
        tmp_path.chmod(0o555)
        assert "cannot be written by this user" in facts.folder(str(tmp_path))["why"]
        tmp_path.chmod(0o755)


def test_imports_are_told_apart():
    times = doctors.import_times()
    assert {"numpy", "Python's library", "flambeau.tensor", "flambeau.base", "flambeau"} <= {*times["parts"]}
    assert times["milliseconds"] == pytest.approx(sum(times["parts"].values()))
    assert 1 < times["milliseconds"] < PATIENCE * 1000


# --- the command ------------------------------------------------------------------------------------------------------


def test_one_screen_and_the_same_as_json():
    done = command("-m", "flambeau", "doctor", FLAMBEAU_EXPECT_DEVICE="")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 200 and lines[-1].startswith("result     nothing failed")
    assert [word for word in ("flambeau", "Python", "packages", "threads", "memory", "CUDA", "MPS", "import", "check")
            if not any(line.startswith(word + " ") for line in lines)] == []
    done = command("-m", "flambeau", "doctor", "--json", "--quick", "--expect", "cpu")
    known = json.loads(done.stdout)
    assert known["ok"] and known["expected"] == {"devices": ["cpu"], "missing": {}} and known["checks"] == []
    assert known["flambeau"]["version"] == torch.__version__ and known["packages"]["numpy"] == np.__version__


@pytest.mark.parametrize("words, code, said", [
    (["--expect", "cuda"], 1, "cuda is expected and cannot be used"), (["--expect=cpu"], 0, ""),
    (["--expect=cuda:9", "--json"], 1, "cuda:9 is expected"), (["--expect"], 2, "without a device"),
    (["--expect", "toaster"], 2, "'cuda:1'"), (["--loud"], 2, "'--loud' is not understood"), (["--help"], 0, "")])
def test_exit_codes(machine, capsys, words, code, said):
    machine(visible="")
    assert cli_main(["doctor", "--quick", *words]) == code
    assert said in capsys.readouterr().err


def test_the_command_answers_for_the_variable_itself():
    done = command("-m", "flambeau", "doctor", "--quick", FLAMBEAU_EXPECT_DEVICE="cuda", **NOWHERE)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "result     failed"


def test_a_file_that_vanishes_meanwhile_is_not_counted(tmp_path, monkeypatch):
    """As one does that another process writes beside the others and then gives its name."""
    (tmp_path / "kept").write_bytes(b"1234")
    (tmp_path / "gone").write_bytes(b"12")
    listed = os.scandir

    def scandir(path):
        found = list(listed(path))
        (tmp_path / "gone").unlink()
        return found

    monkeypatch.setattr(facts.os, "scandir", scandir)
    found = facts.folder(str(tmp_path))
    assert (found["files"], found["bytes"]) == (1, 4)
