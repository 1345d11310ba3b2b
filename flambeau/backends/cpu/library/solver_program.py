"""Programs of native steps that call LAPACK for every matrix of a batch: what a solver (solvers.py) is made of.

A program is made once for what it does, and for the shapes and strides of its operands, and kept. It lays operands
column by column into its results or its working memory, calls functions in place there, for many matrices on several of
our threads, and says whether LAPACK found fault with any.

Numbers that LAPACK takes by address stand in `constants`. Working memory is one piece for all: some of it for each
matrix, some for each tile, since one is done after the other there. See threads.py for the words of a program.
"""
import ctypes
import functools
import math
from array import array
from typing import NamedTuple

import numpy as np

from ....base import dtypes, shapes
from ....base.spec import spec
from ... import reference
from .. import lapack, threads
from ..memory import allocator
from ..memory.address import address
from .blocking import up
from .gemm import PIECES_A_THREAD
from .gemm_kernels import compiled_kernels
from .solver_kernels import LAY_COLUMNS, SolverKernels

CONSTANTS_INDEX, FIRST_OPERAND = 0, 1                   # of the table of addresses
ALIGNMENT = 64
TILE_NANOSECONDS = 12_000                         # of work that are worth handing to another thread
ALONE_NANOSECONDS = 20_000                        # of work that is done sooner than other threads wake
QUERY_BYTES = 4096                                # that a function may look at when it is asked how much room it wants

INFO = "info"                                     # arguments of a call: where it says what went wrong,
WORK, REAL_WORK, WHOLE_WORK = "work", "real work", "whole work"       # room of as many elements as it wants, and
SIZE_OF = {"work size": WORK, "real work size": REAL_WORK, "whole work size": WHOLE_WORK}      # how many those are
WORK_SIZE, REAL_WORK_SIZE, WHOLE_WORK_SIZE = SIZE_OF


class NoSuchFunction(Exception):
    """The library has no such function."""


class Matrices(NamedTuple):
    """Matrices of a program, one for each of the batch: where in the table, how many bytes in, and in elements how far
    to the next row, column and matrix."""
    index: int
    offset: int
    rows: int
    cols: int
    row: int
    col: int
    matrix: int


@functools.cache
def _has_room(callers):
    """Whether OpenBLAS may take the memory that it wants for so many callers: it ends the process if it gets none."""
    return allocator.has_room(callers * reference.BLAS_BUFFER_BYTES)


class Room(NamedTuple):
    """Working memory, or part of a result: where, and how many bytes further for the next matrix and the next tile."""
    index: int
    offset: int
    by_matrix: int
    by_tile: int = 0


class SolverProgram:
    """`operands` are (shape, strides in elements) of arrays of `dtype`; `nanoseconds` is about what a matrix takes."""

    def __init__(self, dtype, operands, outs, nanoseconds):
        self.dtype, self.size = np.dtype(dtype), np.dtype(dtype).itemsize
        self.real = np.dtype(self.dtype.char.lower())
        self.complex = self.dtype.kind == "c"
        self.one = 1 + 0j if self.complex else 1.0
        self.batch = outs[0][1][:-outs[0][2]]
        self.count = math.prod(self.batch)
        self.outs = [spec(as_dtype, shape, shapes.columns_first_strides(shape) if ndim == 2 else None)
                     for as_dtype, shape, ndim in outs]
        self.first_out = FIRST_OPERAND + len(operands)
        self.room = self.first_out + len(outs)
        self.infos = self.room + 1
        self.operands = [self._operand(FIRST_OPERAND + i, *one) for i, one in enumerate(operands)]
        self.constants, self.words, self.steps, self.nbytes = bytearray(), array("q"), 0, 0
        self.calls, self.zeroed = 0, None
        switch = lapack.thread_switch()
        self._switches, self._small = switch is not None, self.count * nanoseconds < ALONE_NANOSECONDS
        many = switch is not None and 1 < threads.get_num_threads() and _has_room(threads.get_num_threads())
        tiles = min(self.count, PIECES_A_THREAD * threads.get_num_threads(),
                    int(self.count * nanoseconds // TILE_NANOSECONDS)) if many else 1
        self.each = -(-self.count // max(1, tiles))
        self.tiles = -(-self.count // self.each)
        self.machine = compiled_kernels("float32", SolverKernels)

    def _operand(self, index, shape, strides):
        merged = shapes.merged_dims(shape[:-2], [strides[:-2]]) or [(1, 0)]
        if len(merged) > 1:
            raise ValueError("the matrices of an operand are to follow each other evenly")
        return Matrices(index, 0, *shape[-2:], *strides[-2:], merged[0][1] if math.prod(shape[:-2]) > 1 else 0)

    # --- memory -----------------------------------------------------------------------------------------------------

    def out(self, number):
        """A result's matrices."""
        *_, rows, cols = self.outs[number].shape
        return Matrices(self.first_out + number, 0, rows, cols, 1, max(rows, 1), rows * cols)

    def out_rows(self, number):
        """A result that has a row of numbers for each matrix."""
        one = self.outs[number]
        return Room(self.first_out + number, 0, one.shape[-1] * one.dtype.itemsize)

    def matrices(self, rows, cols):
        """Working memory for a matrix of each."""
        at = self._reserve(self.count * rows * cols * self.size)
        return Matrices(self.room, at, rows, cols, 1, max(rows, 1), rows * cols)

    def row(self, count, size=None):
        """Working memory for `count` elements of `size` bytes for each matrix, which a later step still needs."""
        nbytes = up(count * (size or self.size), 16)
        return Room(self.room, self._reserve(self.count * nbytes), nbytes)

    def zeros(self, count, size):
        """The same, set to zero."""
        at = self.row(count, size)
        self.zeroed = slice(at.offset, at.offset + self.count * at.by_matrix)
        return at

    def tile_room(self, count, size):
        """Working memory for `count` elements of `size` bytes, for as long as a function runs."""
        nbytes = up(max(count, 1) * size, ALIGNMENT)
        return Room(self.room, self._reserve(self.tiles * nbytes), 0, nbytes)

    def shared(self, nbytes):
        """Working memory of so many bytes, for steps that share it out themselves."""
        return Room(self.room, self._reserve(nbytes), 0)

    def whole_numbers(self, count):
        """A row of LAPACK's integers for each matrix."""
        return self.row(count, lapack.integer_bytes())

    def _reserve(self, nbytes):
        at, self.nbytes = self.nbytes, self.nbytes + up(nbytes, ALIGNMENT)
        return at

    def _constant(self, value):
        at = len(self.constants)
        if isinstance(value, bytes):
            self.constants += value.ljust(8, b"\0")
        elif isinstance(value, int):
            self.constants += value.to_bytes(8, "little", signed=True)
        else:
            self.constants += np.array(value, self.real if isinstance(value, float) else self.dtype).tobytes()
        self.constants += bytes(-len(self.constants) % 16)
        return Room(CONSTANTS_INDEX, at, 0)

    # --- steps ------------------------------------------------------------------------------------------------------

    def step(self, fn, tiles, slots, ints, grain=1):
        """One more native step, over `slots` of the table, (index, bytes in)."""
        self.words.extend((fn, tiles, grain, len(slots), 0, len(ints)))
        for slot in slots:
            self.words.extend(slot)
        self.words.extend(ints)
        self.steps += 1

    def lay(self, source, copy, rows=None, cols=None):
        """Copy matrices, or their first rows and columns, to where they lie column by column."""
        rows, cols = rows or min(source.rows, copy.rows), cols or min(source.cols, copy.cols)
        blocks = -(-cols // LAY_COLUMNS)
        tiles = self.count * blocks
        each = max(1, TILE_NANOSECONDS // max(1, rows * min(cols, LAY_COLUMNS)))
        self.step(self.machine.function("lay", self.size, hasty=True), tiles, [source[:2], copy[:2]],
                  [blocks, rows, cols, source.matrix, source.row, source.col, copy.matrix, copy.col], min(each, tiles))

    def clear(self, matrices, upper):
        """Set one triangle to zero, without the diagonal."""
        each = max(1, 4 * TILE_NANOSECONDS // max(1, matrices.rows * matrices.cols))
        self.step(self.machine.function("clear", self.size, hasty=True), self.count, [matrices[:2]],
                  [matrices.rows, matrices.cols, matrices.matrix, matrices.col, int(upper)], min(each, self.count))

    def call(self, name, *given):
        """Call a function of LAPACK's for every matrix. Numbers and letters are constants; see above for the rest."""
        function = lapack.address(name, self.dtype.name)
        if function is None:
            raise NoSuchFunction(name)
        given = self._with_room(function, given)
        slots, ints = [], [function, self.count, self.each]
        for one in given:
            if isinstance(one, Matrices):
                one = Room(one.index, one.offset, one.matrix * self.size)
            elif one == INFO:
                one = Room(self.infos, 8 * self.calls * self.count, 8)
                self.calls += 1
            elif not isinstance(one, Room):
                one = self._constant(one)
            slots.append(one[:2])
            ints += one[2:]
        self.step(self.machine.function("call", len(given), hasty=True), self.tiles, slots, ints)

    def _with_room(self, function, given):
        """The arguments, with as much room as the function says that it wants."""
        if not any(one in SIZE_OF for one in given if isinstance(one, str)):
            return given
        asked, rooms, keep = [], {}, []
        for one in given:
            if isinstance(one, str) and one not in SIZE_OF:
                rooms[one] = value = ctypes.create_string_buffer(64)
            elif isinstance(one, Matrices | Room):
                value = ctypes.create_string_buffer(QUERY_BYTES)
            else:
                at = self._constant(-1 if isinstance(one, str) else one).offset
                value = ctypes.create_string_buffer(bytes(self.constants[at:]))
                del self.constants[at:]
            keep.append(value)
            asked.append(ctypes.cast(value, ctypes.c_void_p))
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(asked), *[ctypes.c_size_t] * 4)(function)(*asked, 1, 1, 1, 1)
        types = {WORK: self.dtype, REAL_WORK: self.real, WHOLE_WORK: np.dtype(f"i{lapack.integer_bytes()}")}
        sizes = {}
        for kind, answer in rooms.items():
            if kind in types:
                said = np.frombuffer(answer, types[kind], 1)[0].real
                sizes[kind] = max(1, math.ceil(float(said) * (1 + 1e-6)))
        made = {kind: self.tile_room(size, types[kind].itemsize) for kind, size in sizes.items()}
        return [made.get(one, sizes.get(SIZE_OF.get(one), one)) if isinstance(one, str) else one for one in given]

    # --- running ----------------------------------------------------------------------------------------------------

    def finish(self):
        """No more steps: what `run` needs is made ready."""
        self._constants = ctypes.create_string_buffer(bytes(self.constants) or b"\0")
        self._table = [ctypes.addressof(self._constants)]
        self._words = self.words.buffer_info()[0]
        self._no_infos = bytes(8 * self.calls * self.count)
        self._room_spec = spec(dtypes.uint8, (self.nbytes,)) if self.nbytes else None
        threads.start()
        return self

    def run(self, *arrays):
        """(the results, working memory, what LAPACK says of each matrix in each call)"""
        outs = [reference.blank(one) for one in self.outs]
        room = None if self._room_spec is None else reference.blank(self._room_spec)
        if self.zeroed is not None:
            room[self.zeroed] = 0
        infos = array("q", self._no_infos)
        table = array("q", [*self._table, *map(address, arrays), *map(address, outs),
                            0 if room is None else address(room), infos.buffer_info()[0]])
        if not self._switches:
            threads.run(self._words, self.steps, table.buffer_info()[0], 0)
            return outs, room, infos
        lapack.compute_on(1 if self._small or self.tiles > 1 else threads.get_num_threads())
        try:
            threads.run(self._words, self.steps, table.buffer_info()[0], 0)
        finally:
            lapack.computed()
        return outs, room, infos

    def faults(self, infos):
        """Whether LAPACK found fault with any matrix."""
        return infos.tobytes() != self._no_infos

    def read(self, room, where, count, dtype):
        """What `row` reserved, of all matrices, as an array in the shape of the batch."""
        flat = room[where.offset:where.offset + self.count * where.by_matrix].view(dtype)
        return flat.reshape(self.count, -1)[:, :count].reshape(*self.batch, count)

    def read_matrices(self, room, where):
        """What `matrices` reserved, as an array in the shape of the batch."""
        flat = room[where.offset:where.offset + self.count * where.matrix * self.size].view(self.dtype)
        return flat.reshape(*self.batch, where.cols, where.rows).swapaxes(-1, -2)
