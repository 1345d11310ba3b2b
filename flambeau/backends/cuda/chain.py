"""Why CUDA cannot be used here: which link of the chain is broken, and the command that mends it.

    driver       NVIDIA's driver: libcuda is there and starts, and knows the CUDA that the library was built for
    runtime      NVRTC, which compiles kernels, of NVIDIA's packages or of a CUDA toolkit
    library      CuPy, built for CUDA 12 or 13
    visibility   devices that this process may see: CUDA_VISIBLE_DEVICES, and what a container was given

`broken()` looks at each, in an order in which the cheap questions come first, without importing CuPy and without
starting CUDA in this process (probe.py); the answer is kept. `check()` raises it. Where a machine has an NVIDIA GPU and
the chain is broken, `tell_once()` says so aloud: that is how jobs come to run on the CPU for a week.
"""
import contextlib
import functools
import glob
import importlib.util
import os
import sys
from typing import NamedTuple

from ...base.errors import warn
from . import nvrtc, probe

LINKS = ("driver", "runtime", "library", "visibility")
MAJORS = (13, 12)                       # the CUDAs that there are extras for, the newest first
FIRST_DRIVER = {13: "580", 12: "525"}   # NVIDIA's drivers from which on each runs
PROBE_SECONDS = 120
NVIDIA, DISPLAY_CLASSES = "0x10de", ("0x0300", "0x0302")        # PCI: the maker; a display, a device for computing
VISIBLE = "CUDA_VISIBLE_DEVICES"

# Under which names CuPy is published. pip lets several be installed, one over the other: the newest refuses first.
PACKAGES = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-7-0", "cupy-rocm-5-0", "cupy")

NO_DEVICE = 100
_RESTART = "restart the machine, or reload the driver (sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm)"
STARTING_ERRORS = {                     # what cuInit says → its name, and what helps
    2: ("out of memory", "end other programs that use the GPU (nvidia-smi lists them)"),
    34: ("stub library: libcuda is the one to link with, not a driver's",
         "take the folder `stubs` of the CUDA toolkit out of LD_LIBRARY_PATH"),
    46: ("the devices are busy or unavailable", "end the program that has the GPU for itself (nvidia-smi lists them)"),
    101: ("invalid device", f"look at {VISIBLE} and nvidia-smi"),
    802: ("system not yet initialized", "start the fabric manager: sudo systemctl start nvidia-fabricmanager"),
    803: ("the driver's library and its kernel module are of different versions", "restart the machine"),
    804: ("forward compatibility was attempted on hardware without it",
          "take the folder `compat` of the CUDA toolkit out of LD_LIBRARY_PATH"),
    999: ("unknown error", _RESTART),
}


class Broken(AssertionError, RuntimeError):
    """CUDA cannot be used. `link` says where the chain is broken, `fact` what was found, `mend` what to do.

    PyTorch raises an AssertionError where it was built without CUDA, and a RuntimeError where the machine is at fault.
    """

    def __init__(self, link, fact, mend, said="Torch not compiled with CUDA enabled"):
        self.link, self.fact, self.mend, self.said = link, fact, mend, said
        super().__init__(f"{said}: {fact} (of driver → runtime → library → visibility, the {link} is broken). "
                         f"{mend[0].upper()}{mend[1:]}; or use device='cpu', and ask torch.cuda.is_available() first.")

    @property
    def reason(self):
        """Why no device can be used, in a half sentence."""
        return f"{self.fact} (of {' → '.join(LINKS)}, the {self.link} is broken)"

    def __reduce__(self):
        return Broken, (self.link, self.fact, self.mend, self.said)


class InstalledCuPy(NamedTuple):
    """CuPy as it is installed: `package` ("cupy-cuda13x"), its version, and the CUDA it was built for, None if that
    cannot be told from its name."""

    package: str
    version: str
    major: int | None


# --- the answer ------------------------------------------------------------------------------------------------------

_failure = None                         # what went wrong when CUDA was started in this process


def broken():
    """None where CUDA can be used, else what is Broken."""
    return _failure or _found(os.environ.get(VISIBLE))[0]


def check():
    """Raise what is Broken, if something is."""
    found = broken()
    if found is not None:
        raise Broken(found.link, found.fact, found.mend, found.said)      # a new one, since it keeps frames alive


def device_count():
    """How many devices could be used."""
    return 0 if _failure else _found(os.environ.get(VISIBLE))[1]


def failed(error):
    """Note that starting CUDA in this process ended in `error`, which stays so; gives what is Broken."""
    global _failure
    major = (library() or InstalledCuPy("", "", None)).major
    mend = f"run pip install --force-reinstall 'flambeau[cuda{major or _fitting(driver_version())}]', or {_RESTART}"
    link = "library" if isinstance(error, ImportError) else "driver"
    fact = f"CUDA does not start in this process: {type(error).__name__}: {' '.join(str(error).split())}"
    _failure = Broken(link, fact, mend, "CUDA initialization failed")
    return _failure


def forget():
    """Look at everything anew when it is next asked."""
    global _failure, _told
    _failure, _told = None, False
    for kept in (_found, driver_version, library, gpu_found):
        kept.cache_clear()


@functools.cache
def _found(visible):
    """(what is Broken or None, how many devices there are), for a value of CUDA_VISIBLE_DEVICES."""
    try:
        _driver_found()
        _library_found()
        _runtime_found()
        return None, _devices_found(visible)
    except Broken as found:
        return found, 0


_told = False


def tell_once():
    """Warn, the first time, if there is an NVIDIA GPU in this machine and something is Broken that the user did not ask
    for."""
    global _told
    found = broken()
    if _told or found is None or found.link == "visibility" and _hidden_on_purpose():
        return
    gpu = gpu_found()
    if gpu is None:
        return
    _told = True
    warn(f"This machine has an NVIDIA GPU ({gpu}), and CUDA cannot be used, so torch.cuda.is_available() is False and "
         f"programs that ask go on with the CPU: {found.fact} (of driver → runtime → library → visibility, the "
         f"{found.link} is broken). {found.mend[0].upper()}{found.mend[1:]}; or set {VISIBLE}='' to have the CPU "
         "without this warning.")


def links():
    """(link, what there is, in words) of each, to be shown."""
    found, where, count, visible = broken(), library(), device_count(), os.environ.get(VISIBLE)
    known = {"driver": "not found" if driver_version() is None else f"for CUDA {_dotted(driver_version())} and older",
             "runtime": f"NVRTC {'.'.join(map(str, nvrtc.version()))}" if nvrtc.is_there() else "NVRTC not found",
             "library": "CuPy not found" if where is None else f"{where.package} {where.version}",
             "visibility": f"{count} device{'' if count == 1 else 's'}"
                           + (f", {VISIBLE}={visible}" if visible is not None else "")}
    if found is not None:
        known[found.link] += f": broken, {found.fact}. {found.mend[0].upper()}{found.mend[1:]}"
    return [(link, known[link]) for link in LINKS]


# --- the driver ------------------------------------------------------------------------------------------------------


@functools.cache
def driver_version():
    """The newest CUDA that the driver knows, as 13000; None without a driver."""
    try:
        return probe.version(probe.load())
    except (OSError, AttributeError):             # AttributeError: a library of that name which is not the driver
        return None


def _driver_found():
    known = driver_version()
    if known is None:
        name, gpu = probe.DRIVER_NAMES[0], gpu_found()
        if gpu is not None:
            raise Broken("driver", f"there is an NVIDIA GPU ({gpu}) and no driver for it: {name} is not found",
                         f"install NVIDIA's driver, {FIRST_DRIVER[MAJORS[0]]} or later (Debian and Ubuntu: sudo apt "
                         "install nvidia-driver; in a container: start it with --gpus all)")
        raise Broken("driver", f"this machine has no NVIDIA driver ({name} is not found), and no NVIDIA GPU was seen",
                     "on a machine that has one, install NVIDIA's driver and run pip install "
                     f"'flambeau[cuda{MAJORS[0]}]'")
    if known < MAJORS[-1] * 1000:
        raise Broken("driver", f"it knows CUDA {_dotted(known)}, and the oldest that Flambeau runs on is {MAJORS[-1]}",
                     f"install NVIDIA's driver {FIRST_DRIVER[MAJORS[0]]} or later (nvidia-smi shows which one is here)",
                     f"The NVIDIA driver on your system is too old (found version {known})")


def _dotted(number):
    return f"{number // 1000}.{number % 1000 // 10}"


def _fitting(known):
    """The newest CUDA with an extra that a driver of this version runs."""
    return next((major for major in MAJORS if known is None or known >= major * 1000), MAJORS[-1])


# --- the library and the runtime -------------------------------------------------------------------------------------


@functools.cache
def library():
    """CuPy as it is installed, found without importing it; None where it is not."""
    try:
        if importlib.util.find_spec("cupy") is None:
            return None
    except ValueError:                            # the program put a module without a spec in its place
        return None
    from importlib import metadata  # a tenth of what `import flambeau` costs, and for this alone

    found = []
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(InstalledCuPy(package, metadata.version(package), _major_of(package)))
    return found[0] if found else InstalledCuPy("cupy", "of an unknown version", None)


def built_for():
    """The CUDA that kernels and the library are made for, "13.0"; None without the library."""
    if library() is None:
        return None
    return ".".join(map(str, nvrtc.version())) if nvrtc.is_there() else f"{library().major or MAJORS[0]}.0"


def _major_of(package):
    version = package.removeprefix("cupy-cuda").removesuffix("x")
    return int(version) if version.isdigit() else None


def _library_found():
    found, known = library(), driver_version()
    mend = f"pip install 'flambeau[cuda{_fitting(known)}]'"
    if found is None:
        raise Broken("library", "CuPy is not installed", f"run {mend}")
    mend = f"run pip uninstall -y {found.package} && {mend}"
    if found.package.startswith("cupy-rocm"):
        raise Broken("library", f"{found.package} is CuPy for AMD's GPUs", mend)
    if found.major is not None and found.major < MAJORS[-1]:
        raise Broken("library", f"{found.package} {found.version} was built for CUDA {found.major}, and Flambeau needs "
                     f"{MAJORS[-1]} or {MAJORS[0]}", mend)
    if found.major is not None and found.major * 1000 > known:
        raise Broken("driver", f"it knows CUDA {_dotted(known)}, and {found.package} {found.version} is built for "
                     f"CUDA {found.major}",
                     f"{mend}, or install NVIDIA's driver {FIRST_DRIVER.get(found.major, '')} or later",
                     f"The NVIDIA driver on your system is too old (found version {known})")


def _runtime_found():
    if not nvrtc.is_there():
        major = library().major or _fitting(driver_version())
        raise Broken("runtime", "NVRTC, which compiles kernels, is not found among NVIDIA's packages, in CUDA_PATH or "
                     "in the system", f"run pip install 'flambeau[cuda{major}]'")


# --- the devices -----------------------------------------------------------------------------------------------------


def _devices_found(visible):
    """How many devices this process sees, at least one."""
    code, count = started(visible)
    if not code and count:
        return count
    if code in (0, NO_DEVICE, 101) and visible is not None:
        unhidden = started(None)
        if not unhidden[0] and unhidden[1]:
            few = unhidden[1]
            raise Broken("visibility", f"{VISIBLE} is {visible!r}, which hides {'the one device' if few == 1 else ''}"
                         f"{f'all {few} devices' if few > 1 else ''} of this machine",
                         f"unset {VISIBLE}, or set it to {'0' if few == 1 else f'some of 0 to {few - 1}'}, before the "
                         "program starts", "No CUDA GPUs are available")
        code, count = unhidden
    if code in (0, NO_DEVICE):
        raise Broken("visibility", "the driver is there and shows no device to this process",
                     "look whether nvidia-smi lists one; in a container, start it with --gpus all",
                     "No CUDA GPUs are available")
    if isinstance(code, str):
        raise Broken("driver", f"cuInit does not come back: {code}", _RESTART, "CUDA driver initialization failed")
    said, mend = STARTING_ERRORS.get(code, ("a number without a name here", _RESTART))
    raise Broken("driver", f"it does not start, cuInit says {code}: {said}", mend,
                 f"CUDA driver initialization failed, error {code}")


def started(visible):
    """(what cuInit says, or words where it says nothing; how many devices there are).

    CUDA_VISIBLE_DEVICES is set to `visible`, or not set.

    It is asked in another process; see probe.py.
    """
    import subprocess
    environment = {name: value for name, value in os.environ.items() if name != VISIBLE}
    if visible is not None:
        environment[VISIBLE] = visible
    try:
        done = subprocess.run([sys.executable, "-I", "-S", probe.__file__], env=environment, capture_output=True,
                              text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), 0
    words = done.stdout.split()
    if done.returncode or len(words) != 2:
        return f"the process that asked ended with {done.returncode} {done.stderr.strip()[-200:]}".rstrip(), 0
    return int(words[0]), int(words[1])


def _hidden_on_purpose():
    return os.environ.get(VISIBLE, "unset").strip() in ("", "-1", "none", "NoDevFiles")


@functools.cache
def gpu_found():
    """What shows that there is an NVIDIA GPU in this machine, be it of use or not; None where nothing does."""
    return _gpu_files()


def _gpu_files():
    for pattern in ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*"):
        if seen := sorted(glob.glob(pattern)):
            return seen[0]
    for folder in sorted(glob.glob("/sys/bus/pci/devices/*")):
        if _line(f"{folder}/vendor") == NVIDIA and _line(f"{folder}/class").startswith(DISPLAY_CLASSES):
            return f"PCI device {os.path.basename(folder)}"
    return None


def _line(path):
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:                               # it has gone, or is not ours to read
        return ""
