"""Adam, and its form over lists."""
import math

from ..tensor.tensor import Tensor
from ._rule import ByRule, check_betas, check_implementations, check_lr, check_positive, functional, given, zeros_for
from ._update import _adam

__all__ = ["Adam", "adam"]


class Adam(ByRule):
    """Steps along the average gradient, divided by the root of the average square (Kingma and Ba, 2014).

    `amsgrad` divides by the largest average so far; `decoupled_weight_decay` shrinks parameters and leaves the gradient
    alone, as AdamW does.

    >>> w = torch.tensor([1.0, -1.0], requires_grad=True)
    >>> optimizer = torch.optim.Adam([w], lr=0.1)
    >>> (w ** 2).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -0.9000], requires_grad=True)
    """

    operation = _adam
    _added = {"amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
              "decoupled_weight_decay": False, "fused": None}

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        check_lr(lr)
        tensors = [isinstance(beta, Tensor) for beta in betas]
        if not capturable and foreach:
            if isinstance(lr, Tensor):
                raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True: say "
                                 "capturable=True, or leave foreach out")
            for i in (i for i, tensor in enumerate(tensors) if tensor):
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True: say "
                                 "capturable=True, or leave foreach out")
        check_positive(eps, "Invalid epsilon value")
        check_betas(betas)
        check_positive(weight_decay, "Invalid weight_decay value")
        if any(tensors) and not all(tensors):
            raise ValueError(f"betas must be either both floats or both Tensors, got {betas!r}")
        for i in (i for i, tensor in enumerate(tensors) if tensor and betas[i].numel() != 1):
            raise ValueError(f"Tensor betas[{i}] must be 1-element, and it has {betas[i].numel()}")
        check_implementations(fused, foreach, differentiable)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable, fused=fused,
                                      decoupled_weight_decay=decoupled_weight_decay))

    @staticmethod
    def start(p, g, amsgrad, **_):
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if amsgrad else ("exp_avg", "exp_avg_sq")
        return {name: zeros_for(p) for name in names}

    @staticmethod
    def tensors(p, g, state, options):
        return p, g, state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"] if options["amsgrad"] else None

    @staticmethod
    def numbers(t, options):
        lr, (beta1, beta2), decay = options["lr"], options["betas"], options["weight_decay"]
        decays, decoupled = given(decay), options["decoupled_weight_decay"]
        # lr · (mean / c1) / (√(square / c2) + eps), with the corrections of the bias taken out to the numbers
        root = math.sqrt(1 - beta2 ** t) if not isinstance(beta2, Tensor) else (1 - beta2 ** t).sqrt()
        return (1 - lr * decay if decays and decoupled else None, decay if decays and not decoupled else None,
                1 - beta1, beta2, 1 - beta2, options["eps"] * root, lr * root / (1 - beta1 ** t))


def adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach=None, capturable=False,
         differentiable=False, fused=None, grad_scale=None, found_inf=None, has_complex=False,
         decoupled_weight_decay=False, *, amsgrad, beta1, beta2, lr, weight_decay, eps, maximize):
    """One step of Adam for each of `params`."""
    functional(Adam, params, grads, {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "max_exp_avg_sq": max_exp_avg_sqs},
               state_steps, amsgrad=amsgrad, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, eps=eps,
               maximize=maximize, decoupled_weight_decay=decoupled_weight_decay)
