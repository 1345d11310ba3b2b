"""Adagrad, and its form over lists."""
from ..tensor.functions import full_like
from ..trace.shared_memory import share
from ._rule import ByRule, check_implementations, check_lr, check_positive, descend_by_quotient, functional, given, plus
from .step_count import Clock, scalar_dtype

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ByRule):
    """Steps along the gradient, divided by the root of the sum of all past squares (Duchi and others, 2011)."""

    _added = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10,
                 foreach=None, *, maximize=False, differentiable=False, fused=None):
        check_lr(lr)
        check_positive(lr_decay, "Invalid lr_decay value")
        check_positive(weight_decay, "Invalid weight_decay value")
        check_positive(initial_accumulator_value, "Invalid initial_accumulator_value value")
        check_positive(eps, "Invalid epsilon value")
        check_implementations(fused, foreach, differentiable)
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, fused=fused))
        for group in self.param_groups:                  # here the state is there from the beginning
            states = [self.state[p] for p in group["params"]]
            self._clocks.append(Clock(states, 0, scalar_dtype(group["fused"]), "cpu"))
            for p, state in zip(group["params"], states, strict=True):
                state.update(self.start(p, None, **group))

    def share_memory(self):
        """Put the sums where other processes see them."""
        share([self.state[p]["sum"]._storage for group in self.param_groups for p in group["params"]])

    @staticmethod
    def start(p, g, initial_accumulator_value, **_):
        value = complex(initial_accumulator_value, initial_accumulator_value) if p.is_complex() \
            else initial_accumulator_value
        return {"sum": full_like(p, value)}

    @staticmethod
    def rule(p, g, state, t, lr, lr_decay, weight_decay, eps, **_):
        total = state["sum"]
        if given(weight_decay):
            g = plus(g, p, weight_decay)
        total.addcmul_(g, g)
        descend_by_quotient(p, g, total.sqrt() + eps, lr / (1 + (t - 1) * lr_decay))


def adagrad(params, grads, state_sums, state_steps, fused=None, grad_scale=None, found_inf=None, has_sparse_grad=False,
            foreach=None, differentiable=False, has_complex=False, *, lr, weight_decay, lr_decay, eps, maximize):
    """One step of Adagrad for each of `params`."""
    functional(Adagrad, params, grads, {"sum": state_sums}, state_steps, lr=lr, weight_decay=weight_decay,
               lr_decay=lr_decay, eps=eps, maximize=maximize)
