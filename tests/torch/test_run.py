"""The programs of tests/cli under PyTorch itself, and under `flambeau run`: the same lines, the same numbers."""
import importlib.util
import os
import pickle
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import flambeau
from tests.patience import PATIENCE

PROGRAMS = Path(__file__).parents[1] / "cli" / "programs"
# program and arguments → how far its numbers may be apart: of losses in the lower precision, a few roundings
RUNS = {("digits.py", "--epochs", "2", "--save"): 2e-4, ("gan.py",): 2e-4, ("recurrent.py",): 2e-4,
        ("variational.py",): 1e-6, ("mixed.py", "bfloat16"): 0.03, ("mixed.py", "float16"): 0.03}
DRIVER = """
import os, runpy, sys, torch
for run in {runs!r}:
    print("===", *run)
    sys.argv = [*run]
    runpy.run_path(run[0], run_name="__main__")
    torch.set_default_dtype(torch.float32)
"""


def python(*arguments):
    """A finished process of ours, which finds this Flambeau."""
    path = os.pathsep.join(filter(None, [str(Path(flambeau.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *arguments], cwd=PROGRAMS, text=True, timeout=PATIENCE, capture_output=True,
                          env={**os.environ, "PYTHONPATH": path})


def flambeau_run(code, *arguments):
    return python("-m", "flambeau", "run", "-c", code, *arguments)


def outputs(command, folder):
    """{program and arguments: its lines}, all run in one process."""
    runs = [run if run[-1] != "--save" else (*run, str(folder / "saved.pt")) for run in RUNS]
    done = python(*command, "-c", DRIVER.format(runs=runs))
    assert done.returncode == 0, done.stderr
    found = [part.split("\n", 1)[1].splitlines() for part in done.stdout.split("=== ")[1:]]
    return dict(zip(RUNS, found, strict=True))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return (outputs((), tmp_path_factory.mktemp("torch")),
            outputs(("-m", "flambeau", "run"), tmp_path_factory.mktemp("flambeau")))


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_the_same_lines(both, run):
    want, got = both[0][run], both[1][run]
    assert len(want) > 4
    number = r"-?\d+\.\d+(?:e[-+]\d+)?"
    for theirs, ours in zip(want, got, strict=True):
        assert re.sub(number, "#", ours) == re.sub(number, "#", theirs)
        for a, b in zip(re.findall(number, ours), re.findall(number, theirs), strict=True):
            assert float(a) == pytest.approx(float(b), rel=RUNS[run], abs=RUNS[run] / 10)


def modules(folder, name, depth):
    """The public modules of PyTorch below `name`."""
    for found in pkgutil.iter_modules([folder]):
        if not found.name.startswith("_") and f"{name}.{found.name}" not in ("torch.testing", "torch.lib"):
            yield f"{name}.{found.name}"
            if found.ispkg and depth > 1:
                yield from modules(os.path.join(folder, found.name), f"{name}.{found.name}", depth - 1)


def test_every_module_can_be_imported():
    """It is here, or it is missing by name. What PyTorch does not have is an error."""
    import torch
    names = set(modules(os.path.dirname(torch.__file__), "torch", 2))
    names.remove("torch.multiprocessing.spawn")              # there, too, the name is that of a function
    if importlib.util.find_spec("tensorboard") is None:
        names.remove("torch.utils.tensorboard")              # PyTorch's own cannot be imported then either
    assert len(names) > 200
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n" \
           "    try: importlib.import_module(name)\n    except ImportError as error: print(name)"
    done = flambeau_run(code, *names, "torch.no_such_module", "torch.nn.no_such_module")
    assert (done.stdout.split(), done.stderr) == (["torch.no_such_module", "torch.nn.no_such_module"], "")


def test_a_file_from_one_is_read_by_the_other(tmp_path):
    import torch
    theirs, ours = torch.nn.Linear(3, 2), flambeau.nn.Linear(3, 2)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    ours.load_state_dict(flambeau.load(tmp_path / "theirs.pt"))
    assert ours.weight.tolist() == theirs.weight.tolist()
    pickled = tmp_path / "theirs.pkl"
    pickled.write_bytes(pickle.dumps({"model": theirs, "tensor": torch.arange(6.0).reshape(2, 3).t()}))
    code = f"import pickle\nheld = pickle.load(open({str(pickled)!r}, 'rb'))\n" \
           "print(held['model'].weight.tolist(), held['tensor'].tolist(), held['tensor'].stride())"
    done = flambeau_run(code)
    assert done.stdout.strip() == f"{theirs.weight.tolist()} [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] (1, 3)", done.stderr
