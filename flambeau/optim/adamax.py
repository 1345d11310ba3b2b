"""Adamax, and its form over lists."""
from ..tensor.functions import maximum
from ._rule import (
    ByRule,
    check_betas,
    check_lr,
    check_positive,
    descend_by_quotient,
    functional,
    given,
    plus,
    zeros_for,
)

__all__ = ["Adamax", "adamax"]


class Adamax(ByRule):
    """Adam that divides by a decaying maximum of the gradient (Kingma and Ba, 2014)."""

    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):
        check_lr(lr)
        check_positive(eps, "Invalid epsilon value")
        check_betas(betas)
        check_positive(weight_decay, "Invalid weight_decay value")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))

    @staticmethod
    def start(p, g, **_):
        return {"exp_avg": zeros_for(p), "exp_inf": zeros_for(p)}

    @staticmethod
    def rule(p, g, state, t, lr, betas, eps, weight_decay, **_):
        beta1, beta2 = betas
        mean, largest = state["exp_avg"], state["exp_inf"]
        if given(weight_decay):
            g = plus(g, p, weight_decay)
        mean.lerp_(g, 1 - beta1)
        largest.copy_(maximum(largest * beta2, g.abs() + eps))
        descend_by_quotient(p, mean, largest, lr / (1 - beta1 ** t))


def adamax(params, grads, exp_avgs, exp_infs, state_steps, foreach=None, maximize=False, differentiable=False,
           capturable=False, has_complex=False, *, eps, beta1, beta2, lr, weight_decay):
    """One step of Adamax for each of `params`."""
    functional(Adamax, params, grads, {"exp_avg": exp_avgs, "exp_inf": exp_infs}, state_steps, maximize=maximize,
               eps=eps, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay)
