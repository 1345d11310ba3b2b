"""NAdam, and its form over lists."""
from ..base import dtypes
from ..tensor.functions import full
from ._rule import ByRule, average_square, check_betas, check_lr, check_positive, functional, given, plus, zeros_for
from .step_count import scalar_dtype

__all__ = ["NAdam", "nadam"]


class NAdam(ByRule):
    """Adam with Nesterov's momentum, which looks one step ahead (Dozat, 2016)."""

    _added = {"maximize": False, "foreach": None, "capturable": False, "differentiable": False,
              "decoupled_weight_decay": False}

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
                 decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False):
        check_lr(lr)
        check_positive(eps, "Invalid epsilon value")
        check_betas(betas)
        check_positive(weight_decay, "Invalid weight_decay value")
        check_positive(momentum_decay, "Invalid momentum_decay value")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable))

    @staticmethod
    def start(p, g, **_):
        return {"mu_product": full((), 1.0, dtype=scalar_dtype()), "exp_avg": zeros_for(p),
                "exp_avg_sq": zeros_for(p)}

    @staticmethod
    def rule(p, g, state, t, lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay, **_):
        beta1, beta2 = betas
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        now = beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        soon = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        product = state["mu_product"].mul_(now).to(dtypes.float64)       # stays a tensor: nothing looks at it
        if given(weight_decay):
            if decoupled_weight_decay:
                p.mul_(1 - lr * weight_decay)
            else:
                g = plus(g, p, weight_decay)
        mean.lerp_(g, 1 - beta1)
        average_square(square, g, beta2)
        scale = (square / (1 - beta2 ** t)).sqrt() + eps
        p.addcdiv_(g * (lr * (1 - now) / (1 - product)), scale, value=-1)
        p.addcdiv_(mean * (lr * soon / (1 - product * soon)), scale, value=-1)


def nadam(params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, decoupled_weight_decay=False, foreach=None,
          capturable=False, differentiable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay,
          momentum_decay, eps):
    """One step of NAdam for each of `params`."""
    functional(NAdam, params, grads, {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "mu_product": mu_products},
               state_steps, decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, betas=(beta1, beta2),
               lr=lr, weight_decay=weight_decay, momentum_decay=momentum_decay, eps=eps)
