"""Steps of nets that are trained often, for the kernels that come with the package: see package_kernels.py.

What is fused in a step follows from how its layers stand one after the other, and hardly from their sizes: so a kernel
of a residual block here is the kernel of a residual block elsewhere. (A few sizes do show: rows of up to 16, of up to
32 and from 256 elements on, sums of many rows, and results of many megabytes.) Each function builds a step like those;
none is meant to learn anything.
"""
import numpy as np

import flambeau as torch

from .. import nn
from ..nn import functional as F


def stepping(net, loss, optimizer, *inputs, clip=None):
    """A function that takes one training step of `net`."""
    optimizer = optimizer(net.parameters())

    def step():
        optimizer.zero_grad()
        found = loss(net(*inputs))
        found.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        return found
    return step


def drawn(*shape):
    """An array of normal numbers, as a program reads it from a file."""
    return torch.tensor(np.random.default_rng(0).standard_normal(shape, np.float32))


def labels(high, *shape):
    """Whole numbers below `high`."""
    return torch.tensor(np.random.default_rng(1).integers(0, high, shape))


def sgd(parameters): return torch.optim.SGD(parameters, 0.01)
def momentum(parameters): return torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=1e-4)
def adam(parameters): return torch.optim.Adam(parameters, 1e-3)
def adamw(parameters): return torch.optim.AdamW(parameters, 1e-3)


def perceptrons():
    """Layers of numbers: each activation, with and without norms and dropout, each loss, each optimizer."""
    classes, wide = 10, 512
    x, y, few = drawn(128, 784), labels(classes, 128), drawn(128, 4)

    def layers(activation, *more, wide=wide, into=784, out=classes):
        return nn.Sequential(nn.Linear(into, wide), *[m(wide) for m in more[:1]], activation(), *more[1:],
                             nn.Linear(wide, wide), *[m(wide) for m in more[:1]], activation(), *more[1:],
                             nn.Linear(wide, out))

    def entropy(out): return F.cross_entropy(out, y)
    for activation, optimizer in ((nn.ReLU, sgd), (nn.ReLU, momentum), (nn.ReLU, adam), (nn.GELU, adamw),
                                  (nn.SiLU, adamw), (nn.Tanh, sgd)):
        yield stepping(layers(activation), entropy, optimizer, x)
    yield stepping(layers(nn.ReLU, nn.BatchNorm1d, nn.Dropout(0.2)), entropy, adam, x)
    yield stepping(layers(nn.GELU, nn.LayerNorm, nn.Dropout(0.1)), entropy, adamw, x)
    yield stepping(layers(nn.ReLU, wide=64, into=4, out=1), lambda out: F.mse_loss(out[:, 0], few[:, 0]), adam, few)
    yield stepping(layers(nn.ReLU, wide=64, into=4, out=1),
                   lambda out: F.binary_cross_entropy_with_logits(out[:, 0], (few[:, 0] > 0).float()), adam, few)


class Residual(nn.Module):
    """A residual block of two convolutions, or of three."""

    def __init__(self, into, wide, stride, narrow=None):
        super().__init__()
        inner = narrow or wide
        parts = [(into, inner, 3, stride), (inner, wide, 3, 1)] if narrow is None else \
            [(into, inner, 1, 1), (inner, inner, 3, stride), (inner, wide, 1, 1)]
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in parts)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in parts)
        self.short = nn.Sequential(nn.Conv2d(into, wide, 1, stride, bias=False), nn.BatchNorm2d(wide)) \
            if stride > 1 or into != wide else nn.Identity()

    def forward(self, input):
        x = input
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = norm(convolution(F.relu(x) if i else x))
        return F.relu(x + self.short(input))


class Branches(nn.Module):
    """Four branches of convolutions, their results side by side (GoogLeNet)."""

    def __init__(self, into, wide):
        super().__init__()

        def convolution(a, b, size=1):
            return nn.Sequential(nn.Conv2d(a, b, size, padding=size // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        self.branches = nn.ModuleList([
            convolution(into, wide), nn.Sequential(convolution(into, wide), convolution(wide, wide, 3)),
            nn.Sequential(convolution(into, wide // 8), convolution(wide // 8, wide, 3)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(into, wide))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def image_nets():
    """Convolutions that classify."""
    y = labels(10, 4)
    blocks = [Residual(64, 64, 1), Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 128, 1),
              Residual(128, 256, 2), Residual(256, 256, 1), Residual(256, 512, 2), Residual(512, 512, 1)]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    small = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    yield stepping(nn.Sequential(*small, *blocks, *head), lambda out: F.cross_entropy(out, y), momentum,
                   drawn(4, 3, 32, 32))
    large = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    blocks = [Residual(64, 256, 1, 64), Residual(256, 256, 1, 64), Residual(256, 512, 2, 128)]
    yield stepping(nn.Sequential(*large, *blocks, *head), lambda out: F.cross_entropy(out, y), momentum,
                   drawn(4, 3, 96, 96))
    smaller = nn.MaxPool2d(3, 2, 1)             # until a channel has no more than four pixels
    branched = (Branches(64, 32), smaller, Branches(128, 64), smaller, Branches(256, 128), Branches(512, 128), smaller,
                Branches(512, 128), Branches(512, 128))
    stacked = [part for into, wide in ((3, 64), (64, 128), (128, 256), (256, 512), (512, 512))
               for part in (nn.Conv2d(into, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))]         # VGG
    wide_head = nn.Flatten(), nn.Linear(2048, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 10)
    for batch, optimizer in ((4, momentum), (2, sgd), (1, sgd)):       # sums over few images are other kernels
        for parts in ((*large, *branched, *head), (*stacked, *wide_head)):
            yield stepping(nn.Sequential(*parts), lambda out: F.cross_entropy(out, y[:len(out)]), optimizer,
                           drawn(batch, 3, 64, 64))
    plain = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(),
                          nn.Dropout(0.5), nn.Linear(128, 10))
    yield stepping(plain, lambda out: F.cross_entropy(out, y), adam, drawn(4, 1, 28, 28))


class Hourglass(nn.Module):
    """Convolutions down and up again, with what they met on the way (U-Net)."""

    def __init__(self, norm, activation, wide=(32, 64, 128)):
        super().__init__()

        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), norm(b), activation(),
                                 nn.Conv2d(b, b, 3, padding=1), norm(b), activation())
        self.down = nn.ModuleList(block(a, b) for a, b in zip((1, *wide), wide, strict=False))
        self.up = nn.ModuleList(block(a + b, b) for a, b in zip(wide[:0:-1], wide[-2::-1], strict=True))
        self.out = nn.Conv2d(wide[0], 1, 1)

    def forward(self, x):
        met = []
        for part in self.down[:-1]:
            met.append(part(x))
            x = F.max_pool2d(met[-1], 2)
        x = self.down[-1](x)
        for part in self.up:
            x = part(torch.cat((F.interpolate(x, scale_factor=2), met.pop()), 1))
        return self.out(x)


def hourglasses():
    """Convolutions from an image to an image."""
    x, y = drawn(4, 1, 64, 64), drawn(4, 1, 64, 64)
    yield stepping(Hourglass(lambda wide: nn.GroupNorm(8, wide), nn.SiLU), lambda out: F.mse_loss(out, y), adam, x)
    yield stepping(Hourglass(nn.BatchNorm2d, nn.ReLU),
                   lambda out: F.binary_cross_entropy_with_logits(out, (y > 0).float()), adam, x)


class PatchEncoder(nn.Module):
    """An image's patches, a token before them, and encoder layers (ViT)."""

    def __init__(self, wide=128, **how):
        super().__init__()
        self.patches = nn.Conv2d(3, wide, 8, 8)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, wide)), nn.Parameter(torch.randn(1, 65, wide))
        layer = nn.TransformerEncoderLayer(wide, wide // 64, 4 * wide, batch_first=True, **how)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(wide, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class DecoderBlock(nn.Module):
    """Attention to what came before, and a perceptron, each after a norm (GPT)."""

    def __init__(self, wide, heads, bias, dropout):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(wide, bias=bias) for _ in range(2))
        self.into, self.out = nn.Linear(wide, 3 * wide, bias=bias), nn.Linear(wide, wide, bias=bias)
        self.up, self.down = nn.Linear(wide, 4 * wide, bias=bias), nn.Linear(4 * wide, wide, bias=bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.into(self.norms[0](x)).split(C, dim=2))
        met = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.drop(self.out(met))
        return x + self.drop(self.down(F.gelu(self.up(self.norms[1](x)))))


class Decoder(nn.Module):
    """A language model of such blocks."""

    def __init__(self, words, tokens, wide=128, bias=True, dropout=0.0):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, wide), nn.Embedding(tokens, wide)
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(wide, bias=bias)
        self.blocks = nn.Sequential(*(DecoderBlock(wide, wide // 64, bias, dropout) for _ in range(2)))
        self.head = nn.Linear(wide, words, bias=False)

    def forward(self, x):
        x = self.drop(self.words(x) + self.positions(torch.arange(x.shape[1])))
        return self.head(self.norm(self.blocks(x)))


class Recurrent(nn.Module):
    """A language model of recurrent layers."""

    def __init__(self, cls, words, wide=128, dropout=0.0):
        super().__init__()
        self.drop, self.words = nn.Dropout(dropout), nn.Embedding(words, wide)
        self.layers, self.head = cls(wide, wide, 2, dropout=dropout), nn.Linear(wide, words)

    def forward(self, x):
        return self.head(self.drop(self.layers(self.drop(self.words(x)))[0]))


def sequences():
    """Attention, and recurrent layers: narrow and wide ones."""
    y, x = labels(10, 16), drawn(16, 3, 64, 64)
    for how in (dict(dropout=0.1, activation="gelu", norm_first=True), dict(dropout=0.1), dict(wide=256)):
        yield stepping(PatchEncoder(**how), lambda out: F.cross_entropy(out, y), adamw, x)
    words, tokens = 500, 128
    x, y_words = labels(words, 8, tokens), labels(words, 8 * tokens)

    def entropy(out): return F.cross_entropy(out.flatten(0, 1), y_words)
    yield stepping(Decoder(words, tokens), entropy, adamw, x, clip=1.0)
    yield stepping(Decoder(words, tokens, 256, bias=False, dropout=0.2), entropy, adamw, x)
    for cls, wide, dropout in ((nn.LSTM, 256, 0.2), (nn.LSTM, 128, 0.0), (nn.GRU, 128, 0.2)):
        yield stepping(Recurrent(cls, words, wide, dropout=dropout), entropy, sgd, x.T.contiguous())


def policies():
    """An actor and a critic."""
    def layers(out):
        return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))
    actor, critic, seen, actions = layers(2), layers(1), drawn(128, 4), labels(2, 128)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer, old, gains = torch.optim.Adam(parameters, 3e-4, eps=1e-5), drawn(128), drawn(128)

    def learn():
        policy = torch.distributions.Categorical(logits=actor(seen))
        ratio = (policy.log_prob(actions) - old).exp()
        gain = (gains - gains.mean()) / (gains.std() + 1e-8)
        loss = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 0.8, 1.2)).mean() + \
            0.5 * (critic(seen).view(-1) - old).square().mean() - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        return loss

    def act():
        with torch.no_grad():
            return torch.distributions.Categorical(logits=actor(seen[0])).sample()
    yield learn
    yield act


def steps():
    """All of them, one after the other."""
    for nets in (perceptrons, image_nets, hourglasses, sequences, policies):
        yield from nets()
