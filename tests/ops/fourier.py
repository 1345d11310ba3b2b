"""Fourier transforms against NumPy's, and windows against their formulas."""
from functools import partial

import numpy as np

import flambeau as torch

from .rows import numbers, row

X, Y = numbers((3, 6)), numbers((2, 4, 5), seed=1)
RE, IM = numbers((3, 5), seed=2), numbers((3, 5), seed=3)
F, N = torch.fft, np.fft


def transform(said, ours, oracle, input):
    """A row of a transform, of complex numbers where no `input` is given."""
    if input is not None:
        row(said, ours, oracle, input)
    else:
        row(said, lambda re, im: ours(torch.complex(re, im)), lambda re, im: oracle(re + 1j * im), RE, IM)


Z = None

for _norm in (None, "ortho", "forward"):
    for _n in (None, 4, 7):
        more = dict(norm=_norm) if _n is None else dict(norm=_norm, n=_n)
        said = f"{_norm} {_n}"
        for _name, _input in (("fft", X), ("ifft", Z), ("rfft", X), ("irfft", Z), ("hfft", Z), ("ihfft", X)):
            transform(f"{_name} {said}", partial(getattr(F, _name), **more),
                partial(getattr(N, _name), **more), _input)
for _name, _input in (("fftn", Y), ("ifftn", Z), ("rfftn", Y), ("irfftn", Z)):
    for more in ({}, {"s": (3, 4)}, {"norm": "ortho"}):
        transform(f"{_name} {more}", partial(getattr(F, _name), **more),
            partial(getattr(N, _name), axes=(-2, -1) if "s" in more else None, **more), _input)
for _name, _input in (("fft2", Y), ("ifft2", Z), ("rfft2", Y), ("irfft2", Z)):
    transform(_name, getattr(F, _name), getattr(N, _name), _input)
# Hermitian in time, in several dimensions: NumPy has it in one.
for _name in ("hfftn", "hfft2"):
    transform(_name, getattr(F, _name), lambda z: N.hfft(N.fft(z, axis=0), axis=1), Z)
for _name in ("ihfftn", "ihfft2"):
    transform(_name, getattr(F, _name), lambda x: N.ifft(N.ihfft(x, axis=1), axis=0), X)
row("fftshift", F.fftshift, N.fftshift, X)
row("fftshift dim", lambda x: F.fftshift(x, dim=1), lambda x: N.fftshift(x, axes=1), X)
row("ifftshift", F.ifftshift, N.ifftshift, Y)
row("fftfreq", lambda: F.fftfreq(5, 0.5, dtype=torch.float64), lambda: N.fftfreq(5, 0.5), grad=False, meta=False)
row("rfftfreq", lambda: F.rfftfreq(6, dtype=torch.float64), lambda: N.rfftfreq(6), grad=False, meta=False)


def pieces(x, size, hop):
    """Pieces of a signal that is reflected at its ends."""
    x = np.pad(x, size // 2, mode="reflect")
    return np.stack([x[at:at + size] for at in range(0, len(x) - size + 1, hop)])


W = np.hanning(9)[:8] + 0.5
SIGNAL = numbers((20,), seed=4)
row("stft", lambda x, w: torch.stft(x, 8, 3, window=w, return_complex=True),
    lambda x, w: N.rfft(pieces(x, 8, 3) * w).T, SIGNAL, W)
row("istft", lambda x, w: torch.istft(torch.stft(x, 8, 2, window=w, return_complex=True), 8, 2, window=w, length=20),
    lambda x, w: x, SIGNAL, W, meta=False)
for _name, _oracle in (("hann", np.hanning), ("hamming", np.hamming), ("blackman", np.blackman),
                       ("bartlett", np.bartlett)):
    row(f"{_name}_window", partial(getattr(torch, f"{_name}_window"), 7, dtype=torch.float64),
        lambda f=_oracle: f(8)[:7], grad=False, meta=False)
    row(f"{_name}_window symmetric", partial(getattr(torch, f"{_name}_window"), 6, False, dtype=torch.float64),
        lambda f=_oracle: f(6), grad=False, meta=False)
row("kaiser_window", lambda: torch.kaiser_window(7, beta=3.0, dtype=torch.float64), lambda: np.kaiser(8, 3.0)[:7],
    grad=False, meta=False)
