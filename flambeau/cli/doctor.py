"""`flambeau doctor`, and `flambeau.doctor()`: is this machine, this container, what a program counts on?

One screen says what is installed, on what, what the process may use, which devices there are and that each computes
correctly and at a plausible speed; and then, in words with a remedy, everything that is wrong. Facts come from
facts.py, the check of a device from device_check.py, what is expected from expected.py.
"""
import json
import os
import subprocess
import sys
import textwrap

import flambeau

from ..backends import devices
from ..base.spec import as_device
from . import facts
from .device_check import check
from .expected import VARIABLE, missing, named

DOCTOR_USAGE = """\
flambeau doctor [--expect DEVICES] [--json] [--quick]

  --expect cuda       end with 1 unless the device is there and computes correctly; cuda:1, cpu, cuda:0,cuda:1 too.
                      Without it, the variable FLAMBEAU_EXPECT_DEVICE says what is expected
  --json              the same as JSON
  --quick             without the check of the devices and the time of imports

It ends with 0 where nothing failed, with 1 where a device computes wrongly or what is expected is not there, and with
2 where it was asked in a wrong way.
"""
SMALL_SHARED_BYTES = 256 << 20     # of /dev/shm; Docker gives 64 MiB unless told otherwise
SMALL_MEMORY_BYTES = 512 << 20
SHOWN_PARTS = 5                    # of what an import took
SHOWN_CHARACTERS = 80              # of the value of a variable
SCREEN_COLUMNS, LABEL_COLUMNS = 110, 11             # columns of the screen, and of what stands before a line


def doctor(expect=None, *, quick=False):
    """Look at everything; prints as one screen, and `as_dict()` is the same for programs.

    >>> seen = torch.doctor(quick=True)
    >>> seen.ok, seen.known["flambeau"]["version"] == torch.__version__
    (True, True)

    `expect` names devices that have to be there, "cuda" or "cuda:0,cuda:1"; without it, FLAMBEAU_EXPECT_DEVICE does.
    Nothing is raised for what is wrong: `flambeau.expect` does that.
    """
    wanted = expect if expect is not None else os.environ.get(VARIABLE, "").strip()
    return Findings(facts.gather(), named(wanted) if wanted else [], quick)


class Problem:
    """Something wrong: `text` says what, `mend` what to do; `fails` where the doctor's answer is no."""

    def __init__(self, text, mend, fails=False):
        self.text, self.mend, self.fails = text, mend, fails

    def __repr__(self):
        return f"{self.text}. {self.mend[0].upper()}{self.mend[1:]}."


class Findings:
    """What the doctor found: the facts that are `known`, `checks` of devices, `problems`, and whether all is `ok`."""

    def __init__(self, known, expected, quick):
        self.known, self.expected = known, [str(device) for device in expected]
        absent = {str(device): missing(device) for device in expected}
        self.missing = {device: found for device, found in absent.items() if found is not None}
        self.devices, self.checks, self.imports = [], [], {}
        if not quick:
            self.imports = import_times()
            self.checks = [check("cpu")]
            for device in there():
                self.checks.append(check(device))
                if self.checks[-1]["error"] is None:
                    self.devices.append(described(device))
        self.problems = [*self._not_there(), *self._computing(), *slow_surroundings(known)]

    @property
    def ok(self):
        """Whether what is expected is there, and every device that was checked computes correctly."""
        return not any(problem.fails for problem in self.problems)

    def _not_there(self):
        return [Problem(f"{device} is expected and cannot be used: {reason}", mend, fails=True)
                for device, (reason, mend) in self.missing.items()]

    def _computing(self):
        """What is wrong with devices; one that is not expected and that does not even start is no failure."""
        for found in self.checks:
            device = found["device"]
            counted_on = device == "cpu" or any(one in (device, device.partition(":")[0]) for one in self.expected)
            if found["error"]:
                yield Problem(f"{device} fails to compute: {found['error']}", remedy(device), fails=counted_on)
            elif found["wrong"]:
                yield Problem(f"{device} computes wrongly: {', '.join(found['wrong'])}", remedy(device), fails=True)
            elif found["slow"]:
                yield Problem(f"{device} is slower than is plausible: {speeds(found)}",
                              "look for other programs on this machine (top; nvidia-smi), power limits, and shares of "
                              "a processor or a GPU")

    def as_dict(self):
        """All of it, as JSON can hold it."""
        known = self.known | {"cuda": self.known["cuda"] | {"gpus": self.devices}}
        return {**known, "import": self.imports, "checks": self.checks,
                "expected": {"devices": self.expected,
                             "missing": {device: {"reason": reason, "mend": mend}
                                         for device, (reason, mend) in self.missing.items()}},
                "problems": [{"text": one.text, "mend": one.mend, "fails": one.fails} for one in self.problems],
                "ok": self.ok}

    def __repr__(self):
        lines = [*screen(self.known), *self._measured()]
        shown = [wrapped(label, text) for label, text in lines]
        for number, problem in enumerate(self.problems, 1):
            mark = "fails" if problem.fails else "look at"
            shown.append(wrapped(f"{'' if number > 1 else 'problems'}", f"{number}. {mark}: {problem!r}"))
        return "\n".join([*shown, wrapped("result", self._result())])

    def _measured(self):
        if self.imports:
            parts = sorted(self.imports["parts"].items(), key=lambda part: -part[1])[:SHOWN_PARTS]
            yield "import", (f"{self.imports['milliseconds']:.0f} ms: "
                             + ", ".join(f"{name} {spent:.0f}" for name, spent in parts))
        for one in self.devices:
            yield one["device"], one["name"] + (f", capability {one['capability']}" if one["capability"] else "") + (
                f", {gib(one['free'])} of {gib(one['total'])} free" if one["total"] else "")
        for found in self.checks:
            words = found["error"] or (f"wrong: {', '.join(found['wrong'])}" if found["wrong"] else "correct")
            yield "check", f"{found['device']}: {words}" + ("" if found["error"] else f"; {speeds(found)}")

    def _result(self):
        if not self.ok:
            return "failed"
        return f"{', '.join(self.expected)} can be used" if self.expected else "nothing failed"


# --- what is looked at ------------------------------------------------------------------------------------------------


def there():
    """The names of all devices besides the CPU that can be used."""
    return [f"{device_type}:{index}" for device_type in devices.accelerators[::-1] if devices.available(device_type)
            for index in range(devices.types[device_type].count())]


def described(device):
    """A device: its name, capability, and bytes of memory, as far as it says them."""
    backend = as_device(device).backend
    free, total = backend.memory_info() or (None, None)
    return {"device": device, "name": backend.name, "capability": backend.capability, "total": total, "free": free}


def import_times():
    """Milliseconds that `import flambeau` takes in a new process, by part: of Flambeau's folders, and of packages."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [
        os.path.dirname(os.path.dirname(flambeau.__file__)), environment.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import flambeau"], capture_output=True,
                          text=True, env=environment)
    parts: dict = {}
    started = False
    for line in done.stderr.splitlines():
        spent, _, rest = line.removeprefix("import time:").partition("|")
        if not line.startswith("import time:") or not spent.strip().isdigit():
            continue
        name = rest.rpartition("|")[2].strip()
        if started:                               # what came before is Python's own start
            part = part_of(name)
            parts[part] = parts.get(part, 0) + int(spent) / 1000
        started = started or name == "site"
    return {"milliseconds": sum(parts.values()), "parts": parts}


def part_of(module):
    """What a module counts as: a folder of Flambeau, a package, or Python's own library."""
    top, _, rest = module.partition(".")
    if top == "flambeau":
        return f"flambeau.{rest.partition('.')[0]}" if rest else "flambeau"
    return "Python's library" if top.lstrip("_") in PYTHONS_OWN or top in PYTHONS_OWN else top


PYTHONS_OWN = {*sys.stdlib_module_names}


def slow_surroundings(known):
    """What slows a program down, or will stop it, though every device computes."""
    used, memory = known["threads"], known["memory"]
    granted = min(used["allowed"], used["quota"] or used["allowed"])
    if "no_compiler" in known["processor"] and known["executor"] != "reference":
        yield Problem(known["processor"]["no_compiler"], "run pip install llvmlite, or set FLAMBEAU_EXECUTOR=reference "
                      "to say that the reference executor, which is slower, is fine")
    if used["quota"] and used["quota"] < used["allowed"] and not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & {
            *known["variables"]}:
        yield Problem(f"the control group grants {used['quota']:g} processors and {used['allowed']} are seen: NumPy's "
                      f"{known['blas']['name'] or 'BLAS'} starts a thread for each (Flambeau starts {used['used']})",
                      f"set OPENBLAS_NUM_THREADS={used['used']}")
    if used["used"] < int(granted) and used["asked"]:
        name = "FLAMBEAU_NUM_THREADS" if "FLAMBEAU_NUM_THREADS" in known["variables"] else "OMP_NUM_THREADS"
        yield Problem(f"{used['used']} of {granted:g} processors are used, since {name} says so",
                      f"unset {name}, if nobody wants the others")
    if memory["available"] < SMALL_MEMORY_BYTES:
        yield Problem(f"only {memory['available'] / 2**20:.0f} MiB of memory can be had", "end other programs, or give "
                      "the container more (docker run --memory)")
    if memory["shared"] and memory["shared"]["total"] < SMALL_SHARED_BYTES:
        yield Problem(f"{memory['shared']['folder']} has {memory['shared']['total'] / 2**20:.0f} MiB, and workers of a "
                      "DataLoader hand batches over through it", "start the container with --shm-size=1g or --ipc=host")
    kept = known["caches"]["kernels"]
    if not kept["writable"] and kept["folder"]:
        yield Problem(f"the folder of compiled kernels cannot be used: {kept['why']}; every process compiles anew",
                      "set FLAMBEAU_CACHE_DIR to a folder that this user owns")
    cuda = known["cuda"]
    if cuda["broken"] and cuda["gpu_seen"]:
        yield Problem(f"there is an NVIDIA GPU ({cuda['gpu_seen']}) and CUDA cannot be used: {cuda['broken']['fact']}",
                      cuda["broken"]["mend"])


def remedy(device):
    """What may help where a device computes wrongly or not at all."""
    return devices.types[device.partition(":")[0]].backend().remedy()


# --- the screen -------------------------------------------------------------------------------------------------------


def screen(known):
    """(label, text) of each line about the facts."""
    own, python, packages, processor = (known[name] for name in ("flambeau", "python", "packages", "processor"))
    yield "flambeau", f"{own['version']}, speaks PyTorch {own['speaks']}, in {own['folder']}"
    yield "Python", f"{python['version']} ({python['implementation']}), {python['executable']}; {known['system']}"
    library = f" with {known['blas']['name']} {known['blas']['version']}" if known["blas"]["name"] else ""
    yield "packages", ", ".join(f"{name} {version or 'not installed'}{library if name == 'numpy' else ''}"
                                for name, version in packages.items()
                                if version or name not in facts.NOT_NEEDED)
    if "no_compiler" in processor:
        yield "processor", f"{processor['name']}, {processor['machine']}; {processor['no_compiler']}"
    else:
        yield "processor", (f"{processor['name']}, {processor['machine']}; kernels for {processor['compiles_for']} by "
                            f"LLVM {processor['llvm']}, vectors of {processor['vector_bytes']} bytes, "
                            f"{' '.join(processor['instructions']) or 'neither fma nor float16'}")
        yield "features", " ".join(processor["features"]) or "none"
        yield "kernels", f"that came with the package: {processor['packaged']}"
    yield "LAPACK", known["lapack"] or facts.NO_LAPACK
    used, memory = known["threads"], known["memory"]
    quota = f"the control group grants {used['quota']:g}" if used["quota"] else "no quota of a control group"
    yield "threads", f"{used['used']}; {used['allowed']} of {used['processors']} processors may be used, {quota}"
    shared = memory["shared"]
    yield "memory", f"{gib(memory['available'])} of {gib(memory['limit'])} can be had" + (
        f"; {shared['folder']} {gib(shared['free'])} of {gib(shared['total'])} free" if shared else "")
    yield "core", known["core"]
    yield "executor", known["executor"]
    for name, kept in known["caches"].items():
        yield f"{name} in", f"{kept['folder'] or 'no folder'}: " + (
            f"{kept['bytes'] / 2**20:.1f} MiB in {kept['files']} files, " if kept["files"] else "") + (
            "can be written" if kept["writable"] else f"cannot be written, {kept['why']}")
    if known["variables"]:
        yield "variables", " ".join(f"{name}={cut(value)}" for name, value in known["variables"].items())
    for number, (link, text) in enumerate(known["cuda"]["links"].items()):
        yield "" if number else "CUDA", f"{link}: {text}"
    yield "MPS", known["mps"]["why"]


def wrapped(label, text):
    """A line of the screen, on as many rows as it needs."""
    return textwrap.fill(text, SCREEN_COLUMNS, initial_indent=f"{label:<{LABEL_COLUMNS}}",
                         subsequent_indent=" " * LABEL_COLUMNS, break_long_words=False, break_on_hyphens=False)


def gib(count):
    return f"{count / 2**30:.1f} GiB"


def cut(value):
    """A variable's value, or the beginning of a long one: images of NVIDIA's have one of two thousand characters."""
    return value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS - 3]}..."


def speeds(found):
    """What was measured, in words."""
    return (f"products {found['product'] / 1e9:.3g} GFLOP/s (NumPy {found['numpy_product'] / 1e9:.3g}), memory "
            f"{found['memory'] / 1e9:.3g} GB/s (NumPy {found['numpy_memory'] / 1e9:.3g}), in {found['seconds']:.1f} s")


# --- the command ------------------------------------------------------------------------------------------------------


def main(argv):
    """`flambeau doctor …`; the exit code."""
    wanted, as_json, quick, rest = None, False, False, list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            print(DOCTOR_USAGE, end="")
            return 0
        if word == "--json":
            as_json = True
        elif word == "--quick":
            quick = True
        elif word == "--expect" and rest:
            wanted = rest.pop(0)
        elif word.startswith("--expect="):
            wanted = word.partition("=")[2]
        else:
            print(f"flambeau doctor: {word!r} is not understood{' without a device' if word == '--expect' else ''}."
                  f"\n\n{DOCTOR_USAGE}", end="", file=sys.stderr)
            return 2
    try:
        found = doctor(wanted, quick=quick)
    except ValueError as error:                   # a device of no kind
        print(f"flambeau doctor: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found.as_dict(), indent=2) if as_json else found)
    if not found.ok:
        for problem in found.problems:
            if problem.fails:
                print(f"flambeau doctor: {problem!r}", file=sys.stderr)
    return 0 if found.ok else 1
