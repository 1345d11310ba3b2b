"""What the CPU does for the layers above it: NumPy's arrays, and kernels compiled by LLVM."""
from functools import cached_property

from ...base import dtypes, once, settings
from .. import reference
from ..backend import Backend
from . import host
from .memory import allocator


class CPUBackend(Backend):
    """The processor, with NumPy's arrays, and kernels compiled by LLVM."""

    compiles = interprets = recurs = adds_to_addresses = rounds_late = True
    autocast_dtypes = dtypes.bfloat16, dtypes.float16
    least_speed = 0.1
    _expects = False                                  # whether it was told to expect work
    blank = staticmethod(allocator.blank)
    block = staticmethod(allocator.block)
    address = staticmethod(host.address)

    def bytes_of(self, array):
        return host.array_over(array) if isinstance(array, allocator.Block) else super().bytes_of(array)

    def may_write(self, array):
        return array.flags.writeable

    def overlap(self, one, other):
        return host.overlap(one, other, 10_000)

    def to_host(self, array):
        return array

    def from_host(self, array, spec):
        return reference.fit(array, spec, ())

    @property
    def vector_bytes(self):
        return self._native.machine_code.vector_bytes()

    @property
    def masked_row_bytes(self):
        target = self._native.machine_code.target()
        return target.vector_bytes if target.masked_bytes else 0

    @property
    def zeros_by_sign(self):
        return self._native.machine_code.target().maximum

    def schedule(self, launch):
        return self._native.schedule(launch)

    def compile(self, launches, calls=()):            # the library has compiled its own
        return self._native.Compilation(launches)

    def program(self, tasks):
        return self._native.Stretch(tasks)

    def code(self, work):
        return self._native.code(work)

    def assembly(self, text):
        return self._native.machine_code.assembly(text)

    def library(self, name, dtype, args, outs, params):
        return self._native.library.ask(name, dtype, args, outs, params)

    @property
    def solvers(self):
        return self._native.library.solvers if settings.executor != "reference" else None

    def processor(self):
        return self._native.processor()

    def expect_work(self):
        if not self._expects and settings.executor != "reference":
            self._expects = True
            from .compile_thread import beforehand
            beforehand(_make_ready)

    def forget(self):
        self._native.forget()

    @staticmethod
    def remedy(missing=False):
        return ("empty the folder of compiled kernels, see whether FLAMBEAU_EXECUTOR=reference computes correctly, and "
                "report it with what `flambeau doctor --json` prints")

    def statistics(self):
        return allocator.stats()

    def reset_peaks(self):
        allocator.reset_peaks()

    def block_of(self, array):
        return allocator.block_of(array)

    def adopt(self, address, allocation):
        return allocator.adopt(address, allocation)

    def load_compiler(self):
        """Load what compiles, and what runs its code, which is otherwise loaded with the first kernel."""
        self._native.machine_code.host()
        self._native.threads.start()

    @cached_property
    def _native(self):
        return _program()


@once.cache
def _program():
    """What compiles, and runs its code, which the reference never needs."""
    from . import program
    return program


def _make_ready():
    """Load what compiles, and have what most programs need compiled."""
    _program().make_ready()
