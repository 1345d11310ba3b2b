"""Is this checkout faster than another one, by turns?

    python bench/trees.py ../other [words …] [--threads 2] [--rounds 8] [--seconds 0.3]

The time of a checkout of Flambeau before a change over that of this one: of single operations of some sizes and of the
training steps in training.py whose names contain one of the words; without words, of the operations. Both run in
processes that stay, a turn of calls in one and then in the other: on machines whose processors are shared with others
only that says anything, since minutes apart the same code takes half as long again. Both checkouts should have `make
core` behind them, or neither.
"""
import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
WARM_CALLS = 8
KILO, MEGA = 1 << 10, 1 << 20


def operations(m):
    """{name: function of no arguments} of single operations."""
    rng = np.random.default_rng(0)

    def normal(*shape): return m.from_numpy(rng.standard_normal(shape, np.float32))
    def arithmetic(x, y): return lambda: x * y + x
    def functions(x, y): return lambda: m.tanh(x * y + x) - y
    def total(x): return lambda: x.sum()
    def softmax(x): return lambda: m.softmax(x, 1)
    def product(a, b): return lambda: a @ b
    made = {}
    for n in (64 * KILO, 256 * KILO, MEGA, 4 * MEGA):
        word = f"{n // KILO} K"
        made[f"x * y + x, {word}"] = arithmetic(normal(n), normal(n))
        made[f"tanh(x * y + x) - y, {word}"] = functions(normal(n), normal(n))
        made[f"sum of {word}"] = total(normal(n))
    for rows, columns in ((512, 512), (4096, 1000)):
        made[f"softmax, {rows} x {columns}"] = softmax(normal(rows, columns))
    for M, K, N in ((128, 784, 10), (128, 784, 512), (16, 256, 1024), (256, 256, 256), (512, 512, 512)):
        made[f"product, {M} x {K} x {N}"] = product(normal(M, K), normal(K, N))
    for batch, n in ((64, 64), (16, 128)):
        made[f"bmm, {batch} of {n} x {n} x {n}"] = product(normal(batch, n, n), normal(batch, n, n))
    return made


def names(words):
    """Of the works that the words choose."""
    import training

    import flambeau
    every = [*operations(flambeau), *training.MODELS]
    return [name for name in every if any(word in name for word in words)] if words else list(operations(flambeau))


def serve(name, threads):
    """In a process of its own: warm up, and for every line with a number of seconds print how long calls took."""
    import flambeau
    flambeau.set_num_threads(threads)
    work = operations(flambeau).get(name)
    if work is None:
        import training
        flambeau.manual_seed(0)
        work = training.MODELS[name][0](flambeau)

    def call():
        start = time.perf_counter()
        result = work()
        flambeau.cpu.synchronize()
        return time.perf_counter() - start, result

    for _ in range(WARM_CALLS):
        call()
    print("ready", flush=True)
    for line in sys.stdin:
        until, took = time.perf_counter() + float(line), []
        call()                # after the other one: caches are its
        while time.perf_counter() < until or len(took) < 2:
            took.append(call()[0])
        print(*took, flush=True)


def race(name, trees, args):
    """For each of the trees the times of all calls, sorted."""
    children = []
    for tree in trees:
        command = [sys.executable, str(Path(__file__).resolve()), str(tree), "--child", name,
                   "--threads", str(args.threads)]
        path = os.pathsep.join([str(tree), str(HERE / "bench"), os.environ.get("PYTHONPATH", "")])
        children.append(subprocess.Popen(command, cwd=tree, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env={**os.environ, "PYTHONPATH": path}))
    for child in children:
        if child.stdout.readline().strip() != "ready":
            sys.exit(f"{name} does not run in {child.args[2]}")
    found = [[] for _ in trees]
    for _ in range(args.rounds):
        for times, child in zip(found, children, strict=True):
            print(args.seconds, file=child.stdin, flush=True)
            times.extend(map(float, child.stdout.readline().split()))
    for child in children:
        child.stdin.close()
        child.wait()
    return [sorted(times) for times in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        serve(args.child, args.threads)
        return
    print(f"{'microseconds, best and median':<60} {'other':>20} {'this':>20}   other / this")
    for name in names(args.words):
        both = [(times[0], times[len(times) // 2]) for times in race(name, (args.other.resolve(), HERE), args)]
        other, this = both
        cells = [f"{best * 1e6:10.1f}{median * 1e6:10.1f}" for best, median in both]
        print(f"{name[:60]:<60} {cells[0]} {cells[1]}   {other[0] / this[0]:.2f} {other[1] / this[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
