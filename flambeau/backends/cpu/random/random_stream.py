"""A stream of random numbers, whichever device draws them: its seed and its state."""
import operator
import os

import numpy as np

from ....base.spec import CPU

DEFAULT_SEED = 67280421310721


class RandomStream:
    """A stream of random numbers that starts from a seed. How numbers follow from it is a device's affair.

    Methods named after distributions draw: each gives a one-dimensional array of `device`'s. A device that has no
    stream of its own (Backend.new_random_stream) gets the CPU's numbers.
    """

    device = CPU

    def manual_seed(self, seed):
        """Start over from `seed`, an integer in [-2**63, 2**64); a negative one counts from 2**64."""
        need(hasattr(seed, "__index__") and not isinstance(seed, bool),
             f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = operator.index(seed)
        if not -2**63 <= seed < 2**64:
            raise ValueError(f"Overflow when unpacking long long: the seed {seed} is outside [-2**63, 2**64)")
        self._start(seed % 2**64)
        return self

    def seed(self):
        """Start over from a seed that the operating system picks, and return it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def get_state(self):
        """Where it stands, as PyTorch's bytes for it: an array of NumPy's, uint8."""
        return self._state()

    def set_state(self, state):
        """Continue from a state that `get_state` gave, here or in PyTorch."""
        state = np.asarray(state)
        if state.dtype != np.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor, got {state.dtype}")
        self._continue(state)

    def on(self, device):
        """This stream, for a tensor on `device`."""
        return self

    def clone_state(self):
        """Another stream that will draw the same numbers as this one."""
        twin = self.new()
        twin.set_state(self.get_state())
        return twin

    # What each kind says for itself:
    #     new()                          another stream of this kind
    #     initial_seed(), _start(seed)   the seed that it started from; start over
    #     position()                     something that is different after every draw
    #     _state(), _continue(state)     behind `get_state` and `set_state`


def need(holds, message):
    if not holds:
        raise RuntimeError(message)
