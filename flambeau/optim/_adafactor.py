"""Adafactor, and its form over lists."""
import math

from ..base import dtypes
from ..tensor.functions import zeros_like
from ..tensor.tensor import Tensor
from ._rule import ByRule, check_lr, check_positive, descend, functional

__all__ = ["Adafactor", "adafactor"]


class Adafactor(ByRule):
    """Adam whose average square of a matrix is kept as its rows' and its columns' averages (Shazeer and Stern, 2018).

    `eps` are the least that is divided by (None: the dtype's epsilon) and the least scale of a parameter; `d` is the
    length from which on updates are shortened.
    """

    _added = {"foreach": None}

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None,
                 maximize=False):
        check_lr(lr, "Learning rate should be >= 0 but is")
        if not beta2_decay <= 0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, least in enumerate(eps):
            if least is not None and not least >= 0:
                raise ValueError(f"epsilon{i + 1} should be >= 0 but is: {least}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        check_positive(weight_decay, "weight_decay should be >= 0 but is")
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize))

    @staticmethod
    def start(p, g, **_):
        if g.ndim > 1:
            return {"row_var": g.new_zeros((*g.shape[:-1], 1)), "col_var": g.new_zeros((*g.shape[:-2], 1, g.shape[-1]))}
        return {"variance": zeros_like(g)}

    def _state_of(self, p, options):
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        return super()._state_of(p, options)

    @staticmethod
    def rule(p, g, state, t, lr, beta2_decay, eps, d, weight_decay, **_):
        least, least_scale = eps
        least = dtypes.finfo(p.dtype).eps if least is None else least
        weight = t ** beta2_decay
        size = (p.norm() / math.sqrt(p.numel())).clamp(min=least_scale)
        rate = size * (lr.clamp(max=1 / math.sqrt(t)) if isinstance(lr, Tensor) else min(lr, 1 / math.sqrt(t)))
        if weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        if g.ndim > 1:
            squares = g * g
            rows = state["row_var"].lerp_(squares.mean(-1, keepdim=True), weight)
            columns = state["col_var"].lerp_(squares.mean(-2, keepdim=True), weight)
            square = rows * columns / rows.mean(-2, keepdim=True).clamp(min=least)
        else:
            square = state["variance"].lerp_(g * g, weight)
        update = g * square.clamp(min=least * least).rsqrt()
        descend(p, update, rate / (update.norm() / (math.sqrt(update.numel()) * d)).clamp(min=1.0))


def adafactor(params, grads, row_vars, col_vars, variances, state_steps, foreach=None, grad_scale=None, found_inf=None,
              has_complex=False, *, d, lr, beta2_decay, weight_decay, eps1, eps2, maximize):
    """One step of Adafactor for each of `params`."""
    if has_complex:
        raise RuntimeError("Adafactor does not support complex parameters")
    functional(Adafactor, params, grads, {"row_var": row_vars, "col_var": col_vars, "variance": variances}, state_steps,
               d=d, lr=lr, beta2_decay=beta2_decay, weight_decay=weight_decay, eps=(eps1, eps2), maximize=maximize)
