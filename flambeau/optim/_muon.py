"""Muon, and its form over lists."""
import math

from ..base import dtypes
from ..tensor.functions import zeros_like
from ._rule import ByRule, all_params, check_lr, check_positive, descend, functional

__all__ = ["Muon"]

LR_ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(ByRule):
    """Steps along the momentum, made orthogonal, for the matrices of hidden layers (Jordan and others, 2024).

    `adjust_lr_fn` says how the rate depends on the shape: "original", or "match_rms_adamw" for rates found with AdamW.
    """

    counts = pairs = False

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True,
                 ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, ns_steps=5, adjust_lr_fn=None):
        check_lr(lr, "Learning rate should be >= 0 but is")
        check_positive(momentum, "momentum should be >= 0 but is")
        check_positive(weight_decay, "weight decay should be >= 0 but is")
        if adjust_lr_fn not in LR_ADJUSTMENTS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported; "
                             "'original' and 'match_rms_adamw' are")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                                      ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps,
                                      adjust_lr_fn=adjust_lr_fn))
        for p in all_params(self.param_groups):
            if p.ndim != 2:
                raise ValueError("Muon only supports 2D parameters, and there is one of shape "
                                 f"{tuple(p.shape)}: optimize it with AdamW")

    @staticmethod
    def start(p, g, **_):
        return {"momentum_buffer": zeros_like(g)}

    def _state_of(self, p, options):
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        return super()._state_of(p, options)

    @staticmethod
    def rule(p, g, state, t, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn, **_):
        v = state["momentum_buffer"].lerp_(g, 1 - momentum)
        update = orthogonal(g.lerp(v, momentum) if nesterov else v, ns_coefficients, ns_steps, eps)
        high, wide = p.shape[:2]
        factor = 0.2 * math.sqrt(max(high, wide)) if adjust_lr_fn == "match_rms_adamw" else \
            math.sqrt(max(1, high / wide))
        p.mul_(1 - lr * weight_decay)
        descend(p, update, lr * factor)


def orthogonal(x, coefficients, steps, eps):
    """About the orthogonal matrix that is nearest to `x`, by a Newton-Schulz iteration in bfloat16."""
    if steps >= 100:
        raise ValueError(f"Number of steps must be less than 100 for computational efficiency, got {steps}")
    if x.ndim != 2:
        raise ValueError(f"Input tensor gradient must be a 2D matrix, got shape {tuple(x.shape)}")
    if len(coefficients) != 3:
        raise ValueError(f"Coefficients must be a tuple of exactly 3 values, got {len(coefficients)}")
    a, b, c = coefficients
    high = x.shape[0] > x.shape[1]
    x = x.to(dtypes.bfloat16)
    x = x.t() if high else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = x.mul(a).addmm(gram.mul(b).addmm(gram, gram, alpha=c), x)
    return x.t() if high else x


def muon(params, grads, muon_momentum_bufs, *, foreach=None, lr, weight_decay, momentum, nesterov, ns_coefficients,
         ns_steps, eps, adjust_lr_fn, has_complex):
    """One step of Muon for each of `params`."""
    if has_complex:
        raise ValueError("Complex parameters are not supported")
    functional(Muon, params, grads, {"momentum_buffer": muon_momentum_bufs}, lr=lr, weight_decay=weight_decay,
               momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, ns_steps=ns_steps, eps=eps,
               adjust_lr_fn=adjust_lr_fn)
