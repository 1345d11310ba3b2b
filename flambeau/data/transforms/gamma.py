"""Gamma, beta and Dirichlet numbers of samples, each drawn from the sample's own stream.

Marsaglia and Tsang's method (2000): a normal number is turned into a gamma one, which is kept with a probability above
0.95, and drawn again otherwise. A sample that draws again goes on in its own stream, so what it gets depends on no
other.
"""
import numpy as np


def gamma(random, alpha, count=1):
    """`count` gamma numbers of shape `alpha` for each sample: float64 [n, count]."""
    raised = alpha + (alpha < 1)                              # below one: of one more, times a power
    shift = raised - 1 / 3
    made = np.empty((len(random), count))
    for column in range(count):
        waiting = np.arange(len(random))
        while len(waiting):
            part = random.select(waiting)
            normal, uniform = part.normal()[:, 0], part.uniform()[:, 0]
            cube = (1 + normal / np.sqrt(9 * shift)) ** 3
            kept = cube > 0
            log = np.log(np.where(kept, cube, 1.0))
            kept &= np.log1p(-uniform) < normal**2 / 2 + shift * (1 - cube + log)
            made[waiting[kept], column] = shift * cube[kept]
            waiting = waiting[~kept]
    return made if alpha >= 1 else made * (1 - random.uniform(count)) ** (1 / alpha)


def dirichlet(random, alpha, count):
    """`count` weights for each sample that add up to one, all with the parameter `alpha`: float64 [n, count]."""
    made = gamma(random, alpha, count)
    return made / made.sum(1, keepdims=True)


def beta(random, alpha):
    """A number between 0 and 1 for each sample, of the beta distribution with both parameters `alpha`: [n]."""
    return dirichlet(random, alpha, 2)[:, 0]
