"""CUDABackend: an NVIDIA GPU behind the seam.

Memory is CuPy's, held by arrays of `xp` (arrays.py) over what the driver allocates; every call goes to the device's
current stream, and nothing waits until somebody looks at contents. What it compiles stands in schedule.py, code.py and
program.py, its library in library.py; all of them are imported when the first trace comes.
"""
from functools import cached_property

import numpy as np

from .. import host
from ..backend import Backend
from . import driver


class CUDABackend(Backend):
    """One GPU: `cuda:index`."""

    compiles = True

    def __init__(self, index=0):
        super().__init__(index)
        self.driver = driver.current()
        self.xp = self.driver.xp

    @cached_property
    def properties(self):
        """What is known of the device."""
        return self.driver.properties(self.index)

    # --- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, spec):
        memory = self.driver.allocate(self.index, spec.nbytes)
        return self.driver.array(memory, spec.shape, spec.dtype.np, spec.np_strides)

    def block(self, nbytes):
        return self.driver.allocate(self.index, nbytes)

    def address(self, array):
        return self.driver.address(array)

    # --- movement ---------------------------------------------------------------------------------------------------

    def to_host(self, array):
        made = np.empty(array.shape, array.dtype)
        self.driver.download(self.index, self.address(array), host.address(made), made.nbytes)
        return made

    # --- kernels ----------------------------------------------------------------------------------------------------

    def schedule(self, launch):
        from .schedule import schedule
        return schedule(launch, self.properties)

    def compile(self, launches):
        from .code import Compilation
        return Compilation(self, launches)

    def program(self, tasks):
        from .program import Program
        return Program(self, tasks)

    def library(self, name, dtype, args, outs, params):
        from .library import ask
        return ask(name, dtype, args, outs, params, self.index)

    def processor(self):
        return f"{self.properties.name} ({self.properties.architecture})"

    # --- the device -------------------------------------------------------------------------------------------------

    def synchronize(self):
        self.driver.synchronize(self.index)
