"""`flambeau provide-torch`: make Flambeau this environment's torch, for pip and for every program in it.

What it installs is a distribution named torch, a wheel written on the spot: metadata with PyTorch's version, which
meets what other packages require; a package `torch` whose import calls `install_as_torch`; and a finder for
`torchvision`, which Python asks after all others, so that the package, once installed, comes first.
"""
import base64
import hashlib
import importlib.machinery
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import zipfile

from ..version import __version__ as TORCH_VERSION
from .facade import METADATA

PROVIDE_USAGE = """\
flambeau provide-torch                    make Flambeau the torch of this environment, for pip too
flambeau provide-torch --undo             take it away again
flambeau provide-torch --wheel folder     only write the wheel, for an installer other than pip
"""

# What `import torch` runs in an environment that was provided with it.
PACKAGE_SOURCE = '''\
"""`torch` in this environment is Flambeau; `flambeau provide-torch --undo` takes it away."""
stands_in = True              # so that it is not taken for the real one

try:
    from flambeau.cli.facade import install_as_torch
except ModuleNotFoundError as error:
    if error.name not in ("flambeau", "flambeau.cli"):      # a folder may be left of it
        raise
    raise ModuleNotFoundError(
        "torch is provided by Flambeau in this environment, and Flambeau is not installed any more: install it again "
        "(pip install flambeau), or take its torch away too (pip uninstall torch)", name="torch") from None

install_as_torch()
'''

# What Python runs when it starts in such an environment. It imports nothing that is not there already.
FINDER_MODULE = "_torchvision_of_flambeau"
FINDER_SOURCE = '''\
"""Where torchvision is not installed, `import torchvision` gives the part of it that Flambeau has."""
import sys


class LastFinder:
    of_flambeau = True

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torchvision" or "torch" in sys.modules:
            return None                   # Flambeau's own finder was asked before
        from importlib.util import find_spec
        found = find_spec("flambeau")
        if found is None or found.origin is None:
            return None                   # it was uninstalled; a folder may be left
        import torch
        from flambeau.cli.facade import FacadeFinder
        return FacadeFinder().find_spec(name)


sys.meta_path.append(LastFinder)
'''

WHEEL_FILE = """\
Wheel-Version: 1.0
Generator: flambeau
Root-Is-Purelib: true
Tag: py3-none-any
"""


def provide(argv):
    """Run the command with the arguments after its name; the exit code."""
    if argv == []:
        return install()
    if argv == ["--undo"]:
        return undo()
    if argv[0] == "--wheel" and len(argv) == 2:
        print(write_wheel(argv[1]))
        return 0
    if argv[0] in ("-h", "--help"):
        print(PROVIDE_USAGE, end="")
        return 0
    print(f"flambeau provide-torch: cannot make out {' '.join(argv)!r}.\n\n{PROVIDE_USAGE}", end="", file=sys.stderr)
    return 2


def install():
    real = real_torch()
    if real is not None:
        print(f"flambeau provide-torch: this environment has {real}, and would have two packages of one name. "
              "Uninstall it, or make an environment without it: python -m venv", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        # Without dependencies, so that nothing is fetched: Flambeau is running.
        code = pip("install", "--no-deps", "--no-index", "--force-reinstall", write_wheel(folder))
    if code == 0:
        print(f"torch {TORCH_VERSION} is installed: `import torch` is Flambeau in this environment.")
    return code


def undo():
    real = real_torch()
    if real is not None:
        print(f"flambeau provide-torch: this environment has {real}, which Flambeau did not install, and will not "
              "remove", file=sys.stderr)
        return 1
    if not any(importlib.metadata.distributions(name="torch")):
        print("flambeau provide-torch: this environment has no torch to remove", file=sys.stderr)
        return 1
    return pip("uninstall", "--yes", "torch")


def pip(*arguments):
    """Run this environment's pip; its exit code."""
    if importlib.machinery.PathFinder.find_spec("pip") is None:
        print("flambeau provide-torch: this environment has no pip. `flambeau provide-torch --wheel folder` writes the "
              "wheel, for the installer that it has; `pip uninstall torch` undoes it", file=sys.stderr)
        return 1
    return subprocess.call([sys.executable, "-m", "pip", *arguments[:1], "--quiet", "--disable-pip-version-check",
                            *arguments[1:]])


def real_torch():
    """The PyTorch of this environment in words, None if there is none."""
    for found in importlib.metadata.distributions(name="torch"):
        if found.version != TORCH_VERSION:
            return f"torch {found.version} in {found.locate_file('')}"
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    with open(spec.origin, "rb") as file:
        return None if b"stands_in = True" in file.read() else f"a package torch, {os.path.dirname(spec.origin)}"


def write_wheel(folder):
    """Write the wheel into `folder`; its path."""
    os.makedirs(folder, exist_ok=True)
    info = f"torch-{TORCH_VERSION}.dist-info"
    files = {"torch/__init__.py": PACKAGE_SOURCE, f"{FINDER_MODULE}.py": FINDER_SOURCE,
             f"{FINDER_MODULE}.pth": f"import {FINDER_MODULE}\n", f"{info}/METADATA": METADATA,
             f"{info}/WHEEL": WHEEL_FILE}
    record = "".join(f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = os.path.join(folder, f"torch-{TORCH_VERSION}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _digest(text):
    """The checksum of a file as RECORD holds it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
