"""Windows of `torch` itself, for `stft`; flambeau/signal/windows has more of them, with other arguments."""
import math

from ..base import dtypes
from ..base.arguments import asked, options
from ..base.errors import need
from ..base.op import Composite
from .create import _arange, _full
from .special import i0


def points(what, length, periodic, dtype, layout, device, pin_memory):
    """(the numbers that a window is made of, None if it is too short to have a shape; the window if so; how many)."""
    dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
    need(dtype.category >= 2 and not dtype.is_complex, f"{what} expects floating point dtypes, got: {dtype!r}")
    need(length >= 0, f"{what} requires non-negative window_length, got window_length={length}")
    if length < 2:
        return None, _full((length,), 1, dtype, where), length
    size = length + 1 if periodic else length
    return _arange(size, 0, 1, dtype, where), None, size


def hamming(what, length, periodic, alpha, beta, dtype, layout, device, pin_memory, requires_grad):
    """A raised cosine."""
    n, made, size = points(what, length, periodic, dtype, layout, device, pin_memory)
    if n is not None:
        made = ((n * (2 * math.pi / (size - 1))).cos() * -beta + alpha)[:length]
    return asked(made, requires_grad)


class hann_window(Composite):
    """A raised cosine that starts at zero, `window_length` numbers. `periodic`: one more would start the next period.

    >>> torch.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """

    forms = "function"

    def of(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        return hamming("hann_window", window_length, periodic, 0.5, 0.5, dtype, layout, device, pin_memory,
                       requires_grad)


class hamming_window(Composite):
    """A raised cosine, `alpha` less `beta` times the cosine.

    >>> torch.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """

    forms = "function"

    def of(window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None,
           pin_memory=False, requires_grad=False):
        return hamming("hamming_window", window_length, periodic, alpha, beta, dtype, layout, device, pin_memory,
                       requires_grad)


class blackman_window(Composite):
    """A sum of two cosines, flatter at its ends than `hann_window`.

    >>> torch.blackman_window(4).abs()
    tensor([2.9802e-08, 3.4000e-01, 1.0000e+00, 3.4000e-01])
    """

    forms = "function"

    def of(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        n, made, size = points("blackman_window", window_length, periodic, dtype, layout, device, pin_memory)
        if n is not None:
            n = n * (math.pi / (size - 1))
            made = ((n * 4).cos() * 0.08 - (n * 2).cos() * 0.5 + 0.42)[:window_length]
        return asked(made, requires_grad)


class bartlett_window(Composite):
    """A triangle.

    >>> torch.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """

    forms = "function"

    def of(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        n, made, size = points("bartlett_window", window_length, periodic, dtype, layout, device, pin_memory)
        if n is not None:
            rising = n * (2 / (size - 1))
            made = (2 - rising).where(n >= (size - 1) // 2 + 1, rising)[:window_length]
        return asked(made, requires_grad)


class kaiser_window(Composite):
    """The window with most of its energy in its main lobe, which `beta` makes wider.

    >>> torch.kaiser_window(4, beta=2.0)
    tensor([0.4387, 0.8348, 1.0000, 0.8348])
    """

    forms = "function"

    def of(window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        n, made, size = points("kaiser_window", window_length, periodic, dtype, layout, device, pin_memory)
        if n is not None:
            centre = (size - 1) / 2
            made = i0((1 - ((n - centre) / centre).square()).clamp(min=0).sqrt() * beta)
            made = (made / i0(_full((), beta, n.dtype, n.device)))[:window_length]
        return asked(made, requires_grad)
