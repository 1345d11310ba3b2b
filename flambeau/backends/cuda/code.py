"""From launches to kernels in a GPU's memory: rendered as CUDA C++, compiled by NVRTC, found again on the disk.

A kernel is known by its text, and its image by the text, the architecture, the options and the compiler: under that key
it is found in this process and, by later ones, in the user's folder; see Note [One store of kernels] in
kernel_store/store.py.

Measured with NVRTC 13.4 for sm_90, milliseconds of processor time: an empty kernel 40, or 31 with `--minimal`, which is
what it takes to begin; an elementwise kernel of two transcendental functions over vectors of four 20 more, a reduction
of rows 35 more. Of those 55, C++ takes 11, its optimizer 20 and the assembler 23; optimizing less (`--Ofast-compile`)
saves 8. Headers would cost hundreds, so kernels include none. Calls of NVRTC run side by side, and wait for no other.
So the missing kernels of a plan are dealt out to as many modules as there are processors, which are compiled at once:
60 kernels on 16 processors are about 0.13 s, and on one of them 1.3 s.
"""
import hashlib
import re
import weakref
from concurrent.futures import ThreadPoolExecutor

from ...base import observers
from ...base.locks import new_lock
from ...loops.dialects.cuda import CUDA
from ...loops.dialects.words import Unrenderable
from ...loops.gpu.render import render
from ...loops.ir import Launch, verify
from ..backend import NotCompiled
from ..cpu_quota import dealt_out, processors, quota
from ..kernel_store.object_cache import say_warnings, users_folder
from ..kernel_store.store import KernelStore
from .calls import LaunchCall

NVRTC_PIPELINE_VERSION = 1         # part of every image's key: raise it when the way of compiling below changes
NVRTC_OPTIONS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")     # arithmetic as IEEE has it
FIRST_WITH_MINIMAL = 13            # version of NVRTC from which on `--minimal` is known
KERNEL_NAME = "kernel_"            # what a rendered kernel is called before its text is known

compiled = 0                       # texts that NVRTC compiled in this process
loaded = 0                         # texts whose image came from the disk

_lock = new_lock()
_kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()       # driver → {index of a device: DeviceKernels}


def forget(backend):
    """Compile everything for a device anew, if it is asked for again."""
    with _lock:
        _kept.get(backend.driver, {}).pop(backend.index, None)


def rendered(launch):
    """(name, CUDA C++) of a launch's kernel; the same for launches that differ in words alone."""
    return named(render(launch.kernel, launch.schedule, KERNEL_NAME, CUDA), KERNEL_NAME)


def named(source, name):
    """(a name that no other text has, `source` with its kernel `name` called so)."""
    unique = f"{name.rstrip('_')}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    return unique, re.sub(rf"\b{name}\b", unique, source)


def code(work):
    """What the compiler is given for a Launch or a call of the library, or what is called."""
    if isinstance(work, Launch):
        return [rendered(work)[1]]
    return [work.source if isinstance(work, LaunchCall) else work.says]


def ptx(driver, architecture, text):
    """The assembly language of NVIDIA's GPUs for `text`."""
    image = driver.compile(text, architecture.replace("sm_", "compute_"), _options(driver))
    return image.decode().rstrip("\0")


class GPUCompilation:
    """The kernels of some launches, and of some calls of the library, on a device."""

    def __init__(self, backend, launches, calls=()):
        self.kernels, self.launches = kernels_of(backend), launches
        self.names, self.missing = {}, {}         # text of a launch → name; name → source of those that are not there
        self.failed = {}                          # text of a launch → why it has no source
        for launch in launches:
            launch.text = text = str(launch)
            if text not in self.kernels.store.launches and text not in self.names:
                verify(launch.kernel)
                try:
                    name, source = rendered(launch)
                except Unrenderable as error:
                    self.names[text], self.failed[text] = text, str(error)
                else:
                    self.names[text], self.missing[name] = name, source
        for call in calls:
            if isinstance(call, LaunchCall):
                name, source = self.kernels.known_call(call)
                self.missing[name] = source

    def prepare(self, spare):
        """Nothing runs meanwhile: there is no other way to make the same bits on a GPU (see `Backend.interprets`)."""
        return False

    def is_ready(self):
        """Whether what was prepared is compiled: nothing was."""
        return True

    def finish(self):
        """Have all of them on the device; NotCompiled where that fails for some."""
        failed = {**self.failed, **self.kernels.ensure(self.missing)}
        for text, name in self.names.items():
            self.kernels.store.launches[text] = None if name in failed else name
        refused = [launch for launch in self.launches if self.kernels.store.launches[launch.text] is None]
        if failed or refused:
            error = NotCompiled(failed or {"": "it could not be compiled before"})
            error.launches = refused
            raise error


class DeviceKernels:
    """What is on a device; its store maps the text of a launch to the name of its kernel, None where it was refused."""

    def __init__(self, driver, index):
        self.driver, self.index = weakref.ref(driver), index
        self.architecture = driver.properties(index).architecture
        self.options, self.versions = _options(driver), driver.versions()
        self.toolchain = "\0".join((str(NVRTC_PIPELINE_VERSION), type(driver).__name__, str(self.versions["nvrtc"]),
                                    self.architecture, *self.options))
        self._calls: dict = {}                    # (source, name) of a call → (unique name, source under that)
        self.store = KernelStore(self)
        self._functions: dict = {}                # name → (its module, handle, bytes of shared memory that it may have)
        self._lock = new_lock()

    def known_call(self, call):
        """(name, source) of a call's kernel."""
        found = self._calls.get((call.source, call.name))
        if found is None:
            found = self._calls[call.source, call.name] = named(call.source, call.name)
        return found

    def of_launch(self, launch):
        """The handle of a launch's kernel."""
        return self.function(self.store.launches[launch.text], launch.schedule.shared_bytes)

    def of_call(self, call):
        """The handle of a call's kernel; compiled now where it was not asked for before."""
        name, source = self.known_call(call)
        failed = self.ensure({name: source})
        if failed:
            raise NotCompiled(failed)
        return self.function(name, call.shared_bytes)

    def function(self, name, shared_bytes):
        """The handle of a kernel that is on the device."""
        module, handle, may_have = self._functions[name]
        if shared_bytes > may_have:
            handle = self.driver().function(module, name, shared_bytes)
            self._functions[name] = module, handle, shared_bytes
        return handle

    def load(self, image, symbols):
        """The module that an image becomes on the device."""
        return self.driver().load(self.index, image)

    def address(self, module, name):
        """What a kernel is found by: its module, which is asked for it with the shared memory that it is to have."""
        return module

    def ensure(self, sources):
        """Have the kernels of {name: source} on the device; {name: why} of those that the compiler refuses."""
        if all(name in self._functions for name in sources):
            return {}
        with observers.timed("compiled"):
            failed = self._ensure(sources)
        say_warnings()
        return failed

    def _ensure(self, sources):
        with self._lock:
            self.store.tiers = [users_folder()]
            missing = self._missing(sources)
            return self._compile(missing) if missing else {}

    def _missing(self, sources):
        """Those of {name: source} that are not found."""
        global loaded
        missing = {}
        for name, source in sources.items():
            if name not in self._functions:
                module = self.store.find(self.store.key(source), name)
                if module is None:
                    missing[name] = source
                else:
                    self._functions[name] = module, None, -1
                    loaded += 1
        return missing

    def _compile(self, missing):
        """Compile {name: source}, several at once, and load them; {name: why} of those that are refused."""
        global compiled
        batches = dealt_out(missing, min(processors(), quota()))
        failed = {}
        for batch, made in zip(batches, side_by_side(self._image, batches), strict=True):
            if isinstance(made, NotCompiled) and len(batch) > 1:       # one by one, to find out which
                for name, source in batch.items():
                    alone = self._image({name: source})
                    failed |= self._note({name: source}, alone)
            else:
                failed |= self._note(batch, made)
        compiled += len(missing) - len(failed)
        return failed

    def _image(self, batch):
        """The image of {name: source} as one module; the NotCompiled where it is refused."""
        try:
            return self.driver().compile(together(batch.values()), self.architecture, self.options)
        except NotCompiled as error:
            return error

    def _note(self, batch, made):
        """Keep the image of {name: source}, or say why there is none."""
        if isinstance(made, NotCompiled):
            return dict.fromkeys(batch, str(made))
        self.store.keep(batch, made)
        for name, module in self.store.known(self.store.keys(batch)).items():
            self._functions[name] = module, None, -1
        return {}


def kernels_of(backend):
    """The DeviceKernels of a Backend's device."""
    try:
        return _kept[backend.driver][backend.index]
    except KeyError:
        with _lock:
            of_driver = _kept.setdefault(backend.driver, {})
            if backend.index not in of_driver:
                of_driver[backend.index] = DeviceKernels(backend.driver, backend.index)
            return of_driver[backend.index]


def together(sources):
    """Several texts as one: each in a namespace of its own, since they call their structures and helpers alike."""
    first, *others = sources
    if not others:
        return first
    return "\n".join(f"namespace part{number} {{\n{text}\n}}" for number, text in enumerate((first, *others)))


def side_by_side(work, pieces):
    """What `work` gives for each of the pieces, all of them at once: the compiler leaves the interpreter free."""
    if len(pieces) == 1:
        return [work(pieces[0])]
    with ThreadPoolExecutor(len(pieces)) as pool:
        return list(pool.map(work, pieces))


def _options(driver):
    version = str(driver.versions()["nvrtc"]).split(".")[0]
    return (*NVRTC_OPTIONS, "--minimal") if version.isdigit() and int(version) >= FIRST_WITH_MINIMAL else NVRTC_OPTIONS
