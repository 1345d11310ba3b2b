"""Which form of the core runs: compiled modules are used if they were made from the sources that lie there, or not at
all."""
import importlib
import itertools
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import flambeau
from flambeau.base import core
from tests.patience import PATIENCE
from tests.thorough import sample

pytestmark = pytest.mark.pinned

PACKAGE = Path(flambeau.__file__).parent


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with the sources of the core, and files where the compiled modules would be, which nobody loads."""
    for module in core.MODULES:
        for source in PACKAGE.glob(f"{module.replace('.', '/')}.p*"):
            copy = tmp_path / source.relative_to(PACKAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    monkeypatch.setattr(core, "FOLDER", str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    (tmp_path / "_compiled").mkdir()
    for module in core.MODULES:
        (tmp_path / "_compiled" / (core.compiled_name(module, core.fingerprint()) + EXTENSION_SUFFIXES[0])).touch()
    return tmp_path


def test_every_module_has_its_types_beside_it():
    for module in core.MODULES:
        assert (PACKAGE / f"{module.replace('.', '/')}.py").exists(), module
        assert (PACKAGE / f"{module.replace('.', '/')}.pxd").exists(), module
    named = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.p[xy][dx]")}
    assert named == set(core.MODULES)


def test_what_is_compiled_is_found(package):
    assert core.choose("", "somewhere") == core.choose("compiled", "somewhere") == (True, "")
    spec = sys.meta_path[0].find_spec("somewhere.trace.value")
    assert Path(spec.origin).parent == package / "_compiled" and spec.name == "somewhere.trace.value"
    assert sys.meta_path[0].find_spec("somewhere.trace.record") is None
    assert core.choose("python", "somewhere") == (False, "FLAMBEAU_CORE=python")


@pytest.mark.parametrize("suffix, module", sample(itertools.product([".py", ".pxd"], core.MODULES), 5))
def test_an_edited_source_runs_as_it_stands(package, module, suffix):
    source = package / f"{module.replace('.', '/')}{suffix}"
    source.write_text(source.read_text() + "\n# another line\n")
    before = list(sys.meta_path)
    compiled, why = core.choose("", "somewhere")
    assert not compiled and "made from other sources" in why and sys.meta_path == before
    with pytest.raises(ImportError, match="FLAMBEAU_CORE=compiled, but .*made from other sources.*make core"):
        core.choose("compiled", "somewhere")


def test_all_of_them_or_none(package):
    next((package / "_compiled").glob("trace_recording_append*")).unlink()
    assert core.choose("", "somewhere")[0] is False


def test_another_python_has_its_own(package):
    for file in (package / "_compiled").iterdir():
        file.rename(file.with_name(file.name.replace(EXTENSION_SUFFIXES[0], ".another.so")))
    assert core.choose("", "somewhere") == (
        False, "there is none for this Python; `make core` makes it, with a C compiler and Cython")


def test_without_any_the_sources_run(package):
    for file in (package / "_compiled").iterdir():
        file.unlink()
    (package / "_compiled").rmdir()
    assert core.choose("", "somewhere") == (
        False, "it was not compiled; `make core` does, with a C compiler and Cython")


def run(asked):
    code = ("import flambeau, sys; print(flambeau._core.described());"
            "print(sys.modules['flambeau.trace.value'].__file__)")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "FLAMBEAU_CORE": asked})


def test_the_variable_chooses():
    form, file = run("python").stdout.splitlines()
    assert form == "interpreted: FLAMBEAU_CORE=python" and Path(file).name == "value.py"
    refused = run("cython")
    assert refused.returncode and "FLAMBEAU_CORE='cython': must be python or compiled, or not be set" in refused.stderr


def test_this_core_is_what_it_says():
    """Whichever form these tests run in: its modules are all of that form."""
    for module in core.MODULES:
        file = Path(importlib.import_module(f"flambeau.{module}").__file__)      # some are loaded when they are needed
        assert (file.parent.name == "_compiled") is core.COMPILED, module
