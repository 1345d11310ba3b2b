"""How long does a training step of a real model take beside PyTorch: plain, compiled, and cold?

    python bench/training.py [words …] [--threads 2] [--rounds 5] [--patience 10] [--cold [--tries 3]] [--no-compile]

The ratio is PyTorch eager's time over ours; each model is written once, as a function of the library. Both draw their
parameters from the same seed, and the losses of the first steps are compared before anything is timed. With `--cold`
the first three steps are timed, each contender in processes of its own with empty caches. See side.py for how.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from side import COMPILED, EAGER, OURS, PATIENCE, ROUNDS, Claim, Row, Table, eager, ours, two_cores

MODELS = {}                   # name → (what builds it, ratio at least with any number of threads, compiled, cold)
COLD_STEPS = 3
COLD_TRIES = 3


def model(name, plain, compiled, cold):
    """Put a function that builds a training step on the list: `build(m)` gives a function without arguments."""
    def put(build):
        MODELS[name] = build, plain, compiled, cold
        return build
    return put


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def whole(high, *shape, seed=1):
    return np.random.default_rng(seed).integers(0, high, shape)


def step_of(optimizer, loss):
    """A function that takes one training step; `loss()` gives what is to become small."""
    def step():
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return found
    return step


@model("ResNet-18, CIFAR shapes, batch 32, SGD", 1.15, 1.2, 0.8)
def resnet(m):
    from nets import residual
    net = residual(m, classes=10)
    net[0], net[3] = m.nn.Conv2d(3, 64, 3, 1, 1, bias=False), m.nn.Identity()        # as it is used for small pictures
    x, y = m.tensor(drawn(32, 3, 32, 32)), m.tensor(whole(10, 32))
    optimizer = m.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    return step_of(optimizer, lambda: m.nn.functional.cross_entropy(net(x), y))


@model("GPT 6 x 384, T 256, batch 8, dropout, AdamW", 1.15, 1.25, 0.8)
def gpt(m):
    nn, F, width, heads, tokens, vocabulary = m.nn, m.nn.functional, 384, 6, 256, 65

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
            self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, dim=2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.drop(self.proj(a.transpose(1, 2).reshape(B, T, C)))
            return x + self.drop(self.down(F.gelu(self.up(self.ln_2(x)))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
            self.drop, self.blocks = nn.Dropout(0.2), nn.Sequential(*(Block() for _ in range(6)))
            self.ln_f, self.head = nn.LayerNorm(width, bias=False), nn.Linear(width, vocabulary, bias=False)

        def forward(self, idx):
            x = self.drop(self.wte(idx) + self.wpe(m.arange(idx.shape[1])))
            return self.head(self.ln_f(self.blocks(x)))

    net = GPT()
    x, y = m.tensor(whole(vocabulary, 8, tokens)), m.tensor(whole(vocabulary, 8, tokens, seed=2))
    optimizer = m.optim.AdamW(net.parameters(), 1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    return step_of(optimizer, lambda: F.cross_entropy(net(x).flatten(0, 1), y.flatten()))


@model("LSTM language model 2 x 256, 16 x 35", 1.2, 1.5, 0.7)
def lstm(m):
    nn, vocabulary = m.nn, 10_000

    class LanguageModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(vocabulary, 256)
            self.rnn, self.decoder = nn.LSTM(256, 256, 2, dropout=0.2), nn.Linear(256, vocabulary)

        def forward(self, words):
            return self.decoder(self.drop(self.rnn(self.drop(self.encoder(words)))[0]))

    net = LanguageModel()
    x, y = m.tensor(whole(vocabulary, 35, 16)), m.tensor(whole(vocabulary, 35 * 16, seed=2))
    optimizer = m.optim.SGD(net.parameters(), 0.1)
    return step_of(optimizer, lambda: m.nn.functional.cross_entropy(net(x).flatten(0, 1), y))


@model("ViT (nn.TransformerEncoder, 6 x 192), 16 x 3 x 64^2", 1.15, 1.25, 0.7)
def vit(m):
    nn = m.nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 192, 8, 8)
            self.token, self.places = nn.Parameter(m.zeros(1, 1, 192)), nn.Parameter(m.randn(1, 65, 192) * 0.02)
            layer = nn.TransformerEncoderLayer(192, 3, 768, dropout=0.1, activation="gelu", batch_first=True,
                                               norm_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(192, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = m.cat((self.token.expand(len(x), -1, -1), x), 1) + self.places
            return self.head(self.encoder(x)[:, 0])

    net = ViT()
    x, y = m.tensor(drawn(16, 3, 64, 64)), m.tensor(whole(10, 16))
    optimizer = m.optim.AdamW(net.parameters(), 1e-3)
    return step_of(optimizer, lambda: m.nn.functional.cross_entropy(net(x), y))


@model("U-Net with group norm, 8 x 1 x 32^2", 1.2, 1.4, 0.7)
def unet(m):
    nn, F = m.nn, m.nn.functional

    def block(wide_in, wide_out):
        return nn.Sequential(nn.Conv2d(wide_in, wide_out, 3, padding=1), nn.GroupNorm(8, wide_out), nn.SiLU(),
                             nn.Conv2d(wide_out, wide_out, 3, padding=1), nn.GroupNorm(8, wide_out), nn.SiLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([block(1, 32), block(32, 64), block(64, 128)])
            self.up = nn.ModuleList([block(128 + 64, 64), block(64 + 32, 32)])
            self.out = nn.Conv2d(32, 1, 1)

        def forward(self, x):
            kept = []
            for part in self.down[:-1]:
                x = part(x)
                kept.append(x)
                x = F.max_pool2d(x, 2)
            x = self.down[-1](x)
            for part in self.up:
                x = part(m.cat((F.interpolate(x, scale_factor=2), kept.pop()), 1))
            return self.out(x)

    net = UNet()
    x, y = m.tensor(drawn(8, 1, 32, 32)), m.tensor(drawn(8, 1, 32, 32, seed=2))
    optimizer = m.optim.Adam(net.parameters(), 1e-3)
    return step_of(optimizer, lambda: F.mse_loss(net(x), y))


@model("MLP 1024-2048-2048-10, GELU, layer norm, dropout, batch 256", 1.4, 1.5, 0.8)
def wide_mlp(m):
    nn = m.nn
    net = nn.Sequential(nn.Linear(1024, 2048), nn.LayerNorm(2048), nn.GELU(), nn.Dropout(0.1),
                        nn.Linear(2048, 2048), nn.LayerNorm(2048), nn.GELU(), nn.Dropout(0.1), nn.Linear(2048, 10))
    x, y = m.tensor(drawn(256, 1024)), m.tensor(whole(10, 256))
    optimizer = m.optim.AdamW(net.parameters(), 1e-3)
    return step_of(optimizer, lambda: m.nn.functional.cross_entropy(net(x), y))


class _Agent:
    """An actor and a critic of 4 observations and 2 actions, made by `m.nn`."""

    def __init__(self, m):
        nn = m.nn
        self.m = m
        self.actor, self.critic = (nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                                                 nn.Linear(64, wide)) for wide in (2, 1))

    def parameters(self):
        return [*self.actor.parameters(), *self.critic.parameters()]

    def policy(self, x):
        return self.m.distributions.Categorical(logits=self.actor(x))


@model("PPO update (two small MLPs, Categorical, clip_grad_norm_), batch 64", 1.5, 10, 0.5)
def ppo(m):
    agent = _Agent(m)
    optimizer = m.optim.Adam(agent.parameters(), 2.5e-4, eps=1e-5)
    x, actions = m.tensor(drawn(64, 4)), m.tensor(whole(2, 64))
    old, advantages, returns = (m.tensor(drawn(64, seed=seed)) for seed in (1, 2, 3))

    def step():
        policy = agent.policy(x)
        ratio = (policy.log_prob(actions) - old).exp()
        gain = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss = m.max(-gain * ratio, -gain * m.clamp(ratio, 0.8, 1.2)).mean() - 0.01 * policy.entropy().mean() \
            + 0.5 * 0.5 * ((agent.critic(x).view(-1) - returns) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        m.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        return loss
    return step


@model("200 steps of a policy with Categorical(...).sample().item()", 1.0, None, None)
def policy(m):
    agent, rows = _Agent(m), drawn(200, 4)

    def step():
        with m.no_grad():
            return m.tensor([agent.policy(m.from_numpy(row)).sample().item() for row in rows])
    return step


# --- measuring ---

def built(m, build, compile=None):
    """A step under `m`, from the same parameters everywhere."""
    m.manual_seed(0)
    step = build(m)
    return compile(step) if compile else step


def row(name, compiled):
    import torch

    import flambeau
    build, plain, target, _ = MODELS[name]
    runs = {OURS: lambda: ours(built(flambeau, build)), EAGER: lambda: eager(built(torch, build))}
    claims = [Claim(plain)]
    if compiled and target is not None:
        runs[COMPILED] = lambda: ours(built(flambeau, build, flambeau.compile))
        claims.append(Claim(target, "compiled", EAGER, COMPILED))
    return Row(name, runs, claims, tolerance=(2e-3, 1e-4))


def cold_child(contender, name):
    """Seconds of the first steps together, in this process, without what importing takes."""
    m = __import__("torch" if contender == EAGER else "flambeau")
    if contender == EAGER:
        m.set_num_threads(min(2, os.cpu_count()))
    step = built(m, MODELS[name][0])
    start, used = time.perf_counter(), time.process_time()
    for _ in range(COLD_STEPS):
        found = step()
        found.tolist()
    print(json.dumps([time.perf_counter() - start, time.process_time() - used]))


def cold(names, tries):
    """Print the first steps of each model, the best of `tries` processes."""
    for name in names:
        best = {}
        for contender in (OURS, EAGER) * tries:
            with tempfile.TemporaryDirectory() as home:
                places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "FLAMBEAU_CACHE_DIR"), home)
                ran = subprocess.run([sys.executable, __file__, "--child", contender, name], env=os.environ | places,
                                     capture_output=True, text=True)
            if ran.returncode:
                sys.exit(f"{contender}, {name}: {ran.stderr.strip().splitlines()[-1]}")
            found = json.loads(ran.stdout.splitlines()[-1])
            best[contender] = [min(a, b) for a, b in zip(found, best.get(contender, found), strict=True)]
        wall, used = (best[EAGER][i] / best[OURS][i] for i in (0, 1))
        print(f"{name:<72} first {COLD_STEPS} steps: ours {best[OURS][0]:.2f} s, PyTorch {best[EAGER][0]:.2f} s, ratio "
              f"{wall:.2f} (of processor time {used:.2f})"
              + (f", at least {MODELS[name][3]}" if MODELS[name][3] else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="rows whose name contains one of these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--patience", type=float, default=PATIENCE)
    parser.add_argument("--cold", action="store_true", help="the first three steps instead")
    parser.add_argument("--tries", type=int, default=COLD_TRIES, help="processes for each model, with --cold")
    parser.add_argument("--no-compile", action="store_true", help="plain code alone")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return cold_child(*args.child)
    two_cores(args.threads)
    names = [name for name in MODELS if not args.words or any(word in name for word in args.words)]
    if args.cold:
        return cold(names, args.tries)
    table = Table()
    for name in names:
        table.race(row(name, not args.no_compile), args.rounds, args.patience)
    table.close()


if __name__ == "__main__":
    main()
