"""RAdam, and its form over lists."""
import math

from ._rule import (
    ByRule,
    average_square,
    check_betas,
    check_lr,
    check_positive,
    descend,
    descend_by_quotient,
    functional,
    given,
    plus,
    zeros_for,
)

__all__ = ["RAdam", "radam"]


class RAdam(ByRule):
    """Adam that does without the division while the average square is too uncertain (Liu and others, 2019)."""

    _added = {"foreach": None, "maximize": False, "differentiable": False, "decoupled_weight_decay": False,
              "capturable": False}

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
                 foreach=None, maximize=False, capturable=False, differentiable=False):
        check_lr(lr)
        check_positive(eps, "Invalid epsilon value")
        check_betas(betas)
        check_positive(weight_decay, "Invalid weight_decay value")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      foreach=foreach, capturable=capturable,
                                      decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable))

    @staticmethod
    def start(p, g, **_):
        return {"exp_avg": zeros_for(p), "exp_avg_sq": zeros_for(p)}

    @staticmethod
    def rule(p, g, state, t, lr, betas, eps, weight_decay, decoupled_weight_decay, **_):
        beta1, beta2 = betas
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        if given(weight_decay):
            if decoupled_weight_decay:
                p.mul_(1 - lr * weight_decay)
            else:
                g = plus(g, p, weight_decay)
        mean.lerp_(g, 1 - beta1)
        average_square(square, g, beta2)
        rate, correction = lr / (1 - beta1 ** t), 1 - beta2 ** t
        most = 2 / (1 - beta2) - 1
        length = most - 2 * t * beta2 ** t / correction          # of the average that the decay amounts to
        if length > 5:
            certain = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            descend_by_quotient(p, mean, square.sqrt() + eps, rate * math.sqrt(certain * correction))
        else:
            descend(p, mean, rate)


def radam(params, grads, exp_avgs, exp_avg_sqs, state_steps, decoupled_weight_decay=False, foreach=None,
          differentiable=False, capturable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          eps):
    """One step of RAdam for each of `params`."""
    functional(RAdam, params, grads, {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs}, state_steps,
               decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, betas=(beta1, beta2), lr=lr,
               weight_decay=weight_decay, eps=eps)
