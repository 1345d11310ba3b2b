"""How fast are interpolation, padding and means over windows beside PyTorch, forward and with backward?

    python bench/windows.py [words …] [--threads 2]

PyTorch's time over ours, of 8 x 64 images of 32 x 32 in float32; only the rows that contain one of the words are run.
"""
import argparse

import numpy as np
from side import EAGER, OURS, PATIENCE, agree, eager, ours, race, two_cores

ROWS = {
    "bilinear, twice as large": lambda F, x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear, corners aligned": lambda F, x: F.interpolate(x, size=(64, 64), mode="bilinear", align_corners=True),
    "bicubic, twice as large": lambda F, x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "bilinear, half as large, antialiased": lambda F, x: F.interpolate(x, scale_factor=.5, mode="bilinear",
                                                                       antialias=True),
    "nearest, twice as large": lambda F, x: F.interpolate(x, scale_factor=2),
    "nearest, by 1.5": lambda F, x: F.interpolate(x, scale_factor=1.5),
    "means over 3 x 3": lambda F, x: F.avg_pool2d(x, 3, 1, 1),
    "means over 2 x 2, side by side": lambda F, x: F.avg_pool2d(x, 2),
    "adaptive, to 7 x 7": lambda F, x: F.adaptive_avg_pool2d(x, 7),
    "padding by reflection, 3": lambda F, x: F.pad(x, (3, 3, 3, 3), mode="reflect"),
    "padding by replication, 1": lambda F, x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "largest of 3 x 3, by steps of 2": lambda F, x: F.max_pool2d(x, 3, 2, 1),
}
SECONDS, ROUNDS = 0.4, 4


def ratio(function, backward):
    """PyTorch's time over ours."""
    import torch

    import flambeau
    runs = {}
    for name, m, run in ((OURS, flambeau, ours), (EAGER, torch, eager)):
        x = m.tensor(np.random.default_rng(0).standard_normal((8, 64, 32, 32), np.float32), requires_grad=backward)
        g = m.ones_like(function(m.nn.functional, x.detach()))

        def step(m=m, x=x, g=g):
            y = function(m.nn.functional, x)
            return (y, m.autograd.grad(y, x, g)[0]) if backward else y       # both are held, so both are computed
        runs[name] = run(step)
    differ = agree({name: run() for name, run in runs.items()}, rtol=1e-4, atol=1e-4)
    if differ:
        raise SystemExit(differ)
    best = race(runs, ROUNDS, SECONDS, PATIENCE / 10)
    return best[EAGER] / best[OURS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    two_cores(args.threads)
    import flambeau
    flambeau.set_num_threads(args.threads)
    for name, function in ROWS.items():
        if not args.words or any(word in name for word in args.words):
            print(f"{name:<38} {ratio(function, False):6.2f}   with backward {ratio(function, True):6.2f}", flush=True)


if __name__ == "__main__":
    main()
