"""What is built holds what it should: the source distribution a clone's files, the wheel every file of the package."""
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned

ROOT = Path(__file__).parents[1]
FOLDERS = ("flambeau", "tests", "docs", "examples", "bench", ".ci")
LEFT_OUT = ("__pycache__", ".pyc", ".egg-info", "examples/out", "flambeau/_compiled/")


def files():
    """Every file of ours, by its path from the root."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    found += [path for path in ROOT.iterdir() if path.suffix in (".md", ".toml", ".in", ".py") or path.name in
              ("LICENSE", "Makefile", ".gitignore")]
    names = {path.relative_to(ROOT).as_posix() for path in found}
    return {name for name in names if not any(part in name for part in LEFT_OUT)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(the source distribution, the wheel that is built from it): names and contents' sizes."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    for name in files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    sdist = build(source, folder / "dist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    unpacked = next((folder / "unpacked").iterdir())
    return unpacked, build(unpacked, folder / "dist", "wheel")


def build(source, target, kind):
    """Build in a process of its own, offline, with the setuptools that is installed, and without the compiled core."""
    target.mkdir(exist_ok=True)
    code = f"import setuptools.build_meta as build; print(build.build_{kind}({str(target)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": "", "FLAMBEAU_BUILD_CORE": "0"})
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def test_the_source_distribution_holds_what_a_clone_does(built):
    unpacked, _ = built
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert not files() - held


def test_the_wheel_holds_every_file_of_the_package(built):
    _, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert wheel.name.endswith("-py3-none-any.whl")
    assert {name for name in files() if name.startswith("flambeau/")} <= held
    assert not {name for name in held if name.split("/")[0] in ("tests", "docs", "examples", "bench")}


def test_the_wheel_works_by_itself(built, tmp_path):
    """Unpacked somewhere else, with no source beside it: it computes, explains itself, and refuses in words."""
    _, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = ("import flambeau as torch, pydoc\n"
            "assert torch.arange(3.).exp().sum() > 11\n"
            "assert '>>> torch.exp' in pydoc.render_doc(torch.exp)\n"
            "try: torch.stft\n"
            "except AttributeError as error: assert 'which PyTorch has' in str(error)\n"
            "print(torch.__file__)")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "FLAMBEAU_CORE": ""})
    assert done.returncode == 0 and done.stdout.strip().startswith(str(tmp_path)), done.stderr
