"""One line of Python, run with `torch` as PyTorch and with `torch` as Flambeau: `same(line)` holds the two outcomes
against each other. Tensors must agree in dtype, shape, strides, requires_grad and bits, errors in their type."""
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau

SETUP = """
import copy, pickle, operator, array, fractions, decimal, math
x = torch.arange(6.).reshape(2, 3)
i = torch.arange(6).reshape(2, 3)
a = np.arange(6., dtype=np.float32).reshape(2, 3)
leaf = torch.ones(2, 3, requires_grad=True)
node = leaf * 0.5
meta = torch.empty(2, device='meta')
class Sub(torch.Tensor): pass
class Seq:
    def __len__(self): return 2
    def __getitem__(self, i):
        if i > 1: raise IndexError
        return i
torch.manual_seed(0)
"""


def outcome(line, lib):
    """What the line gives or raises, and the first words of its warnings. Statements may come before the last `;`."""
    names = {"torch": lib, "np": np}
    exec(SETUP, names)
    *before, last = line.split("; ")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for statement in before:
                exec(statement, names)
            found = eval(last, names)
        except Exception as error:
            found = error
    return found, [str(w.message)[:40] for w in caught if issubclass(w.category, UserWarning)]


def plain(x):
    """A result as things that compare with ==: tensors as (dtype, shape, strides, requires_grad, bits)."""
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        kind = type(x).__name__
        if x.is_meta:
            return kind, str(x.dtype), tuple(x.shape), x.stride(), "meta"
        bits = x.detach()
        bits = bits.float() if str(x.dtype) == "torch.bfloat16" else bits
        array = np.array(bits.numpy())
        bits = [repr(n) for n in array.reshape(-1).tolist()]       # repr: nan equals nan, 0.0 is not -0.0
        strides = tuple(step for step, size in zip(x.stride(), x.shape) if size > 1) if x.numel() else ()
        return kind, str(x.dtype), tuple(x.shape), strides, bool(x.requires_grad), bits
    if isinstance(x, BaseException):
        # what is raised without CUDA is a RuntimeError too, as other calls of PyTorch's raise
        return "raises", next(c.__name__ for c in type(x).__mro__ if c.__name__ != "Broken")
    if isinstance(x, (list, tuple)) and type(x).__name__ != "Size":
        return [plain(part) for part in x]
    if isinstance(x, dict):
        return {key: plain(part) for key, part in x.items()}
    if isinstance(x, np.ndarray):
        return "array", str(x.dtype), x.shape, x.tolist()
    return re.sub(r"0x[0-9a-f]+", "0x", repr(x)).replace("flambeau.", "torch.")


def same(line, words=True, warned=False):
    """Assert that both libraries agree about `line`."""
    got, got_warnings = outcome(line, flambeau)
    want, want_warnings = outcome(line, torch)
    mine, theirs = plain(got), plain(want)
    assert mine == theirs, f"{line}\n  got  {got!r:.300}\n  want {want!r:.300}"
    if words and isinstance(want, BaseException):
        said = key_words(str(want))
        assert said in re.sub(r"\s+", " ", str(got)), f"{line}\n  says {got!s:.300}\n  want {said}"
    if warned:
        assert [w for w in want_warnings if w not in got_warnings] == [], (line, got_warnings, want_warnings)


def key_words(text):
    """The recognisable part of one of PyTorch's messages: without the function's name, signatures and advice."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"^(aten::)?\w+\(\):? ", "", text)
    text = text.split(" - got")[0].split("  (Could")[0].split(" (Could")[0]
    return text.strip().rstrip(".")[:70]
