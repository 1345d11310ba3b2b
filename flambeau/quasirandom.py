"""`torch.quasirandom`: Sobol's sequences, plain and scrambled; the points are PyTorch's, for the same seed too."""
import warnings

import numpy as np

from .base import dtypes
from .tensor.create import tensor
from .tensor.generators import Generator
from .tensor.random import randint

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points that fill the unit cube of `dimension` dimensions evenly, in the order of their Gray codes.

    `scramble` multiplies the bits of each coordinate by a random triangular matrix and shifts them; `seed` fixes both.

    >>> SobolEngine(3).draw(4)
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.5000],
            [0.7500, 0.2500, 0.2500],
            [0.2500, 0.7500, 0.7500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension, scramble=False, seed=None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], not "
                             f"{dimension}")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        self._sequence = scipy_sequence(dimension, self.MAXBIT)
        self._shift, self._matrices = self._drawn() if scramble else (0, None)

    def draw(self, n=1, out=None, dtype=None):
        """The next `n` points, as rows."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The balance properties")        # draw_base2 is for those who want them
            points = (self._sequence.random(n) * 2**self.MAXBIT).astype(np.int64)
        if self.scramble:
            points = self._scrambled(points)
        made = tensor(points).to(dtype or dtypes.get_default_dtype()) / 2**self.MAXBIT
        if self.num_generated == 0 and n:
            made[:1] = tensor(points[:1]) / 2**self.MAXBIT         # PyTorch keeps it, in the default dtype
        self.num_generated += n
        return made if out is None else out.resize_as_(made).copy_(made)

    def draw_base2(self, m, out=None, dtype=None):
        """The next `2**m` points; refused unless the number of points drawn is a power of two then."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            had = self.num_generated
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {had} points have "
                             f"been previously generated, then: n={had}+2**{m}={total}. If you still want to do this, "
                             "please use 'SobolEngine.draw()' instead.")
        return self.draw(2**m, out=out, dtype=dtype)

    def reset(self):
        """Start again from the first point."""
        self._sequence.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Leave out the next `n` points."""
        self._sequence.fast_forward(n)
        self.num_generated += n
        return self

    def _drawn(self):
        """(shifts, matrices of bits), drawn in PyTorch's order."""
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        bits = randint(2, (self.dimension, self.MAXBIT), generator=generator).numpy()
        matrices = randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=generator).numpy()
        # PyTorch sets the diagonal: a matrix that has an inverse maps different points to different ones.
        return bits @ 2**np.arange(self.MAXBIT), np.tril(matrices, -1) | np.eye(self.MAXBIT, dtype=np.int64)

    def _scrambled(self, points):
        """`points` with each coordinate's bits, the highest first, multiplied by its matrix modulo two."""
        bit_positions = np.arange(self.MAXBIT - 1, -1, -1)
        bits = points[:, :, None] >> bit_positions & 1                         # (n, dimension, bit)
        bits = np.einsum("dpi,ndi->ndp", self._matrices, bits) & 1
        return (bits << bit_positions).sum(-1) ^ self._shift

    def __repr__(self):
        said = [f"dimension={self.dimension}"]
        said += ["scramble=True"] if self.scramble else []
        said += [f"seed={self.seed}"] if self.seed is not None else []
        return f"SobolEngine({', '.join(said)})"


def scipy_sequence(dimension, bits):
    """SciPy's plain sequence: the table of direction numbers is a megabyte that is not worth having twice."""
    try:
        from scipy.stats import qmc
    except ImportError:
        raise NotImplementedError("the direction numbers of Sobol's sequence are in SciPy: pip install scipy, to use "
                                  "torch.quasirandom") from None
    return qmc.Sobol(dimension, scramble=False, bits=bits)
