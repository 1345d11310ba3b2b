"""LBFGS: quasi-Newton steps from a limited memory of past steps, with a line search where one is asked for.

It looks at values at every turn (whether to go on, how far to go), so its steps cannot be compiled into one replay.
"""
import math
from typing import NamedTuple

from ..autograd.modes import enable_grad, no_grad
from ..tensor.functions import cat, view_as_real
from ..tensor.tensor import Tensor
from ._rule import as_number, check_lr
from .optimizer import Optimizer

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Steps along the gradient times an estimate of the inverse Hessian (Nocedal, 1980).

    `step(closure)` needs a closure that computes the loss and its gradients anew; it is called several times. With
    `line_search_fn="strong_wolfe"` every step goes as far as the strong Wolfe conditions ask.

    >>> w = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = torch.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - torch.tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> [round(x, 4) for x in w.tolist()]
    [1.0, 2.0]
    """

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9,
                 history_size=100, line_search_fn=None):
        check_lr(lr)
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad,
                                      tolerance_change=tolerance_change, history_size=history_size,
                                      line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups): it has one memory for "
                             f"all parameters, and was given {len(self.param_groups)} groups")

    def step(self, closure):
        """Take up to `max_iter` steps; gives the loss before the first one."""
        (group,), closure = self.param_groups, enable_grad()(closure)
        with no_grad():
            return Search(group, self.state[group["params"][0]], closure).run()


class Search:
    """The steps that one call of `LBFGS.step` takes. `state` is the memory, PyTorch's names and all."""

    def __init__(self, group, state, closure):
        self.group, self.state, self.closure, self.params = group, state, closure, group["params"]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        self.evaluations = 0

    def run(self):
        group, state = self.group, self.state
        first = self._evaluate()
        loss, grad = number(first), self._gradient()
        if largest(grad) <= group["tolerance_grad"]:
            return first
        search, least = group["line_search_fn"], group["tolerance_change"]
        turns, lr = 0, as_number(group["lr"])
        while turns < group["max_iter"]:
            turns += 1
            state["n_iter"] += 1
            direction = state["d"] = self._direction(grad)
            if state.get("prev_flat_grad") is None:
                state["prev_flat_grad"] = grad.clone()
            else:
                state["prev_flat_grad"].copy_(grad)
            state["prev_loss"] = before = loss
            slope, far = grad.dot(direction), lr
            if state["n_iter"] == 1:
                total = grad.abs().sum().item()
                far = (1.0 / total if total > 1.0 else 1.0) * lr
            slope = slope.item()
            state["t"] = far
            if slope > -least:
                break
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError(f"only 'strong_wolfe' is supported as line_search_fn, got {search!r}")
                start = [p.clone() for p in self.params]
                point = strong_wolfe(lambda t, d=direction, x=start: self._probe(x, t, d), float(far),
                                     Point(0.0, loss, grad, slope), largest(direction),
                                     most=group["max_eval"] - self.evaluations)
                loss, grad, far = point.loss, point.grad, point.at
                state["t"] = far
                self._move(direction, far)
            else:
                self._move(direction, far)
                if turns != group["max_iter"]:           # the last gradient would not be used
                    loss, grad = number(self._evaluate()), self._gradient()
            if turns == group["max_iter"] or self.evaluations >= group["max_eval"] \
                    or largest(grad) <= group["tolerance_grad"] or largest(direction * far) <= least \
                    or abs(loss - before) < least:
                break
        return first

    def _evaluate(self):
        self.evaluations += 1
        self.state["func_evals"] += 1
        return self.closure()

    def _gradient(self):
        """The gradients of all parameters, one behind the other."""
        parts = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in self.params]
        return cat([view_as_real(part).reshape(-1) if part.is_complex() else part for part in parts])

    def _move(self, direction, far):
        """Add `far` times a direction to the parameters."""
        at = 0
        for p in self.params:
            p = view_as_real(p) if p.is_complex() else p
            part = direction[at:at + p.numel()].view_as(p)
            p.addcmul_(part, far) if isinstance(far, Tensor) else p.add_(part, alpha=far)
            at += p.numel()

    def _probe(self, start, far, direction):
        """The Point at `far` along a direction; the parameters are back at `start` afterwards."""
        self._move(direction, far)
        loss, grad = self._evaluate(), self._gradient()
        slope = grad.dot(direction)
        for p, old in zip(self.params, start, strict=True):
            p.copy_(old)
        return Point(far, number(loss), grad, slope.item())      # looked at last: one run does all of it

    def _direction(self, grad):
        """Minus the gradient times the estimate of the inverse Hessian, by the two-loop recursion."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return grad.neg()
        changes, steps, weights = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = change.dot(step)
        if curvature.item() > 1e-10:
            if len(changes) == self.group["history_size"]:
                for history in (changes, steps, weights):
                    history.pop(0)
            changes.append(change)
            steps.append(step)
            weights.append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        shares = state.setdefault("al", [None] * self.group["history_size"])
        # Looked at in every turn: each runs the same few operations, where all at once they would be others every time.
        q = grad.neg()
        for i in range(len(changes) - 1, -1, -1):
            shares[i] = steps[i].dot(q) * weights[i]
            q.add_(changes[i], alpha=-shares[i].item())
        r = q * state["H_diag"]
        for i in range(len(changes)):
            r.add_(steps[i], alpha=(shares[i] - changes[i].dot(r) * weights[i]).item())
        return r


def number(loss):
    return loss.item() if isinstance(loss, Tensor) else float(loss)


def largest(x):
    return x.abs().max().item()


# --- the line search -------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A point along a direction: how far, the loss there, its gradient, and the slope along the direction."""

    at: float
    loss: float
    grad: Tensor
    slope: float


def strong_wolfe(probe, t, start, scale, c1=1e-4, c2=0.9, least=1e-9, most=25):
    """A Point along a direction at which the loss is low enough and the slope flat enough (Nocedal and Wright, 3.5).

    `probe(t)` gives the Point at `t`; `start` is the one at 0, `scale` the largest entry of the direction.
    """
    def too_high(point):
        return point.loss > start.loss + c1 * point.at * start.slope

    def flat(point):
        return abs(point.slope) <= -c2 * start.slope

    before, now, tries = start, probe(t), 0
    low, high = start, now                               # if nothing better is found
    while tries < most:                                  # go on until a good point lies between two
        if too_high(now) or tries > 1 and now.loss >= before.loss:
            low, high = before, now
            break
        if flat(now):
            return now
        if now.slope >= 0:
            low, high = before, now
            break
        near, far = now.at + 0.01 * (now.at - before.at), now.at * 10
        before, now = now, probe(lowest(before, now, near, far))
        tries += 1
        low, high = start, now
    if low.loss > high.loss:
        low, high = high, low
    stuck = False
    while tries < most and abs(high.at - low.at) * scale >= least:       # draw them together
        left, right = sorted((low.at, high.at))
        t = lowest(low, high, left, right)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:            # near an end twice running, or at it: take a step inside
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = probe(t)
        tries += 1
        if too_high(now) or now.loss >= low.loss:
            high = now
            if low.loss > high.loss:
                low, high = high, low
            continue
        if flat(now):
            return now
        if now.slope * (high.at - low.at) >= 0:
            high = low
        low = now
    return low


def lowest(a, b, left, right):
    """Where the cubic through two Points, with their slopes, is lowest between `left` and `right`."""
    if a.at > b.at:
        a, b = b, a
    bend = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = bend * bend - a.slope * b.slope
    if square < 0:
        return (left + right) / 2
    root = math.sqrt(square)
    below = b.slope - a.slope + 2 * root
    if below == 0:
        return (left + right) / 2
    at = b.at - (b.at - a.at) * ((b.slope + root - bend) / below)
    return min(max(at, left), right)
