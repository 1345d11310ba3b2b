"""Compiles the core (flambeau/base/core.py) where there are Cython and a C compiler; else the package is all Python.

FLAMBEAU_BUILD_CORE=0 leaves it out, and the wheel is one for every machine; with 1, not to be able to is an error.
Everything else about the package is said in pyproject.toml.
"""
import importlib.util
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
ASKED = os.environ.get("FLAMBEAU_BUILD_CORE", "").strip()
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
                     quiet=True, nthreads=0, force=True)
    for module, extension in zip(core.MODULES, made, strict=True):
        extension.name = f"flambeau._compiled.{core.compiled_name(module, core.fingerprint())}"
        extension.optional = ASKED != "1"
    return made


class BuildCore(build_ext):
    """Compiles, and in place takes away what was compiled before from other sources."""

    def get_export_symbols(self, extension):
        return []                         # the source itself says what is exported, and it goes by another name

    def run(self):
        if self.inplace:
            (ROOT / "flambeau/_compiled").mkdir(exist_ok=True)
        super().run()
        if self.inplace:
            for file in (ROOT / "flambeau/_compiled").glob(f"*{EXTENSION_SUFFIXES[0]}"):
                if core.fingerprint() not in file.name:
                    file.unlink()


core = core_module()
modules = [] if ASKED == "0" else extensions(core)
setup(ext_modules=modules, cmdclass={"build_ext": BuildCore} if modules else {})
