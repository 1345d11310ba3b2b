"""Find generators of random numbers that a dataset keeps: workers copy them, or take turns with them."""
import random
import sys
import types

import numpy as np

from ....base.op import door
from ....nn import Module
from ....tensor.generators import Generator
from ....tensor.tensor import Tensor

OBJECTS_LOOKED_AT = 2000
ENTRIES_LOOKED_AT = 16        # of a list or a dictionary
LEAVES = (Tensor, Module, np.ndarray, np.generic, str, bytes, int, float, complex, type, type(None), types.ModuleType,
          types.FunctionType, types.BuiltinFunctionType, types.MethodType)

_reported: set = set()        # (class of the dataset, path) of what was said


def report(dataset, harm):
    """Say once of the generators that `dataset` keeps what `harm` they do: a finding of `flambeau.watch`."""
    words = []
    for path, generator in generators_in(dataset):
        if (type(dataset), path) not in _reported:
            _reported.add((type(dataset), path))
            cls = type(generator)
            words.append(f"{type(dataset).__name__}{path} ({cls.__module__}.{cls.__qualname__})")
    if words:
        door.noticed("kept_generator", f"the dataset keeps a generator of random numbers, {', '.join(words)}", harm,
                     "draw inside __getitem__ from torch's, NumPy's or Python's own functions, which are seeded for "
                     "each worker (with randomness=\"sample\": for each sample), or from "
                     "flambeau.utils.data.sample_random.sample_random(1)")


def generators_in(thing):
    """(path, generator) of every generator that `thing` holds in its attributes, and they in theirs."""
    classes: tuple = (random.Random, Generator)
    if "numpy.random" in sys.modules:
        classes = (*classes, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
    found, queue, seen = [], [("", thing)], {id(thing)}
    for path, one in queue:                   # it grows meanwhile
        if isinstance(one, classes):
            if not isinstance(one, random.SystemRandom):
                found.append((path, one))
            continue
        for name, part in parts(one):
            if not isinstance(part, LEAVES) and id(part) not in seen and len(queue) < OBJECTS_LOOKED_AT:
                seen.add(id(part))
                queue.append((path + name, part))
    return found


def parts(thing):
    """(how it is written, what it is) of the attributes or entries of `thing`."""
    if isinstance(thing, list | tuple):
        return [(f"[{i}]", part) for i, part in enumerate(thing[:ENTRIES_LOOKED_AT])]
    if isinstance(thing, dict):
        return [(f"[{key!r}]", thing[key]) for key in list(thing)[:ENTRIES_LOOKED_AT]]
    return [(f".{name}", part) for name, part in getattr(thing, "__dict__", {}).items()]
