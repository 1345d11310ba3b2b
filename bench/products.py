"""How fast are products of many shapes, with either operand transposed, beside PyTorch?

    python bench/products.py [shapes such as 1x4096x4096 …] [--threads 1] [--dtype float32] [--below 0.9]

PyTorch's time over ours, of `a @ b` with `a` of M × K and `b` of K × N (n), or of a transposed matrix that is so (t):
the best of several bursts by turns. Shapes that are few in one direction, powers of two, and batches (`64x1x1024x64`:
64 of 1 × 1024 × 64) are among them, since those are what a way of cutting products forgets. With `--below`, only
what is slower than that is printed.
"""
import argparse
import sys

import numpy as np
from side import EAGER, OURS, PATIENCE, agree, eager, ours, race, two_cores

SHAPES = """1x256x256 1x1000x1000 1x4096x4096 2x1024x1024 4x4096x4096 5x4096x33 8x1024x1024 12x1024x1024 16x4096x4096
            32x784x10 128x10x784 64x1024x256 128x512x128 100x256x100 256x1024x1024 256x4096x512 300x300x300 512x4096x24
            512x512x512 1000x3x1000 1000x1000x2 1024x1024x1024 2048x1024x10 4096x4096x1 4096x4096x4 4096x4096x16
            10000x3x3x3 10000x4x4x4 64x1x64x1024 64x1x1024x64 64x4x64x256 64x64x64x64 16x128x64x128
            8x512x64x512""".split()
LAYOUTS = "nn", "nt", "tn", "tt"
SECONDS_A_PRODUCT = 0.3       # that a race may take
BURSTS = 4


def operands(m, batch, M, K, N, layout, dtype):
    """The two matrices under `m`, from the same numbers everywhere."""
    rng = np.random.default_rng(0)
    made = []
    for rows, cols, how in ((M, K, layout[0]), (K, N, layout[1])):
        array = rng.standard_normal((*batch, *((rows, cols) if how == "n" else (cols, rows))))
        matrix = m.from_numpy(array).to(getattr(m, dtype))
        made.append(matrix if how == "n" else matrix.mT)
    return made


def ratio(shape, layout, dtype, patience):
    """PyTorch's time over ours, and ours in seconds."""
    import torch

    import flambeau
    *batch, M, K, N = shape
    runs = {OURS: ours(lambda a, b: a @ b, *operands(flambeau, batch, M, K, N, layout, dtype)),
            EAGER: eager(lambda a, b: a @ b, *operands(torch, batch, M, K, N, layout, dtype))}
    near = 1e-3 if dtype.startswith("float") and dtype != "float16" else 2 * 2.0 ** -7
    differ = agree({name: run().double() for name, run in runs.items()}, rtol=near, atol=near)
    if differ:
        sys.exit(f"{shape}, {layout}: {differ}")
    best = race(runs, BURSTS, SECONDS_A_PRODUCT, patience)
    return best[EAGER] / best[OURS], best[OURS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--below", type=float, default=float("inf"))
    parser.add_argument("--patience", type=float, default=PATIENCE / 10)
    args = parser.parse_args()
    two_cores(args.threads)
    import flambeau
    flambeau.set_num_threads(args.threads)
    found = []
    for text in args.shapes:
        shape, line = tuple(map(int, text.split("x"))), []
        for layout in LAYOUTS:
            ahead, seconds = ratio(shape, layout, args.dtype, args.patience)
            found.append(ahead)
            if ahead < args.below:
                line.append(f"{layout} {ahead:5.2f} ({seconds * 1e6:.0f} µs)")
        if line:
            print(f"{text:<16} {'   '.join(line)}", flush=True)
    mean = np.exp(np.log(found).mean())
    print(f"{len(found)} products, {args.threads} threads, {args.dtype}: mean {mean:.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
