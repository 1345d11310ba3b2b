"""A device that compiles, without a compiler: it reads kernels of the loop language, and does what they say with NumPy.

It takes the kernels that the CPU takes, with a schedule of its own (all positions in one go, but for the blocks of a
reduction that is cut), code of its own (the kernel's text), a library of one function, programs that are lists, and
addresses that mean nothing to anybody else. What a kernel computes is kept to the last bit: the order of its reductions
is part of it.
"""
import itertools
import weakref
from functools import partial
from math import prod

import numpy as np

from flambeau.backends import register
from flambeau.base import dtypes, observers, special_functions
from flambeau.loops.ir import FUNCTION_WORDS, Launch, verify
from flambeau.trace.planning.lower import LOOP_TYPE
from flambeau.trace.running import interpret

from . import ToyBackend

DTYPES = {name: dtype for dtype, name in LOOP_TYPE.items()}


class AbacusBackend(ToyBackend):
    """Notes in `log` what it compiles, too, and which launches and calls it runs."""

    compiles = interprets = True
    vector_bytes = 8              # narrower than any processor's, so that another order would show

    def __init__(self, index):
        super().__init__(index)
        self._numbers, self._arrays = itertools.count(1), {}
        self.texts = set()

    # --- memory: an address is a number that only this device can read

    def address(self, array):
        number = next(self._numbers)
        self._arrays[number] = weakref.ref(array, lambda _: self._arrays.pop(number, None))
        return number

    def block(self, nbytes):
        return Block(np.empty(nbytes, np.uint8), self)

    def bytes_of(self, array):
        return array.memory if isinstance(array, Block) else super().bytes_of(array)

    def at(self, address, offset, type):
        """Memory from `offset` bytes behind an address on, as elements of `type`."""
        dtype = DTYPES[type].np
        memory = self.bytes_of(self._arrays[address]())[offset:]
        return memory[:memory.size // dtype.itemsize * dtype.itemsize].view(dtype)

    # --- kernels

    def schedule(self, launch):
        return InOneGo()

    def compile(self, launches, calls=()):
        return Compilation(self, launches)

    def program(self, tasks):
        return Program(self, tasks)

    def code(self, work):
        return [str(work)]

    def assembly(self, text):
        return text

    def processor(self):
        return "an abacus"

    def library(self, name, dtype, args, outs, params):
        if name != "gemm" or dtype not in (dtypes.float32, dtypes.float64):
            return None
        return [Product(LOOP_TYPE[dtype], (*args, *outs))]

    def forget(self):
        self.texts.clear()


class Block:
    """Working memory."""

    def __init__(self, memory, backend):
        self.memory, self.address = memory, backend.address(memory)


class InOneGo:
    """The schedule: there is nothing to decide."""

    turned: dict = {}

    def words(self, printer):
        return "all positions in one go"


class Compilation:
    """Kernels are verified, and that is all that they need."""

    def __init__(self, backend, launches):
        self.backend, self.launches = backend, launches

    def prepare(self, spare):
        return False

    def is_ready(self):
        return True

    def finish(self):
        for launch in self.launches:
            verify(launch.kernel)
            if str(launch) not in self.backend.texts:
                self.backend.texts.add(str(launch))
                self.backend.log.append("compile")


class Product:
    """A call of the library: the product of matrices that lie as (shape, strides) say."""

    def __init__(self, type, laid):
        self.type, self.laid = type, laid

    def run(self, backend, table, places):
        a, b, c = (np.lib.stride_tricks.as_strided(backend.at(table[index], offset, self.type), shape,
                                                   [s * DTYPES[self.type].itemsize for s in strides])
                   for (index, offset), (shape, strides) in zip(places, self.laid, strict=True))
        c[...] = a @ b


class Program:
    """Launches and calls in a row."""

    lasts = True

    def __init__(self, backend, tasks):
        self.backend, self.tasks = backend, tasks

    def run(self, table, cells, times=None):
        times = [0] * (len(self.tasks) + 1) if times is None else times
        times[0] = observers.clock()
        with np.errstate(all="ignore"):
            for at, (work, places, numbers) in enumerate(self.tasks, 1):
                self.backend.log.append("launch" if isinstance(work, Launch) else "library")
                if isinstance(work, Launch):
                    Run(self.backend, work, table, places, [cells[n:n + 1] for n in numbers]).run()
                else:
                    work.run(self.backend, table, places)
                times[at] = observers.clock()

    def bound(self, table, cells, times=None):
        return partial(self.run, table, cells, times)


class Run:
    """One run of a launch."""

    def __init__(self, backend, launch, table, places, cells):
        self.launch, self.kernel, self.backend = launch, launch.kernel, backend
        self.memory = [backend.at(table[index], offset, access.type)
                       for (index, offset), access in zip(places, self.kernel.accesses, strict=True)]
        self.numbers = [np.frombuffer(cell, np.float64 if DTYPES[type].is_floating_point else np.int64)[0]
                        .astype(DTYPES[type].np) for cell, type in zip(cells, self.kernel.numbers, strict=True)]

    def run(self):
        kernel, sizes = self.kernel, self.launch.sizes
        if kernel.cut is None:
            self.walk([np.arange(n) for n in sizes])
            return
        for block in range(sizes[kernel.cut]):
            where = [np.arange(n) for n in sizes]
            where[kernel.cut] = np.array([block])
            cut = kernel.cut_dim
            where[cut] = where[cut][block * self.launch.block:(block + 1) * self.launch.block]
            self.walk(where)

    def walk(self, where):
        """All passes over the positions `where`, an array for each dimension."""
        self.where = [at.reshape([-1 if d == i else 1 for i in range(len(where))]) for d, at in enumerate(where)]
        self.known, self.accs = {}, {}
        if self.kernel.columns and not self.where[self.kernel.cut_dim].size:      # a block at the end that is empty
            for kind, access, e in self.kernel.columns:
                self.store_columns(kind, access, np.zeros(0, DTYPES[e.type].np))
            return
        for number, one in enumerate(self.kernel.passes):
            for j, (kind, e) in enumerate(one.accs):
                self.accs[number, j] = self.reduced(kind, self.value(e), DTYPES[e.type])
            for kind, access, e in one.columns:
                self.store_columns(kind, access, self.value(e))
            self.store(one.stores)
        self.store(self.kernel.finals)

    def store(self, stores):
        made = [self.value(e) for _, e in stores]             # a result may stand where an operand stood
        for (access, _), value in zip(stores, made, strict=True):
            at = self.place(access)
            self.memory[access][at] = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), np.shape(at)))

    def store_columns(self, kind, access, x):
        """What a block's rows hold at each place along them, one after the other."""
        _, rows, places = (w.size for w in self.where)
        x = np.broadcast_to(x, (1, rows, places))[0] if rows else x.reshape(0, 1).repeat(places, 1)
        block, _, place = self.launch.strides[access]
        self.memory[access][block * self.where[0].ravel() + place * np.arange(places)] = \
            interpret._walked(kind, np.ascontiguousarray(x.T), rows, 0)

    def place(self, number):
        """Which elements of its memory an access meets."""
        strides, access = self.launch.strides[number], self.kernel.accesses[number]
        at = sum((s * x for s, x in zip(strides, self.where, strict=True) if s), np.zeros((1,) * len(strides), int))
        return at if access.at is None else at + self.value(access.at) * self.launch.at_strides[number]

    def reduced(self, kind, x, dtype):
        """`x` over the reduced dimensions, in the order that the kernel says."""
        kernel, rank = self.kernel, len(self.where)
        x = np.broadcast_to(x, [w.size if d >= kernel.kept else n for d, (w, n) in
                                enumerate(zip(self.where, np.shape(x) or (1,) * rank, strict=True))])
        over = tuple(range(kernel.kept, rank))
        if kind in ("any", "all"):
            return getattr(np, kind)(x, axis=over, keepdims=True)
        if kind.startswith("arg"):
            return getattr(np, kind)(x, axis=rank - 1, keepdims=True)
        if not dtype.is_floating_point:
            how = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
            if dtype is dtypes.bool:
                how = {"sum": np.logical_or, "prod": np.logical_and}.get(kind, how)
            least, most = (False, True) if dtype is dtypes.bool else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
            start = {"sum": 0, "prod": 1, "max": least, "min": most}[kind]      # of blocks at the end that are empty
            return how.reduce(x, axis=over, keepdims=True, dtype=x.dtype, initial=start)
        shape = (*x.shape[:kernel.kept], *(1,) * kernel.reduced)
        lanes = self.backend.vector_bytes // dtype.itemsize * kernel.rows
        rows = x.reshape(prod(x.shape[:kernel.kept]), prod(x.shape[kernel.kept:]))
        return interpret._walked(kind, rows, x.shape[-1], lanes).reshape(shape)

    # --- expressions

    def value(self, root):
        todo = [root]
        while todo:
            e = todo[-1]
            left = [a for a in e.args if a not in self.known] if e not in self.known else ()
            if left:
                todo.extend(left)
                continue
            todo.pop()
            if e not in self.known and e.op != "load":
                self.known[e] = self.computed(e, [self.held(a) for a in e.args])
            elif e.op == "load":
                self.known[e] = e                             # read when it is needed: memory changes
        return self.held(root)

    def held(self, e):
        return self.memory[e.attr][self.place(e.attr)] if e.op == "load" else self.known[e]

    def computed(self, e, args):
        dtype = DTYPES[e.type]
        if e.op == "number":
            return self.numbers[e.attr]
        if e.op == "const":
            return np.asarray(e.attr).astype(dtype.np)
        if e.op == "index":
            return self.where[e.attr]
        if e.op == "size":
            return np.int64(self.launch.sizes[e.attr])
        if e.op == "acc":
            return self.accs[e.attr]
        if e.op == "cast":
            return interpret._cast(np.asarray(args[0]), DTYPES[e.args[0].type], dtype)
        if e.op == "from_bits":
            return np.asarray(args[0]).view(dtype.np)
        if e.op in ("fma", "fma_exact"):
            wide = np.longdouble if e.type == "f64" else np.float64
            return (args[0].astype(wide) * args[1] + args[2]).astype(dtype.np)
        if e.op in FUNCTION_WORDS:
            return np.asarray(function(e.op)(*args)).astype(dtype.np)
        kind = DTYPES[e.args[0].type]
        table = interpret.BOOL_WORDS if kind is dtypes.bool else interpret.FLOAT_WORDS if kind.is_floating_point else \
            interpret.INT_WORDS
        return np.asarray((table.get(e.op) or interpret.NUMPY_WORDS[e.op])(*args))


def function(name):
    if name in ("sigmoid", "rsqrt"):
        return (lambda x: 1 / (1 + np.exp(-x))) if name == "sigmoid" else (lambda x: 1 / np.sqrt(x))
    if name == "pow":
        return lambda a, b: np.power(a, b + np.zeros_like(a))           # a single 0.5 would be made a root
    if hasattr(special_functions, name):
        return partial(getattr(special_functions, name), np)
    return getattr(np, {"atan2": "arctan2"}.get(name) or ("arc" + name[1:] if name[0] == "a" else name))


register("abacus", AbacusBackend, count=lambda: 2)
