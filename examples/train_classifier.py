"""Train a small classifier on points that lie on three spirals, with tensors and autograd alone.

Nothing here is particular to Flambeau: with plain `import torch` for its import, it runs on PyTorch.

    python examples/train_classifier.py [--epochs 60] [--seed 0] [--out examples/out/spirals.png]
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
def adam(params, state, step, lr=3e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    """One step of Adam for every parameter, then its gradient is forgotten."""
    for p, (m, v) in zip(params, state):
        m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        p -= lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)
        p.grad = None


@torch.no_grad()
def predicted(params, x):
    """The most likely arm for each point."""
    return logits(params, x).argmax(dim=1)


def plot(losses, per_epoch, params, x, y, path):
    """Write the loss curve, and the points over what the net says about the whole plane, if matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    curve, plane = figure.subplots(1, 2)

    means = torch.tensor(losses).reshape(-1, per_epoch).mean(dim=1)
    curve.plot(losses, color="tab:blue", linewidth=0.6, alpha=0.4, label="each step")
    curve.plot(per_epoch * (np.arange(len(means)) + 0.5), means, color="tab:blue", label="mean of an epoch")
    curve.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Loss")
    curve.legend()

    side = torch.linspace(-1.2, 1.2, 200)
    across, up = torch.meshgrid(side, side, indexing="xy")
    arms = predicted(params, torch.stack([across, up], dim=-1).reshape(-1, 2)).reshape(200, 200)
    plane.contourf(across, up, arms, levels=[-0.5, 0.5, 1.5, 2.5], colors=["#cfe2f3", "#fde3cf", "#d9ead3"])
    plane.scatter(*x.T, c=[("tab:blue", "tab:orange", "tab:green")[arm] for arm in y], s=5)
    plane.set(title="Points not trained on, and what the net says", aspect="equal")

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"plot: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "spirals.png")
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

    accuracy = (predicted(params, test_x) == test_y).float().mean().item()
    plot(losses, len(losses) // args.epochs, params, test_x, test_y, args.out)
    print(f"accuracy on points not trained on: {accuracy:.1%}")


if __name__ == "__main__":
    main()
