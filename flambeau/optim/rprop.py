"""Rprop, and its form over lists."""
from ..tensor.functions import full_like, where, zeros_like
from ..tensor.tensor import Tensor
from ._rule import ByRule, check_lr, functional, zeros_for

__all__ = ["Rprop", "rprop"]


class Rprop(ByRule):
    """Steps whose length grows while the sign of the gradient stays, and shrinks when it changes (Riedmiller, 1993).

    `etas` are the factors by which lengths shrink and grow, `step_sizes` the shortest and longest.
    """

    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None,
                 maximize=False, differentiable=False):
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}; the first is between 0 and 1, and the second "
                             "more than 1")
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))

    @staticmethod
    def start(p, g, lr, **_):
        if isinstance(lr, Tensor):
            length = zeros_like(g).add_(lr * (1 + 1j) if p.is_complex() else lr)
        else:
            length = full_like(g, complex(lr, lr) if p.is_complex() else lr)
        return {"prev": zeros_for(p), "step_size": length}

    @staticmethod
    def rule(p, g, state, t, etas, step_sizes, **_):
        before, length = state["prev"], state["step_size"]
        shrink, grow = etas
        turn = g * before
        turned = turn < 0
        length.copy_(where(turned, length * shrink, where(turn > 0, length * grow, length)).clamp(*step_sizes))
        g = where(turned, 0.0, g)                        # and the next step counts as the first one in its direction
        p.addcmul_(g.sign(), length, value=-1)
        before.copy_(g)


def rprop(params, grads, prevs, step_sizes, state_steps, foreach=None, capturable=False, maximize=False,
          differentiable=False, has_complex=False, *, step_size_min, step_size_max, etaminus, etaplus):
    """One step of Rprop for each of `params`."""
    functional(Rprop, params, grads, {"prev": prevs, "step_size": step_sizes}, state_steps, maximize=maximize,
               etas=(etaminus, etaplus), step_sizes=(step_size_min, step_size_max))
