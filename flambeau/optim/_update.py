"""Steps of optimizers as single operations.

A rule is written once, in arithmetic that arrays, tensors and kernels have in common; `k` has the functions. An
optimizer applies it to tensors (where the step itself is differentiated, or options are tensors), or records it as one
operation whose results take the places of the parameter and its state, which is a fraction of the Python.
"""
from ..base.op import Op


def adam(k, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
    """Adam (Kingma and Ba, 2014): the parameter, the averages, and the largest square so far where it is wanted.

    `weight` is 1 - beta1, `beta` and `rest` are beta2 and 1 - beta2; `eps` and `rate` have the corrections of the bias
    in them. A parameter is shrunk by `shrink`, or decays by `decay` through its gradient.
    """
    p = p if shrink is None else p * shrink
    g = g if decay is None else g + p * decay
    mean = mean + (g - mean) * weight
    square = square * beta + g * g * rest
    below = square if largest is None else k.maximum(largest, square)
    p = p - mean / (k.sqrt(below) + eps) * rate
    return (p, mean, square) if largest is None else (p, mean, square, below)


def sgd(k, p, g, speed, decay, momentum, rest, rate, nesterov):
    """Descent with momentum: the parameter and its speed. `rest` is 1 - dampening."""
    g = g if decay is None else g + p * decay
    speed = speed * momentum + g * rest
    return p - (g + speed * momentum if nesterov else speed) * rate, speed


class _adam(Op):
    """One step of Adam."""

    forms = ""
    scalars = ("shrink", "decay", "weight", "beta", "rest", "eps", "rate")

    def meta(p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
        return (p, mean, square) if largest is None else (p, mean, square, largest)

    def ref(xp, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
        return adam(xp, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate)

    def body(k, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate):
        return adam(k, p, g, mean, square, largest, shrink, decay, weight, beta, rest, eps, rate)


class _sgd(Op):
    """One step of descent with momentum."""

    forms = ""
    scalars = ("decay", "momentum", "rest", "rate")

    def meta(p, g, speed, decay, momentum, rest, rate, nesterov): return p, speed

    def ref(xp, p, g, speed, decay, momentum, rest, rate, nesterov):
        return sgd(xp, p, g, speed, decay, momentum, rest, rate, nesterov)

    def body(k, p, g, speed, decay, momentum, rest, rate, nesterov):
        return sgd(k, p, g, speed, decay, momentum, rest, rate, nesterov)
