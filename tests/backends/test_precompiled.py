"""Kernels compiled beforehand run where there is no compiler, with the same bits; and what is not there is said."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")
if not sys.platform.startswith("linux") or shutil.which("ld") is None:
    pytest.skip("kernels are compiled beforehand on Linux, with a linker", allow_module_level=True)

import flambeau
from flambeau.backends.backend import NoCompiler
from flambeau.backends.cpu.processor import PROCESSOR_LEVELS, Processor
from flambeau.backends.kernel_store import precompiled
from flambeau.cli import main
from flambeau.cli.precompile import common_processor
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned
ROOT = Path(flambeau.__file__).parents[1]
PROGRAM = """
import sys
import flambeau as torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5))
x = torch.randn(3, 2, 8, 8)
with torch.no_grad():
    for _ in range(3):
        y = torch.softmax(net(x), 1)
        print(y.reshape(-1).view(torch.int32).tolist())
"""
WITHOUT_LLVM = "import sys\nsys.modules['llvmlite'] = None\n"


def python(code, **environment):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": path, **environment})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that `flambeau precompile` made of PROGRAM."""
    folder = tmp_path_factory.mktemp("made") / "kernels"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-m", "flambeau", "precompile", "--to", folder, "--threads", "1", "-c",
                           PROGRAM], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0 and f"libraries for {common_processor()}" in done.stdout, done.stderr
    return folder


@pytest.fixture
def copied(made, tmp_path):
    """A copy of it to do harm to."""
    return Path(shutil.copytree(made, tmp_path / "kernels"))


def test_the_same_bits_without_a_compiler(made):
    want = python(PROGRAM, FLAMBEAU_CPU=common_processor(), FLAMBEAU_EXECUTOR="native", FLAMBEAU_NUM_THREADS="1")
    got = python(WITHOUT_LLVM + "import warnings; warnings.simplefilter('error')\n" + PROGRAM
                 + "from flambeau.backends.cpu import machine_code\n"
                   "assert machine_code.loaded > 3 and not machine_code.compiled, machine_code.loaded\n",
                 FLAMBEAU_PRECOMPILED=str(made), FLAMBEAU_EXECUTOR="native", FLAMBEAU_NUM_THREADS="1")
    assert got.returncode == 0 and got.stdout == want.stdout and len(set(want.stdout.splitlines())) == 1, got.stderr


MORE = PROGRAM + """
x = torch.linspace(-1, 1, 100, dtype=torch.float64)
for _ in range(3):
    y = (torch.atan(x) * x.cosh()).sum().item()
import math
assert abs(y - sum(math.atan(v) * math.cosh(v) for v in (-1 + 2 * i / 99 for i in range(100)))) < 1e-9
torch.doctor(quick=True)
"""


def test_what_was_not_compiled_runs_by_the_reference_and_is_said_once(made):
    done = python(WITHOUT_LLVM + MORE, FLAMBEAU_PRECOMPILED=str(made), FLAMBEAU_EXECUTOR="native")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was not compiled beforehand, and there is no compiler here") == 1, done.stderr
    assert "flambeau precompile" in done.stderr and "mistake" not in done.stderr


def test_a_damaged_library_counts_as_absent(copied):
    for path in copied.glob("*.so"):
        path.write_bytes(b"\x7fELF and nothing else")
    done = python(WITHOUT_LLVM + PROGRAM, FLAMBEAU_PRECOMPILED=str(copied), FLAMBEAU_EXECUTOR="native")
    assert done.returncode == 0 and "was not compiled beforehand" in done.stderr, done.stderr


def changed(folder, **changes):
    path = folder / precompiled.INDEX
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return str(folder)


def test_a_lesser_processor_is_refused_in_words(copied):
    folder = changed(copied, needs=["fp", "sse99"])
    with pytest.raises(NoCompiler, match="sse99(?s:.*)this processor lacks"):
        precompiled.PrecompiledHost(folder)
    done = python(WITHOUT_LLVM + PROGRAM, FLAMBEAU_PRECOMPILED=folder)
    assert done.returncode == 0 and "sse99" in done.stderr and "Everything runs on the reference" in done.stderr
    done = python(WITHOUT_LLVM + PROGRAM, FLAMBEAU_PRECOMPILED=folder, FLAMBEAU_EXECUTOR="native")
    assert done.returncode == 1 and "sse99" in done.stderr.splitlines()[-1]


def test_a_folder_that_is_none_or_that_others_can_write_to(copied, tmp_path):
    with pytest.raises(NoCompiler, match="no folder that flambeau precompile made"):
        precompiled.PrecompiledHost(str(tmp_path / "nothing"))
    with pytest.raises(NoCompiler, match="of format 99"):
        precompiled.PrecompiledHost(changed(copied, format=99))
    changed(copied, format=precompiled.INDEX_FORMAT)
    precompiled.PrecompiledHost(str(copied))
    (copied / precompiled.INDEX).chmod(0o666)
    with pytest.raises(NoCompiler, match="can be written by other users"):
        precompiled.PrecompiledHost(str(copied))
    (copied / precompiled.INDEX).chmod(0o644)
    (copied / precompiled.INDEX).write_text("{")
    with pytest.raises(NoCompiler, match="no folder"):
        precompiled.PrecompiledHost(str(copied))


def test_levels_of_processors_in_the_words_of_linux():
    def words(triple, name):
        goal = Processor(triple, name, frozenset(PROCESSOR_LEVELS[triple.partition("-")[0]][name].split()), "")
        return set(precompiled.needed_words(goal))
    assert words("aarch64-unknown-linux-gnu", "generic") == {"fp", "asimd"}
    v2 = words("x86_64-unknown-linux-gnu", "x86-64-v2")
    assert {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"} <= v2 and "avx" not in v2
    v3 = words("x86_64-unknown-linux-gnu", "x86-64-v3") - v2      # as the psABI lists them, in Linux's words
    assert v3 == {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}


@pytest.mark.parametrize("words, said", [
    (["script.py"], "--to says where"), (["--to", "x"], "what is to run"), (["--to", "x", "--threads", "two", "-c", ""],
                                                                          "numbers with commas")])
def test_what_is_asked_wrongly_is_refused(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["precompile", *words]) == 2 and said in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
