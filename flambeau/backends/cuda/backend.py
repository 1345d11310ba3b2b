"""CUDABackend: an NVIDIA GPU behind the seam.

Memory is CuPy's, held by arrays of `xp` (arrays.py) over what the driver allocates; every call goes to the device's
current stream, and nothing waits until somebody looks at contents. What it compiles stands in schedule.py, code.py and
program.py, its library in library.py; all of them are imported when the first trace comes.

Note [Bytes for dtypes]: CuPy has no arrays of 8-bit floats. Memory of such a dtype is shown as an array of bytes
(uint8) instead; operations that move elements run over bytes, and conversions go by way of a table (arrays.py).
"""
from functools import cached_property

import numpy as np

from ...base import dtypes
from ...base.spec import spec as make_spec
from .. import host, reference
from ..backend import Backend
from . import driver
from .arrays import ArrayModule, held_as


class CUDABackend(Backend):
    """One GPU: `cuda:index`."""

    compiles = attends = True

    @property
    def vector_bytes(self):
        from .schedule import LANE_BYTES
        return LANE_BYTES

    @property
    def reductions(self):
        from .schedule import REDUCTIONS
        return REDUCTIONS

    def __init__(self, index=0):
        super().__init__(index)
        self.driver = driver.current()
        self.xp = ArrayModule(self.driver.xp)

    @cached_property
    def properties(self):
        """What is known of the device."""
        return self.driver.properties(self.index)

    # --- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, spec):
        return self.blank(spec)[0]

    def blank(self, spec):
        memory = self.driver.allocate(self.index, spec.nbytes)
        return self.driver.array(memory, spec.shape, held_as(spec.dtype), spec.np_strides), memory.address

    def block(self, nbytes):
        return self.driver.allocate(self.index, nbytes)

    def look(self, memory, spec, offset):
        if spec.numel == 0:
            return self.blank(spec)[0]
        return self.driver.array(memory, spec.shape, held_as(spec.dtype), spec.np_strides,
                                 offset * spec.dtype.itemsize)

    def bytes_of(self, array):
        return self.driver.array(array, (array.nbytes,), np.uint8)     # a block's, too

    def address(self, array):
        return self.driver.address(array)

    def active(self):
        return self.driver.on(self.index)

    def copied(self, array):
        with self.active():
            return array.copy(order="K")

    def put(self, target, source):
        with self.active():
            target[...] = source

    def overlap(self, one, other):
        return self.xp.may_share_memory(one, other)

    # --- movement ---------------------------------------------------------------------------------------------------

    def to_host(self, array):
        """The contents as a NumPy array, once all that was handed to the stream before is done."""
        laid = self._without_holes(array)
        made = np.empty(laid.nbytes, np.uint8)
        if made.size:
            self.driver.download(self.index, self.address(laid), host.address(made), made.size)
        return host.laid_out(made, laid.shape, laid.dtype, laid.strides)

    def from_host(self, array, spec):
        laid = _laid_on_host(array, spec)
        made, address = self.blank(spec)
        if spec.numel:
            self.driver.upload(self.index, address, host.address(laid), spec.nbytes)
        return made

    def copy_from(self, origin, array, spec):
        """From another GPU directly, from elsewhere by way of the CPU."""
        if not isinstance(origin, CUDABackend):
            return super().copy_from(origin, array, spec)
        laid = origin.laid_out(array, spec)
        made, address = self.blank(spec)
        if spec.numel:
            self.driver.copy(self.index, address, origin.index, origin.address(laid), spec.nbytes)
        return made

    def laid_out(self, array, spec):
        """`array` itself where it lies in memory as `spec` says, else a copy that does."""
        if reference.same_layout(array, spec):
            return array
        made = self.allocate(spec.on(self.device))
        self.put(made, array)
        return made

    def _without_holes(self, array):
        """`array` itself where it fills its memory, in whatever order; else a contiguous copy."""
        if array.flags.forc or not array.size:
            return array
        kind = make_spec(dtypes.from_numpy(array.dtype), array.shape,
                         tuple([step // array.itemsize for step in array.strides]))
        if kind.dense:
            return array
        with self.active():
            return array.copy(order="C")

    # --- work -------------------------------------------------------------------------------------------------------

    def execute(self, entry, arrays, params, own=False):
        try:
            with self.active():
                return reference.execute(entry, arrays, params, own, self.xp)
        except self.driver.errors as error:
            raise self.driver.told(error, f"running {entry.op.__name__}") from None
        except self.driver.refusals as error:
            kinds = ", ".join(dict.fromkeys(kind.dtype.name for kind in entry.kinds)) or "no operand"
            raise NotImplementedError(
                f"{entry.op.__name__} of {kinds} cannot run on {self.device} yet: CuPy says {type(error).__name__}: "
                f"{error}. Move the tensors with .cpu() for this operation") from error

    # --- kernels ----------------------------------------------------------------------------------------------------

    def schedule(self, launch):
        from .schedule import schedule
        return schedule(launch, self.properties)

    def compile(self, launches, calls=()):
        from .code import GPUCompilation
        return GPUCompilation(self, launches, calls)

    def program(self, tasks):
        from .program import GPUProgram
        return GPUProgram(self, tasks)

    def code(self, work):
        from .code import code
        return code(work)

    def assembly(self, text):
        from .code import ptx
        return ptx(self.driver, self.properties.architecture, text)

    def library(self, name, dtype, args, outs, params):
        from .library import ask
        return ask(name, dtype, args, outs, params, self.index)

    def processor(self):
        return f"{self.properties.name} ({self.properties.architecture})"

    def forget(self):
        from .code import forget
        forget(self)

    # --- the device -------------------------------------------------------------------------------------------------

    def synchronize(self):
        self.driver.synchronize(self.index)


def _laid_on_host(array, spec):
    """A NumPy array's contents in the dtype and the layout of `spec`: `array` itself where it has them."""
    array = np.asarray(array)
    if array.dtype == spec.dtype.np and array.shape == spec.shape and reference.same_layout(array, spec):
        return array
    made = host.laid_out(np.empty(spec.nbytes, np.uint8), spec.shape, spec.dtype.np, spec.np_strides)
    made[...] = array if spec.dtype.family is None else dtypes.as_dtype(array, spec.dtype)
    return made
