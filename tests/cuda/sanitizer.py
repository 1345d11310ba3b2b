"""A sample of everything that Flambeau runs on a GPU, small enough to run under compute-sanitizer.

    compute-sanitizer --tool memcheck python tests/cuda/sanitizer.py
    compute-sanitizer --tool racecheck python tests/cuda/sanitizer.py

Each work runs on the GPU and on the CPU from the same numbers, at sizes around the edges of warps, blocks and vectors,
and its results are compared. At the end it says what was covered: the works, and the steps of their plans by kind.
`--simulated` runs it on the simulated driver.
"""
import argparse
import collections
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)                      # not this folder: its modules would hide others

import flambeau as torch
from flambeau.backends.cuda import schedule
from flambeau.nn import functional as F

SIZES = (1, 33, 1000, 4097)
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
SEEN = collections.Counter()                 # kinds of steps in the plans that ran
FAILED = []


def drawn(shape, dtype, device, seed=0):
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(array).to(getattr(torch, dtype)).to(device)


def whole(shape, below, device, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, below, shape)).to(device)


# --- the works: each takes a dtype and a device, and gives tensors --------------------------------------------------

def maps(dtype, device):
    """Elementwise, fused: contiguous, broadcast, strided, cast, with whole numbers and truth values."""
    for n in SIZES:
        x, y = drawn(n, dtype, device), drawn(n, dtype, device, 1)
        yield torch.relu(x * y + 1) * 0.5 + x
        yield torch.tanh(F.gelu(x) * torch.sigmoid(x) + torch.exp(-x * x))
        yield torch.where(x > y, x.float(), y.float() * 2)
        yield (x > 0).long() * 3 - 1
    x = drawn((33, 65), dtype, device)
    yield x + drawn(65, dtype, device, 2) * drawn((33, 1), dtype, device, 3)
    yield x[::2, 1::3] * 2 + 1
    yield x[3:].expand(2, 30, 65) - 1


def rows(dtype, device):
    """Along rows: softmax, norms, entropies, and their gradients."""
    for height, width in ((1, 1), (5, 31), (3, 1025), (64, 129), (2, 5000)):
        x = drawn((height, width), dtype, device).requires_grad_()
        weight, bias = (drawn(width, dtype, device, seed).requires_grad_() for seed in (1, 2))
        yield torch.softmax(x, -1).detach()
        yield torch.log_softmax(x, -1).detach()
        out = F.layer_norm(x, (width,), weight, bias)
        yield from torch.autograd.grad(out.float().square().mean(), (x, weight, bias))
        loss = F.cross_entropy(x.float(), whole(height, width, device))
        yield from torch.autograd.grad(loss, (x,))
        yield x.detach().float().var(-1, correction=0)
        yield x.detach().logsumexp(-1)


def columns(dtype, device):
    """Down columns, in blocks: beside rows that have what is added up, and by kernels of their own."""
    for height, width in ((300, 33), (257, 520)):
        x = drawn((height, width), dtype, device).requires_grad_()
        weight, bias = (drawn(width, dtype, device, seed).requires_grad_() for seed in (1, 2))
        out = F.layer_norm(x, (width,), weight, bias)
        yield from torch.autograd.grad(out, (x, weight, bias), drawn((height, width), dtype, device, 3))
        out = torch.softmax(x * weight + bias, -1)
        yield from torch.autograd.grad(out, (x, weight, bias), drawn((height, width), dtype, device, 3))
        yield x.detach().float().sum(0)


def reductions(dtype, device):
    """Over everything, rows, columns and the middle; cut into several blocks where there is much of it."""
    for shape in ((1,), (33, 65), (1, 200_000), (3000, 7), (7, 40, 33), (0, 4)):
        x = drawn(shape, dtype, device)
        yield x.float().sum()
        for dim in range(len(shape)):
            yield x.float().sum(dim)
            if shape[dim]:
                yield x.amax(dim)
                yield x.argmin(dim)
        yield (x > 0).any()
        yield x.float().norm()


def movement(dtype, device):
    """Transposes, gathers, scatters, joins, flips."""
    for height, width in ((1, 5), (33, 65), (130, 70)):
        x = drawn((height, width), dtype, device)
        yield (x.t() + 1).contiguous()
        yield torch.cat([x, x.flip(0)], 1)
        yield x.roll(3, 1)
        yield x.permute(1, 0).reshape(-1)
        index = whole(40, height, device)
        yield x[index]
        yield x.index_select(0, index)
        yield x.gather(1, whole((height, 4), width, device))
        yield torch.zeros(height, width, device=device).index_add(0, index, drawn((40, width), "float32", device, 4))
        yield torch.zeros(height, width, device=device).scatter_add(1, whole((height, 50), width, device),
                                                                     drawn((height, 50), "float32", device, 5))
        table = drawn((height, width), "float32", device).requires_grad_()
        yield torch.autograd.grad(F.embedding(index, table).square().sum(), table)[0]
        y = x.clone()
        y[:, ::2] = 3
        y[y > 1] = 0
        yield y


def scans(dtype, device):
    """Running sums, sorts, the greatest few."""
    for height, width in ((1, 1), (3, 1000), (70, 33), (1, 5000)):
        x = drawn((height, width), "float32", device)
        yield x.cumsum(1)
        yield x.cumsum(0)
        yield x.cumprod(1)
        yield x.cummax(1)[0]
        yield x.sort(1)[0]
        yield x.sort(0, descending=True)[0]
        yield x.topk(min(7, width), 1)[0]
        yield (x > 0.5).nonzero()
        yield x.flatten().msort()


def products(dtype, device):
    """Products with what is fused to them, convolutions, pools, attention; and gradients."""
    a, b = drawn((33, 40), dtype, device).requires_grad_(), drawn((40, 17), dtype, device, 1).requires_grad_()
    yield from torch.autograd.grad(F.gelu(a @ b).float().sum(), (a, b))
    yield torch.bmm(drawn((3, 8, 9), dtype, device), drawn((3, 9, 5), dtype, device, 1))
    yield F.linear(a, b.t(), drawn(17, dtype, device, 2)).relu().detach()
    x = drawn((2, 3, 12, 12), dtype, device).requires_grad_()
    w = drawn((4, 3, 3, 3), dtype, device, 1).requires_grad_()
    out = F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2)
    yield from torch.autograd.grad(out.float().square().mean(), (x, w))
    yield F.avg_pool2d(x, 3).detach()
    yield F.interpolate(x.detach().float(), scale_factor=2, mode="bilinear")
    yield F.batch_norm(x.detach().float(), None, None, training=True)
    q, k, v = (drawn((2, 2, 33, 16), dtype, device, seed).requires_grad_() for seed in (0, 1, 2))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    yield out.detach()
    yield from torch.autograd.grad(out.float().square().mean(), (q, k, v))


def training(dtype, device):
    """A few steps of a small net, with an optimizer over all parameters at once, plain and compiled."""
    for compile in (lambda step: step, torch.compile):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(12, 33), torch.nn.LayerNorm(33), torch.nn.GELU(),
                                  torch.nn.Linear(33, 5)).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        x, y = drawn((20, 12), "float32", device), whole(20, 5, device)

        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss
        step = compile(step)
        for _ in range(4):
            loss = step(x, y)
        yield loss.detach()
        yield from (p.detach() for p in net.parameters())


def random(dtype, device):
    """Numbers are drawn; which, other tests say."""
    for n in SIZES:
        for t in (torch.rand(n, device=device), torch.randn(n, device=device), torch.randperm(n, device=device).float(),
                  torch.randint(5, (n,), device=device).float(), F.dropout(torch.ones(n, device=device)),
                  torch.bernoulli(torch.full((n,), 0.3, device=device)), torch.empty(n, device=device).exponential_()):
            assert bool(t.isfinite().all())
            yield (t.abs() < 1e4).float().min()


WORKS = {"maps": (maps, DTYPES), "rows": (rows, DTYPES), "columns": (columns, DTYPES),
         "reductions": (reductions, DTYPES), "movement": (movement, DTYPES), "scans": (scans, DTYPES[:1]),
         "products": (products, DTYPES), "training": (training, DTYPES[:1]), "random": (random, DTYPES[:1])}


# --- running them ---------------------------------------------------------------------------------------------------

def near(a, b, tolerance):
    """Whether an array agrees with a tensor of the CPU, beside the largest number of that."""
    b = b.detach().double().numpy()
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
    return a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def run(name, work, dtype):
    """One work in one dtype on both devices; how many results agree."""
    there, here, agreed, number = work(dtype, "cuda"), work(dtype, "cpu"), 0, 0
    while True:
        try:
            mine = next(there, None)
            if mine is None:
                return agreed
            host = mine.detach().double().cpu().numpy()
            plan = torch.plans.last()
            if plan is not None:
                SEEN.update(step.kind for step in plan.steps)
                SEEN["kernel with columns"] += sum(bool(step.launch.kernel.columns) for step in plan.kernels)
        except Exception as error:
            said = (str(error).splitlines() or [""])[0][:200]
            FAILED.append(f"{name} {dtype}, result {number}: {type(error).__name__}: {said}")
            return agreed
        if near(host, next(here), TOLERANCE[dtype]):
            agreed += 1
        else:
            FAILED.append(f"{name} {dtype}, result {number}: differs from the CPU's")
        number += 1


def main():
    parser = argparse.ArgumentParser(description="A sample of what runs on a GPU.")
    parser.add_argument("works", nargs="*", help=f"some of {', '.join(WORKS)}")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--seconds", type=float, default=100, help="after which no further work is begun")
    args = parser.parse_args()
    schedule.MIN_CARRYING_ELEMENTS = schedule.USED_OF_ROUNDS = 0       # columns ride along, however few they are
    if args.simulated:
        from tests.cuda.simulated import simulating
        with simulating(devices=1, races=True):
            check(args)
    else:
        check(args)
    sys.exit(1 if FAILED else 0)


def check(args):
    """Run the works and print what came of them."""
    began = time.perf_counter()
    for name in args.works or WORKS:
        work, dtypes = WORKS[name]
        if time.perf_counter() - began > args.seconds:
            print(f"{name}: not begun, {args.seconds:.0f} s are over")
            continue
        found = {dtype: run(name, work, dtype) for dtype in dtypes}
        print(f"{name}: {', '.join(f'{count} of {dtype}' for dtype, count in found.items())}, "
              f"{time.perf_counter() - began:.1f} s", flush=True)
    print("steps: " + ", ".join(f"{count} {kind}" for kind, count in SEEN.most_common()))
    print(*FAILED[:20], sep="\n")
    print(f"{len(FAILED)} failures")


if __name__ == "__main__":
    main()
