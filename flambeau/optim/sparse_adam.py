"""SparseAdam: there are no sparse gradients here, so that it can be made and loaded, and says so at the first step."""
from ..autograd.modes import enable_grad
from ._rule import all_params, check_betas, check_lr
from .optimizer import Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients. All gradients are dense here: use Adam."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        check_lr(lr)
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}; it has to be more than 0")
        check_betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        for number, p in enumerate(all_params(self.param_groups)):
            if p.is_sparse:
                raise ValueError(f"SparseAdam requires dense parameter tensors; parameter {number} is sparse")
            if p.is_complex():
                raise ValueError(f"SparseAdam does not support complex parameters; parameter {number} is complex")

    def step(self, closure=None):
        """Refused where there is a gradient: it is dense."""
        loss = None if closure is None else enable_grad()(closure)()
        if any(p.grad is not None for p in all_params(self.param_groups)):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        return loss
