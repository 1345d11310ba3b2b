"""RMSprop, and its form over lists."""
from ._rule import (
    ByRule,
    average_square,
    check_lr,
    check_positive,
    descend,
    descend_by_quotient,
    functional,
    given,
    plus,
    zeros_for,
)

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ByRule):
    """Steps along the gradient, divided by the root of the average square (Hinton's lecture 6).

    `centered` subtracts the square of the average gradient first, which leaves the variance (Graves, 2013).
    """

    _added = {"momentum": 0, "centered": False, "foreach": None, "maximize": False, "differentiable": False,
              "capturable": False}

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False,
                 capturable=False, foreach=None, maximize=False, differentiable=False):
        check_lr(lr)
        check_positive(eps, "Invalid epsilon value")
        check_positive(momentum, "Invalid momentum value")
        check_positive(weight_decay, "Invalid weight_decay value")
        check_positive(alpha, "Invalid alpha value")
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered,
                                      weight_decay=weight_decay, capturable=capturable, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable))

    @staticmethod
    def start(p, g, momentum, centered, **_):
        names = ["square_avg"] + ["momentum_buffer"] * (momentum > 0) + ["grad_avg"] * bool(centered)
        return {name: zeros_for(p) for name in names}

    @staticmethod
    def rule(p, g, state, t, lr, alpha, eps, weight_decay, momentum, centered, **_):
        square = state["square_avg"]
        if given(weight_decay):
            g = plus(g, p, weight_decay)
        average_square(square, g, alpha)
        if centered:
            mean = state["grad_avg"].lerp_(g, 1 - alpha)
            scale = square.addcmul(mean, mean, value=-1).sqrt() + eps
        else:
            scale = square.sqrt() + eps
        if momentum > 0:
            v = state["momentum_buffer"].mul_(momentum).addcdiv_(g, scale)
            descend(p, v, lr)
        else:
            descend_by_quotient(p, g, scale, lr)


def rmsprop(params, grads, square_avgs, grad_avgs, momentum_buffer_list, state_steps, foreach=None, maximize=False,
            differentiable=False, capturable=False, has_complex=False, *, lr, alpha, eps, weight_decay, momentum,
            centered):
    """One step of RMSprop for each of `params`."""
    functional(RMSprop, params, grads,
               {"square_avg": square_avgs, "grad_avg": grad_avgs, "momentum_buffer": momentum_buffer_list}, state_steps,
               maximize=maximize, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
               centered=centered)
