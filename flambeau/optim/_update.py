"""Steps of optimizers as single operations.

A rule is written once, in arithmetic that arrays, tensors and kernels have in common; `k` has the functions. `change`
records it as one operation whose results take the places of the parameter and its state, which is a fraction of the
Python that its parts would take; or applies it to tensors, where the step itself is differentiated, or options are
tensors.
"""
from ..autograd.modes import modes
from ..base.op import Op
from ..tensor import functions
from ..tensor.write import update


def change(op, tensors, numbers):
    """Put what the rule of `op` makes of its arguments into those of the `tensors` that it writes."""
    if not modes.grad and update(op, tensors, numbers):
        return
    written = [tensors[at] for at in op.writes if tensors[at] is not None]
    if modes.grad:                                # what autograd keeps outlives the writing
        tensors = [t.clone() if any(t is w for w in written) else t for t in tensors]
    for t, made in zip(written, op.rule(functions, *tensors, *numbers), strict=True):
        t.copy_(made)


def adam(k, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
    """Adam (Kingma and Ba, 2014): the parameter, the averages, and the largest square so far where it is wanted.

    `weight` is 1 - beta1, `beta` and `rest` are beta2 and 1 - beta2; `eps` and `rate` have the corrections of the bias
    in them. A parameter is shrunk by `shrink`, or decays by `decay` through its gradient.
    """
    g = g if decay is None else g + p * decay
    p = p if shrink is None else p * shrink
    mean = mean + (g - mean) * weight
    square = square * beta + g * g * rest
    below = square if largest is None else k.maximum(largest, square)
    p = p - mean / (k.sqrt(below) + eps) * rate
    return (p, mean, square) if largest is None else (p, mean, square, below)


def sgd(k, p, g, speed, decay, momentum, rest, nesterov, rate):
    """Descent with momentum: the parameter and its speed. `rest` is 1 - dampening."""
    g = g if decay is None else g + p * decay
    speed = speed * momentum + g * rest
    return p - (g + speed * momentum if nesterov else speed) * rate, speed


class _adam(Op):
    """One step of Adam."""

    forms = ""
    writes = (0, 2, 3, 4)     # the places of the arguments that the results replace, those that are None left out
    scalars = ("shrink", "decay", "weight", "beta", "rest", "eps", "rate")
    rule = staticmethod(adam)

    def meta(p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
        return (p, mean, square) if largest is None else (p, mean, square, largest)

    def ref(xp, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
        return adam(xp, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate)

    def body(k, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
        return adam(k, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate)


class _sgd(Op):
    """One step of descent with momentum."""

    forms = ""
    writes = (0, 2)
    scalars = ("decay", "momentum", "rest", "rate")
    rule = staticmethod(sgd)

    def meta(p, g, speed, decay, momentum, rest, nesterov, rate): return p, speed

    def ref(xp, p, g, speed, decay, momentum, rest, nesterov, rate):
        return sgd(xp, p, g, speed, decay, momentum, rest, nesterov, rate)

    def body(k, p, g, speed, decay, momentum, rest, nesterov, rate):
        return sgd(k, p, g, speed, decay, momentum, rest, nesterov, rate)
