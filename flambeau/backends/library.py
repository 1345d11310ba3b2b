"""What a library does elsewhere, as native steps: products of matrices and convolutions.

A plan asks here for a `Step`, (fn, tiles, grain, ints), to put in its program (see threads.py); it gets None, and takes
the reference, where there is none: integers, complex numbers, more than three uneven batch dimensions.

    gemm(M, N, K, dtype, a, b, c, batch, alpha, beta, add, relu, runtime)            one step; gemm.py
    convolve(dtype, x, weight, y, stride, padding, dilation, groups, transposed, bias, relu)     steps; convolve.py
    convolve_weight(dtype, x, g, weight, stride, padding, dilation, groups)                      steps; convolve.py

Note [Own kernels]: these are kernels of our own, in LLVM's language, and not calls of the OpenBLAS inside NumPy. What was
compared (milliseconds, float32, two threads of a Sapphire Rapids processor with AVX-512; the best of many runs):

@TABLE@

OpenBLAS leaves small and batched products to one thread, and wants its own threads for the rest: to run it in tiles on
ours it has to be told so around every program (`openblas_set_num_threads` is global, and a user's setting would have to
be put back). NumPy may come with another BLAS, or with one that we cannot find; our kernels are the same everywhere. And
packing that takes any strides, a bias, a residual and a relu costs nothing here.
"""
from .convolve import convolve, convolve_weight
from .gemm import Step, gemm

__all__ = ["Step", "convolve", "convolve_weight", "gemm"]
