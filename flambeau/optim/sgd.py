"""Stochastic gradient descent, and its form over lists."""
from ..tensor.overrides import has_override
from ..tensor.tensor import Tensor
from ._rule import ByRule, check_implementations, check_lr, check_positive, descend, functional, given, plus, ready
from ._update import _sgd

__all__ = ["SGD", "sgd"]


class SGD(ByRule):
    """Steps against the gradient, or along a decaying sum of past gradients where there is `momentum`.

    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> (w ** 2).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000, 1.6000], requires_grad=True)
    """

    counts = pairs = False
    operation = _sgd
    _added = {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False}

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None):
        check_lr(lr)
        check_positive(momentum, "Invalid momentum value")
        check_positive(weight_decay, "Invalid weight_decay value")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening, got "
                             f"momentum={momentum} and dampening={dampening}")
        check_implementations(fused, foreach, differentiable)
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused))

    @staticmethod
    def start(p, g, momentum, dampening, differentiable, **_):
        if momentum == 0:
            return {}
        # The first step sets the speed to the gradient. Added to -0.0, every number stays what it is.
        if dampening != 0 or differentiable or isinstance(momentum, Tensor) or p.is_complex() \
                or has_override(p.__class__):
            return {"momentum_buffer": None}
        speed = ready(p, -0.0)
        speed._storage.version = -1               # with that step it is made, not written to
        return {"momentum_buffer": speed}

    @staticmethod
    def tensors(p, g, state, options):
        speed = state.get("momentum_buffer") if options["momentum"] != 0 else None
        return None if speed is None else (p, g, speed)

    @staticmethod
    def numbers(t, options):
        decay = options["weight_decay"]
        return (decay if given(decay) else None, options["momentum"], 1 - options["dampening"],
                bool(options["nesterov"]), options["lr"])

    @staticmethod
    def rule(p, g, state, t, lr, momentum, weight_decay, nesterov, **_):
        if given(weight_decay):
            g = plus(g, p, weight_decay)
        if momentum != 0:                         # the first step, which sets the speed
            state["momentum_buffer"] = g.clone()
            g = g.add(g, alpha=momentum) if nesterov else g
        descend(p, g, lr)


def sgd(params, d_p_list, momentum_buffer_list, has_sparse_grad=False, foreach=None, fused=None, grad_scale=None,
        found_inf=None, *, weight_decay, momentum, lr, dampening, nesterov, maximize):
    """One step of SGD for each of `params`; buffers that are None are made and put into the list."""
    states = functional(SGD, params, d_p_list, {"momentum_buffer": momentum_buffer_list}, weight_decay=weight_decay,
                        momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov, maximize=maximize)
    momentum_buffer_list[:] = [state.get("momentum_buffer") for state in states]
