"""The LKJ distribution of correlation matrices, by their Cholesky factors."""
import math

from ..autograd.modes import no_grad
from ..base import dtypes
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .functions import arange, mvlgamma, randn
from .utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of `dim` by `dim` correlation matrices of density proportional to det**(concentration - 1).

    Samples are made by the onion method (Lewandowski, Kurowicka and Joe, 2009), row by row: a beta variable says how
    much of the row's length lies off the diagonal, and a point of the sphere in which direction.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _expands, _keeps = ("concentration",), ("dim",)

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self.concentration, = broadcast_all(concentration)
        super().__init__(self.concentration.shape, type(self.concentration.shape)((dim, dim)),
                         validate_args=validate_args)
        self._beta = self._rows()

    def _rows(self):
        """The beta distributions of the squared length off the diagonal, one for each row."""
        a = self.concentration
        rows = (arange(self.dim, dtype=a.dtype, device=a.device) - 1).clamp(min=0)
        return Beta(rows + 0.5, (a + 0.5 * (self.dim - 2)).unsqueeze(-1) - 0.5 * rows, validate_args=False)

    def _expand_rest(self, new):
        new._beta = self._beta.expand(new._batch_shape + (self.dim,))

    def sample(self, sample_shape=()):
        with no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            normal = randn(self._extended_shape(sample_shape), dtype=length.dtype, device=length.device).tril(-1)
            direction = normal / normal.square().sum(-1, keepdim=True).sqrt()
            direction[..., 0, :] = 0                       # the first row has nothing off the diagonal
            off = length.sqrt() * direction
            diagonal = (1 - off.square().sum(-1)).clamp(min=dtypes.finfo(off.dtype).tiny).sqrt()
            return off + diagonal.diag_embed()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        a, rest = self.concentration, self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        power = 2 * (a - 1).unsqueeze(-1) + self.dim - arange(2, self.dim + 1, dtype=a.dtype, device=a.device)
        top = a + 0.5 * rest
        log_norm = 0.5 * rest * math.log(math.pi) + mvlgamma(top - 0.5, rest) - rest * top.lgamma()
        return (power * diagonal.log()).sum(-1) - log_norm
