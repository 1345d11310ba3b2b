"""What a library does elsewhere, as native steps: products of matrices, convolutions, pooling, sorting.

A plan asks here for a `LibraryCall`, (fn, tiles, grain, ints), to put in its program (see cpu/threads.py); it gets
None, and takes the reference, where there is none: integers (which are only sorted), layouts that no kernel takes.
Complex numbers are only transformed.

    gemm(M, N, K, dtype, a, b, c, batch)                                               LibraryCalls; gemm.py
    gemm(M, N, K, dtype, a, b, c, batch, out, added), of 16 or 8 bits                  LibraryCalls; gemm_narrow.py
    convolve(dtype, x, weight, y, stride, padding, dilation, groups, transposed)       LibraryCalls; conv.py
    convolve_weight(dtype, x, g, weight, stride, padding, dilation, groups)            LibraryCalls; conv.py
    max_pool(dtype, x, y, maps), drop(size)                                            a LibraryCall; pool.py
    bags(dtype, table, index, offsets, weight, out, mode, skip, bits)                  a LibraryCall; bags.py
    scatter(dtype, values, index, based, size, how, fresh, bits, skip)                 a LibraryCall; scatter.py
    drop_weighted(dtype, samples, channels, taps, count, size)                         a LibraryCall; pool.py
    weigh(dtype, x, y, maps, back, mean)                                               a LibraryCall; pool.py
    sample(dtype, step, channels, at, sizes)                                           a LibraryCall; sample.py
    search(dtype, rows, values, how, bits)                                             a LibraryCall; search.py
    spread(dtype, available, count)                                                    a LibraryCall; scatter.py
    scan(dtype, operation, shape, dim)                                                 a LibraryCall; pool.py
    add_weighted_rows(dtype, count, cols, size, taps)                                  a LibraryCall; pool.py
    sum_weighted_rows(dtype, count, cols, taps)                                        a LibraryCall; pool.py
    jitter_colours(dtype, image, out), mirror_rows(dtype, image)                       a LibraryCall; images.py
    resize_boxes(dtype, image, weight_x, weight_y, out)                                a LibraryCall; images.py
    warp_places(dtype, image, table, fill, out, size, nearest, filled)                 a LibraryCall; images.py
    ctc(dtype, log_probs, targets, params)                                             a LibraryCall; ctc.py
    sort(dtype, shape, descending), topk(dtype, shape, k, largest)                     a LibraryCall; sort.py
    pick(dtype, shape, which, rank)                                                    a LibraryCall; sort.py
    solve_triangular(dtype, a, b, x, upper, left, unit)                                a LibraryCall; triangular.py
    transform(dtype, x, y, kind, dim, inverse, scale)                                  LibraryCalls; fft.py

What is not planned but asked for at the call, since it may fail on its data, are factorisations and decompositions, by
LAPACK: solvers.py.

Note [Own kernels]: these are kernels of our own, in LLVM's language, and not calls of the OpenBLAS inside NumPy. What
was compared, in microseconds, float32, on two cores of a Sapphire Rapids processor with AVX-512, side by side, the best
of many runs; NumPy's column is the reference executor: OpenBLAS, im2col with it, or NumPy's own function:

    work                                         PyTorch 2.13     NumPy      ours
    1024 x 1024 x 1024                                  6,740     7,370     7,520
    64 of 64 x 64 x 64                                    118       296       180
    128 x 784 by 784 x 512                                358       481       387
    3 x 3 convolution, 32 to 64, 32 of 16 x 16          1,100     3,410     1,320
    3 x 3 convolution, 3 to 32, 32 of 32 x 32             489     1,550       372
    1 x 1 convolution, 64 to 128, 16 of 28 x 28         1,590     2,550     1,030
    max pooling by 2, 32 x 64 of 32 x 32                7,440    22,300       463
    8192 rows of a table of 50,000 x 128                  220       575       331
    the gradient of such a table of 5,000               1,520     3,340       790
    running sums of 1000 x 1000                           395     4,570       457

Each figure of ours has some 15 in it for a call. The same of sorting, on one core of a Neoverse N1:

    sort of 64 x 256                                      724       981       322
    sort of 1024 x 1024                                57,100    68,700    16,400
    sort of 10,000,000                              1,250,000 2,540,000   159,000
    the largest 5 of 1024 x 1024                        2,960    12,700     1,560
    the largest 50 of 128 x 50257                      15,700    71,800     5,730
    medians of 1024 x 1024                             14,400    24,300     4,460

OpenBLAS could also be called on one thread of its own, for blocks of rows, by our threads. It has to be told so
around every program, and a user's setting put back: `openblas_set_num_threads` takes 0.1 µs, but holds for the whole
process (so does `openblas_set_num_threads_local` in NumPy's build). NumPy may also come with another BLAS, or with one
that we cannot find. Our kernels are the same everywhere, their results do not depend on the number of threads, and any
strides cost nothing more.
"""
import math
from functools import lru_cache

from ....base.shapes import contiguous_strides
from ..threads import get_num_threads
from . import bags, conv, ctc, fft, gemm, gemm_narrow, images, pool, sample, scatter, search, solvers, sort, triangular
from .gemm import LibraryCall
from .gemm_kernels import LLVM_ELEMENT

__all__ = ["LibraryCall", "ask", "forget", "product"]


def product(dtype, a, b, c, out="narrow", added="none"):
    """The LibraryCalls of c = a @ b, all given as (shape, strides), with leading dimensions that broadcast. Of 16 or 8
    bits: `out` and `added` as gemm_narrow.py has them."""
    batch = c[0][:-2]

    def strides(shape, strides):
        """(row stride, column stride, *strides of the batch dimensions)."""
        lead = len(batch) - (len(shape) - 2)
        outer = [0 if n == 1 else s for n, s in zip(shape[:-2], strides[:-2], strict=True)]
        return strides[-2], strides[-1], *(0,) * lead, *outer

    job = *c[0][-2:], a[0][-1], dtype, strides(*a), strides(*b), strides(*c), batch
    return gemm.gemm(*job) if getattr(dtype, "name", dtype) in LLVM_ELEMENT else gemm_narrow.gemm(*job, out, added)


def ask(name, dtype, args, outs, params):
    """The Steps of a function by its name, over operands and results as (shape, strides); None where there are none.

    The buffers are the operands and then the results. What was asked before is known: an operation is asked about when
    it is lowered, when it is run by itself and when it is planned, and the tables of a convolution take long.
    """
    def whole(laid):
        return tuple([(tuple(shape), tuple(strides)) for shape, strides in laid])
    return _answer(name, dtype, whole(args), whole(outs), params, get_num_threads())


def forget():
    """Answer anew: another processor was chosen."""
    _answer.cache_clear()
    solvers.forget()


@lru_cache(1024)
def _answer(name, dtype, args, outs, params, _threads):
    if name == "convolve":
        stride, padding, dilation, groups, transposed = params
        return conv.convolve(dtype, *args, *outs, stride, padding, dilation, groups, transposed)
    if name == "convolve_weight":
        return conv.convolve_weight(dtype, *args, *outs, *params)
    if name == "gemm":
        return product(dtype, *args, *outs, *params)
    if name == "affine":
        return _affine(dtype, *args, *outs, *params)
    if name == "fft":
        return fft.transform(dtype, *args, *outs, *params)
    if name == "solve_triangular":
        return triangular.solve_triangular(dtype, *args, *outs, *params)
    if name == "max_pool":
        if outs[0] != outs[1]:                            # values in working memory, indices as their reader wants them
            return None
        found = pool.max_pool(dtype, args[0], outs[0], *params)
    elif name == "weigh":
        found = pool.weigh(dtype, args[0], outs[0], *params)
    elif name in ("scan", "running"):
        (shape, strides), (operation, dim) = args[0], params if name == "running" else ("sum", *params)
        turn = sorted(range(len(shape)), key=lambda d: (-strides[d], d))          # dimensions as they lie in memory
        if not all(_dense([one[turn[i]] for i in range(len(turn))] for one in laid) for laid in (*args, *outs)):
            return None
        found = pool.scan(dtype, operation, [shape[d] for d in turn], turn.index(dim))
    elif name == "scatter":
        values, index, *base = args
        if not all(map(_dense, (*base, *outs))):
            return None
        *how, size = params
        found = scatter.scatter(dtype, values, index, bool(base), size, *how)
    elif not all(map(_dense, (*args, *outs))):
        return None
    elif name == "bags":
        table, index, offsets, *weight = args
        found = bags.bags(dtype, table, index, offsets, weight[0] if weight else None, outs[0], *params)
    elif name == "drop":
        found = _drop(dtype, *args, *outs)
    elif name in ("add_weighted_rows", "sum_weighted_rows"):
        taps = args[1][0][1]
        found = pool.add_weighted_rows(dtype, *args[0][0], outs[0][0][0], taps) if name == "add_weighted_rows" else \
            pool.sum_weighted_rows(dtype, *outs[0][0], taps)
    elif name == "ctc":
        found = ctc.ctc(dtype, *args, params)
    elif name == "search":
        found = search.search(dtype, args[0][0], args[1][0], *params)
    elif name == "spread":
        found = scatter.spread(dtype, args[0][0][0], math.prod(outs[0][0]))
    elif name == "drop_weighted":
        found = pool.drop_weighted(dtype, *args[0][0][:2], *args[1][0][1:], *params)
    elif name in sample.SAMPLE_STEPS:
        found = sample.sample(dtype, name, args[0][0][1], args[-1], *params)
    elif name == "jitter_colours":
        found = images.jitter_colours(dtype, args[0], outs[0])
    elif name == "resize_boxes":
        found = images.resize_boxes(dtype, args[0], args[2], args[5], outs[0])
    elif name == "warp_places":
        found = images.warp_places(dtype, *args, *outs, *params)
    elif name == "mirror_rows":
        found = images.mirror_rows(dtype, args[0])
    elif name in ("sort", "topk", "pick"):
        found = {"sort": sort.sort, "topk": sort.topk, "pick": sort.pick}[name](dtype, args[0][0], *params)
    else:
        return None
    return found and [found]


def _drop(dtype, values, index, out):
    """Sums of the elements of rows at an index of each row, or one that they share; None if some share it."""
    shared = math.prod(index[0][:-1]) == 1
    if index[0][-1] != values[0][-1] or index[0][:-1] != values[0][:-1] and not shared:
        return None
    laid = [((math.prod(shape[:-1]), shape[-1], 1), (shape[-1], 1, 1)) for shape, _ in (values, index, out)]
    return scatter.scatter(dtype, *laid[:2], False, laid[2][0], "sum")


def _affine(dtype, a, b, bias, c, added):
    """Products to whose rows `bias` is added, of 16 bits: others take another step for that."""
    shape, strides = bias
    if dtype.name in LLVM_ELEMENT or shape != c[0][1:] or strides != (1,) and shape != (1,):
        return None
    return product(dtype, a, b, c, added=added)


def _dense(laid):
    """Whether an operand, (shape, strides), lies one element after the other."""
    shape, strides = laid
    return all(n == 1 or s == one for n, s, one in zip(shape, strides, contiguous_strides(shape), strict=True))
