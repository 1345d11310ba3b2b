"""Teach a small convolutional net to tell drawn shapes apart: eight kinds, any size, place and turn, under noise.

    python examples/image_classifier.py [--epochs 15] [--resume] [--quick]

The drawings are made here, so nothing is downloaded. Training sees each one turned, moved and under noise, every time
anew, saves a checkpoint after every epoch, and goes on from the last one with `--resume` as if it had never stopped. Of
1,000 drawings that it was not trained on, the net knows more than 95 % after fifteen epochs, within a minute on two
cores.

Nothing here is particular to Flambeau: with `import torch` in the place of its import it runs on PyTorch.
"""
import argparse
import math
from pathlib import Path

import numpy as np
from progress import bar

import flambeau as torch

nn, F = torch.nn, torch.nn.functional

KINDS = "disc", "ring", "square", "triangle", "cross", "flower", "crescent", "bar"
SIZE = 24


def drawings(rng, count):
    """Clean grey pictures (count, 1, SIZE, SIZE) and the number of the kind that each shows (count,)."""
    def each(low, high):
        return rng.uniform(low, high, (count, 1, 1))

    # Where each pixel lies as seen from the shape: u and v along its own axes, its radius being 1.
    axis = np.linspace(-1, 1, SIZE)
    x, y, turn, radius = axis - each(-0.3, 0.3), axis[:, None] - each(-0.3, 0.3), each(0, 2 * math.pi), each(0.45, 0.75)
    u, v = (x * np.cos(turn) + y * np.sin(turn)) / radius, (y * np.cos(turn) - x * np.sin(turn)) / radius
    r, around = np.hypot(u, v), np.arctan2(v, u)
    wide, narrow = np.maximum(abs(u), abs(v)), np.minimum(abs(u), abs(v))
    inside = np.stack([                                   # above 0 inside of the shape, by how far
        1 - r,
        0.25 - abs(r - 0.75),
        0.8 - wide,
        0.5 - np.max([u * math.cos(a) + v * math.sin(a) for a in (0, 2 * math.pi / 3, 4 * math.pi / 3)], axis=0),
        np.minimum(1 - wide, 0.25 - narrow),
        0.65 + 0.35 * np.cos(5 * around) - r,
        np.minimum(1 - r, np.hypot(u - 0.5, v) - 0.8),
        np.minimum(1 - abs(u), 0.3 - abs(v))])
    kind = rng.integers(0, len(KINDS), count)
    shape = np.clip(0.5 + inside[kind, np.arange(count)] * radius * SIZE / 2, 0, 1)     # edges are one pixel wide
    pictures = each(0, 0.4) + each(0.4, 0.6) * shape
    return torch.tensor(pictures[:, None], dtype=torch.float32), torch.tensor(kind)


def noisy(pictures):
    return pictures + 0.12 * torch.randn(pictures.shape)


def disturbed(pictures):
    """Each picture turned, mirrored, moved and stretched at random, and under noise."""
    count = len(pictures)
    turn = (torch.rand(count) * 2 - 1) * math.pi
    stretch = 1 + 0.15 * (torch.rand(count, 2) * 2 - 1)
    mirror = (torch.rand(count) < 0.5) * 2 - 1
    along, across = stretch[:, 0], stretch[:, 1] * mirror
    moved = 0.15 * (torch.rand(count, 2) * 2 - 1)
    first = torch.stack([turn.cos() * along, -turn.sin() * across, moved[:, 0]], dim=1)
    second = torch.stack([turn.sin() * along, turn.cos() * across, moved[:, 1]], dim=1)
    grid = F.affine_grid(torch.stack([first, second], dim=1), list(pictures.shape), align_corners=False)
    return noisy(F.grid_sample(pictures, grid, padding_mode="border", align_corners=False))


def network():
    def block(wide_in, wide_out):
        return nn.Sequential(nn.Conv2d(wide_in, wide_out, 3, padding=1, bias=False), nn.BatchNorm2d(wide_out),
                             nn.ReLU(), nn.MaxPool2d(2))

    return nn.Sequential(block(1, 16), block(16, 32), block(32, 64),                # 24 x 24 → 12 → 6 → 3
                         nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 9, len(KINDS)))


@torch.no_grad()
def predicted(model, pictures):
    """The most likely kind of each picture."""
    model.eval()
    return torch.cat([model(part).argmax(dim=1) for part in pictures.split(250)])


def plot(losses, pictures, kinds, guesses, path):
    """Write the loss curve and some drawings with what the net says they are, if matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    curve = left.subplots()
    curve.plot(losses)
    curve.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Loss")
    for at, axes in enumerate(right.subplots(4, 6).flat):
        axes.imshow(pictures[at, 0].numpy(), cmap="gray")
        axes.set_title(KINDS[guesses[at]], fontsize=8, color="black" if guesses[at] == kinds[at] else "red")
        axes.axis("off")
    figure.savefig(path, dpi=120)
    print(f"plot: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, help="default: 15, or 3 with --quick")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint of an earlier run")
    parser.add_argument("--quick", action="store_true", help="fewer drawings, for a trial of some seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="where files are written")
    args = parser.parse_args()
    epochs = args.epochs or (3 if args.quick else 15)
    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint = args.out / "image_classifier.pt"

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train = torch.utils.data.TensorDataset(*drawings(rng, 1280 if args.quick else 4000))
    test_pictures, test_kinds = drawings(rng, 250 if args.quick else 1000)
    test_pictures = noisy(test_pictures)
    loader = torch.utils.data.DataLoader(train, batch_size=64, shuffle=True)

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    losses, done = [], 0
    if args.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        torch.set_rng_state(saved["random"])              # the same order and disturbances as without the break
        losses, done = saved["losses"], saved["epochs"]
        print(f"resumed after epoch {done}")

    first = next(model.parameters())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {first.device}, {len(train):,} drawings")
    for epoch in range(done + 1, epochs + 1):
        model.train()
        for pictures, kinds in (steps := bar(loader, f"epoch {epoch}/{epochs}")):
            loss = F.cross_entropy(model(disturbed(pictures)), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            steps.set_postfix_str(f"loss {losses[-1]:.3f}")
        schedule.step()
        accuracy = (predicted(model, test_pictures) == test_kinds).float().mean().item()
        mean = sum(losses[-len(loader):]) / len(loader)
        print(f"epoch {epoch}: first loss {losses[-len(loader)]:.5f}, mean {mean:.5f}, accuracy {accuracy:.1%}",
              flush=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
                    "random": torch.get_rng_state(), "losses": losses, "epochs": epoch}, checkpoint)

    guesses = predicted(model, test_pictures)
    plot(losses, test_pictures, test_kinds, guesses, args.out / "image_classifier.png")
    print(f"accuracy on drawings not trained on: {(guesses == test_kinds).float().mean().item():.1%}")


if __name__ == "__main__":
    main()
