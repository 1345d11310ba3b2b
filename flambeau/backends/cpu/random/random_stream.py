"""A stream of random numbers, whichever device draws them: its seed and its state."""
import operator
import os
from typing import Any

import numpy as np

from ....base.spec import CPU, device as device_class

DEFAULT_SEED = 67280421310721


class RandomStream:
    """A stream of random numbers that starts from a seed. How numbers follow from it is a device's affair.

    Methods named after distributions draw: each gives a one-dimensional array of `device`'s. A device that has no
    stream of its own (Backend.new_random_stream) gets the CPU's numbers.
    """

    device = CPU

    def manual_seed(self, seed: Any) -> "RandomStream":
        """Start over from `seed`, an integer in [-2**63, 2**64); a negative one counts from 2**64."""
        need(hasattr(seed, "__index__") and not isinstance(seed, bool),
             f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = operator.index(seed)
        if not -2**63 <= seed < 2**64:
            raise ValueError(f"Overflow when unpacking long long: the seed {seed} is outside [-2**63, 2**64)")
        self._start(seed % 2**64)
        return self

    def seed(self) -> int:
        """Start over from a seed that the operating system picks, and return it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def get_state(self) -> np.ndarray:
        """Where it stands, as PyTorch's bytes for it: an array of NumPy's, uint8."""
        return self._state()

    def set_state(self, state: Any) -> None:
        """Continue from a state that `get_state` gave, here or in PyTorch."""
        state = np.asarray(state)
        if state.dtype != np.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor, got {state.dtype}")
        self._continue(state)

    def on(self, device: device_class) -> "RandomStream":
        """This stream, for a tensor on `device`."""
        return self

    def clone_state(self) -> "RandomStream":
        """Another stream that will draw the same numbers as this one."""
        twin = self.new()
        twin.set_state(self.get_state())
        return twin

    # --- what each kind says for itself

    def new(self) -> "RandomStream":
        """Another stream of this kind."""
        raise NotImplementedError

    def initial_seed(self) -> int:
        """The seed that it started from."""
        raise NotImplementedError

    def position(self) -> Any:
        """Something that is different after every draw."""
        raise NotImplementedError

    def _start(self, seed: int) -> None:
        """Start over."""
        raise NotImplementedError

    def _state(self) -> np.ndarray:
        """Behind `get_state`."""
        raise NotImplementedError

    def _continue(self, state: np.ndarray) -> None:
        """Behind `set_state`."""
        raise NotImplementedError


def need(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)
