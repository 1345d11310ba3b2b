"""Be sure of a device before work starts: `flambeau.expect("cuda")`, or the variable FLAMBEAU_EXPECT_DEVICE.

A job that finds no GPU and goes on with the CPU runs for a week. A program that counts on one says so, and the program
ends in its first second with the broken link and what mends it. With the variable set, `import flambeau` is that first
second; the command `flambeau` says it in its own way (cli/__init__.py).
"""
import os
import re
import sys

from ..backends import devices
from ..base.spec import device as Device

VARIABLE = "FLAMBEAU_EXPECT_DEVICE"
EXPECTATION = re.compile(r"([a-z]\w*)(?::(\d+))?")


class DeviceExpected(RuntimeError):
    """A device that was counted on cannot be used. `device` says which, `reason` why, `mend` what to do."""

    def __init__(self, device, reason, mend, asked=""):
        self.device, self.reason, self.mend, self.asked = device, reason, mend, asked
        super().__init__(f"{asked}{': ' if asked else ''}the device {device} is expected and cannot be used: {reason}. "
                         f"{mend[0].upper()}{mend[1:]}.")

    def __reduce__(self):
        return DeviceExpected, (self.device, self.reason, self.mend, self.asked)


def expect(device=None, *others):
    """Raise, with the reason and what mends it, unless the device can be used: "cuda", "cuda:1", "cpu".

    Gives it as a `torch.device`. Several may be given, or one text with commas; then all have to be there, and the
    first is given. Without a device, those of FLAMBEAU_EXPECT_DEVICE are meant, and None is given where that says
    nothing. CUDA is not started, so processes may be forked afterwards.
    """
    asked = ""
    if device is None:
        device = os.environ.get(VARIABLE, "").strip()
        if not device:
            return None
        asked = f"{VARIABLE}={device}"
    wanted = [one for text in (device, *others) for one in named(text)]
    for one in wanted:
        found = missing(one)
        if found is not None:
            raise DeviceExpected(str(one), *found, asked)
    return wanted[0]


def named(text):
    """The devices that a text such as "cuda:0,cuda:1" names, or a `torch.device`."""
    words = [word.strip() for word in str(text).split(",")]
    found = [EXPECTATION.fullmatch(word) for word in words]
    if not all(one and (one[1] in devices.types or one[1] == "mps") for one in found):
        raise ValueError(f"expect({text!r}): devices are 'cuda', 'cuda:1' or 'cpu', and several stand with commas "
                         "between them: 'cuda:0,cuda:1'")
    return [Device(word) for word in words]


def missing(device):
    """(why a device cannot be used, what mends it), or None."""
    if device.type == "mps":
        return "Flambeau has no device for Apple's GPUs", "expect the CPU, device='cpu'"
    if device.type == "cpu":
        return None if not device.index else (f"there is one CPU, and {device} is another", "expect cpu")
    known, broken = devices.types[device.type], devices.absence(device.type)
    remedy = known.backend().remedy(missing=True)
    if broken is not None:
        return getattr(broken, "reason", str(broken)), getattr(broken, "mend", remedy)
    count = known.count()
    if (device.index or 0) < count:
        return None
    return ("there is only {0}:0" if count == 1 else "the {1} devices are {0}:0 to {0}:{2}").format(
        device.type, count, count - 1), remedy


def at_import():
    """What `import flambeau` does where the variable is set: expect it, unless the command `flambeau` will."""
    if not is_our_command():
        expect()


def is_our_command():
    """Whether this process is the command `flambeau`, or `python -m flambeau`."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name == "-m":                              # the module is being looked for
        words = sys.orig_argv
        return "flambeau" in [after for option, after in zip(words, words[1:]) if option.startswith("-")
                              and option.endswith("m")] or "-mflambeau" in words
    return os.path.splitext(name)[0].removesuffix("-script") == "flambeau"
