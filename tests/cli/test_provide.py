"""`flambeau provide-torch`: an environment whose torch is Flambeau, for pip and for programs, and back again."""
import importlib.machinery
import importlib.metadata
import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

import flambeau
from flambeau.cli import main, provide
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned

ROOT = Path(flambeau.__file__).parents[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The Python of an environment that sees this Flambeau and what it needs, and has nothing else."""
    packages = {name: importlib.machinery.PathFinder.find_spec(name)       # to import pip would change setuptools
                for name in ("numpy", "ml_dtypes", "llvmlite", "pip")}
    if packages["pip"] is None:
        pytest.skip("there is no pip here")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / "bin" / "python"
    # Only those packages, not the folder that they are in: it may hold the real torch. To install a pip takes seconds.
    beside = folder / "beside"
    beside.mkdir()
    for name, found in packages.items():
        source = Path(found.origin).parent
        (beside / name).symlink_to(source)
        for libraries in source.parent.glob(f"{name}.libs"):
            (beside / libraries.name).symlink_to(libraries)
    paths = next(folder.glob("lib/python*/site-packages"))
    (paths / "flambeau_here.pth").write_text(f"{ROOT}\n{beside}\n")
    return python


def run(python, *arguments, **extra):
    return subprocess.run([str(python), *arguments], capture_output=True, text=True, timeout=PATIENCE, cwd="/",
                          env={**{name: held for name, held in os.environ.items() if name != "PYTHONPATH"}, **extra})


def commands(python, *all_arguments, **extra):
    """`flambeau provide-torch` several times in one process, which prints what each ends with."""
    return run(python, "-c", f"from flambeau.cli import main\nends = []\nfor arguments in {list(all_arguments)}:\n"
                             f"    ends.append(main(['provide-torch', *arguments]))\nprint(ends)", **extra)


def test_provided_and_taken_away(environment):
    done = run(environment, "-m", "flambeau", "provide-torch")
    assert done.returncode == 0 and "`import torch` is Flambeau" in done.stdout, done.stderr
    # torchvision, before torch, is ours where there is none
    vision = "import torchvision, torchvision.utils\nprint(torchvision.utils.__name__, torchvision.__version__)\n"
    code = "import torch, torch.nn.functional as F, flambeau, importlib.metadata as m, multiprocessing\n" \
           "assert torch.nn is flambeau.nn and F is flambeau.nn.functional\n" \
           "print(torch.__version__, m.version('torch'), m.requires('torch')[0], torch.ones(3).sum().item())\n" \
           "pool = multiprocessing.get_context('spawn').Pool(1)\n" \
           "print(pool.apply(torch.ones, (2,)).tolist())"
    done = run(environment, "-c", vision + code)
    assert done.stdout == "flambeau.data.pictures 0.28.0+flambeau\n" \
                          "2.13.0+flambeau 2.13.0+flambeau flambeau 3.0\n[1.0, 1.0]\n", done.stderr
    # pip takes a requirement of torch as met, and would not fetch another
    done = run(environment, "-m", "pip", "install", "--no-index", "--no-deps", "torch>=2.4")
    assert done.returncode == 0 and "already satisfied" in done.stdout, done.stderr
    there = next(environment.parents[1].glob("lib/python*/site-packages")) / "torchvision"
    there.mkdir()
    (there / "__init__.py").write_text("__version__ = 'real'\n")
    (there / "utils.py").touch()
    done = run(environment, "-c", vision)                                # and the package where there is one
    assert done.stdout == "torchvision.utils real\n", done.stderr

    done = commands(environment, [], ["--undo"], ["--undo"])             # provided twice is once
    assert done.stdout.splitlines()[-1] == "[0, 0, 1]" and "no torch to remove" in done.stderr, done.stderr
    done = run(environment, "-c", "import torch")
    assert done.returncode == 1 and "No module named 'torch'" in done.stderr


@pytest.mark.parametrize("left", [False, True], ids=["all", "a folder is left"])
def test_without_flambeau(environment, left):
    """Flambeau was uninstalled first: what it has left is as good as not there, or says what to do."""
    done = run(environment, "-m", "flambeau", "provide-torch")
    assert done.returncode == 0, done.stderr
    paths = next(environment.parents[1].glob("lib/python*/site-packages"))
    shutil.rmtree(paths / "torchvision", ignore_errors=True)
    path = paths / "flambeau_here.pth"
    text = path.read_text()
    path.write_text(text.replace(f"{ROOT}\n", ""))
    if left:
        (paths / "flambeau").mkdir()
    try:
        done = run(environment, "-c", "from importlib.util import find_spec\n"
                                      "print(find_spec('torchvision'), find_spec('torchvision') is None)\n"
                                      "try: import torchvision\n"
                                      "except ModuleNotFoundError as error: print(error)\n"
                                      "import torch")
        assert done.stdout == "None True\nNo module named 'torchvision'\n", done.stderr
        assert done.stderr.splitlines()[-1] == \
            "ModuleNotFoundError: torch is provided by Flambeau in this environment, and Flambeau is not installed " \
            "any more: install it again (pip install flambeau), or take its torch away too (pip uninstall torch)"
        assert "During handling" not in done.stderr
    finally:
        if left:
            (paths / "flambeau").rmdir()
        path.write_text(text)
    done = commands(environment, ["--undo"])
    assert done.stdout.splitlines()[-1] == "[0]", done.stderr


def test_the_real_one_is_left_alone(environment, tmp_path):
    package, info = tmp_path / "torch", tmp_path / "torch-2.12.1.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text("real = True\n")
    done = commands(environment, [], ["--undo"], PYTHONPATH=str(tmp_path))
    assert done.stdout == "[1, 1]\n" and done.stderr.count(f"a package torch, {package}") == 2
    assert "two packages of one name" in done.stderr and "will not remove" in done.stderr
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.1\n")
    done = run(environment, "-m", "flambeau", "provide-torch", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and f"torch 2.12.1 in {tmp_path}" in done.stderr and "python -m venv" in done.stderr
    assert (package / "__init__.py").read_text() == "real = True\n"


def test_an_environment_without_pip(environment):
    done = run(environment, "-c", "import importlib.machinery as m, sys\n"
                                  "find = m.PathFinder.find_spec\n"
                                  "def found(name, *rest): return None if name == 'pip' else find(name, *rest)\n"
                                  "m.PathFinder.find_spec = found\n"
                                  "from flambeau.cli.provide import provide\n"
                                  "sys.exit(provide([]))")
    assert done.returncode == 1 and "has no pip" in done.stderr and "--wheel folder" in done.stderr


def test_the_wheel(tmp_path, capsys):
    assert main(["provide-torch", "--wheel", str(tmp_path / "new")]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == tmp_path / "new" / "torch-2.13.0+flambeau-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name).decode() for name in archive.namelist()}
    record = [line.split(",") for line in held["torch-2.13.0+flambeau.dist-info/RECORD"].splitlines()]
    assert {name for name, *_ in record} == set(held)
    for name, digest, size in record[:-1]:
        assert digest == f"sha256={provide._digest(held[name])}" and int(size) == len(held[name])


def test_arguments(capsys):
    assert main(["provide-torch", "--help"]) == 0 and "--undo" in capsys.readouterr().out
    assert main(["provide-torch", "--wheel"]) == 2 and "cannot make out '--wheel'" in capsys.readouterr().err
    assert main(["provide-torch", "now"]) == 2


def test_this_environment_if_it_has_pytorch(capsys):
    versions = [one.version for one in importlib.metadata.distributions(name="torch")]
    if not versions or versions[0].endswith("+flambeau"):
        pytest.skip("it has none")
    assert main(["provide-torch"]) == 1 and "two packages of one name" in capsys.readouterr().err
