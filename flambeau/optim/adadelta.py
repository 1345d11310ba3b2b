"""Adadelta, and its form over lists."""
from ._rule import ByRule, average_square, check_lr, check_positive, descend, functional, given, plus, zeros_for

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ByRule):
    """Steps as long as past steps were on average, relative to past gradients (Zeiler, 2012)."""

    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False,
                 maximize=False, differentiable=False):
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}; it is between 0 and 1")
        check_positive(eps, "Invalid epsilon value")
        check_positive(weight_decay, "Invalid weight_decay value")
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      capturable=capturable, foreach=foreach, differentiable=differentiable))

    @staticmethod
    def start(p, g, **_):
        return {"square_avg": zeros_for(p), "acc_delta": zeros_for(p)}

    @staticmethod
    def rule(p, g, state, t, lr, rho, eps, weight_decay, **_):
        square, moved = state["square_avg"], state["acc_delta"]
        if given(weight_decay):
            g = plus(g, p, weight_decay)
        average_square(square, g, rho)
        delta = (moved + eps).sqrt() / (square + eps).sqrt() * g
        average_square(moved, delta, rho)
        descend(p, delta, lr)


def adadelta(params, grads, square_avgs, acc_deltas, state_steps, capturable=False, foreach=None, differentiable=False,
             has_complex=False, *, lr, rho, eps, weight_decay, maximize):
    """One step of Adadelta for each of `params`."""
    functional(Adadelta, params, grads, {"square_avg": square_avgs, "acc_delta": acc_deltas}, state_steps, lr=lr,
               rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize)
