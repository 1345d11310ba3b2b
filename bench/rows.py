"""How fast are operations on rows and columns of many shapes, beside PyTorch?

    python bench/rows.py [words …] [--shapes 1024x1024 …] [--threads 1] [--below 1]

PyTorch's time over ours: reductions, softmax and norms with their gradients, extremes and order, along rows and down
columns, the best of several bursts by turns. Rows that are short, long, many or few are among the shapes, since those
are what a way of going through them forgets. Words choose operations, and with `--below` only what is slower than that
is printed.
"""
import argparse
import sys
import time

import numpy as np
from side import EAGER, OURS, PATIENCE, agree, eager, ours, race, two_cores

SHAPES = "64x256 1024x1024 4096x1024 16384x128 65536x16 65536x10 256x32768 128x50257 16x500000 1x50257".split()
SECONDS_AN_OPERATION = 0.3    # that a race may take
BURSTS = 4
WARM_CALLS = 4
SECONDS_TO_COMPILE = 0.3


def with_gradient(function):
    """`function(x)` and its gradient, from the same beginning everywhere."""
    def both(m, x, other, weight):
        x = x.detach().requires_grad_()
        out = function(m, x, other, weight)
        return m.autograd.grad(out, x, other if out.ndim else None)[0]
    return both


def layer_norm(m, x, other, weight):   return m.nn.functional.layer_norm(x, weight.shape, weight, weight)
def softmax(m, x, other, weight):      return m.softmax(x, 1)
def log_softmax(m, x, other, weight):  return m.log_softmax(x, 1)


def entropy(m, x, other, weight):
    return m.nn.functional.cross_entropy(x, m.arange(x.shape[0]) % x.shape[1])


OPERATIONS = {
    "sum": lambda m, x, other, weight: x.sum(1), "var": lambda m, x, other, weight: x.var(1),
    "norm": lambda m, x, other, weight: x.norm(dim=1), "amax": lambda m, x, other, weight: x.amax(1),
    "max": lambda m, x, other, weight: x.max(1), "argmax": lambda m, x, other, weight: x.argmax(1),
    "logsumexp": lambda m, x, other, weight: m.logsumexp(x, 1), "softmax": softmax, "log_softmax": log_softmax,
    "softmax and gradient": with_gradient(softmax), "log_softmax and gradient": with_gradient(log_softmax),
    "layer norm": layer_norm, "layer norm and gradient": with_gradient(layer_norm),
    "cross entropy and gradient": with_gradient(entropy), "clamp": lambda m, x, other, weight: x.clamp(-1, 1),
    "glu": lambda m, x, other, weight: m.nn.functional.glu(x[:, :x.shape[1] // 2 * 2], 1),
    "cumsum": lambda m, x, other, weight: x.cumsum(1), "sort": lambda m, x, other, weight: x.sort(1)[0],
    "topk(5)": lambda m, x, other, weight: x.topk(5, 1)[0], "median": lambda m, x, other, weight: x.median(1)[0],
    "kthvalue": lambda m, x, other, weight: x.kthvalue(x.shape[1] // 3 + 1, 1)[0],
    "columns' sum": lambda m, x, other, weight: x.sum(0), "columns' var": lambda m, x, other, weight: x.var(0),
    "columns' amax": lambda m, x, other, weight: x.amax(0),
    "columns' softmax": lambda m, x, other, weight: m.softmax(x, 0)}


def ratio(function, rows, columns, patience):
    """PyTorch's time over ours, and ours in seconds."""
    import torch

    import flambeau
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((rows, columns), (rows, columns), (columns,))]

    def under(m): return lambda *given: function(m, *given)
    # copies: what shares memory with an array that somebody holds is computed at the call
    runs = {OURS: ours(under(flambeau), *map(flambeau.tensor, arrays)),
            EAGER: eager(under(torch), *map(torch.tensor, arrays))}
    differ = agree({name: run() for name, run in runs.items()}, rtol=1e-3, atol=1e-3)
    if differ:
        sys.exit(f"{rows} x {columns}: {differ}")
    for _ in range(WARM_CALLS):                           # kernels are compiled beside what is computed without them
        runs[OURS]()
    time.sleep(SECONDS_TO_COMPILE)
    best = race(runs, BURSTS, SECONDS_AN_OPERATION, patience)
    return best[EAGER] / best[OURS], best[OURS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="operations whose name contains one of these")
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--below", type=float, default=float("inf"))
    parser.add_argument("--patience", type=float, default=PATIENCE / 10)
    args = parser.parse_args()
    two_cores(args.threads)
    import flambeau
    flambeau.set_num_threads(args.threads)
    found = []
    for name, function in OPERATIONS.items():
        if args.words and not any(word in name for word in args.words):
            continue
        for text in args.shapes:
            ahead, seconds = ratio(function, *map(int, text.split("x")), args.patience)
            found.append(ahead)
            if ahead < args.below:
                print(f"{name:<28} {text:>12} {ahead:6.2f} ({seconds * 1e6:.0f} µs)", flush=True)
    if found:
        print(f"geometric mean of {len(found)}: {np.exp(np.log(found).mean()):.2f}")


if __name__ == "__main__":
    main()
