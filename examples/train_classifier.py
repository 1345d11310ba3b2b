"""Train a small classifier on points that lie on three spirals, with tensors and autograd alone.

Nothing here is particular to Flambeau: with plain `import torch` for its import, it runs on PyTorch.

    python examples/train_classifier.py [--epochs 60] [--seed 0] [--out examples/out/loss.png]
"""

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

import flambeau as torch


def spirals(rng, per_class, classes=3):
    """Points (N, 2) on `classes` arms that wind out of the origin, and which arm each is on (N,)."""
    points, labels = [], []
    for arm in range(classes):
        radius = np.linspace(0.1, 1.0, per_class)
        angle = 4.0 * radius + 2 * np.pi * arm / classes + rng.normal(0.0, 0.45, per_class)
        points.append(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1))
        labels.append(np.full(per_class, arm))
    return torch.tensor(np.concatenate(points), dtype=torch.float32), torch.tensor(np.concatenate(labels))


def batches(rng, x, y, size):
    """All of `x` and `y` in a new order, `size` rows at a time."""
    order = torch.from_numpy(rng.permutation(len(x)))
    return [(x[rows], y[rows]) for rows in order.split(size)]


def layers(*sizes):
    """Weights and biases of a multi-layer perceptron, in order, each asking for its gradient."""
    params = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        weight = torch.randn(fan_in, fan_out) * (2 / fan_in) ** 0.5
        params += [weight.requires_grad_(), torch.zeros(fan_out, requires_grad=True)]
    return params


def logits(params, x):
    for i in range(0, len(params), 2):
        x = x @ params[i] + params[i + 1]           # (B, fan_in) -> (B, fan_out)
        if i + 2 < len(params):
            x = x.relu()
    return x


@torch.no_grad()
def adam(params, state, step, lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8):
    """One step of Adam for every parameter, then its gradient is forgotten."""
    for p, (m, v) in zip(params, state):
        m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        p -= lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)
        p.grad = None


def plot(losses, path):
    """Write the loss curve to `path`, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(losses, linewidth=0.8)
    axes.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Three spirals")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"loss curve: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "loss.png")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    x, y = spirals(rng, per_class=500)
    test_x, test_y = spirals(rng, per_class=200)
    params = layers(2, 64, 64, 3)
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in params]

    first, _ = batches(rng, x, y, args.batch)[0]
    print(f"device of the first parameter: {params[0].device}, of the first batch: {first.device}")

    losses = []
    for _ in (bar := tqdm(range(args.epochs), unit="epoch")):
        for batch_x, batch_y in batches(rng, x, y, args.batch):
            loss = torch.nn.functional.cross_entropy(logits(params, batch_x), batch_y)
            loss.backward()
            adam(params, state, step=len(losses) + 1)
            losses.append(loss.item())
        bar.set_postfix(loss=f"{losses[-1]:.3f}")

    with torch.no_grad():
        accuracy = (logits(params, test_x).argmax(dim=1) == test_y).float().mean().item()
    plot(losses, args.out)
    print(f"accuracy on points not trained on: {accuracy:.1%}")


if __name__ == "__main__":
    main()
