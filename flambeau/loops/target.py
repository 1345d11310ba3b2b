"""What the text of a kernel depends on in the processor that it is written for.

Everything here exists so that no kernel calls a function of a library. Where LLVM has no instruction for an operation
it writes a call instead (`fmaf`, `floorf`, `__truncsfhf2`), once for every lane, of a function that the process may
not even have. So the renderer asks here first, and writes such an operation in plain arithmetic.
"""
from typing import NamedTuple

CACHE_LINE_BYTES = 64


class Target(NamedTuple):
    """A processor as the renderer sees it."""

    vector_bytes: int = 16        # of its widest vectors
    fma: bool = False             # multiplies and adds in one instruction, rounding once
    half: bool = False            # converts between float16 and float32 in one instruction
    rounding: bool = False        # floor, ceil, trunc and rint in one instruction each
    maximum: bool = False         # the greater of two numbers in one instruction: NaN if either is, +0 before -0
    asks_for_lanes: bool = False  # does not see columns coming, some lanes of each row at a time
    pause: str = ""               # the intrinsic, with its argument, that is called while one waits for another thread

    @property
    def masked_bytes(self):
        """The sizes of elements of which some lanes of a vector are loaded or stored in one instruction.

        For others LLVM writes a branch for every lane, which takes long to compile and is slow to run.
        """
        return {64: (1, 2, 4, 8), 32: (4, 8)}.get(self.vector_bytes, ())


def target_of(triple, features):
    """The Target of a processor: LLVM's triple, and the set of its features' names that are on.

    A kind of processor that is not known here gets by with what all of them have.
    """
    architecture = triple.partition("-")[0]
    if architecture in ("x86_64", "amd64", "i386", "i686"):
        return Target(64 if "avx512f" in features else 32 if "avx2" in features else 16,
                      "fma" in features, "f16c" in features, "sse4.1" in features, pause=pause_of(architecture))
    if architecture.startswith(("aarch64", "arm64")):
        return Target(16, fma=True, half=True, rounding=True, maximum=True,                     # all of them have these
                      asks_for_lanes=True, pause=pause_of(architecture))
    if architecture.startswith("riscv64"):                            # vectors and single numbers have to have it
        half = "zfhmin" in features and ("v" not in features or "zvfhmin" in features)
        return Target(16, "d" in features, half)
    return Target()


def pause_of(architecture):
    """The `pause` of processors of a kind, such as "x86_64"; empty where there is none."""
    return {"x86_64": "@llvm.x86.sse2.pause()", "amd64": "@llvm.x86.sse2.pause()", "arm64": "@llvm.aarch64.hint(i32 1)",
            "aarch64": "@llvm.aarch64.hint(i32 1)"}.get(architecture, "")


def pausing(pause):
    """(the instruction, its declaration) of a `pause`; both are empty where it is."""
    return (f"call void {pause}", f"declare void {pause.replace(' 1', '')}") if pause else ("", "")
