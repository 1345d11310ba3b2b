"""Every module that takes `inplace=True`, and every dropout, of tensors of all ranks, beside PyTorch's: results, what
is written, which tensor is given back, gradients, warnings, and what is refused."""
import inspect
import itertools
import warnings

import numpy as np
import pytest
import torch

import flambeau as fb

ARGUMENTS = {"Threshold": (0.1, 20.0)}
INPLACE = sorted(name for name, cls in vars(torch.nn).items()
                 if isinstance(cls, type) and "inplace" in inspect.signature(cls.__init__).parameters)
DROPOUTS = sorted(name for name in dir(torch.nn.functional) if "dropout" in name and not name.startswith("_"))
SHAPES = [(2, 3, 2, 2, 2)[:rank] for rank in range(6)]


def told(lib, call, shape):
    """What `call(x)` of a tensor that was computed from a leaf does, as plain data."""
    lib.manual_seed(0)
    n = int(np.prod(shape))
    leaf = lib.linspace(-3, 4, n).reshape(shape).requires_grad_()
    given = leaf * 1.5
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            made = call(given)
            said = [made is given, made.tolist(), given.tolist()]
            (made * lib.linspace(1, 2, n).reshape(shape)).sum().backward()
            said.append(leaf.grad.tolist())
        except Exception as error:
            said = [type(error).__name__]
    return said, [(w.category.__name__, str(w.message).partition("(")[0][:40]) for w in warned]


def same(theirs, mine):
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(theirs) == len(mine) and all(map(same, theirs, mine))
    return mine == pytest.approx(theirs, rel=1e-6, abs=1e-6, nan_ok=True) if isinstance(theirs, float) else \
        mine == theirs


def hold(call):
    """Hold `call(lib, x)` of a shape of each rank to PyTorch's."""
    for shape in SHAPES:
        (theirs, they_warned), (mine, i_warned) = [told(lib, lambda x: call(lib, x), shape)
                                                   for lib in (torch, fb)]
        assert same(theirs, mine), (shape, theirs, mine)
        assert they_warned == i_warned, shape


@pytest.mark.parametrize("name", INPLACE)
def test_modules_in_place(name):
    for training in (True, False):
        hold(lambda lib, x: getattr(lib.nn, name)(*ARGUMENTS.get(name, ()), inplace=True).train(training)(x))


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropouts_of_every_rank(name):
    for p, training, inplace in itertools.product((0.4, 1.0), (True, False), (True, False)):
        hold(lambda lib, x: getattr(lib.nn.functional, name)(x, p, training, inplace))
