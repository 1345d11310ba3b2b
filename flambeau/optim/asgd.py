"""Averaged stochastic gradient descent, and its form over lists."""
from ..base import dtypes
from ..tensor.functions import full
from ..tensor.tensor import Tensor
from ._rule import ByRule, check_lr, check_positive, descend, functional, given, plus, zeros_for
from .step_count import scalar_dtype

__all__ = ["ASGD", "asgd"]


class ASGD(ByRule):
    """SGD with a rate that falls, and the average of the parameters beside it, `ax` (Polyak and Juditsky, 1992).

    `t0` is the step at which averaging begins.
    """

    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        check_lr(lr)
        check_positive(weight_decay, "Invalid weight_decay value")
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize, differentiable=differentiable,
                                      capturable=capturable))

    @staticmethod
    def start(p, g, lr, **_):
        eta = lr.detach().to(scalar_dtype()).clone() if isinstance(lr, Tensor) else full((), lr, dtype=scalar_dtype())
        return {"eta": eta, "mu": full((), 1.0, dtype=scalar_dtype()), "ax": zeros_for(p)}

    @staticmethod
    def rule(p, g, state, t, lr, lambd, alpha, t0, weight_decay, **_):
        ax, mu, eta = state["ax"], state["mu"], state["eta"].to(dtypes.float64, copy=True)    # written below, and kept
        if given(weight_decay):
            g = plus(g, p, weight_decay)
        p.mul_(1 - lambd * eta)
        descend(p, g, eta)
        ax.lerp_(p, mu.to(p.dtype, copy=True))           # before t0 mu is 1: a copy
        later = lr / (1 + lambd * lr * t) ** alpha
        state["eta"].copy_(later) if isinstance(later, Tensor) else state["eta"].fill_(later)
        mu.fill_(1 / max(1, t - t0))


def asgd(params, grads, axs, mus, etas, state_steps, foreach=None, maximize=False, differentiable=False,
         capturable=False, has_complex=False, *, lambd, lr, t0, alpha, weight_decay):
    """One step of ASGD for each of `params`."""
    functional(ASGD, params, grads, {"ax": axs, "mu": mus, "eta": etas}, state_steps, maximize=maximize, lambd=lambd,
               lr=lr, t0=t0, alpha=alpha, weight_decay=weight_decay)
