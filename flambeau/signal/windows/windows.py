"""The windows: each is a function of evenly spaced numbers.

With `sym=True` (the default) a window is symmetric, for filters; with `sym=False` it is periodic, for spectra.
"""
import functools
import inspect
import math
from collections.abc import Iterable

from ...base import dtypes, layout as layouts
from ...tensor import functions as torch

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming",
           "hamming", "hann", "kaiser", "nuttall"]


def window(shape):
    """A window of `shape(M, sym, spaced, …)`, where `spaced(start, end)` are M numbers between those.

    The arguments that all windows have are read and checked here.
    """
    own = list(inspect.signature(shape).parameters.values())[3:]
    common = {"dtype": None, "layout": layouts.strided, "device": None, "requires_grad": False}

    @functools.wraps(shape)
    def made(M, *args, sym=True, dtype=None, layout=layouts.strided, device=None, requires_grad=False, **kwargs):
        dtype = dtypes.get_default_dtype() if dtype is None else dtype
        name = shape.__name__
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if layout is not layouts.strided:
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        if dtype not in (dtypes.float32, dtypes.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
        kwargs = checked(name, sym, own, args, kwargs)
        if M == 0:
            return torch.empty((0,), dtype=dtype, device=device, requires_grad=requires_grad)

        def spaced(start, end):
            return torch.linspace(start, end, M, dtype=dtype, device=device)
        found = shape(M, sym, spaced, **kwargs)
        return found.requires_grad_() if requires_grad else found
    parameters = [inspect.Parameter("M", inspect.Parameter.POSITIONAL_OR_KEYWORD),
                  *(p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD),
                  *(p for p in own if p.kind is p.KEYWORD_ONLY),
                  *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                    for name, default in {"sym": True, **common}.items())]
    made.__signature__ = inspect.Signature(parameters)
    del made.__wrapped__
    return made


def checked(name, sym, own, args, kwargs):
    """The arguments of a window that are its own."""
    given = inspect.Signature(own).bind(*args, **kwargs)
    given.apply_defaults()
    held = given.arguments
    if held.get("tau", 1) <= 0:
        raise ValueError(f"Tau must be positive, got: {held['tau']} instead.")
    if sym and held.get("center") is not None:
        raise ValueError("Center must be None for symmetric windows")
    if held.get("std", 1) <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {held['std']} instead.")
    if held.get("beta", 1) < 0:
        raise ValueError(f"beta must be non-negative, got: {held['beta']} instead.")
    if "a" in held:
        if not isinstance(held["a"], Iterable):
            raise TypeError("Coefficients must be a list/tuple")
        if not held["a"]:
            raise ValueError("Coefficients cannot be empty")
    return held


@window
def exponential(M, sym, spaced, *, center=None, tau=1.0):
    """Falls off exponentially from its centre, by e in `tau` steps.

    >>> torch.signal.windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2
    return (-spaced(-center / tau, (-center + M - 1) / tau).abs()).exp()


@window
def cosine(M, sym, spaced):
    """Half a period of a sine.

    >>> torch.signal.windows.cosine(3)
    tensor([0.5000, 1.0000, 0.5000])
    """
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    return spaced(0.5 * step, (0.5 + M - 1) * step).sin()


@window
def gaussian(M, sym, spaced, *, std=1.0):
    """A bell of standard deviation `std`.

    >>> torch.signal.windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    start = -(M if not sym and M > 1 else M - 1) / 2
    step = 1 / (std * math.sqrt(2))
    return (-spaced(start * step, (start + M - 1) * step) ** 2).exp()


@window
def kaiser(M, sym, spaced, *, beta=12.0):
    """The window with most of its energy in its main lobe, which `beta` makes wider.

    >>> torch.signal.windows.kaiser(3, beta=1.0)
    tensor([0.7898, 1.0000, 0.7898])
    """
    if M == 1:
        return spaced(1, 1)
    # the last number must not come out beyond beta, where the root is of something negative
    step = 2.0 * beta / (M if not sym else M - 1)
    k = spaced(-beta, min(beta, -beta + (M - 1) * step))
    return torch.i0((beta * beta - k * k).sqrt()) / torch.i0(spaced(beta, beta)[0])


@window
def general_cosine(M, sym, spaced, a):
    """A sum of cosines: `a[0] - a[1] cos(x) + a[2] cos(2x) - …` over one period.

    >>> torch.signal.windows.general_cosine(4, sym=False, a=[1.0, 0.5])
    tensor([0.5000, 1.0000, 1.5000, 1.0000])
    """
    if M == 1:
        return spaced(1, 1)
    step = 2 * math.pi / (M if not sym else M - 1)
    k = spaced(0, (M - 1) * step)
    terms = [(-1) ** i * weight * (i * k).cos() for i, weight in enumerate(a)]
    return torch.stack(terms).sum(0)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=layouts.strided, device=None, requires_grad=False):
    """A raised cosine: `alpha` less `1 - alpha` times the cosine."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, device=device,
                          requires_grad=requires_grad)


def hamming(M, *, sym=True, dtype=None, layout=layouts.strided, device=None, requires_grad=False):
    """A raised cosine whose ends are a little above zero."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(M, *, sym=True, dtype=None, layout=layouts.strided, device=None, requires_grad=False):
    """A raised cosine whose ends are zero."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device,
                           requires_grad=requires_grad)


def blackman(M, *, sym=True, dtype=None, layout=layouts.strided, device=None, requires_grad=False):
    """A sum of two cosines, flatter at its ends than `hann`."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device,
                          requires_grad=requires_grad)


def nuttall(M, *, sym=True, dtype=None, layout=layouts.strided, device=None, requires_grad=False):
    """A sum of three cosines with very low side lobes."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, layout=layout,
                          device=device, requires_grad=requires_grad)


@window
def bartlett(M, sym, spaced):
    """A triangle.

    >>> torch.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    if M == 1:
        return spaced(1, 1)
    step = 2 / (M if not sym else M - 1)
    return 1 - spaced(-1, -1 + (M - 1) * step).abs()
