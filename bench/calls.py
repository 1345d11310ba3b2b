"""What does one call on a few numbers cost, with a look at its result, beside PyTorch?

    python bench/calls.py [words …] [--below 1]

PyTorch's time over ours for many calls of the kinds that notebooks, losses, environments and samplers are made of, on
tensors of 32 elements, one thread, the best of many turns. The caches are cold, since both take turns; in a loop of its
own each is quicker. Words choose calls, and with `--below` only what is slower than that is printed.
"""
import argparse
import time

import numpy as np
import torch

import flambeau

ROUNDS = 300


def calls(m):
    """{what is written: the call} under the library `m`."""
    F = m.nn.functional
    rng = np.random.RandomState(0)

    def drawn(*shape): return m.tensor(rng.rand(*shape).astype(np.float32))
    x, y, v, w, bias = drawn(4, 8), drawn(4, 8), drawn(8), drawn(8, 8), drawn(8)
    image, weight = drawn(1, 2, 6, 6), drawn(2, 2, 3, 3)
    rows, places, mask, truth = m.tensor([1, 2, 3, 0]), m.tensor([[1, 2], [0, 1], [3, 4], [5, 6]]), x > 0.5, y.round()
    linear, norm = m.nn.Linear(8, 8).requires_grad_(False), m.nn.LayerNorm(8).requires_grad_(False)
    return {
        "x + y": lambda: x + y, "x.add(y, alpha=2)": lambda: x.add(y, alpha=2), "x ** 2": lambda: x ** 2,
        "x == y": lambda: x == y, "sigmoid(x)": lambda: m.sigmoid(x), "lerp(x, y, 0.3)": lambda: m.lerp(x, y, 0.3),
        "x.clamp(0.2, 0.8)": lambda: x.clamp(0.2, 0.8), "where(mask, x, y)": lambda: m.where(mask, x, y),
        "x.masked_fill(mask, 0.0)": lambda: x.masked_fill(mask, 0.0), "x.long()": lambda: x.long(),
        "x.to(int64)": lambda: x.to(m.int64), "x.clone().add_(y)": lambda: x.clone().add_(y),
        "x.sum()": lambda: x.sum(), "x.mean(1, keepdim=True)": lambda: x.mean(1, keepdim=True),
        "x.std()": lambda: x.std(), "std_mean(x)[0]": lambda: m.std_mean(x)[0], "x.norm()": lambda: x.norm(),
        "x.max(1)[0]": lambda: x.max(1)[0], "aminmax(x)[0]": lambda: m.aminmax(x)[0], "mask.any()": lambda: mask.any(),
        "x.softmax(-1)": lambda: x.softmax(-1), "logsumexp(x, 1)": lambda: m.logsumexp(x, 1),
        "x.cumsum(1)": lambda: x.cumsum(1), "x.cumprod(1)": lambda: x.cumprod(1), "diff(v)": lambda: m.diff(v),
        "x.sort(1)[0]": lambda: x.sort(1)[0], "x.topk(2)[0]": lambda: x.topk(2)[0], "v.median()": lambda: v.median(),
        "x @ w": lambda: x @ w, "w @ v": lambda: w @ v, "outer(v, v)": lambda: m.outer(v, v),
        "linear(x, w, bias)": lambda: F.linear(x, w, bias), "Linear()(x)": lambda: linear(x),
        "einsum('ij,kj->ik', x, y)": lambda: m.einsum("ij,kj->ik", x, y), "inv(w)": lambda: m.linalg.inv(w),
        "relu(x)": lambda: F.relu(x), "gelu(x)": lambda: F.gelu(x), "leaky_relu(x, 0.1)": lambda: F.leaky_relu(x, 0.1),
        "layer_norm(x, (8,))": lambda: F.layer_norm(x, (8,)), "LayerNorm()(x)": lambda: norm(x),
        "normalize(x)": lambda: F.normalize(x), "dropout(x, 0.5)": lambda: F.dropout(x, 0.5),
        "conv2d(image, weight)": lambda: F.conv2d(image, weight), "pad(x, (1, 1))": lambda: F.pad(x, (1, 1)),
        "max_pool2d(image, 2)": lambda: F.max_pool2d(image, 2), "avg_pool2d(image, 2)": lambda: F.avg_pool2d(image, 2),
        "interpolate(image, 2)": lambda: F.interpolate(image, scale_factor=2),
        "cross_entropy(x, rows)": lambda: F.cross_entropy(x, rows), "mse_loss(x, y)": lambda: F.mse_loss(x, y),
        "smooth_l1_loss(x, y)": lambda: F.smooth_l1_loss(x, y), "kl_div(x, y)": lambda: F.kl_div(x, y, reduction="sum"),
        "bce_with_logits(x, truth)": lambda: F.binary_cross_entropy_with_logits(x, truth),
        "bce(x, truth)": lambda: F.binary_cross_entropy(x, truth), "cdist(x, y)": lambda: m.cdist(x, y),
        "cosine_similarity(x, y)": lambda: F.cosine_similarity(x, y),
        "attention(x, y, y)": lambda: F.scaled_dot_product_attention(x[None], y[None], y[None]),
        "x[1]": lambda: x[1], "x[:, 1:3]": lambda: x[:, 1:3], "x[rows]": lambda: x[rows], "x[mask]": lambda: x[mask],
        "x.gather(1, places)": lambda: x.gather(1, places), "x.index_select(1, rows)": lambda: x.index_select(1, rows),
        "x.scatter(1, places, 0.0)": lambda: x.scatter(1, places, 0.0), "one_hot(rows, 5)": lambda: F.one_hot(rows, 5),
        "embedding(rows, w)": lambda: F.embedding(rows, w), "mask.nonzero()": lambda: mask.nonzero(),
        "unique(rows)": lambda: m.unique(rows), "bincount(rows)": lambda: m.bincount(rows),
        "searchsorted(v, v)": lambda: m.searchsorted(v, v), "cat([x, y])": lambda: m.cat([x, y]),
        "stack([x, y])": lambda: m.stack([x, y]), "x.reshape(8, 4)": lambda: x.reshape(8, 4),
        "x.chunk(2, 1)[0]": lambda: x.chunk(2, 1)[0], "v.repeat(2, 1)": lambda: v.repeat(2, 1),
        "x.flip(0)": lambda: x.flip(0), "tril(w)": lambda: m.tril(w), "x.t().contiguous()": lambda: x.t().contiguous(),
        "zeros(3, 4)": lambda: m.zeros(3, 4), "ones_like(x)": lambda: m.ones_like(x), "arange(5)": lambda: m.arange(5),
        "full((3,), 2.0)": lambda: m.full((3,), 2.0), "eye(4)": lambda: m.eye(4),
        "linspace(0, 1, 5)": lambda: m.linspace(0, 1, 5), "tensor([1.0, 2.0])": lambda: m.tensor([1.0, 2.0]),
        "rand(3, 4)": lambda: m.rand(3, 4), "randn(3, 4)": lambda: m.randn(3, 4),
        "randint(0, 5, (4,))": lambda: m.randint(0, 5, (4,)), "randperm(6)": lambda: m.randperm(6),
        "bernoulli(x)": lambda: m.bernoulli(x), "equal(x, x)": lambda: m.equal(x, x)}


def seconds(call):
    start = time.perf_counter()
    made = call()
    if not isinstance(made, bool):
        made.tolist()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--below", type=float, default=np.inf)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    flambeau.set_num_threads(1)
    ours, theirs = calls(flambeau), calls(torch)
    ratios = []
    for name in ours:
        if asked.words and not any(word in name for word in asked.words):
            continue
        best = [np.inf, np.inf]
        for _ in range(ROUNDS):
            best = [min(one, seconds(call)) for one, call in zip(best, (ours[name], theirs[name]), strict=True)]
        ratios.append(best[1] / best[0])
        if ratios[-1] < asked.below:
            fb, pt = (one * 1e6 for one in best)
            print(f"{name:<28} ours {fb:7.1f} µs   PyTorch {pt:7.1f} µs   ratio {ratios[-1]:5.2f}")
    if ratios:
        print(f"{len(ratios)} calls, geometric mean {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()
