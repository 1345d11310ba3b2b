"""The models that the measurements train, and a check that everybody trains them alike.

    python bench/models.py

Each model is written twice: as plain functions over a dictionary of tensors, which run under Flambeau and PyTorch
alike, and the way a PyTorch user would write it (`nn.Module`, `torch.optim`), which is what PyTorch is timed with.
Parameters are drawn with NumPy under the names of the module's `state_dict`, so that all start from the same numbers.
The perceptron has a JAX version as well. Nothing here imports a library before it is asked for: the measurement of
memory needs processes with only one of them.
"""
import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

RATE = 1e-3                   # the learning rate, unless somebody asks for another
BETAS = (0.9, 0.999)
EPS = 1e-8


@dataclass
class Model:
    """What is trained: its first numbers, one batch, the loss as a function, and PyTorch's module."""
    name: str
    parameters: dict          # name → array
    batch: tuple              # the arrays (inputs, labels)
    loss: object              # loss(m, p, x, y): `m` is flambeau or torch, `p` a dictionary of tensors
    module: object            # module(): the torch.nn.Module
    buffers: dict = field(default_factory=dict)
    decay: float = 0.0        # AdamW's weight decay; none: Adam
    jax_step: object = None   # jax_step(model, rate): the step under JAX, where there is one


def _linear(rng, name, wide_out, wide_in, bias=True):
    """The weight and bias of a linear layer, drawn as `torch.nn.Linear` draws them."""
    bound = 1 / math.sqrt(wide_in)
    drawn = {f"{name}.weight": rng.uniform(-bound, bound, (wide_out, wide_in)).astype(np.float32)}
    if bias:
        drawn[f"{name}.bias"] = rng.uniform(-bound, bound, wide_out).astype(np.float32)
    return drawn


# --- the perceptron ---

def mlp(widths=(64, 64, 64, 10), batch=32):
    """A perceptron with ReLU between its layers, and cross entropy."""
    rng = np.random.default_rng(0)
    parameters = {}
    for i, (wide_in, wide_out) in enumerate(zip(widths, widths[1:])):
        parameters |= _linear(rng, f"{2 * i}", wide_out, wide_in)
    x = rng.standard_normal((batch, widths[0]), np.float32)
    y = rng.integers(0, widths[-1], batch)

    def module():
        from torch import nn
        layers = [part for sizes in zip(widths, widths[1:]) for part in (nn.Linear(*sizes), nn.ReLU())]
        return nn.Sequential(*layers[:-1])
    name = f"{'-'.join(map(str, widths))} MLP, batch {batch}"
    loss = partial(mlp_loss, last=2 * (len(widths) - 2))
    return Model(name, parameters, (x, y), loss, module, jax_step=jax_mlp_step)


def mlp_loss(m, p, x, y, last):
    F = m.nn.functional
    for i in range(0, last, 2):
        x = F.relu(F.linear(x, p[f"{i}.weight"], p[f"{i}.bias"]))
    return F.cross_entropy(F.linear(x, p[f"{last}.weight"], p[f"{last}.bias"]), y)


# --- the convolutional net ---

def cnn(batch=32, size=32, channels=(32, 64)):
    """Two times convolution, batch norm, ReLU and max pooling, then a linear layer."""
    rng = np.random.default_rng(0)
    wide = channels[1] * (size // 4) ** 2
    parameters, buffers = {}, {}
    for conv, norm, wide_in, wide_out in (("0", "1", 3, channels[0]), ("4", "5", *channels)):
        bound = 1 / math.sqrt(9 * wide_in)
        parameters |= {f"{conv}.weight": rng.uniform(-bound, bound, (wide_out, wide_in, 3, 3)).astype(np.float32),
                       f"{conv}.bias": rng.uniform(-bound, bound, wide_out).astype(np.float32),
                       f"{norm}.weight": np.ones(wide_out, np.float32),
                       f"{norm}.bias": np.zeros(wide_out, np.float32)}
        buffers |= {f"{norm}.running_mean": np.zeros(wide_out, np.float32),
                    f"{norm}.running_var": np.ones(wide_out, np.float32),
                    f"{norm}.num_batches_tracked": np.zeros((), np.int64)}
    parameters |= _linear(rng, "9", 10, wide)
    x = rng.standard_normal((batch, 3, size, size), np.float32)
    y = rng.integers(0, 10, batch)

    def module():
        from torch import nn
        return nn.Sequential(
            nn.Conv2d(3, channels[0], 3, padding=1), nn.BatchNorm2d(channels[0]), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(*channels, 3, padding=1), nn.BatchNorm2d(channels[1]), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(wide, 10))
    name = f"CNN of {channels[0]} and {channels[1]} channels, {size}x{size}, batch {batch}"
    return Model(name, parameters, (x, y), cnn_loss, module, buffers)


def cnn_loss(m, p, x, y):
    F = m.nn.functional
    for conv, norm in (("0", "1"), ("4", "5")):
        x = F.conv2d(x, p[f"{conv}.weight"], p[f"{conv}.bias"], padding=1)
        p[f"{norm}.num_batches_tracked"].add_(1)
        x = F.batch_norm(x, p[f"{norm}.running_mean"], p[f"{norm}.running_var"], p[f"{norm}.weight"], p[f"{norm}.bias"],
                         training=True)
        x = F.max_pool2d(F.relu(x), 2)
    return F.cross_entropy(F.linear(x.flatten(1), p["9.weight"], p["9.bias"]), y)


# --- the transformer ---

def gpt(layers=4, width=128, heads=4, tokens=128, batch=8, vocabulary=1000):
    """A transformer of pre-norm blocks with causal attention, as in GPT-2."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return (0.02 * rng.standard_normal(shape)).astype(np.float32)

    def norm(name):
        return {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}

    parameters = {"wte.weight": normal(vocabulary, width), "wpe.weight": normal(tokens, width)}
    for i in range(layers):
        b = f"blocks.{i}"
        parameters |= norm(f"{b}.ln_1")
        parameters |= _linear(rng, f"{b}.qkv", 3 * width, width) | _linear(rng, f"{b}.proj", width, width)
        parameters |= norm(f"{b}.ln_2")
        parameters |= _linear(rng, f"{b}.up", 4 * width, width) | _linear(rng, f"{b}.down", width, 4 * width)
    parameters |= norm("ln_f") | _linear(rng, "head", vocabulary, width, bias=False)
    text = rng.integers(0, vocabulary, (batch, tokens + 1))
    name = f"{layers}-layer {width}-wide GPT, {batch}x{tokens} tokens"
    batch = text[:, :-1].copy(), text[:, 1:].copy()
    return Model(name, parameters, batch, partial(gpt_loss, layers=layers, heads=heads),
                 partial(_gpt_module, layers, width, heads, tokens, vocabulary), decay=0.01)


def gpt_loss(m, p, idx, y, layers, heads):
    F = m.nn.functional
    B, T = idx.shape
    C = p["wte.weight"].shape[1]

    def linear(name, x): return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])
    def norm(name, x): return F.layer_norm(x, (C,), p[f"{name}.weight"], p[f"{name}.bias"])

    x = F.embedding(idx, p["wte.weight"]) + F.embedding(m.arange(T), p["wpe.weight"])           # (B, T, C)
    for i in range(layers):
        b = f"blocks.{i}"
        q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2)                              # (B, heads, T, …)
                   for t in linear(f"{b}.qkv", norm(f"{b}.ln_1", x)).split(C, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + linear(f"{b}.proj", a)
        x = x + linear(f"{b}.down", F.gelu(linear(f"{b}.up", norm(f"{b}.ln_2", x))))
    logits = F.linear(norm("ln_f", x), p["head.weight"])
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def _gpt_module(layers, width, heads, tokens, vocabulary):
    import torch
    from torch import nn
    F = nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, dim=2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, idx):
            x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
            return self.head(self.ln_f(self.blocks(x))).flatten(0, 1)
    return GPT()


# --- training steps ---

class Adam:
    """Adam (AdamW where `decay` is given) over plain tensors, one parameter at a time, as in the paper.

    The number of steps is a tensor, and so are the bias corrections: no Python number changes from step to step, so
    that a step that is replayed stays right. It counts in double precision: `1 - 0.999 ** count` keeps its digits.
    """

    def __init__(self, m, parameters, rate=RATE, decay=0.0):
        self.m, self.parameters, self.rate, self.decay = m, parameters, rate, decay
        self.count, self.eps = m.zeros((), dtype=m.float64), m.tensor(EPS, dtype=m.float64)
        self.means = [m.zeros_like(p) for p in parameters]
        self.squares = [m.zeros_like(p) for p in parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        b1, b2 = BETAS
        with self.m.no_grad():
            self.count += 1
            rate = -self.rate / (1 - b1 ** self.count)
            scale = (1 - b2 ** self.count).sqrt()
            for p, mean, square in zip(self.parameters, self.means, self.squares):
                g = p.grad
                if self.decay:
                    p.mul_(1 - self.rate * self.decay)
                mean.lerp_(g, 1 - b1)
                square.mul_(b2).addcmul_(g, g, value=1 - b2)
                p.addcdiv_(rate * mean, self.m.addcdiv(self.eps, square.sqrt(), scale))


def functional_step(m, model, rate=RATE, compile=None):
    """`step(x, y)`, which trains once and gives the loss: plain functions under `m`, flambeau or torch."""
    p = {name: m.tensor(array, requires_grad=True) for name, array in model.parameters.items()}
    optimizer = Adam(m, list(p.values()), rate, model.decay)
    p |= {name: m.tensor(array) for name, array in model.buffers.items()}

    def step(x, y):
        optimizer.zero_grad()
        loss = model.loss(m, p, x, y)
        loss.backward()
        optimizer.step()
        return loss
    return compile(step) if compile else step


def module_step(model, rate=RATE, compile=None):
    """`step(x, y)` the way a PyTorch user writes it; `compile` is torch.compile, or None for eager."""
    import torch
    module = model.module()
    drawn = {name: torch.tensor(array) for name, array in (model.parameters | model.buffers).items()}
    module.load_state_dict(drawn)
    if model.decay:
        optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=model.decay)
    else:
        optimizer = torch.optim.Adam(module.parameters(), lr=rate)

    def forward(x, y):
        return torch.nn.functional.cross_entropy(module(x), y.flatten())
    forward, update = (compile(forward), compile(optimizer.step)) if compile else (forward, optimizer.step)

    def step(x, y):
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        update()
        return loss
    return step


def jax_mlp_step(model, rate=RATE):
    """`step(x, y)` of a perceptron under jax.jit, with the old parameters' memory given to the new ones."""
    import jax
    import jax.numpy as jnp
    last = model.loss.keywords["last"]

    def loss(p, x, y):
        for i in range(0, last, 2):
            x = jax.nn.relu(x @ p[f"{i}.weight"].T + p[f"{i}.bias"])
        logits = x @ p[f"{last}.weight"].T + p[f"{last}.bias"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()

    @partial(jax.jit, donate_argnums=0)
    def update(state, x, y):
        p, means, squares, count = state
        value, g = jax.value_and_grad(loss)(p, x, y)
        count, (b1, b2) = count + 1, BETAS
        means = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, means, g)
        squares = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, squares, g)
        # 1 - b ** count, with the digits that single precision would lose
        rate1, scale = rate / -jnp.expm1(count * math.log(b1)), jnp.sqrt(-jnp.expm1(count * math.log(b2)))
        p = jax.tree.map(lambda p, m, v: p - rate1 * m / (jnp.sqrt(v) / scale + EPS), p, means, squares)
        return (p, means, squares, count), value

    p = {name: jnp.array(array) for name, array in model.parameters.items()}
    state = [(p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.float32(0))]

    def step(x, y):
        state[0], value = update(state[0], x, y)
        return state[0], value          # all of it, for the caller to wait for
    return step


# --- the check ---

STEPS = 10


def curves(model, which):
    """The losses of the first ten steps of each contender in `which`: {name: array}."""
    found = {}
    for name in which:
        if name == "JAX jit":
            from jax.numpy import array as tensor
            step = model.jax_step(model)
        elif name.startswith("ours"):
            import flambeau
            tensor = flambeau.tensor
            step = functional_step(flambeau, model, compile=flambeau.compile if name == "ours compiled" else None)
        else:
            import torch
            tensor = torch.tensor
            step = functional_step(torch, model) if name == "functions" else module_step(model)
        batch = [tensor(array) for array in model.batch]
        # Looked at after each step: an optimizer that is late or early by one would show.
        found[name] = np.array([step(*batch)[-1].item() if name == "JAX jit" else step(*batch).item()
                                for _ in range(STEPS)])
    return found


def main():
    for model in (mlp(), mlp((784, 512, 512, 10), 128), cnn(), gpt()):
        print(model.name)
        found = curves(model, ["PyTorch", "functions", "ours"] + ["JAX jit"] * (model.jax_step is not None))
        for name, losses in found.items():
            apart = np.abs(losses / found["PyTorch"] - 1).max()
            print(f"  {name:<10} {' '.join(f'{loss:.5f}' for loss in losses)}   apart by {apart:.1e}")


if __name__ == "__main__":
    main()
