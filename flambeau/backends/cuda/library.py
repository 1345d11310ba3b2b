"""What a GPU's library does: products through cuBLAS, and kernels written by hand for what no loop nest says.

A plan asks for a function by its name (see backends/library.py for those that the CPU has too), over operands and
results given as (shape, strides), and gets calls (calls.py), or None, where it takes another way: copies of what lies
badly, or the reference.

    gemm                                                                     products.py
"""
from functools import lru_cache

from . import products
from .calls import HostCall, LaunchCall

__all__ = ["HostCall", "LaunchCall", "ask", "forget"]


def ask(name, dtype, args, outs, params, index=0):
    """The calls of a function by its name, over operands and results as (shape, strides), on device `index`; None where
    there are none. The places are the operands, then the results, then the scratch memory of the calls, if any."""
    def whole(laid):
        return tuple([(tuple(shape), tuple(strides)) for shape, strides in laid])
    return _answer(name, dtype, whole(args), whole(outs), params, index)


def forget():
    """Answer anew, with other handles: the driver has changed."""
    _answer.cache_clear()
    products.forget()


@lru_cache(4096)
def _answer(name, dtype, args, outs, params, index):
    if name == "gemm":
        return products.gemm(dtype, *args, *outs, index)
    return None
