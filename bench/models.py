"""The models that the measurements train, and a check that everybody trains them alike.

    python bench/models.py

Each model is written once, the way a PyTorch user writes it (`nn.Module`, `torch.optim`), as a function of the library
`m`: flambeau or torch. Parameters are drawn with NumPy under the names of the module's `state_dict`, so that all start
from the same numbers. The perceptron has a JAX version as well. Nothing here imports a library before it is asked for:
the measurement of memory needs processes with only one of them.
"""
import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

RATE = 1e-3                   # the learning rate, unless somebody asks for another
BETAS = (0.9, 0.999)          # Adam's, for JAX
EPS = 1e-8


@dataclass
class Model:
    """What is trained: its first numbers, one batch, and the module."""
    name: str
    parameters: dict          # name → array
    batch: tuple              # the arrays (inputs, labels)
    module: object            # module(m): the m.nn.Module, `m` is flambeau or torch
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

    def module(m):
        nn = m.nn
        layers = [part for sizes in zip(widths, widths[1:]) for part in (nn.Linear(*sizes), nn.ReLU())]
        return nn.Sequential(*layers[:-1])
    name = f"{'-'.join(map(str, widths))} MLP, batch {batch}"
    return Model(name, parameters, (x, y), module, jax_step=jax_mlp_step)


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

    def module(m):
        nn = m.nn
        return nn.Sequential(
            nn.Conv2d(3, channels[0], 3, padding=1), nn.BatchNorm2d(channels[0]), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(*channels, 3, padding=1), nn.BatchNorm2d(channels[1]), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(wide, 10))
    name = f"CNN of {channels[0]} and {channels[1]} channels, {size}x{size}, batch {batch}"
    return Model(name, parameters, (x, y), module, buffers)


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
    return Model(name, parameters, batch, partial(_gpt_module, layers, width, heads, tokens, vocabulary), decay=0.01)


def gpt2_small(m, tokens=1024, layers=12, width=768, heads=12, vocabulary=50257):
    """GPT-2's smallest, of 124 million parameters: tokens (batch, `tokens`) → logits, one row for each token."""
    net = _gpt_module(layers, width, heads, tokens, vocabulary, m)
    for table in (net.wte, net.wpe):
        m.nn.init.normal_(table.weight, std=0.02)
    net.head.weight = net.wte.weight              # one matrix for the way in and the way out
    return net


def _gpt_module(layers, width, heads, tokens, vocabulary, m):
    nn, F = m.nn, m.nn.functional

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
            x = self.wte(idx) + self.wpe(m.arange(idx.shape[1], device=idx.device))
            return self.head(self.ln_f(self.blocks(x))).flatten(0, 1)
    return GPT()


# --- training steps ---

def training_step(m, model, rate=RATE, compile=None, device="cpu", autocast=None):
    """`step(x, y)`, which trains once under `m` and gives the loss; `compile` is the library's, or None.

    With `autocast`, the name of a dtype, operations that may run in that do, and float16 has its losses scaled.
    """
    module = model.module(m)
    module.load_state_dict({name: m.tensor(array) for name, array in (model.parameters | model.buffers).items()})
    module.to(device)
    if model.decay:
        optimizer = m.optim.AdamW(module.parameters(), lr=rate, weight_decay=model.decay)
    else:
        optimizer = m.optim.Adam(module.parameters(), lr=rate)

    lower = getattr(m, autocast) if autocast else m.bfloat16
    scaler = m.amp.GradScaler(device, enabled=autocast == "float16")

    def forward(x, y):
        with m.autocast(device, dtype=lower, enabled=autocast is not None):
            return m.nn.functional.cross_entropy(module(x), y.flatten())
    update = optimizer.step
    if compile and m.__name__ == "torch":         # whose compiler leaves the backward, and what calls it, to Python
        forward, update = compile(forward), compile(update)

    def step(x, y):
        optimizer.zero_grad()
        loss = forward(x, y)
        if scaler.is_enabled():
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            update()
        return loss
    return compile(step) if compile and m.__name__ != "torch" else step


def jax_mlp_step(model, rate=RATE):
    """`step(x, y)` of a perceptron under jax.jit, with the old parameters' memory given to the new ones."""
    import jax
    import jax.numpy as jnp
    last = max(int(name.split(".")[0]) for name in model.parameters)

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
        else:
            if name.startswith("ours"):
                import flambeau as m
            else:
                import torch as m
            tensor, step = m.tensor, training_step(m, model, compile=m.compile if name == "ours compiled" else None)
        batch = [tensor(array) for array in model.batch]
        # Looked at after each step: an optimizer that is late or early by one would show.
        found[name] = np.array([step(*batch)[-1].item() if name == "JAX jit" else step(*batch).item()
                                for _ in range(STEPS)])
    return found


def main():
    for model in (mlp(), mlp((784, 512, 512, 10), 128), cnn(), gpt()):
        print(model.name)
        found = curves(model, ["PyTorch", "ours", "ours compiled"] + ["JAX jit"] * (model.jax_step is not None))
        for name, losses in found.items():
            apart = np.abs(losses / found["PyTorch"] - 1).max()
            print(f"  {name:<14} {' '.join(f'{loss:.5f}' for loss in losses)}   apart by {apart:.1e}")


if __name__ == "__main__":
    main()
