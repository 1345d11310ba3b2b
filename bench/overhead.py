"""What one tiny operation costs, beside PyTorch eager: recorded, run, with a gradient, in a backward, looked at.

    python bench/overhead.py

Both libraries run in one process, interleaved, best of many rounds; the ratio is PyTorch's time over ours (above 1:
we are faster). Recording and running are also shown apart: a recorded operation costs its recording at the call, and
its running when somebody looks.
"""
import time

import numpy as np
import torch

import flambeau

N = 100                       # operations a round
ROUNDS = 200


def chain(m, grad, function=None):
    """100 dependent multiplications of three numbers, then a look at the result."""
    x = m.tensor([1.0, 2.0, 3.0], requires_grad=grad)
    y = m.tensor([0.5, 1.0, 1.5])

    def record():
        z = x
        for _ in range(N):
            z = z * y
        return z

    def record_by_function():
        z = x
        for _ in range(N):
            z = function(z, y)
        return z
    return record if function is None else record_by_function


def functions(m):
    """Single operations that are looked at at once, and one of a Dataset that has a row in its hand."""
    number, x, y, ten = m.tensor(2.0), m.tensor([1.0, 2.0, 3.0]), m.tensor([0.5, 1.0, 1.5]), m.arange(10.0)
    row = np.arange(8, dtype=np.float32)
    return {"(x * x).item()": lambda: (number * number).item(),
            "(x + y).tolist()": lambda: (x + y).tolist(),
            "x.argmax().item()": lambda: ten.argmax().item(),
            "from_numpy(row)": lambda: m.from_numpy(row),
            "from_numpy(row) * 2 + 1": lambda: m.from_numpy(row) * 2 + 1}


def look(z):
    return z.detach().tolist()


def best_of(cases, rounds=ROUNDS):
    """The best time of each case over interleaved rounds."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, run in cases.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def line(what, ours, theirs, per=N):
    ours, theirs = ours / per * 1e6, theirs / per * 1e6
    print(f"{what:<58} ours {ours:7.2f} µs   PyTorch {theirs:7.2f} µs   ratio {theirs / ours:5.2f}")


def main():
    torch.set_num_threads(1)
    for grad in (False, True):
        fb, pt = chain(flambeau, grad), chain(torch, grad)
        words = "with gradient" if grad else "without gradient"

        def recorded(fb=fb):
            start = time.perf_counter()
            z = fb()
            recorded.best = min(recorded.best, time.perf_counter() - start)
            look(z)
        recorded.best = float("inf")
        got = best_of({"fb": recorded, "pt": lambda pt=pt: look(pt())})
        line(f"record and run a tiny multiplication, {words}", got["fb"], got["pt"])
        line("  of which recording", recorded.best, got["pt"])

    def backward(m, record, x):
        def run():
            x.grad = None
            z = record().sum()
            look(z)                       # the forward pass has run: what follows is the backward alone
            start = time.perf_counter()
            z.backward()
            x.grad.tolist()
            return time.perf_counter() - start
        return run

    best = {"fb": float("inf"), "pt": float("inf")}
    runs = {}
    for name, m in (("fb", flambeau), ("pt", torch)):
        record = chain(m, True)
        x = record.__closure__[0].cell_contents
        runs[name] = backward(m, record, x)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            best[name] = min(best[name], run())
    line("backward through 100 operations, per operation", best["fb"], best["pt"])

    one_by_one = {name: functions(m) for name, m in (("fb", flambeau), ("pt", torch))}
    for what in one_by_one["fb"]:
        got = best_of({name: calls[what] for name, calls in one_by_one.items()}, 2000)
        line(what, got["fb"], got["pt"], per=1)
    chains = {name: chain(m, False, m.mul) for name, m in (("fb", flambeau), ("pt", torch))}
    got = best_of({name: lambda record=record: look(record()) for name, record in chains.items()})
    line("record and run torch.mul(z, y)", got["fb"], got["pt"])


if __name__ == "__main__":
    main()
