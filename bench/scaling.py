"""Does the cost grow in step with the work: with the number of operations, and with the number of elements?

    python bench/scaling.py [--plot docs/scaling.svg] [--largest 8]

First, 10, 1,000 and 100,000 operations on three elements: what one operation costs to record, and to run. A trace runs
when it has `flambeau.config.trace_instructions`, so most of the 100,000 run while the rest is recorded.
Then `relu(x*y+z)*0.5+x` on 10 to 10^8 elements, beside PyTorch. `--plot` draws the latter (needs matplotlib).
"""
import argparse
import gc
import time

import numpy as np
import side
import torch

import flambeau

COUNTS = (10, 1_000, 100_000)
# An operation may cost this much more among 100,000 than among 1,000: with so many objects alive the processor's caches
# overflow, and Python's garbage collector looks through all of them every so often.
FLAT = 2


def chain(x, y, count):
    """`count` operations, each on the result of the last."""
    z = x
    for _ in range(count // 2):
        z = z * y
        z = z + x
    return z


def wide(x, y, count):
    """`count` operations whose results are all wanted."""
    return [x * y if i % 2 else x + y for i in range(count)]


def backward(x, y, count):
    """Half of the operations in a chain, and the other half, as many again, in the backward through it."""
    x = x.detach().requires_grad_()
    chain(x, y, count // 2).sum().backward()
    return x.grad


def trace_times(shape, count):
    """Seconds to record `count` operations, to run them the first time, and to run the same again, at best."""
    x, y = flambeau.tensor([1.0, 2.0, 3.0]), flambeau.tensor([0.5, 0.6, 0.7])
    recording, running = [], []
    for _ in range(5 if count > 10_000 else 50):
        gc.collect()
        side.synchronize()
        start = time.perf_counter()
        result = shape(x, y, count)
        middle = time.perf_counter()
        side.synchronize()
        recording.append(middle - start)
        running.append(time.perf_counter() - middle)
        del result
    return min(recording), running[0], min(running[1:])


def traces():
    """Print what an operation costs in traces of each length, in microseconds."""
    print(f"{'microseconds per operation':<42}{'operations':>12}{'recording':>12}{'first run':>12}{'run again':>12}"
          f"{'PyTorch':>12}")
    gc.collect()
    gc.freeze()                                   # PyTorch's own objects would be looked through in our time
    for shape, words in ((chain, "a chain"), (wide, "all results kept"), (backward, "a chain and its backward")):
        cost = {}
        for count in COUNTS:
            times = [t / count for t in (*trace_times(shape, count), torch_time(shape, count))]
            cost[count] = {"recording and running": times[0] + times[2], "the first run": times[0] + times[1]}
            grown = [name for name, each in cost[count].items() if count > 1_000 and each > FLAT * cost[1_000][name]]
            verdict = grown and side.paint(f"   grows faster than the work: {', '.join(grown)}", False)
            print(f"{words:<42}{count:>12,}{''.join(f'{1e6 * t:12.2f}' for t in times)}", verdict or "", flush=True)
    gc.unfreeze()


def torch_time(shape, count):
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.6, 0.7])
    best = float("inf")
    for _ in range(3 if count > 10_000 else 50):
        start = time.perf_counter()
        result = shape(x, y, count)
        best = min(best, time.perf_counter() - start)
        del result
    return best


def sizes(largest):
    """Print and give the times of the fused chain on 10 to 10^largest elements: [(size, ours, PyTorch)]."""
    print(f"\n{'relu(x*y+z)*0.5+x, elements':<42}{'ours':>12}{'PyTorch':>12}{'ratio':>8}{'ours per element':>20}")
    found = []
    for exponent in range(1, largest + 1):
        n = 10 ** exponent
        drawn = [np.random.default_rng(i).standard_normal(n, np.float32) for i in range(3)]

        def run(m, drawn=drawn):
            return lambda x, y, z: m.relu(x * y + z) * 0.5 + x, *(m.tensor(array) for array in drawn)
        runs = {side.OURS: side.ours(*run(flambeau)), side.EAGER: side.eager(*run(torch))}
        differ = side.agree({name: function() for name, function in runs.items()})
        if differ:
            raise SystemExit(differ)
        best = side.race(runs, rounds=3, seconds=1.0)
        mine, theirs = best[side.OURS], best[side.EAGER]
        found.append((n, mine, theirs))
        print(f"{n:<42,}{side.clock(mine):>12}{side.clock(theirs):>12}{theirs / mine:8.2f}{1e9 * mine / n:17.2f} ns"
              + side.doubt(side.race.disturbed), flush=True)
    return found


def plot(found, file):
    """Draw time against size, both logarithmic."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams |= {"svg.hashsalt": "flambeau", "svg.fonttype": "none", "font.family": "sans-serif"}
    n, mine, theirs = zip(*found)
    figure, axes = plt.subplots(figsize=(6.4, 4))
    axes.loglog(n, [1e6 * t for t in theirs], "o-", color="#888888", label="PyTorch eager")
    axes.loglog(n, [1e6 * t for t in mine], "o-", color="#c2410c", label="Flambeau")
    axes.set_xlabel("elements")
    axes.set_ylabel("microseconds")
    axes.set_title("relu(x*y+z)*0.5+x, float32, two cores", fontsize=11)
    axes.grid(alpha=0.3)
    axes.minorticks_off()                         # nine lines per power of ten say little, and make the file large
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.endswith("svg") else None)
    print(f"drawn in {file}")


def main():
    parser = argparse.ArgumentParser(description="Cost against the number of operations and of elements.")
    parser.add_argument("--plot", help="draw the second table into this file, .svg or .png")
    parser.add_argument("--largest", type=int, default=8, help="the most elements, as a power of ten (8 needs 5 GB)")
    args = parser.parse_args()
    side.two_cores()
    traces()
    found = sizes(args.largest)
    if args.plot:
        plot(found, args.plot)


if __name__ == "__main__":
    main()
