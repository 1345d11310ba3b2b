"""The update rules once more, in NumPy and double precision, as the papers print them: what the tests compare with.

Each is `rule(w, g, s, t, **options)`: the new parameter, with what has to be remembered in the dictionary `s`.
"""
import numpy as np


def sgd(w, g, s, t, lr, momentum=0.0, dampening=0.0, nesterov=False):
    if not momentum:
        return w - lr * g
    s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
    return w - lr * (g + momentum * s["b"] if nesterov else s["b"])


def moments(g, s, betas):
    """The first and second moment of the gradient, as running averages."""
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g ** 2
    return s["m"], s["v"]


def adam(w, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, amsgrad=False):
    m, v = moments(g, s, betas)
    if amsgrad:
        v = s["top"] = np.maximum(s.get("top", 0.0), v)
    return w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def adamw(w, g, s, t, lr, weight_decay=0.01, **options):
    return adam(w, g, s, t, lr, **options) - lr * weight_decay * w


def adamax(w, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8):
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["u"] = np.maximum(betas[1] * s.get("u", 0.0), np.abs(g) + eps)
    return w - lr / (1 - betas[0] ** t) * s["m"] / s["u"]


def nadam(w, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, momentum_decay=0.004):
    m, v = moments(g, s, betas)
    mu, after = (betas[0] * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in (t, t + 1))
    s["product"] = s.get("product", 1.0) * mu
    seen = after * m / (1 - s["product"] * after) + (1 - mu) * g / (1 - s["product"])
    return w - lr * seen / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def radam(w, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8):
    m, v = moments(g, s, betas)
    m = m / (1 - betas[0] ** t)
    end = 2 / (1 - betas[1]) - 1
    rho = end - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if rho <= 5:
        return w - lr * m
    r = np.sqrt((rho - 4) * (rho - 2) * end / ((end - 4) * (end - 2) * rho))
    return w - lr * r * m * np.sqrt(1 - betas[1] ** t) / (np.sqrt(v) + eps)


def adadelta(w, g, s, t, lr, rho=0.9, eps=1e-6):
    s["v"] = rho * s.get("v", 0.0) + (1 - rho) * g ** 2
    d = np.sqrt(s.get("u", 0.0) + eps) / np.sqrt(s["v"] + eps) * g
    s["u"] = rho * s.get("u", 0.0) + (1 - rho) * d ** 2
    return w - lr * d


def adagrad(w, g, s, t, lr, lr_decay=0.0, eps=1e-10, initial_accumulator_value=0.0):
    s["sum"] = s.get("sum", initial_accumulator_value) + g ** 2
    return w - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["sum"]) + eps)


def asgd(w, g, s, t, lr, lambd=1e-4, alpha=0.75, t0=1e6):
    eta = lr / (1 + lambd * lr * (t - 1)) ** alpha
    w = w - eta * (g + lambd * w)
    mu = 1 / max(1, t - 1 - t0)
    s["average"] = s.get("average", 0.0) + mu * (w - s.get("average", 0.0))
    return w


def rmsprop(w, g, s, t, lr, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
    s["v"] = alpha * s.get("v", 0.0) + (1 - alpha) * g ** 2
    v = s["v"]
    if centered:
        s["m"] = alpha * s.get("m", 0.0) + (1 - alpha) * g
        v = v - s["m"] ** 2
    s["b"] = momentum * s.get("b", 0.0) + g / (np.sqrt(v) + eps)
    return w - lr * s["b"]


def rprop(w, g, s, t, lr, etas=(0.5, 1.2), step_sizes=(1e-6, 50)):
    product = g * s.get("before", 0.0)
    factor = np.select([product > 0, product < 0], [etas[1], etas[0]], 1.0)
    s["size"] = np.clip(s.get("size", lr) * factor, *step_sizes)
    s["before"] = np.where(product < 0, 0.0, g)
    return w - np.sign(s["before"]) * s["size"]


def adafactor(w, g, s, t, lr, beta2_decay=-0.8, eps=(1e-7, 1e-3), d=1.0, weight_decay=0.0):
    weight = t ** beta2_decay
    rate = max(eps[1], np.sqrt(np.mean(w ** 2))) * min(lr, 1 / np.sqrt(t))
    if g.ndim > 1:
        s["r"] = s.get("r", 0.0) * (1 - weight) + weight * np.mean(g ** 2, axis=-1, keepdims=True)
        s["c"] = s.get("c", 0.0) * (1 - weight) + weight * np.mean(g ** 2, axis=-2, keepdims=True)
        v = s["r"] @ s["c"] / np.maximum(np.mean(s["r"], axis=-2, keepdims=True), eps[0])
    else:
        v = s["v"] = s.get("v", 0.0) * (1 - weight) + weight * g ** 2
    u = g / np.sqrt(np.maximum(v, eps[0] ** 2))
    return w * (1 - lr * weight_decay) - rate * u / max(1, np.sqrt(np.mean(u ** 2)) / d)


def muon(w, g, s, t, lr, weight_decay=0.1, momentum=0.95, ns_coefficients=(3.4445, -4.775, 2.0315)):
    s["b"] = momentum * s.get("b", 0.0) + (1 - momentum) * g
    x = (1 - momentum) * g + momentum * s["b"]
    x = x / np.linalg.norm(x)
    a, b, c = ns_coefficients
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return w * (1 - lr * weight_decay) - lr * np.sqrt(max(1, w.shape[0] / w.shape[1])) * x
