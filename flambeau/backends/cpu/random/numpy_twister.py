"""NumPy's Mersenne twister in the states that PyTorch's generators say."""
import sys

import numpy as np

from ..memory import allocator
from .mersenne_twister import STATE_WORDS

NUMPY_RANDOM_BYTES = 16 << 20       # room for numpy.random to load: measured 7 MiB


def seed_words(seed):
    """The twister's state for a seed, of which PyTorch keeps 64 bits and uses 32 (Knuth's recurrence)."""
    words = [seed & 0xFFFFFFFF]
    for i in range(1, STATE_WORDS):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
    return np.array(words, np.uint32)


def twister(words, position):
    """NumPy's generator in a state."""
    made = _new_twister()
    made.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}
    return made


def seeded(idle, seed):
    """NumPy's generator at the start of a seed: `idle`, if there is one, started over."""
    made = idle or _new_twister()
    np.random.RandomState(made).seed(seed & 0xFFFFFFFF)         # the state that `seed_words` says
    return made


def _new_twister():
    # Refused memory half-way through, its modules raise ImportErrors and SystemErrors that do not say so.
    if "numpy.random" not in sys.modules and not allocator.has_room(NUMPY_RANDOM_BYTES):
        raise allocator.failure(None, said="NumPy's generators take up to "
                                        f"{allocator.bytes_in_words(NUMPY_RANDOM_BYTES)} to load")
    from numpy.random import MT19937
    return MT19937(0)
