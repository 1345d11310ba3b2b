"""A device for the tests, all of it: NumPy's arrays under another name, and a log of what was asked of it.

It is what "Adding a device" in CONTRIBUTING.md describes, and shows that nothing above `backends/` takes a tensor's
memory for that of the CPU.
"""
import numpy as np

from flambeau.backends import Backend, register


class ToyBackend(Backend):
    """Computes with NumPy, and notes in `log` the operations that ran and the copies that were made."""

    def __init__(self, index):
        if index > 1:
            raise RuntimeError(f"there are two toys, toy:0 and toy:1, and no toy:{index}")
        super().__init__(index)
        self.log = []

    def execute(self, entry, arrays, params, own=False):
        self.log.append(entry.op.__name__)
        return super().execute(entry, arrays, params, own)

    def to_host(self, array):
        self.log.append("to_host")
        return np.array(array, order="K")

    def from_host(self, array, spec):
        self.log.append("from_host")
        made = self.allocate(spec)
        made[...] = array
        return made


register("toy", ToyBackend, count=lambda: 2)
