"""What PyTorch's numbers owe to the processor that it runs on.

On x86-64 with AVX2 it computes logarithms and sines for normal numbers with functions of its own, on others with those
of the system. Ours do the same; that the bits agree was seen on x86-64 only. A float beyond the range of an integer is
converted by an instruction that saturates on some processors and wraps on others, and PyTorch leaves it at that.
"""
import platform

IS_X86 = platform.machine() in ("x86_64", "AMD64")
FUNCTIONS_ATOL = 0.0 if IS_X86 else 1e-5          # to be added where normal numbers of one seed are compared
# How far the floats go that are given to a conversion; the narrow ones pass through int32 everywhere.
CONVERSIONS = {} if IS_X86 else {"byte": 2.0**30, "short": 2.0**30, "int": 2.0**30, "long": 2.0**62}
