"""Windows and short-time transforms, against PyTorch; tests/torch/test_ops.py has OpInfo's samples of transforms."""
import inspect
import warnings

import numpy as np
import pytest
import torch

import flambeau

WINDOWS = ["exponential", "cosine", "gaussian", "kaiser", "hamming", "hann", "blackman", "bartlett", "nuttall",
           "general_hamming"]
PLAIN = ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]
OWN = {"exponential": [{"tau": 2.0}, {"center": 1.0, "sym": False}], "gaussian": [{"std": 0.5}],
       "kaiser": [{"beta": 3.0}],
       "general_hamming": [{"alpha": 0.3}]}


def same(ours, theirs):
    assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=2e-6)


def said(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return caught.type.__name__, str(caught.value).partition("\n")[0]


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("length", [0, 1, 2, 5, 8, 51])
def test_windows_of_signal(name, length):
    for options in [{}, {"sym": False}, {"dtype": "float64"}, *OWN.get(name, [])]:
        made = []
        for m in (flambeau, torch):
            given = {k: getattr(m, v) if k == "dtype" else v for k, v in options.items()}
            made.append(getattr(m.signal.windows, name)(length, **given))
        same(*made)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("length", [0, 1, 2, 5, 8, 51])
def test_windows_of_torch(name, length):
    for args in [(), (False,)]:
        for dtype in ("float32", "float64"):
            same(*(getattr(m, name)(length, *args, dtype=getattr(m, dtype)) for m in (flambeau, torch)))
    if name in ("hamming_window", "kaiser_window"):
        same(*(getattr(m, name)(length, True, 0.7) for m in (flambeau, torch)))


@pytest.mark.parametrize("name", WINDOWS)
def test_arguments_are_the_same(name):
    ours, theirs = (inspect.signature(getattr(m.signal.windows, name)).parameters for m in (flambeau, torch))
    assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize("case", [("hann", (-1,), {}), ("kaiser", (3,), {"beta": -1}), ("gaussian", (3,), {"std": 0}),
                                  ("exponential", (3,), {"tau": 0}), ("exponential", (3,), {"center": 1}),
                                  ("general_cosine", (3,), {"a": []}), ("general_cosine", (3,), {"a": 1}),
                                  ("hann", (3,), {"dtype": "int64"})])
def test_refusals(case):
    name, args, options = case
    words = []
    for m in (flambeau, torch):
        given = {k: getattr(m, v) if k == "dtype" else v for k, v in options.items()}
        words.append(said(getattr(m.signal.windows, name), *args, **given))
    assert words[0][0] == words[1][0]
    if name != "hann":                                   # PyTorch names the private function there
        assert words[0][1] == words[1][1]


SHORT_TIME = [dict(n_fft=16), dict(n_fft=16, hop_length=5), dict(n_fft=16, win_length=10),
              dict(n_fft=16, normalized=True),
              dict(n_fft=16, onesided=False), dict(n_fft=16, center=False), dict(n_fft=15, hop_length=4),
              dict(n_fft=16, pad_mode="constant")]


@pytest.mark.parametrize("options", SHORT_TIME, ids=str)
@pytest.mark.parametrize("shape", [(100,), (3, 100)])
def test_short_time_transforms_and_back(options, shape):
    samples = np.random.default_rng(0).standard_normal(shape)
    back = {k: v for k, v in options.items() if k != "pad_mode"}
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for m in (flambeau, torch):
            x = m.tensor(samples, requires_grad=True)
            window = m.hann_window(options.get("win_length", options["n_fft"]), dtype=m.float64) + 0.1
            spectrum = m.stft(x, window=window, return_complex=True, **options)
            again = m.istft(spectrum, window=window, length=shape[-1] if options.get("center", True) else None, **back)
            (spectrum.abs().square().sum() + (again * again).sum()).backward()
            found.append((m.view_as_real(spectrum.detach()), again.detach(), x.grad))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8, atol=1e-8)


def test_frequencies():
    for n in (1, 4, 5):
        for d in (1.0, 0.1):
            same(*(m.fft.fftfreq(n, d) for m in (flambeau, torch)))
            same(*(m.fft.rfftfreq(n, d) for m in (flambeau, torch)))
