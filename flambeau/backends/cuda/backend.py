"""CUDABackend: an NVIDIA GPU behind the seam.

Memory is CuPy's, held by arrays of `xp` (arrays.py) over what the driver allocates; every call goes to the device's
current stream, and nothing waits until contents are looked at. What it compiles stands in schedule.py, code.py and
program.py, its library in library/__init__.py; all of them are imported when the first trace comes (computing.py).

Note [Bits for dtypes]: CuPy has no arrays of 8-bit floats, and before version 14 none of bfloat16 (`Driver.lacks`).
Memory of such a dtype is shown as an array of whole numbers of its size instead. Operations that move elements run over
those; others over float32, and what they give is rounded (arrays.py).
"""
import copy
import os
from functools import cached_property

import numpy as np

from ...base import dtypes, settings
from ...base.spec import spec as make_spec
from .. import dlpack, reference
from ..backend import Backend
from ..cpu import host
from . import chain, driver, exchange, memory as device_memory
from .arrays import ArrayModule
from .movement import CopyQueue
from .recycle import ROUNDED_TO_BYTES, RecycledMemory


class LazyArray:
    """Memory laid out as `spec`, of which CuPy's array is made when it is computed with (`CUDABackend.seen`).

    A program wants its address alone, and to make an array costs as much as everything else that a small step does.
    """

    __slots__ = ("memory", "spec", "made", "__weakref__")

    def __init__(self, memory, spec):
        self.memory, self.spec, self.made = memory, spec, None

    @property
    def nbytes(self):
        """How many bytes it has."""
        return self.spec.nbytes


class CUDABackend(Backend):
    """One GPU: `cuda:index`."""

    compiles = attends = carries_columns = adds_to_addresses = copies_ahead = runs_ahead = streams = True
    least_speed = 1.0
    recomputed_operations, function_operations = 32, 4        # arithmetic is far quicker than memory
    product_row_bytes = 16                                    # for cuBLAS to read them by the tensor memory accelerator

    @property
    def vector_bytes(self):
        return _computing().schedule.LANE_BYTES

    @property
    def reductions(self):
        return _computing().schedule.REDUCTIONS

    def __init__(self, index=0):
        super().__init__(index)
        self.driver = driver.current()
        self.xp = ArrayModule(self.driver.xp, self.driver.address, self.driver.raising)
        self.memory = device_memory.account(self.driver, index)
        self._lacks = frozenset(dtype for dtype in dtypes.ALL if dtype.name in self.driver.lacks)
        self.array_dtypes = {dtype: np.dtype(f"u{dtype.itemsize}") if dtype in self._lacks else dtype.np
                             for dtype in dtypes.ALL}              # see Note [Bits for dtypes]

    @cached_property
    def trace_weight(self):
        """A trace may make results of a quarter of the memory before it runs. Most never stand there: the longer
        a trace, the more is fused, and the fewer programs and graphs a step is."""
        return min(1.0, 4 * settings.trace_bytes / self.properties.total_memory)

    @cached_property
    def properties(self):
        """What is known of the device."""
        return self.driver.properties(self.index)

    # --- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, spec):
        return self.seen(self.blank(spec)[0])

    def blank(self, spec):
        memory = self.memory.allocate(spec.nbytes, spec)
        return LazyArray(memory, spec), memory.address

    def blanks(self, specs):
        found = self.memory.allocate_idle([spec.nbytes for spec in specs])
        if found is None:
            return [self.blank(spec) for spec in specs]
        return [(LazyArray(memory, spec), memory.address) if memory is not None else self.blank(spec)
                for memory, spec in zip(found, specs, strict=True)]

    def seen(self, array):
        """An array of xp over what `blank` gave; any other as it is."""
        if array.__class__ is not LazyArray:
            return array
        if array.made is None:
            spec = array.spec
            array.made = self.array_over(array.memory, spec.shape, self.array_dtypes[spec.dtype], spec.np_strides)
        return array.made

    def array_over(self, memory, shape, dtype, strides=None):
        """An array of xp over what `block` gave, which it keeps alive."""
        return self.driver.array_at(self.index, memory.address, memory.nbytes, shape, dtype, strides, memory)

    def block(self, nbytes):
        return self.memory.allocate(nbytes)

    def look(self, memory, spec, offset):
        if spec.numel == 0:
            return self.seen(self.blank(spec)[0])
        return self.driver.array(memory, spec.shape, self.array_dtypes[spec.dtype], spec.np_strides,
                                 offset * spec.dtype.itemsize)

    def spec_of(self, array):
        return array.spec if array.__class__ is LazyArray else super().spec_of(array)

    def relaid(self, array, spec):
        return LazyArray(array.memory, spec) if array.__class__ is LazyArray else super().relaid(array, spec)

    def bytes_of(self, array):
        memory = array.memory if array.__class__ is LazyArray else array
        if isinstance(memory, RecycledMemory):                               # a block of working memory, too
            return self.array_over(memory, (array.nbytes,), np.uint8)
        return self.driver.array(array, (array.nbytes,), np.uint8)

    def address(self, array):
        return array.memory.address if array.__class__ is LazyArray else self.driver.address(array)

    def active(self):
        return self.driver.on(self.index)

    def copied(self, array):
        with self.active():
            return self.seen(array).copy(order="K")

    def put(self, target, source):
        with self.active():
            self.seen(target)[...] = self.seen(source)

    def put_changed(self, target, source):
        with self.active():
            super().put_changed(self.seen(target), self.seen(source))

    def overlap(self, one, other):
        return self.xp.may_share_memory(self.seen(one), self.seen(other))

    # --- movement ---------------------------------------------------------------------------------------------------

    def to_host(self, array):
        """The contents as a NumPy array, once all that was handed to the stream before is done."""
        if array.__class__ is LazyArray:
            spec = array.spec
            made = np.empty(spec.nbytes, np.uint8)
            if made.size:
                self.driver.download(self.index, array.memory.address, host.address(made), made.size)
            return host.laid_out(made, spec.shape, self.array_dtypes[spec.dtype], spec.np_strides)
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

    def interface(self, memory, spec, offset):
        return exchange.interface(self, self.address(memory) + offset * spec.dtype.itemsize, spec)

    def dlpack(self, owner, spec, offset, stream, max_version):
        return exchange.packed(self, owner, spec, offset, stream, max_version)

    def dlpack_device(self):
        return dlpack.CUDA_DEVICE, self.index

    def laid_out(self, array, spec):
        """`array` itself where it lies in memory as `spec` says, else a copy that does."""
        if array.__class__ is LazyArray and array.spec.strides == spec.strides and array.spec.shape == spec.shape:
            return array
        array = self.seen(array)
        if reference.same_layout(array, spec):
            return array
        made = self.allocate(spec.on(self.device))
        self.put(made, array)
        return made

    def _without_holes(self, array):
        """`array` itself where it fills its memory, in whatever order; else a contiguous copy."""
        if array.flags.forc or not array.size:
            return array
        spec = make_spec(dtypes.from_numpy(array.dtype), array.shape,
                         tuple([step // array.itemsize for step in array.strides]))
        if spec.dense:
            return array
        with self.active():
            return array.copy(order="C")

    @cached_property
    def _copies(self):
        return CopyQueue(self)

    def page_locked(self, nbytes):
        return self.driver.pinned(nbytes)

    def send(self, array, spec):
        return self._copies.send(array, spec)

    def fetch(self, array, spec):
        return self._copies.fetch(array, spec)

    # --- work -------------------------------------------------------------------------------------------------------

    def execute(self, entry, arrays, params, own=False):
        try:
            with self.active():
                arrays = [*map(self.seen, arrays)]
                if self._has_no_dtype_of(entry):
                    return self._execute_bits(entry, arrays, params)
                try:
                    return reference.execute(entry, arrays, params, own, self.xp)
                except self.driver.refusals:
                    wider = self._widened(entry, arrays)
                    if wider is None:
                        raise
                return reference.execute(*wider, params, False, self.xp)
        except self.driver.errors as error:
            raise self.driver.told(error, f"running {entry.op.__name__}") from None
        except self.driver.refusals as error:
            names = ", ".join(dict.fromkeys(spec.dtype.name for spec in entry.input_specs)) or "no operand"
            raise NotImplementedError(
                f"{entry.op.__name__} of {names} cannot run on {self.device} yet: CuPy says {type(error).__name__}: "
                f"{error}. Move the tensors with .cpu() for this operation") from error

    def _has_no_dtype_of(self, entry):
        return any(spec.dtype in self._lacks for spec in (*entry.input_specs, *(entry.outs or ())))

    def _widened(self, entry, arrays):
        """(entry, arrays) with bfloat16 operands in float32, which CuPy has all its functions for; None without any."""
        if entry.op.overwrites or not any(spec.dtype is dtypes.bfloat16 for spec in entry.input_specs):
            return None
        input_specs = [spec.like(dtypes.float32) if spec.dtype is dtypes.bfloat16 else spec
                       for spec in entry.input_specs]
        return _entry_for(entry, input_specs, entry.outs), [
            array.astype(np.float32) if spec.dtype is dtypes.bfloat16 else array
            for array, spec in zip(arrays, entry.input_specs, strict=True)]

    def _execute_bits(self, entry, arrays, params):
        """An operation with operands or results of dtypes that CuPy lacks; see Note [Bits for dtypes]."""
        outs = entry.outs or ()                       # none where their shapes are known only afterwards
        small = {spec.dtype for spec in (*entry.input_specs, *outs) if spec.dtype in self._lacks}
        name = entry.op.__name__
        moves = len(small) == 1 and (name in MOVES or name in PICKS) and all(
            spec.dtype in small or name in PICKS and spec.dtype.is_integral for spec in (*entry.input_specs, *outs))
        stand_in = dtypes.float32 if not moves else dtypes.uint8 if min(small, key=str).itemsize == 1 else dtypes.uint16

        def instead(spec):
            return spec.like(stand_in) if spec.dtype in small else spec

        if not moves:
            arrays = [self.xp.from_bits(array, spec.dtype) if spec.dtype in small else array
                      for array, spec in zip(arrays, entry.input_specs, strict=True)]
        params = [stand_in if param.__class__ is dtypes.dtype and param in small else param for param in params]
        entry = _entry_for(entry, [*map(instead, entry.input_specs)], tuple(map(instead, outs)) or None)
        made = reference.execute(entry, arrays, params, False, self.xp)
        if not outs:
            dtype, = small
            outs = [make_spec(dtype if array.dtype == stand_in.np else dtypes.from_numpy(np.dtype(array.dtype)),
                              array.shape, None, self.device) for array in made]
        return [self._as_bits(array, spec, moves) if spec.dtype in small else array
                for array, spec in zip(made, outs, strict=True)]

    def _as_bits(self, array, spec, are_bits):
        """What stands for an array of `spec`, a dtype that CuPy lacks."""
        bits = array if are_bits else self.xp.to_bits(array, spec.dtype)
        made, _ = self.blank(spec)
        self.put(made, bits)
        return made

    # --- kernels ----------------------------------------------------------------------------------------------------

    def schedule(self, launch):
        return _computing().schedule.schedule(launch, self.properties)

    def compile(self, launches, calls=()):
        return _computing().code.GPUCompilation(self, launches, calls)

    def program(self, tasks):
        return _computing().program.GPUProgram(self, tasks)

    def code(self, work):
        return _computing().code.code(work)

    def assembly(self, text):
        return _computing().code.ptx(self.driver, self.properties.architecture, text)

    def library(self, name, dtype, args, outs, params):
        return _computing().library.ask(name, dtype, args, outs, params, self.index)

    def has(self, name, dtype, args, outs, params):
        return _computing().library.can(name, dtype, args, outs, params, self.index)

    def processor(self):
        return f"{self.name} ({self.properties.architecture})"

    def forget(self):
        _computing().code.forget(self)

    # --- the device -------------------------------------------------------------------------------------------------

    autocast_dtypes = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64     # PyTorch warns of none here

    @staticmethod
    def remedy(missing=False):
        if missing:
            return f"look at nvidia-smi, and at {chain.VISIBLE}={os.environ.get(chain.VISIBLE, '')}"
        return ("see whether nvidia-smi shows errors (nvidia-smi -q -d ECC) and whether another program has the GPU's "
                "memory; report it with what `flambeau doctor --json` prints")

    @property
    def name(self):
        return self.properties.name

    @property
    def capability(self):
        return f"{self.properties.major}.{self.properties.minor}"

    def new_stream(self, priority=0):
        return self.driver.stream(self.index, priority)

    def current_stream(self):
        return self.driver.current_stream(self.index)

    def default_stream(self):
        return self.driver.default_stream(self.index)

    def use_stream(self, stream):
        """The stream waits for the copies to the device that are under way, too."""
        self.driver.use_stream(self.index, stream)
        if "_copies" in vars(self):
            self._copies.join(stream)

    def event(self, timed=False, blocking=False):
        with self.active():
            return self.driver.event(timed, blocking)

    def new_random_stream(self):
        return _computing().Philox(self)

    def synchronize(self):
        self.driver.synchronize(self.index)
        if "_copies" in vars(self):
            self._copies.let_go()

    def statistics(self):
        return self.memory.stats()

    def reset_peaks(self):
        self.memory.reset_peaks()

    def reset_sums(self):
        self.memory.reset_sums()

    def memory_info(self):
        return self.driver.memory_info(self.index)

    def block_of(self, array):
        lazy = array.__class__ is LazyArray
        address = array.memory.address if lazy else self.driver.address(array)
        nbytes = array.memory.nbytes if lazy else array.nbytes
        return address, max(-(-nbytes // ROUNDED_TO_BYTES), 1) * ROUNDED_TO_BYTES

    def adopt(self, address, allocation):
        return self.memory.recycler.told.setdefault(address, allocation)

    def memory_limit(self):
        return self.memory.limit()

    def empty_cache(self):
        return self.memory.trim()

    def keep_until(self, array, stream):
        mark = self.driver.event()
        mark.record(stream._held)
        self._kept = [(mark, array), *((event, kept) for event, kept in self._kept if not event.query())]

    _kept: list | tuple = ()      # (event, array) of what other streams still use

    def no_room(self, nbytes, spec=None, said=""):
        return self.memory.failure(nbytes, spec, said)


# Operations that put elements elsewhere and look at none, those of base/limited_dtypes.py that 8-bit floats may have;
# and those of them that have positions or masks beside.
MOVES = frozenset("""_block_diag _diagonal_copy _empty _flip _repeat _roll _spread _to_copy _unsafe_view cat clone
    diag_embed rot90 stack update""".split())
PICKS = frozenset("_index_put index index_select masked_select".split())


def _computing():
    from . import computing
    return computing


def _entry_for(entry, input_specs, outs):
    """`entry` with other dtypes, of operands that need no more conversion, and of results."""
    made = copy.copy(entry)
    made.input_specs, made.outs, made.casts, made.rounded = input_specs, outs, None, None
    return made


def _laid_on_host(array, spec):
    """A NumPy array's contents in the dtype and the layout of `spec`: `array` itself where it has them."""
    array = np.asarray(array)
    if array.dtype == spec.dtype.np and array.shape == spec.shape and reference.same_layout(array, spec):
        return array
    made = host.laid_out(np.empty(spec.nbytes, np.uint8), spec.shape, spec.dtype.np, spec.np_strides)
    made[...] = array if spec.dtype.family is None else dtypes.as_dtype(array, spec.dtype)
    return made
