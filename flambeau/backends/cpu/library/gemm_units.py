"""What multiplies numbers of 16 or 8 bits and adds in 32: the units of processors that products of such numbers use.

A unit adds to each 32-bit sum the products of a few numbers that lie side by side along k, in 32 bits: two of 16 bits,
four of 8. All of them take operands in one layout, blocks of `lanes` rows (of A) or columns (of B) by `depth` of k:

    amx       tiles of 16 by 16 sums; bfloat16, float16 and int8, each if the processor has it
    avx512    a vector of B times a row's numbers, spread (AVX512-BF16)
    neon      the same with vectors of 16 bytes (BFDOT)

Where there is none the operands are widened to float32, and multiplied as such.

Note [Bits of a unit]: each sum takes the steps along k in order, from one accumulator in float32, whatever the blocks,
tiles and threads; it is rounded once, at the end. So a product has the same bits on all processors with the same unit.
Units differ from each other in the order inside a step, and so do the last bits of the float32 sum: `amx` adds the
products of even k, and those of odd k, over 32 of k at a time; `avx512` adds them two by two. What is too small to be
normal in float32 counts as zero in both, as an operand in bfloat16 and as a result.
"""
import ctypes
import functools
import os
import platform
import sys
from typing import NamedTuple

from .. import machine_code

ARCH_PRCTL = 158                   # numbers of Linux on x86-64: the system call,
REQUEST_PERMISSION = 0x1023        # what is asked of it,
TILE_DATA = 18                     # and for which part of a processor's state
AVX512_16_BITS = {"avx512bw", "avx512vl", "avx512bf16"}     # what packing and rounding need beside tiles


class DotUnit(NamedTuple):
    """One of them, for one type of numbers: LLVM's name for it, its `size` in bytes, and for what multiplies."""

    name: str
    element: str
    size: int
    lanes: int
    instruction: str

    @property
    def suffix(self):
        """In the names of its functions."""
        return f"{self.name}_{self.element}"

    @property
    def together(self):
        """How many of k lie in 32 bits."""
        return 4 // self.size

    @property
    def depth(self):
        """How much of k a block holds."""
        return self.lanes * self.together

    @property
    def block_bytes(self):
        return 4 * self.lanes * self.lanes

    @property
    def sums(self):
        """LLVM's type of a sum."""
        return "i32" if self.element == "i8" else "float"


# dtype → units, the best first, each with the features that it needs
DOT_UNITS = {
    "bfloat16": [(DotUnit("amx", "bfloat", 2, 16, "tdpbf16ps"), {"amx-tile", "amx-bf16", *AVX512_16_BITS}),
                 (DotUnit("avx512", "bfloat", 2, 16, "avx512bf16.dpbf16ps.512"), AVX512_16_BITS),
                 (DotUnit("neon", "bfloat", 2, 4, "neon.bfdot.v4f32.v8bf16"), {"neon", "bf16"})],
    "float16": [(DotUnit("amx", "half", 2, 16, "tdpfp16ps"), {"amx-tile", "amx-fp16", *AVX512_16_BITS})],
    "int8": [(DotUnit("amx", "i8", 1, 16, "tdpbssd"), {"amx-tile", "amx-int8", *AVX512_16_BITS})],
}


def unit_of(dtype):
    """The DotUnit for a dtype's name on the processor in use; None where there is none."""
    return best_unit(dtype, machine_code.processor()) if dtype in DOT_UNITS else None


@functools.cache
def best_unit(dtype, processor):
    """The same for a Processor."""
    for unit, needed in DOT_UNITS[dtype]:
        if needed <= processor.on and (unit.name != "amx" or may_use_tiles()):
            return unit
    return None


@functools.cache
def may_use_tiles():
    """Whether this process may use the tiles of AMX. Linux grants them to a process that asks, once for all of its
    threads and for those that it forks; not where a thread's stack for signals is too small for them."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64" or not hasattr(os, "fork"):
        return False
    asked = [ctypes.c_long(number) for number in (ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)]
    return ctypes.CDLL(None).syscall(*asked) == 0
