"""Do trainings go the same way as under PyTorch: same seed, same data, same losses?

    python bench/curves.py [--plot docs/curves.svg] [--steps 200] [cnn lstm gpt vae]

Each model is one function over `m`, which is flambeau or torch. Nothing is carried from one to the other: weights,
order of the data, dropout and the noise of the VAE all come from `manual_seed`, so the first losses are equal or
something is wrong. Later ones drift apart by rounding, which training magnifies. How far that goes is measured too:
PyTorch against itself, with every weight at the start moved by one unit in its last place.
"""
import argparse
import itertools
import math

import numpy as np

SEED = 0
SHOWN = 1, 10, 50, 200


# --- the models: model(m, rng) gives the module, its data as arrays, the loss of a batch, optimizer and schedule ---

def cnn(m, rng, images=512, size=16, channels=(16, 32), batch=32):
    """Convolutions with batch norm and dropout tell ten noisy patterns apart; SGD with Nesterov momentum."""
    nn = m.nn
    patterns = rng.standard_normal((10, 1, size, size))
    labels = rng.integers(0, 10, images)
    pixels = (patterns[labels] + 2 * rng.standard_normal((images, 1, size, size))).astype(np.float32)
    first, second = channels
    net = nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1, bias=False), nn.BatchNorm2d(second), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * second, 10))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = m.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = m.optim.lr_scheduler.StepLR(optimizer, 60, 0.5)
    return net, (pixels, labels), batch, lambda x, y: criterion(net(x), y), optimizer, schedule


def lstm(m, rng, series=256, length=32, width=32, batch=32):
    """Two layers of LSTM foretell the next value of a sine of unknown speed; Adam, gradients clipped."""
    nn = m.nn
    start, speed = rng.uniform(0, 2 * math.pi, (series, 1)), rng.uniform(0.1, 0.6, (series, 1))
    waves = np.sin(start + speed * np.arange(length + 1)).astype(np.float32)[..., None]     # (series, length + 1, 1)

    class Foretell(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(1, width, num_layers=2, batch_first=True, dropout=0.1)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.lstm(x)[0])

    net = Foretell()
    criterion = nn.MSELoss()
    optimizer = m.optim.Adam(net.parameters(), lr=5e-3)
    schedule = m.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    arrays = waves[:, :-1].copy(), waves[:, 1:].copy()
    return net, arrays, batch, lambda x, y: criterion(net(x), y), optimizer, schedule


def gpt(m, rng, layers=2, width=64, heads=4, tokens=32, vocabulary=48, batch=16):
    """A pre-norm transformer with causal attention reads a chain in which three tokens may follow each; AdamW."""
    nn, F = m.nn, m.nn.functional
    follow = rng.integers(0, vocabulary, (vocabulary, 3))
    text = np.empty((256, tokens + 1), np.int64)
    text[:, 0] = rng.integers(0, vocabulary, len(text))
    for t in range(tokens):
        text[:, t + 1] = follow[text[:, t], rng.integers(0, 3, len(text))]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (part.view(B, T, heads, C // heads).transpose(1, 2)                       # (B, heads, T, …)
                       for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(B, T, C))
            return x + self.mlp(self.norm_2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, x):
            return self.head(self.norm(self.blocks(self.token(x) + self.place(m.arange(x.shape[1])))))

    net = GPT()
    optimizer = m.optim.AdamW(net.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = m.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=201)
    return (net, (text[:, :-1].copy(), text[:, 1:].copy()), batch,
            lambda x, y: F.cross_entropy(net(x).flatten(0, 1), y.flatten()), optimizer, schedule)


def vae(m, rng, images=512, size=12, width=64, latent=4, batch=32):
    """An autoencoder whose code is drawn from a normal distribution, for pictures of soft blobs; RMSprop."""
    nn, distributions = m.nn, m.distributions
    axis = np.linspace(-1, 1, size)
    x, y, radius = (rng.uniform(low, high, (images, 1, 1)) for low, high in ((-0.6, 0.6), (-0.6, 0.6), (0.2, 0.6)))
    blobs = np.exp(-((axis[:, None] - y) ** 2 + (axis - x) ** 2) / radius ** 2).reshape(images, -1).astype(np.float32)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(size * size, width), nn.SiLU(), nn.Linear(width, 2 * latent))
            self.decoder = nn.Sequential(nn.Linear(latent, width), nn.SiLU(), nn.Linear(width, size * size))

        def forward(self, x):
            """Minus the evidence lower bound, per picture."""
            mean, spread = self.encoder(x).chunk(2, dim=-1)
            code = distributions.Normal(mean, nn.functional.softplus(spread) + 1e-4)
            prior = distributions.Normal(m.zeros(latent), m.ones(latent))
            picture = distributions.Bernoulli(logits=self.decoder(code.rsample()), validate_args=False)    # x is grey
            return (distributions.kl_divergence(code, prior).sum(-1) - picture.log_prob(x).sum(-1)).mean()

    net = VAE()
    optimizer = m.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.5)
    schedule = m.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    return net, (blobs,), batch, net, optimizer, schedule


MODELS = {"cnn": cnn, "lstm": lstm, "gpt": gpt, "vae": vae}
TITLES = {"cnn": "CNN, SGD", "lstm": "LSTM, Adam", "gpt": "GPT, AdamW", "vae": "VAE, RMSprop"}


# --- training ---

def train(m, model, steps, nudge=False, **sizes):
    """The losses of the first `steps` batches. `nudge` moves each weight up by one unit in its last place, at first."""
    m.manual_seed(SEED)
    net, arrays, batch, loss_of, optimizer, schedule = model(m, np.random.default_rng(SEED), **sizes)
    if nudge:
        with m.no_grad():
            for p in net.parameters():
                p.copy_(m.nextafter(p, m.full_like(p, math.inf)))
    dataset = m.utils.data.TensorDataset(*(m.from_numpy(array) for array in arrays))
    loader = m.utils.data.DataLoader(dataset, batch_size=batch, shuffle=True, drop_last=True)
    losses = []
    while len(losses) < steps:
        for rows in itertools.islice(loader, steps - len(losses)):
            optimizer.zero_grad()
            loss = loss_of(*rows)
            loss.backward()
            m.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return np.array(losses)


def apart(one, other):
    """How far two curves are from each other at each step: (absolute, relative)."""
    absolute = np.abs(one - other)
    return absolute, absolute / np.abs(other)


# --- saying and drawing it ---

def table(found):
    """What was found, in lines: the largest difference up to some steps, and PyTorch's from itself for comparison."""
    shown = [step for step in SHOWN if step <= len(next(iter(found.values()))[0])]
    yield f"{'':6}{'loss':>20}   {'largest difference up to step':<30}" + "".join(f"{step:>9}" for step in shown)
    for name, (mine, theirs, nudged) in found.items():
        absolute, relative = apart(mine, theirs)
        _, own = apart(nudged, theirs)
        rows = ("absolute", absolute), ("relative", relative), ("PyTorch from itself, relative", own)
        heads = f"{name:<6}{theirs[0]:>8.3f} to {theirs[-1]:>8.3f}", "", ""
        for head, (words, differences) in zip(heads, rows):
            largest = [differences[:step].max() for step in shown]
            yield f"{head:26}   {words:<30}" + "".join(f"{f'{each:.0e}' if each else '0':>9}" for each in largest)


def plot(found, file):
    """Draw both curves of each model, PyTorch's wide and ours thin on top of it."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams |= {"svg.hashsalt": "flambeau", "svg.fonttype": "none", "font.size": 9,
                     "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}
    figure, panels = plt.subplots(2, 2, figsize=(7.2, 5))
    for axes, (name, (mine, theirs, _)) in zip(panels.flat, found.items()):
        at = np.unique(np.append(np.arange(0, len(mine), 4), len(mine) - 1))        # fewer points, a smaller file
        axes.plot(at + 1, theirs[at], color="#bbbbbb", linewidth=5, label="PyTorch")
        axes.plot(at + 1, mine[at], color="#c2410c", linewidth=1.2, label="Flambeau")
        axes.set_title(f"{TITLES[name]}: apart by {apart(mine, theirs)[1].max():.0e} at most", fontsize=9)
        axes.locator_params(nbins=4)
        axes.grid(alpha=0.3)
        axes.set(xlabel="step", ylabel="loss")
    for axes in panels.flat[len(found):]:
        axes.remove()
    panels[0, 0].legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.endswith("svg") else None)
    print(f"drawn in {file}")


def main():
    parser = argparse.ArgumentParser(description="Loss curves beside PyTorch's.")
    parser.add_argument("models", nargs="*", metavar="model", help=f"some of {', '.join(MODELS)}; all if none is named")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--plot", help="draw the curves into this file, .svg or .png")
    args = parser.parse_args()
    unknown = set(args.models) - set(MODELS)
    if unknown:
        parser.error(f"no model is called {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")

    import torch

    import flambeau
    found = {}
    for name in args.models or MODELS:
        model = MODELS[name]
        found[name] = [train(flambeau, model, args.steps), train(torch, model, args.steps),
                       train(torch, model, args.steps, nudge=True)]
    print(*table(found), sep="\n")
    if args.plot:
        plot(found, args.plot)


if __name__ == "__main__":
    main()
