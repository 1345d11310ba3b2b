"""Programs of ordinary use, one for each package that people build on, held against PyTorch's numbers.

A program is a module of this folder, named after its package. Every public function in it is a *part*: it does what a
user of the package does, on tiny data, and gives back a dict of named results: numbers, texts, tensors, lists of them.

    PACKAGES = ["einops"]     the distributions that it shows; their versions are kept with the numbers
    QUICK = True              it belongs to the quick half, which CI runs: little to install, seconds to run
    LACKS = ["…"]             what of the package does not run on Flambeau, a sentence each, for docs/packages.md

    def rearranged():
        "What the part shows."
        return {"sum": rearrange(…).sum()}

    python -m tests.programs.expect NAME…     with PyTorch: run programs, and keep their results in kept/NAME.json
    python -m tests.programs [NAME…]          with Flambeau as torch: run them, and compare with what is kept

Both run a program in a process of its own, in an empty folder, without the network. Before each part the random streams
are seeded. Weights come from `fill`, or from PyTorch's own streams, which are Flambeau's too. Integers, texts and
booleans have to be equal. Floating point numbers may differ by TOLERANCE of the largest number of their array (of
themselves, where they are single), because sums are taken in another order; `tolerance` states another bound for a
part, and why it has to. The rule is `differences` in __main__.py.
"""
import random

import numpy as np

TOLERANCE = 2e-5
LARGEST_WHOLE = 24            # of an array of more elements, so many are kept, evenly spread, and its root mean square


def tolerance(bound, reason):
    """Decorate a part whose floating point results may differ by `bound`, for the `reason` given."""
    return lambda part: part          # facts.py reads it from the file


def seed(number=0):
    """Start the random streams of Python, NumPy and torch anew."""
    import torch
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def array(*shape, seed=0, scale=1.0):
    """A tensor of normal numbers that NumPy draws: the same bits on both sides."""
    import torch
    return torch.from_numpy((np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32))


def tokens(*shape, below, seed=0):
    """A tensor of integers from 0 up to `below` that NumPy draws."""
    import torch
    return torch.from_numpy(np.random.default_rng(seed).integers(0, below, shape))


def fill(model, seed=0, scale=None):
    """Fill every parameter of `model` with numbers that NumPy draws, and give the model back.

    Matrices are scaled by the root of their inputs, so that signals keep their size; vectors lie around one if they are
    weights of a norm, around zero if they are biases. `scale` multiplies all of them.
    """
    import torch
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            drawn = rng.standard_normal(tuple(p.shape))
            if p.ndim > 1:
                drawn *= max(np.prod(p.shape[1:]), 1) ** -0.5
            else:
                drawn = 0.1 * drawn + (0.0 if name.endswith("bias") else 1.0)
            p.copy_(torch.from_numpy((drawn * (scale or 1.0)).astype(np.float32)))
    return model


def gradients(model):
    """The norm of each parameter's gradient, by its name; None where there is no gradient."""
    return {name: None if p.grad is None else p.grad.norm().item() for name, p in model.named_parameters()}
