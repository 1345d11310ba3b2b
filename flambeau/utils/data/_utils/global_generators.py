"""The global generators, torch's, Python's and NumPy's: seeded for a sample, kept, and given back."""
import random
from contextlib import contextmanager

import numpy as np

from ....tensor.generators import default_generator, stream


def seed_all(number):
    """Seed all three with `number`, 64 bits."""
    stream(None).manual_seed(number)
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)


def seeder_of(rng):
    """What seeds the generators of a worker thread's own in the place of the global ones."""
    def seed(number):
        rng.torch_generator.manual_seed(number)
        rng.random_generator.seed(number)
        rng.numpy_generator.bit_generator.state = type(rng.numpy_generator.bit_generator)(number).state
    return seed


@contextmanager
def kept():
    """What is seeded and drawn inside is forgotten: the program's own numbers go on as if nothing had been."""
    torch_standing, python, numpy = stream(None).set_aside(), random.getstate(), np.random.get_state()
    stream(None).manual_seed(0)               # the first to draw must not draw from what was set aside
    try:
        yield
    finally:
        stream(None).put_back(torch_standing)
        random.setstate(python)
        np.random.set_state(numpy)


# --- to be saved --------------------------------------------------


def states(generators, with_python):
    """Where the default generator and `generators` (by name) stand, and Python's and NumPy's; numbers and tensors."""
    found = {"default": default_generator.get_state()}
    found.update((name, generator.get_state()) for name, generator in generators.items())
    if with_python:
        found["python"] = random.getstate()
        algorithm, words, *rest = np.random.get_state()
        found["numpy"] = (algorithm, words.tolist(), *rest)
    return found


@contextmanager
def as_they_were(states, generators):
    """While the global generators stand where `states` says; those in `generators` stay there and go on."""
    for name, generator in generators.items():
        if name in states:
            generator.set_state(states[name])
    with kept():
        default_generator.set_state(states["default"])
        if "python" in states:
            version, words, spare = states["python"]
            random.setstate((version, tuple(words), spare))
            algorithm, words, *rest = states["numpy"]
            np.random.set_state((algorithm, np.array(words, np.uint32), *rest))
        yield
