"""A program run twice, with `torch` as PyTorch and as Flambeau, from the same seed: `agree(program)` compares what it
returns. Inputs are drawn inside, since the two draw the same numbers."""
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau


def outcome(program, lib, seed):
    """What the program returns, or the exception it raises, and its warnings."""
    lib.manual_seed(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = program(lib)
        except Exception as error:
            found = error
    return found, [str(w.message) for w in caught]


def agree(program, rtol=1e-5, atol=1e-6, seed=0):
    """Assert that both libraries return the same: tensors up to rounding, the rest as it prints."""
    got, want = outcome(program, flambeau, seed)[0], outcome(program, torch, seed)[0]
    if isinstance(got, BaseException) or isinstance(want, BaseException):
        refuse(got, want)
    same(got, want, rtol, atol, "result")


def same(got, want, rtol, atol, where):
    if isinstance(want, torch.Tensor):
        assert isinstance(got, flambeau.Tensor), f"{where}: {type(got)}"
        assert str(got.dtype) == str(want.dtype) and tuple(got.shape) == tuple(want.shape), f"{where}: {got.shape}"
        assert got.requires_grad == want.requires_grad, where
        wide = "float32" if want.dtype in (torch.bfloat16, torch.float16) else None
        a, b = [np.array((t.detach().to(getattr(lib, wide)) if wide else t.detach()).numpy())
                for t, lib in ((got, flambeau), (want, torch))]
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=where)
    elif isinstance(want, dict):
        assert list(got) == list(want), f"{where}: {list(got)} for {list(want)}"
        for key in want:
            same(got[key], want[key], rtol, atol, f"{where}[{key!r}]")
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for number, (a, b) in enumerate(zip(got, want)):
            same(a, b, rtol, atol, f"{where}[{number}]")
    else:
        assert plain(got) == plain(want), f"{where}: {got!r} for {want!r}"


def plain(x):
    return re.sub(r"0x[0-9a-f]+", "0x", repr(x)).replace("flambeau.", "torch.")


def refuse(got, want):
    """Assert that both are exceptions of one type, and ours holds the words of PyTorch's."""
    assert type(got).__name__ == type(want).__name__, f"{got!r} for {want!r}"
    said = re.sub(r"\s+", " ", str(want)).strip().rstrip(".")[:60]
    assert said in re.sub(r"\s+", " ", str(got)).replace("flambeau.", "torch."), f"says {got!s:.300}\n  for {said}"


def both_refuse(program, seed=0):
    """Assert that both libraries raise the same."""
    want = outcome(program, torch, seed)[0]
    assert isinstance(want, BaseException), f"PyTorch gives {want!r}"
    refuse(outcome(program, flambeau, seed)[0], want)


def both_warn(program, seed=0):
    """Assert that both libraries give the same warnings, up to the words that follow."""
    want = outcome(program, torch, seed)[1]
    got = outcome(program, flambeau, seed)[1]
    assert want and [w[:60] for w in got] == [w[:60] for w in want]


def trained(lib, module, loss, *inputs):
    """The gradients of `loss` for the module's parameters and for `inputs`."""
    leaves = [t for t in inputs if t.requires_grad] + [p for p in module.parameters() if p.requires_grad]
    return lib.autograd.grad(loss, leaves, allow_unused=True)


def total(*tensors):
    """A number that depends on every element of the tensors, on each in another way."""
    return sum((t * t.cos()).sum() for t in tensors)
