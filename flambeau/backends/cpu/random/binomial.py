"""Binomial numbers as PyTorch draws them: W. Hörmann, "The generation of binomial random variates" (1993).

Where few successes are expected, the gaps between them are drawn, which are geometric; elsewhere it is his transformed
rejection BTRS.
"""
import math

# What Stirling's formula leaves out of log(k!), for k up to 9
STIRLING_REST = [math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))
                 for k in range(10)]


def binomial_one(n, p, unit):
    if n <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return n
    if p != p:
        return math.nan
    small = min(p, 1 - p)
    drawn = rejected(n, small, unit) if n * small >= 10 else gaps(n, small, unit)
    return drawn if p <= 0.5 else n - drawn


def gaps(n, p, unit):
    """How many gaps between successes fit into n trials."""
    reached, found, scale = 0.0, 0, math.log1p(-p)
    while True:
        u = unit()
        reached += math.ceil(math.log(u) / scale) if u else math.inf
        if reached > n:
            return found
        found += 1


def rejected(n, p, unit):
    deviation = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, v_sure, odds = n * p + 0.5, 0.92 - 4.2 / b, p / (1 - p)
    alpha, mode = (2.83 + 5.1 / b) * deviation, math.floor((n + 1) * p)
    while True:
        u, v = unit() - 0.5, unit()
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + centre) if edge else -1
        if edge >= 0.07 and v <= v_sure:
            return k
        if k < 0 or k > n:
            continue
        v *= alpha / (a / (edge * edge) + b)
        bound = ((mode + 0.5) * math.log((mode + 1) / (odds * (n - mode + 1)))
                 + (n + 1) * math.log((n - mode + 1) / (n - k + 1))
                 + (k + 0.5) * math.log(odds * (n - k + 1) / (k + 1))
                 + rest(mode) + rest(n - mode) - rest(k) - rest(n - k))
        if (math.log(v) if v else -math.inf) <= bound:
            return k


def rest(k):
    """What Stirling's formula leaves out of log(k!)."""
    if k < 10:
        return STIRLING_REST[int(k)]
    square = (k + 1) * (k + 1)
    return (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
