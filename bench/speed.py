"""How fast is Flambeau beside PyTorch and JAX, and does it reach what it set out to reach?

    python bench/speed.py [words ...] [--compile] [--rounds 5] [--patience 10] [--json file]

Only the rows that contain one of the words are run; without words, all. The ratio is PyTorch eager's time over ours,
unless the row says otherwise. `--compile` lets torch.compile take part, which takes tens of seconds per row the first
time. See side.py for how it is measured and models.py for the models.
"""
import argparse
import json

import cold
import models
import numpy as np
import torch
from side import (
    COMPILED,
    EAGER,
    INDUCTOR,
    JAX,
    OURS,
    PATIENCE,
    ROUNDS,
    Claim,
    Row,
    Table,
    eager,
    jitted,
    ours,
    two_cores,
)

import flambeau

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None

ROWS = []                     # (name, function that makes the Row): made one at a time, for they hold much memory
random = np.random.default_rng(0)


def row(work):
    """Put a function that makes a Row of that name on the list; it is told whether torch.compile takes part."""
    def put(make):
        ROWS.append((work, make))
        return make
    return put


def normal(*shape):
    return random.standard_normal(shape, np.float32)


def work(name, target, arrays, function, jax_function=None, leaves=0, tolerance=(1e-4, 1e-5)):
    """A row from `function(m, *tensors)`, the same under Flambeau and PyTorch, and `jax_function(*arrays)`.

    With `leaves`, the gradients of the first so many arguments are computed too, and are part of the result. `arrays`
    is a function, so that the data is drawn only when the row is run.
    """
    @row(name)
    def make(compile):
        drawn = arrays()

        def under(m, compile=lambda forward: forward):
            forward = compile(lambda *tensors: function(m, *tensors))
            tensors = [m.tensor(array, requires_grad=i < leaves) for i, array in enumerate(drawn)]
            if not leaves:
                return forward, *tensors
            g = m.tensor(incoming(forward(*tensors).shape))

            def both(*tensors):
                out = forward(*tensors)
                return out, *m.autograd.grad(out, tensors[:leaves], g)
            return both, *tensors

        def under_jax():
            tensors = [jnp.array(array) for array in drawn]
            if not leaves:
                return jax_function, *tensors

            def both(g, *tensors):
                out, pull = jax.vjp(lambda *first: jax_function(*first, *tensors[leaves:]), *tensors[:leaves])
                return out, *pull(g)
            return both, jnp.array(incoming(jax_function(*tensors).shape)), *tensors

        runs = {OURS: lambda: ours(*under(flambeau)), EAGER: lambda: eager(*under(torch))}
        if compile:
            runs[INDUCTOR] = lambda: eager(*under(torch, torch.compile))
        if jax and jax_function:
            runs[JAX] = lambda: jitted(*under_jax())
        return Row(name, runs, [Claim(target)], tolerance=tolerance)


def incoming(shape):
    """The gradient that a backward starts from, the same for everybody."""
    return np.array(np.random.default_rng(1).standard_normal(tuple(shape), np.float32))


def training(name, model, *claims):
    """A row that trains `model()` for a step."""
    @row(name)
    def make(compile):
        built = model()
        # So slow that thousands of steps leave the model where it is: one that has learned its only batch by heart has
        # gradients near zero, and their moments are denormal numbers, which take processors many times longer.
        rate = 1e-6

        def tensors(m): return [m.tensor(array) for array in built.batch]
        runs = {OURS: lambda: ours(models.training_step(flambeau, built, rate), *tensors(flambeau)),
                COMPILED: lambda: ours(models.training_step(flambeau, built, rate, flambeau.compile),
                                       *tensors(flambeau)),
                EAGER: lambda: eager(models.training_step(torch, built, rate), *tensors(torch)),
                INDUCTOR: lambda: eager(models.training_step(torch, built, rate, torch.compile), *tensors(torch)),
                JAX: lambda: jitted(built.jax_step(built, rate), *map(jnp.array, built.batch), jit=False)}
        missing = {}
        if not hasattr(flambeau, "compile"):
            missing[COMPILED] = "is not there yet"
        if not compile:
            missing[INDUCTOR] = "takes part with --compile"
        if not jax or not built.jax_step:
            missing[JAX] = "is not installed"

        def check(names):
            return models.curves(built, [name for name in names if name != INDUCTOR])
        runs = {name: make for name, make in runs.items() if name not in missing}
        return Row(name, runs, list(claims), check, (1e-3, 1e-4), missing)


# --- elementwise, reductions, rows ---

M = 1_000_000

work("relu(x*y+z)*0.5+x, 10 M", 8, lambda: [normal(10 * M) for _ in range(3)],
     lambda m, x, y, z: m.relu(x * y + z) * 0.5 + x,
     lambda x, y, z: jax.nn.relu(x * y + z) * 0.5 + x)

work("x + y, 10 M", 3, lambda: [normal(10 * M) for _ in range(2)],
     lambda m, x, y: x + y,
     lambda x, y: x + y)

work("tanh(gelu(x)*sigmoid(x)+exp(-x*x)), 4 M", 4, lambda: [normal(4 * M)],
     lambda m, x: m.tanh(m.nn.functional.gelu(x) * m.sigmoid(x) + m.exp(-x * x)),
     lambda x: jnp.tanh(jax.nn.gelu(x, approximate=False) * jax.nn.sigmoid(x) + jnp.exp(-x * x)))

work("sum of 10 M", 1, lambda: [random.random(10 * M, np.float32)],
     lambda m, x: x.sum(),
     lambda x: x.sum())

work("softmax, 4096x1024", 1.5, lambda: [normal(4096, 1024)],
     lambda m, x: m.softmax(x, dim=-1),
     lambda x: jax.nn.softmax(x))

work("softmax forward+backward, 4096x1024", 1.5, lambda: [normal(4096, 1024)],
     lambda m, x: m.softmax(x, dim=-1),
     lambda x: jax.nn.softmax(x), leaves=1)


def _jax_layer_norm(x, weight, bias):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * weight + bias


work("layer norm forward+backward, 4096x1024", 1.5, lambda: [normal(4096, 1024), normal(1024), normal(1024)],
     lambda m, x, weight, bias: m.nn.functional.layer_norm(x, (1024,), weight, bias),
     _jax_layer_norm, leaves=3, tolerance=(1e-3, 1e-3))

work("cross entropy forward+backward, 4096x1024", 1.5, lambda: [normal(4096, 1024), random.integers(0, 1024, 4096)],
     lambda m, x, y: m.nn.functional.cross_entropy(x, y),
     lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1).mean(), leaves=1)

work("((a[:,None]-b[None])**2).sum(-1).sqrt(), 1500x1500x16", 5, lambda: [normal(1500, 16), normal(1500, 16)],
     lambda m, a, b: ((a[:, None] - b[None]) ** 2).sum(-1).sqrt(),
     lambda a, b: jnp.sqrt(((a[:, None] - b[None]) ** 2).sum(-1)))

# Added to a contiguous tensor, PyTorch's result is contiguous as it is; the other way round it needs a second pass.
work("(a + b.t()).contiguous(), 3000x3000", 2, lambda: [normal(3000, 3000), normal(3000, 3000)],
     lambda m, a, b: (a + b.t()).contiguous(),
     lambda a, b: a + b.T)

work("(a.t() + b).contiguous(), 3000x3000", 2, lambda: [normal(3000, 3000), normal(3000, 3000)],
     lambda m, a, b: (a.t() + b).contiguous(),
     lambda a, b: a.T + b)


def rows_to_pick():
    return [normal(200_000, 64), random.integers(0, 200_000, 100_000)]


work("w.index_select(0, i), 100 k of 200 k x 64", 1, rows_to_pick,
     lambda m, w, i: w.index_select(0, i),
     lambda w, i: w[i])

work("w[i], 100 k of 200 k x 64", 1, rows_to_pick,
     lambda m, w, i: w[i],
     lambda w, i: w[i])

# --- matrix products ---

work("a @ b, 1024x1024x1024", 0.95, lambda: [normal(1024, 1024), normal(1024, 1024)],
     lambda m, a, b: a @ b,
     lambda a, b: a @ b, tolerance=(1e-3, 1e-3))

work("bmm, 64 of 64x64x64", 1, lambda: [normal(64, 64, 64), normal(64, 64, 64)],
     lambda m, a, b: m.bmm(a, b),
     lambda a, b: a @ b, tolerance=(1e-3, 1e-4))


# --- the cost of a call ---

def hundred(x, y):
    for _ in range(100):
        x = x * y
    return x


work("100 dependent operations on 3 elements", 1.6, lambda: [normal(3), np.array([0.98, 1.0, 1.02], np.float32)],
     lambda m, x, y: hundred(x, y), hundred)

work("100 dependent operations on 3 elements, with backward", 1.5,
     lambda: [normal(3), np.array([0.98, 1.0, 1.02], np.float32)],
     lambda m, x, y: hundred(x, y).sum(), lambda x, y: hundred(x, y).sum(), leaves=1)

# --- training steps ---

training("64-64-64-10 MLP step, batch 32, Adam", models.mlp,
         Claim(1.6, "plain"), Claim(15, "compiled", below=COMPILED), Claim(2, "compiled, over JAX", JAX, COMPILED))

training("784-512-512-10 MLP step, batch 128, Adam", lambda: models.mlp((784, 512, 512, 10), 128),
         Claim(1.2, "plain"), Claim(1.5, "compiled", below=COMPILED), Claim(1.5, "compiled, over JAX", JAX, COMPILED))

training("CNN 32/64 channels, 32x32, step, batch 32, Adam", models.cnn, Claim(1))

training("4-layer 128-wide GPT step, 8x128 tokens, AdamW", models.gpt,
         Claim(1.2, "plain"), Claim(1.4, "compiled", below=COMPILED))


def main():
    parser = argparse.ArgumentParser(description="Flambeau beside PyTorch and JAX.")
    parser.add_argument("words", nargs="*", help="run only the rows that contain one of these words")
    parser.add_argument("--compile", action="store_true", help="let torch.compile take part")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds to wait for a quiet machine, per row")
    parser.add_argument("--json", help="write the measurements to this file")
    args = parser.parse_args()
    two_cores(args.threads)
    table = Table()
    for name, make in ROWS:
        if not args.words or any(word.lower() in name.lower() for word in args.words):
            table.race(make(args.compile), args.rounds, args.patience)
    if not args.words or any(word.lower() in cold.WORK for word in args.words):
        cold.add(table, args.compile)
    table.close()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(table.lines, file, indent=1)


if __name__ == "__main__":
    main()
