"""Rows of the tables in this folder: an operation on some inputs, and the same in NumPy.

    row("cumsum", lambda x: x.cumsum(1), lambda x: np.cumsum(x, 1), X)

The first word of a row's name is the operation's public name. Inputs are arrays; those of float64 are differentiated.
What else a row may say:

    grad     False where there is nothing to differentiate, "first" where the second derivative is left out
    oracle   None where the values are checked by `holds(result, *arrays)` instead
    still    which inputs are not differentiated, by position
    meta     False where the shape depends on the data, or the operation needs its data to speak
    tol      the relative tolerance of the values
"""
from dataclasses import dataclass

import numpy as np

import flambeau as torch

ROWS = []


@dataclass
class Row:
    name: str
    ours: object
    oracle: object
    inputs: tuple
    grad: object = True
    meta: bool = True
    tol: float = 1e-11
    holds: object = None
    still: tuple = ()

    @property
    def op(self):
        return self.name.split()[0]

    def tensors(self, change=lambda t: t, dtype=None, leaf=False, device=None):
        """The inputs as tensors; floating ones changed, cast, or made leaves."""
        made = []
        for at, array in enumerate(self.inputs):
            t = torch.tensor(array)
            if t.is_floating_point() and dtype is not None:
                t = t.to(dtype)
            t = change(t)
            if device is not None:
                t = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
            made.append(t.requires_grad_() if leaf and t.is_floating_point() and at not in self.still else t)
        return made


def row(name, ours, oracle, *inputs, **more):
    """Add a row to the table."""
    ROWS.append(Row(name, ours, oracle, inputs, **more))


def results(made):
    """The tensors or arrays in what an operation returned, in order."""
    if isinstance(made, (tuple, list)):
        return [r for part in made for r in results(part)]
    return [made]


def numbers(shape, low=-2.0, high=2.1, seed=0):
    """Evenly spaced numbers in no order, others for another seed: no ties and no kinks within a nudge."""
    n = int(np.prod(shape))
    rng = np.random.default_rng(seed + n)
    step = (high - low) / max(n, 1)
    return (low + step * (rng.permutation(n) + 0.3 + 0.037 * (seed % 13))).reshape(shape)
