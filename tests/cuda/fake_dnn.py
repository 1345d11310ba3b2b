"""cuDNN as a class over the CPU's memory: the functions that we call, with descriptors checked as cuDNN does."""
import ctypes
import itertools

import ml_dtypes
import numpy as np

from flambeau.backends.cuda.library.conv import Algorithm

TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 9: ml_dtypes.bfloat16}
SCRATCH_BYTES = 64


class FakeDNN:
    """Notes in `log` which functions were called. Descriptors are numbers of `made`."""

    def __init__(self):
        self.made, self.log = {1: "handle"}, []

    def _create(self, at, kind):
        number = len(self.made) + 1
        self.made[number] = {"kind": kind}
        ctypes.c_void_p.from_address(at).value = number
        return 0

    def cudnnCreate(self, at):
        ctypes.c_void_p.from_address(at).value = 1
        return 0

    def cudnnSetStream(self, handle, stream):
        self.log.append(("stream", stream))
        return 0

    def cudnnCreateTensorDescriptor(self, at):       return self._create(at, "tensor")
    def cudnnCreateFilterDescriptor(self, at):       return self._create(at, "filter")
    def cudnnCreateConvolutionDescriptor(self, at):  return self._create(at, "convolution")

    def cudnnSetTensorNdDescriptor(self, made, kind, rank, dims, strides):
        assert self.made[made]["kind"] == "tensor" and 4 <= rank <= 8 and len(dims) == len(strides) == rank
        self.made[made].update(type=kind, dims=list(dims), strides=list(strides))
        return 0

    def cudnnSetFilterNdDescriptor(self, made, kind, layout, rank, dims):
        assert self.made[made]["kind"] == "filter" and 4 <= rank <= 8 and layout in (0, 1)
        order = [0, *range(2, rank), 1] if layout else range(rank)
        strides, step = [0] * rank, 1
        for d in reversed(order):
            strides[d], step = step, step * dims[d]
        self.made[made].update(type=kind, dims=list(dims), strides=strides)
        return 0

    def cudnnSetConvolutionNdDescriptor(self, made, rank, padding, stride, dilation, mode, sums):
        assert self.made[made]["kind"] == "convolution" and rank >= 2 and mode == 1 and sums in (0, 1)
        self.made[made].update(padding=list(padding), stride=list(stride), dilation=list(dilation), groups=1)
        return 0

    def cudnnSetConvolutionGroupCount(self, made, groups):
        self.made[made]["groups"] = groups
        return 0

    def cudnnSetConvolutionMathType(self, made, math):
        self.made[made]["math"] = math
        self.log.append(("math", math))
        return 0

    def _algorithms(self, handle, first, second, how, result, most, count, found):
        assert most >= 2
        some = (Algorithm * most).from_address(found)
        some[0].number, some[0].status, some[0].memory, some[0].determinism, some[0].math = 3, 0, 0, 0, 1
        some[1].number, some[1].status, some[1].memory, some[1].determinism = 7, 0, SCRATCH_BYTES, 1
        some[1].math = self.made[how]["math"]
        ctypes.c_int.from_address(count).value = 2
        return 0

    cudnnGetConvolutionForwardAlgorithm_v7 = cudnnGetConvolutionBackwardDataAlgorithm_v7 = \
        cudnnGetConvolutionBackwardFilterAlgorithm_v7 = _algorithms

    def cudnnConvolutionForward(self, handle, alpha, x_desc, x, w_desc, w, how, algorithm, scratch, nbytes, beta,
                                y_desc, y):
        self._compute(x_desc, x, w_desc, w, y_desc, y, how, algorithm, scratch, nbytes, "y")
        return 0

    def cudnnConvolutionBackwardData(self, handle, alpha, w_desc, w, y_desc, y, how, algorithm, scratch, nbytes, beta,
                                     x_desc, x):
        self._compute(x_desc, x, w_desc, w, y_desc, y, how, algorithm, scratch, nbytes, "x")
        return 0

    def cudnnConvolutionBackwardFilter(self, handle, alpha, x_desc, x, y_desc, y, how, algorithm, scratch, nbytes, beta,
                                       w_desc, w):
        self._compute(x_desc, x, w_desc, w, y_desc, y, how, algorithm, scratch, nbytes, "w")
        return 0

    def _compute(self, x_desc, x, w_desc, w, y_desc, y, how, algorithm, scratch, nbytes, wanted):
        """Every product x · w of the convolution, added to y; or with one of the others, summed into the third."""
        assert algorithm == 7 and nbytes == SCRATCH_BYTES and scratch, "the algorithm that was chosen, with its memory"
        assert [self.made[d]["kind"] for d in (x_desc, w_desc, y_desc, how)] == ["tensor", "filter", "tensor",
                                                                                   "convolution"]
        self.log.append(("convolution", wanted))
        x, w, y, how = *(self._array(*one) for one in ((x_desc, x), (w_desc, w), (y_desc, y))), self.made[how]
        groups, kernel, blocks = how["groups"], w.shape[2:], y.shape[2:]
        assert x.shape[1] == w.shape[1] * groups and w.shape[0] == y.shape[1] and w.shape[0] % groups == 0
        assert all((n + 2 * p - d * (k - 1) - 1) // s + 1 == b for n, p, d, k, s, b in
                   zip(x.shape[2:], how["padding"], how["dilation"], kernel, how["stride"], blocks, strict=True))
        made = {"x": x, "w": w, "y": y}[wanted]
        wide = np.zeros(made.shape)
        x_, w_, y_ = (wide if one is made else one.astype(np.float64) for one in (x, w, y))
        channels, filters = x.shape[1] // groups, w.shape[0] // groups
        for at in itertools.product(*map(range, blocks)):
            for tap in itertools.product(*map(range, kernel)):
                place = [b * s + k * d - p for b, s, k, d, p in
                         zip(at, how["stride"], tap, how["dilation"], how["padding"], strict=True)]
                if any(not 0 <= q < n for q, n in zip(place, x.shape[2:], strict=True)):
                    continue
                for g in range(groups):
                    c, o = slice(g * channels, (g + 1) * channels), slice(g * filters, (g + 1) * filters)
                    xs, ws, ys = (slice(None), c, *place), (o, slice(None), *tap), (slice(None), o, *at)
                    if wanted == "y":
                        y_[ys] += x_[xs] @ w_[ws].T
                    elif wanted == "x":
                        x_[xs] += y_[ys] @ w_[ws]
                    else:
                        w_[ws] += y_[ys].T @ x_[xs]
        made[...] = wide.astype(made.dtype)

    def _array(self, descriptor, address):
        d = self.made[descriptor]
        dtype = np.dtype(TYPES[d["type"]])
        nbytes = (sum((n - 1) * s for n, s in zip(d["dims"], d["strides"], strict=True)) + 1) * dtype.itemsize
        memory = np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(memory, d["dims"], [s * dtype.itemsize for s in d["strides"]])
