"""`import flambeau` stays light: modules that are not needed to make a tensor are not loaded with it."""

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE

HEAVY = set("""
    torch scipy matplotlib pandas tqdm llvmlite cupy jax tensorflow sklearn hypothesis pytest
    numpy.random numpy.fft numpy.ma numpy.polynomial numpy.testing numpy.f2py
    argparse asyncio concurrent.futures dataclasses decimal doctest email fractions http inspect json logging
    multiprocessing pdb pydoc random shutil socket sqlite3 ssl statistics subprocess tempfile
    typing_extensions unittest urllib.request uuid xml zipfile
""".split())


def modules_of(module):
    """The modules that a fresh interpreter has after importing `module`."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def loaded_by(module):
    """Which of the heavy modules a fresh interpreter has after importing `module`."""
    return HEAVY & modules_of(module)


def test_import_loads_nothing_heavy():
    extra = loaded_by("flambeau") - loaded_by("numpy")      # what NumPy brings along is not ours to avoid
    assert not extra, f"import flambeau also loads {', '.join(sorted(extra))}"


def test_import_prints_nothing_and_warns_of_nothing():
    done = subprocess.run([sys.executable, "-W", "error", "-c", "import flambeau"],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_layers_writes_no_help_pages():
    assert "flambeau.tensor.help" not in modules_of("flambeau.nn, flambeau.optim")


def test_a_numpy_that_is_too_old_is_named(tmp_path):
    (tmp_path / "numpy.py").write_text("__version__ = '1.26.4'\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import flambeau"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode and done.stderr.strip().splitlines()[-1].startswith(
        "ImportError: Flambeau needs NumPy 2.2.5 or later, and 1.26.4 is installed.")


def test_the_numpy_that_is_asked_for_is_the_least():
    from flambeau.base.requirements import LEAST_NUMPY
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"numpy>={".".join(map(str, LEAST_NUMPY))}"' in project
