"""Which form of the core runs: the modules that every call goes through, as Python reads them or compiled.

The core is a few plain modules (MODULES). Beside each lies a `.pxd` file, which gives its fields and variables types,
and with both Cython makes a compiled module of the same source. It does the same, and takes a half to a third of the
time.

Note [One source, two speeds]: the sources are the definition, and run wherever there is nothing compiled. Compiled
modules lie in `_compiled/`, and the name of each ends in a fingerprint of all the sources they were made from. So
either all of them are loaded, and are what the sources say, or none: an edited source is never run in the form that it
had before. FLAMBEAU_CORE=python leaves them alone, and FLAMBEAU_CORE=compiled refuses to run without them.

What is different where it is compiled, and who has to know:
- compiled functions have no frames. So `here` cannot skip a number of them (base/errors.py), and code that looks for a
  function among frames does not find one of these (`who_looked` in base/observers.py);
- compiled classes have no dictionary, and nothing can be hung on them. What their fields begin as stands below them
  (`give_defaults`); a Tensor and a Node are classes of Python's over compiled ones, and take attributes as ever;
- functions that are attributes of Tensor (tensor/forms.py) are of a type of their own, `FORM_TYPE`;
- a field that is a number is one of C's, and whatever is put there becomes one.

`setup.py` reads this file by its path, without the package, so it imports nothing of ours.
"""
import os
import sys
from _imp import source_hash
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec

MODULES = ("base.counting", "base.entry", "base.function", "backends.cpu.memory.address",
           "backends.cpu.memory.array_pool", "backends.cpu.random.few", "trace.value", "trace.finite",
           "trace.recording.instructions", "trace.recording.new", "trace.exclusive", "trace.recording.append",
           "trace.running.key", "trace.running.single", "trace.running.runner", "trace.running.table",
           "trace.running.bound", "trace.running.quick", "trace.recording.backward_recording", "autograd.slots",
           "autograd.edges", "autograd.accumulate", "autograd.walk", "tensor.reading", "tensor.find", "tensor.history",
           "tensor.views", "tensor.recorder", "tensor.overwrite", "tensor.follow", "tensor.known_calls", "tensor.forms",
           "tensor.sample_indices", "compiler.guards", "compiler.rebuild", "compiler.bound", "watch.step_hooks")
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FORM_OF_FILES = 2                 # counts changes of how the modules are compiled, which no source shows
CORES = ("", "python", "compiled")


def fingerprint():
    """A number, in hexadecimal, that is another one where any source of the core is."""
    parts = [b"%d" % FORM_OF_FILES]
    for module in MODULES:
        for suffix in (".py", ".pxd", ".pyx"):
            file = os.path.join(FOLDER, *module.split(".")) + suffix
            if suffix != ".pyx" or os.path.exists(file):
                with open(file, "rb") as opened:
                    parts.append(opened.read())
    return source_hash(0, b"\0".join(parts)).hex()


def compiled_name(module, mark):
    """What the file of a module is called, but for its end, that was compiled from sources of fingerprint `mark`."""
    return f"{module.replace('.', '_')}-{mark}"


class CoreFinder:
    """Finds the modules of the core where their compiled files are, before their sources are looked for."""

    def __init__(self, files):
        self.files = files            # full name of a module → its file

    def find_spec(self, name, path=None, target=None):
        file = self.files.get(name)
        if file is None:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec


def choose(asked, package):
    """(whether the core of `package` is compiled, why it is as it is); has the compiled modules found from now on."""
    if asked not in CORES:
        raise ValueError(f"FLAMBEAU_CORE={asked!r}: must be python or compiled, or not be set")
    if asked == "python":
        return False, "FLAMBEAU_CORE=python"
    try:
        names = os.listdir(os.path.join(FOLDER, "_compiled"))
        mark = fingerprint()
    except OSError:                                   # there are none, or no sources either
        names, mark = [], ""
    files = {f"{package}.{module}": compiled_name(module, mark) + EXTENSION_SUFFIXES[0] for module in MODULES}
    if files and set(files.values()) <= set(names):
        sys.meta_path.insert(0, CoreFinder({name: os.path.join(FOLDER, "_compiled", file)
                                            for name, file in files.items()}))
        return True, ""
    others = [name for name in names if name.endswith(EXTENSION_SUFFIXES[0])]
    why = "the compiled one was made from other sources than these; `make core` makes it anew" if others else \
        "there is none for this Python; `make core` makes it, with a C compiler and Cython" if names else \
        "it was not compiled; `make core` does, with a C compiler and Cython"
    if asked == "compiled":
        raise ImportError(f"FLAMBEAU_CORE=compiled, but {why}.")
    return False, why


if __package__:                                       # not where setup.py reads it
    COMPILED, WHY = choose(os.environ.get("FLAMBEAU_CORE", "").strip(), __package__.rpartition(".")[0])


def described():
    """Which form it has, in words."""
    return "compiled" if COMPILED else f"interpreted: {WHY}"


def source_of(filename):
    """The file that a traceback means by `filename`: a compiled function says where its source lay in the project."""
    path = filename.replace("\\", "/").removeprefix("flambeau/").removesuffix(".py").replace("/", ".")
    return os.path.join(FOLDER, *path.split(".")) + ".py" if COMPILED and path in MODULES else filename


def give_defaults(cls, **values):
    """What the fields of `cls` are as long as they are not set.

    An interpreted object finds that in its class. A compiled one has room for its fields, which begin as 0, False and
    None; what is to begin as something else, `__cinit__` sets, which runs compiled alone.
    """
    if not COMPILED:
        for name, value in values.items():
            setattr(cls, name, value)
