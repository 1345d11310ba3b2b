"""Compiles the core (flambeau/base/core.py) where there are Cython and a C compiler; else the package is all Python.

FLAMBEAU_BUILD_CORE=0 leaves it out, and the wheel is one for every machine; with 1, not to be able to is an error.

With the core come kernels that most programs ask for first (flambeau/backends/kernel_store/packaged.py), where there is
llvmlite to compile them. They are for the processor at hand; FLAMBEAU_BUILD_KERNELS names others, for a wheel that goes
elsewhere: "levels", or some such as "x86-64-v3 native". Then not to be able to is an error; with 0 there are none.

Everything else about the package is said in pyproject.toml.
"""
import importlib.util
import logging
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
ASKED = os.environ.get("FLAMBEAU_BUILD_CORE", "").strip()
KERNELS = os.environ.get("FLAMBEAU_BUILD_KERNELS", "").split()
# Without `auto_pickle`, which would give every class a `__setstate__` of its own, and so Tensor and its subclasses one.
# Who changes this counts FORM_OF_FILES in core.py up.
DIRECTIVES = {"language_level": 3, "binding": True, "annotation_typing": True, "infer_types": False,
              "auto_pickle": False}


def core_module():
    """flambeau/base/core.py, without the package around it."""
    spec = importlib.util.spec_from_file_location("core", ROOT / "flambeau/base/core.py")
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    return core


def source(module):
    """What a module is compiled from: its Python, unless there is something in its place."""
    path = f"flambeau/{module.replace('.', '/')}.py"
    return f"{path}x" if os.path.exists(f"{path}x") else path


def extensions(core):
    """The modules of the core, each with the C source that Cython makes of it; none without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        if ASKED == "1":
            raise SystemExit("FLAMBEAU_BUILD_CORE=1: this needs Cython; pip install 'cython>=3.1'") from None
        return []
    os.chdir(ROOT)                        # Cython finds the package of a module by the folders around it
    made = cythonize([Extension(f"flambeau.{module}", [source(module)])
                      for module in core.MODULES], build_dir="build/core", compiler_directives=DIRECTIVES,
                     quiet=True, nthreads=cores() if sys.platform == "linux" else 0, force=True)
    for module, extension in zip(core.MODULES, made, strict=True):
        extension.name = f"flambeau._compiled.{core.compiled_name(module, core.fingerprint())}"
        extension.optional = ASKED != "1"
    return made


def cores():
    """How many processes may compile at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BuildCore(build_ext):
    """Compiles, and in place takes away what was compiled before from other sources."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or cores()

    def build_extensions(self):
        if self.compiler.compiler_type == "unix" and "CFLAGS" not in os.environ:
            for extension in self.extensions:      # Python's own flags ask for -g, which takes a third longer
                extension.extra_compile_args = ["-g0", "-O2"]
        self.announce(f"compiling {len(self.extensions)} modules with {self.parallel} processes", logging.WARNING)
        super().build_extensions()

    def get_export_symbols(self, extension):
        return []                         # the source itself says what is exported, and it goes by another name

    def run(self):
        folder = (ROOT if self.inplace else Path(self.build_lib).absolute()) / "flambeau/_compiled"
        folder.mkdir(parents=True, exist_ok=True)
        super().run()
        if self.inplace:
            for file in folder.glob(f"*{EXTENSION_SUFFIXES[0]}"):
                if core.fingerprint() not in file.name:
                    file.unlink()
        if KERNELS != ["0"]:
            self.make_kernels(folder)

    def make_kernels(self, folder):
        """Have the kernels made that come with the package; it is not installed yet, so its sources do it."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_")}
        command = sys.executable, "-m", "flambeau.cli.package_kernels", str(folder), *(KERNELS or ["native"])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=own)
        if done.returncode and KERNELS:
            raise SystemExit(f"FLAMBEAU_BUILD_KERNELS={' '.join(KERNELS)}: they could not be made:\n{done.stderr}")
        why = done.stderr.strip().rpartition("\n")[2]
        self.announce(f"there are no kernels with the package: {why}" if done.returncode else done.stdout.strip(),
                      logging.WARNING if done.returncode else logging.INFO)


core = core_module()
if __name__ == "__main__":                # the processes that Cython starts may import this file once more
    modules = [] if ASKED == "0" else extensions(core)
    setup(ext_modules=modules, cmdclass={"build_ext": BuildCore} if modules else {})
