"""What a GPU's library does: products through cuBLAS, and kernels written by hand for what no loop nest says.

A plan asks for a function by its name (see backends/cpu/library/__init__.py for those that the CPU has too), over
operands and results given as (shape, strides), and gets calls (calls.py), or None, where it takes another way: copies
of what lies badly, or the reference.

    gemm                                                        products.py
    affine(epilogue)                                            affine.py; "bias" or "relu"
    scan(dim), running(operation, dim)                          scans.py; "sum prod max min logaddexp recur"
    scatter(how, fresh, bits, skip, size), sum_weighted_rows()  rows.py; sums of rows
    convolve(stride, padding, dilation, groups, transposed)     conv.py
    convolve_weight(stride, padding, dilation, groups)          conv.py
    attention(scale, causal, groups)                            attention.py
    attention_backward(scale, causal, groups)                   attention.py
    max_pool(maps), drop(size)                                  pool.py
    sort(descending), topk(k, largest)                          sort.py; along the last dimension
"""
from functools import lru_cache
from math import prod

from ....base import settings
from ....base.shapes import contiguous_strides
from ... import library_switches
from .. import driver
from ..calls import HostCall, LaunchCall
from . import affine, attention, conv, cudnn_graph, pool, products, rows, scans, sort

__all__ = ["HostCall", "LaunchCall", "ask", "can", "forget"]


def ask(name, dtype, args, outs, params, index=0):
    """The calls of a function by its name, over operands and results as (shape, strides), on device `index`; None where
    there are none. The addresses are the operands, then the results, then the scratch memory of the calls, if any."""
    def whole(laid):
        return tuple([(tuple(shape), tuple(strides)) for shape, strides in laid])
    cudnn = library_switches.cudnn
    return _answer(name, dtype, whole(args), whole(outs), params, index,
                   (cudnn.enabled, cudnn.allow_tf32, settings.deterministic, attention.allowed()))


def can(name, dtype, args, outs, params, index=0):
    """Whether `ask` would have an answer; of attention without making it, which takes cuDNN tenths of a second."""
    if name in ("attention", "attention_backward"):
        return any(attention.allowed()) and attention.takes(dtype, args)
    return ask(name, dtype, args, outs, params, index) is not None


def forget():
    """Answer anew, with other handles: the driver has changed."""
    _answer.cache_clear()
    products.forget()
    affine.forget()
    conv.forget()
    cudnn_graph.forget()


@lru_cache(4096)
def _answer(name, dtype, args, outs, params, index, _switches):
    if name == "gemm":
        return products.gemm(dtype, *args, *outs, index)
    if name == "affine":
        return affine.affine(dtype, *args, *outs, *params, index)
    if name == "scan":
        return scans.scan("sum", dtype, args, outs, *params)
    if name == "running":
        operation, dim = params
        return scans.scan(operation, dtype, args, outs, dim)
    if name == "convolve":
        return conv.convolve(dtype, *args, *outs, *params, index)
    if name == "convolve_weight":
        return conv.convolve_weight(dtype, *args, *outs, *params, index)
    if name == "attention":
        return attention.attention(dtype, args, outs, params, driver.current().properties(index), index)
    if name == "attention_backward":
        return attention.attention_backward(dtype, args, outs, params, driver.current().properties(index), index)
    if name == "max_pool":
        return _one(pool.max_pool(dtype, args[0], *outs, *params))
    if not all(map(_dense, (*args, *outs))):
        return None
    if name == "scatter":
        how, fresh, bits, skip, (many, size, cols) = params
        count = args[1][0][1]
        if len(args) > 2 or (how, fresh, bits, many) != ("sum", False, 64, 1) or args[1][0] != (1, count, 1) \
                or args[0][0] != (1, count, cols):
            return None
        return rows.add_rows(dtype, count, cols, size, skip)
    if name == "sum_weighted_rows":
        return _one(rows.sum_weighted_rows(dtype, *outs[0][0], args[1][0][1]))
    if name == "drop":
        (shape, _), (index, _) = args
        shared = prod(index[:-1]) == 1
        if index[-1] != shape[-1] or index[:-1] != shape[:-1] and not shared:      # an index shared by some rows only
            return None
        return _one(pool.drop(dtype, prod(shape[:-1]), shape[-1], *params, shared))
    if name == "sort":
        return sort.sort(dtype, args[0], *params)
    if name == "topk":
        return sort.topk(dtype, args[0], *params)
    return None


def _one(call):
    return None if call is None else [call]


def _dense(laid):
    """Whether an operand, (shape, strides), lies one element after the other."""
    shape, strides = laid
    return all(n == 1 or s == one for n, s, one in zip(shape, strides, contiguous_strides(shape), strict=True))
