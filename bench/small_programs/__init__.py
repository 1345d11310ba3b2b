"""Small training programs of many kinds, each a function of the library: `program(torch)` gives a function for a step.

A program builds its model and its data when it is called, and `step()` takes one training step and gives the loss, a
tensor or a number. They are written the way an ordinary user writes them, for clarity and not for speed. Data are drawn
by NumPy, weights by the library after `manual_seed`, so that both libraries begin with the same bits.
"""
import importlib
import itertools

import numpy as np

MODULES = ("pictures", "generative", "sequences", "structured", "sets_and_graphs", "representations", "agents",
           "probability", "physics")
PROGRAMS = {}                 # name → the function


def program(function):
    """Put a program on the list, under its function's name."""
    assert function.__name__ not in PROGRAMS, function.__name__
    PROGRAMS[function.__name__] = function
    return function


def drawn(*shape, seed=0, scale=1.0):
    """Normal numbers in single precision."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def uniform(*shape, low=0.0, high=1.0, seed=0):
    """Evenly spread numbers in single precision."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def whole(high, *shape, seed=1):
    """Integers from 0 up to `high`."""
    return np.random.default_rng(seed).integers(0, high, shape)


def batches(torch, size, *arrays, seed=2, drop_last=True):
    """Endless shuffled batches of tensors that hold the rows of `arrays`; the last of an epoch may be smaller."""
    tensors = [torch.from_numpy(array) for array in arrays]
    order = np.random.default_rng(seed)
    count = len(tensors[0])
    end = count - count % size if drop_last else count
    for _ in itertools.count():
        shuffled = torch.from_numpy(order.permutation(count))
        for start in range(0, end, size):
            rows = shuffled[start:start + size]
            yield tuple(tensor[rows] for tensor in tensors)


def built(torch, name, compile=None):
    """A step of the program under `torch`, that gives the loss as a number."""
    torch.manual_seed(0)
    step = PROGRAMS[name](torch)
    if compile is not None:
        step = compile(step)

    def number():
        loss = step()
        return loss if isinstance(loss, float) else loss.item()
    return number


for _module in MODULES:
    importlib.import_module(f"{__name__}.{_module}")
