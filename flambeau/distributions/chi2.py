"""The chi-squared distribution."""
from . import constraints
from .gamma import Gamma
from .utils import broadcast_all

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of `df` squared standard normal variables."""

    arg_constraints = {"df": constraints.positive}
    _expands = ("concentration", "rate")

    def __init__(self, df, validate_args=None):
        df, = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self): return self.concentration * 2
