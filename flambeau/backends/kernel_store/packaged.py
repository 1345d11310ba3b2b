"""Kernels that come with the package: machine code that nearly every program asks for, made when it was built.

The texts of products, convolutions, pooling, random numbers and the runner do not depend on shapes, and what is fused
in the steps of common nets hardly does; so what LLVM makes of them is known before a program runs. `setup.py`
has it made beside the compiled core (flambeau/cli/package_kernels.py), a file for each processor that it is meant for:

    flambeau/_compiled/kernels-neoverse-n1.bin      in a clone, or where pip compiled: for the machine at hand
    flambeau/_compiled/kernels-x86-64-v4.bin        in a wheel: for levels that many machines have in common

Note [Packaged kernels]: a text that is not in this process is looked for in such a file first (Note [One store of
kernels] in store.py). What is found there is what LLVM would make of it here, to the last bit of the results:
- a text is found by its own hash, so an edited kernel is never run in the form that it had before. `make core` makes
  the file anew; until then LLVM compiles what is not in it;
- to write a text takes a millisecond, so a function is looked for by what its text is written from before it is
  written: the words of a launch, or the name that the library has for it, and the Target (its origin). That holds
  while texts are written as they were when the file was made: `writers` is a hash of the modules that have any part in
  it, and the first edit of one of them ends it, until `make core`. Then texts are written, and found by their own hash;
- the file says which PIPELINE_VERSION, llvmlite and LLVM have made it, and is used with the same ones alone;
- a text is written for a Target (vectors, instructions), and says its arithmetic in full: fused where it says so, and
  LLVM may neither fuse nor reorder anything else. So code for a level gives the bits that code for this processor does.
  A file is used if the processor has all features of the file's, and the same Target; the best of several is the
  processor's own, and then the one with most features. `config.cpu` chooses here as well: without a feature, no code
  that needs it is found;
- a file is trusted as the modules beside it are, which can do anything: it has to be a plain file whose owner and
  permissions let no user write it who could not write these. One that is not, is damaged, or is of another version
  counts as absent, and `flambeau info` says why. Nothing is read at `import flambeau`.

A file: a header with the length and SHA-256 of the index; the index, JSON; the objects. Each object has a SHA-256 of
its own, which is looked at when it is used. Texts that are used together are one object: to load one takes a
millisecond or two, whatever is in it, and to find a function in it 20 microseconds.
"""
import functools
import hashlib
import json
import os
import stat
import sys
from _imp import source_hash
from contextlib import suppress
from typing import NamedTuple

from ...base.core import FOLDER as PACKAGE
from .files import FILE_HEADER, distrusted, opened as opened_file, sealed, unsealed, write_whole
from .store import CacheTier, digest, reference

PACKAGED_FOLDER = os.path.join(PACKAGE, "_compiled")
PREFIX, SUFFIX = "kernels-", ".bin"
PACKAGED_FORM = b"FLAMKRN2"      # the last of it counts changes of the form
PACKAGE_DISTRUST = "is owned by another user than the package", \
    "is writable by others than the package (chmod go-w helps)"
# whose modules have a part in how texts are written
WRITER_FOLDERS = "loops", "backends/cpu", "backends/cpu/library", "backends/cpu/random"


class KernelFile(NamedTuple):
    """What a file says of itself; where its objects are, {hash of one: (offset, length)}; which of them has a text,
    {hash of a text: hash of the object}; and what was written for an origin, {hash of it: (name of the function, hash
    of the object)}, by which modules."""

    path: str
    start: int
    version: str
    system: str
    cpu: str
    features: list
    target: list
    objects: dict
    texts: dict
    origins: dict
    writers: str

    def suits(self, version, goal):
        """Why it cannot be used for the Processor `goal`; empty if it can."""
        if self.version != version:
            return f"is made by another compiler or in another way ({self.version}, here {version})"
        if self.system != system_of(goal.triple):
            return f"is made for another system, {self.system}"
        if not goal.on >= {*self.features} or self.target != list(goal.target):
            return f"is made for {self.cpu}, and {goal.cpu} is another"
        return ""


class PackagedKernels(CacheTier):
    """The objects of the file that suits a processor best, and of none where no file does."""

    def __init__(self, version, goal, folder=None):
        self.version, self.goal, self.folder = version, goal, folder or PACKAGED_FOLDER
        self._file, self._looked, self.why = None, False, ""

    @property
    def file(self):
        """The KernelFile in use, or None; `why` then says why there is none."""
        if not self._looked:
            self._file, self.why = self._best()
            self._looked = True               # not before: another thread that asks meanwhile would be told of none
        return self._file

    def _best(self):
        found, why = [], []
        for path in paths(self.folder):
            try:
                one = opened(path)
                wrong = one.suits(self.version, self.goal)
            except (OSError, ValueError) as error:
                wrong = str(error)
            if wrong:
                why.append(f"{os.path.basename(path)} {wrong}")
            else:
                found.append(one)
        return max(found, key=lambda one: (one.cpu == self.goal.cpu, len(one.features)), default=None), "; ".join(why)

    def function(self, origin):
        """(name of the function, object) of what was written for `origin`, as it would be written now; or None."""
        if self.file is None or self.file.writers is None or self.file.writers != writers():
            return None
        return self.file.origins.get(digest(origin))

    def read(self, key, text=None):
        """The object of that key, None where it is damaged; for a text, which object it is in."""
        file = self.file
        if file is None or key in file.objects:
            return file and content(file, key)
        whole = text and file.texts.get(digest(text))
        return whole and reference(whole)

    def distrust(self, key, error):
        """An object cannot be used, so none of the file's is from now on."""
        if self.file is not None:
            self._file, self.why = None, f"what is in {os.path.basename(self.file.path)} cannot be linked: {error}"

    def described(self):
        """What there is, in words."""
        if self.file is not None:
            edited = "" if self.file.writers == writers() else \
                ", found later than they could be: modules that write kernels were edited since, or are no files; " \
                "`make core` helps"
            return f"{len(self.file.texts)} for {self.file.cpu}{edited}"
        return f"none: {self.why or 'they were not made; `make core` makes them'}"


@functools.cache
def writers():
    """A number, in hexadecimal, that is another one where any module is that has a part in how texts are written; None
    where their sources are not there, as in a frozen program: then it cannot be said."""
    parts: list = []
    try:
        for folder in WRITER_FOLDERS:
            for name in sorted(os.listdir(os.path.join(PACKAGE, folder))):
                if name.endswith(".py"):
                    with open(os.path.join(PACKAGE, folder, name), "rb") as file:
                        parts += name.encode(), file.read()
    except OSError:
        return None
    return source_hash(0, b"\0".join(parts)).hex() if parts else None


def system_of(triple):
    """The processor and system that an object is for. A triple may say more, such as which release of it."""
    architecture = triple.partition("-")[0]
    return f"{'aarch64' if architecture == 'arm64' else architecture}-{sys.platform}"


def paths(folder):
    """The files in `folder`."""
    names: list = []
    with suppress(OSError):
        names = sorted(os.listdir(folder))
    return [os.path.join(folder, name) for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)]


def opened(path):
    """The KernelFile at `path`; a ValueError or OSError says why there is none."""
    with _file(path) as file:
        written = unsealed(file, PACKAGED_FORM)
    return KernelFile(path, FILE_HEADER.size + len(written), **json.loads(written))


def content(one, whole):
    """The object of a KernelFile that is called so; None where it is damaged, or the file was made anew meanwhile."""
    offset, length = one.objects[whole]
    with suppress(OSError, ValueError), _file(one.path) as file:
        file.seek(one.start + offset)
        code = file.read(length)
        if hashlib.sha256(code).hexdigest() == whole:
            return code
    return None


def _file(path):
    """The opened file at `path`, if it can be trusted."""
    folder, module = os.stat(os.path.dirname(path)), os.stat(__file__)
    return opened_file(path, lambda found: _distrusted(found, folder, module))


def _distrusted(found, folder, module):
    """Why a file with the status `found`, in such a `folder`, may hold what a user who runs a `module` does not want to
    be run; empty if it cannot."""
    return next(filter(None, (distrusted(
        one, (0, module.st_uid),
        stat.S_IMODE(module.st_mode) & (0o022 if one.st_gid == module.st_gid else 0o002), PACKAGE_DISTRUST)
        for one in (found, folder))), "")


def write(path, version, goal, parts, origins=()):
    """Make the file of `parts`, (texts, the object they became) each, compiled for the Processor `goal`: whole, or not
    at all. `origins` are (what a text was written from, the name of its function, the text)."""
    objects, object_of, at = {}, {}, 0
    for texts, code in parts:
        whole = hashlib.sha256(code).hexdigest()
        objects[whole] = at, len(code)
        object_of.update(dict.fromkeys(map(digest, texts), whole))
        at += len(code)
    index = json.dumps({"version": version, "system": system_of(goal.triple), "cpu": goal.cpu,
                        "features": sorted(goal.on), "target": goal.target, "objects": objects, "texts": object_of,
                        "origins": {digest(origin): (name, object_of[digest(text)]) for origin, name, text in origins},
                        "writers": writers()}).encode()
    write_whole(path, 0o644, sealed(PACKAGED_FORM, index), *(code for _, code in parts))
