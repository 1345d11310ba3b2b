"""How fast do samples become batches, beside PyTorch's DataLoader?

    python bench/data.py [--rounds 5] [word ...]

One call is one epoch, shuffled from the same seed in both; the last batch is compared. Where the dataset is one of
tensors the loader takes batches whole, which PyTorch does not, so ten times its throughput is asked for. Where a
`__getitem__` in Python is called for each sample, it should at least not be slower. That is not so yet where
`__getitem__` makes or computes tensors: an operation on a few numbers costs more to record and run than to run at once.
Returning the NumPy array itself, or `__getitems__` (one call for a batch), is the way out. Workers are started anew in
every epoch, as the loader does. Words pick the rows that contain one of them.

A step of training on a model whose memory is shared is timed beside PyTorch's too. Below the table stand figures with
bounds of their own: what a thread takes to hand a batch over, and what a sample's random numbers cost.
"""
import argparse
import collections
import time
import warnings

import numpy as np
import side
import torch

import flambeau
import flambeau.utils.data

ROWS, COLUMNS, BATCH = 100_000, 20, 1024
SAMPLES = 20_000              # of a dataset in Python
rng = np.random.default_rng(0)
TABLE, LABELS = rng.random((ROWS, COLUMNS), np.float32), rng.integers(0, 10, ROWS)
IMAGES = rng.integers(0, 256, (2_000, 3, 32, 32)).astype(np.uint8)


def table(t):
    return t.utils.data.TensorDataset(t.tensor(TABLE), t.tensor(LABELS))


def split(t):
    return t.utils.data.random_split(table(t), [0.8, 0.2], t.Generator().manual_seed(0))[0]


def concatenation(t):
    x, y = t.tensor(TABLE), t.tensor(LABELS)
    half = ROWS // 2
    return t.utils.data.TensorDataset(x[:half], y[:half]) + t.utils.data.TensorDataset(x[half:], y[half:])


def each(sample, length=SAMPLES):
    """A dataset in Python whose sample i is `sample(t, i)`."""
    def make(t):
        class Samples(t.utils.data.Dataset):
            def __len__(self):
                return length

            def __getitem__(self, i):
                return get(i)
        get = sample(t)
        return Samples()
    return make


def rows_of_tensors(t):
    x, y = t.tensor(TABLE[:SAMPLES]), t.tensor(LABELS[:SAMPLES])
    return lambda i: (x[i], y[i])


def rows_of_arrays(t):
    return lambda i: (TABLE[i], int(LABELS[i]))


def dictionaries(t):
    return lambda i: {"number": float(i), "label": i % 10, "name": "sample"}


def from_numpy(t):
    return lambda i: (t.from_numpy(TABLE[i]), int(LABELS[i]))


def scaled_rows(t):
    x = t.tensor(TABLE[:SAMPLES])
    return lambda i: x[i] * 2 - 1


def scaled_batches(t):
    x = t.tensor(TABLE[:SAMPLES])

    class Samples(t.utils.data.Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, i):
            return x[i] * 2 - 1

        def __getitems__(self, indices):
            return list((x[indices] * 2 - 1).unbind())
    return Samples()


def images(t):
    return lambda i: (IMAGES[i].astype(np.float32) / 255, int(LABELS[i]))


def large_arrays(t):
    return lambda i: LARGE[i % len(LARGE)]


LARGE = rng.random((8, 1 << 18), np.float32)                  # of 1 MiB each


def shared_step(t):
    """A step of hogwild's: forward, backward and update of a model in shared memory."""
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Linear(64, 256), t.nn.ReLU(), t.nn.Linear(256, 10))
    model.share_memory()
    optimizer = t.optim.SGD(model.parameters(), lr=0.01)
    x, y = t.tensor(TABLE[:832].reshape(-1, 64)), t.tensor(LABELS[:260])

    def run():
        optimizer.zero_grad()
        loss = t.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()
    return run


# --- figures by themselves --------------------------------------------------


class Ready(flambeau.utils.data.Dataset):
    """Batches that cost nothing to make."""

    def __len__(self):
        return 4000

    def __getitems__(self, indices):
        return indices


def handed_over():
    """Seconds from batch to batch, of batches that a thread has made."""
    ready = flambeau.ones(64, 20)
    batches = iter(flambeau.utils.data.DataLoader(Ready(), 2, collate_fn=lambda _: ready, num_workers=1,
                                                  worker_type="thread"))
    next(batches)
    start = time.perf_counter()
    count = sum(1 for _ in batches)
    return (time.perf_counter() - start) / count


def drawn(n):
    """Seconds for two random numbers of a sample, in a batch of `n` that a sampler lists, its streams with it."""
    from flambeau.utils.data.sample_random import addressing, sample_random
    indices = list(range(7, 7 + n))
    start = time.perf_counter()
    for epoch in range(20):
        with addressing(0, epoch, indices):
            sample_random(n).uniform(2)
    return (time.perf_counter() - start) / 20 / n


FIGURES = [                   # what, seconds, how many at most
    ("a batch handed over by a thread", handed_over, 100e-6),
    ("the random numbers of a sample, in a batch of 256", lambda: drawn(256), 1e-6),
    ("the random numbers of a sample, in a batch of 32", lambda: drawn(32), 1e-6),
]

WORK = [                      # what, dataset, options, target
    ("table of 100 k x 20, shuffled", table, {"shuffle": True}, 10),
    ("table of 100 k x 20, in order", table, {}, 10),
    ("4/5 of the table by random_split, shuffled", split, {"shuffle": True}, 10),
    ("the table as two halves, concatenated, shuffled", concatenation, {"shuffle": True}, 10),
    ("table, shuffled, 2 workers", table, {"shuffle": True, "num_workers": 2}, 5),
    ("samples (x[i], y[i]) of tensors", each(rows_of_tensors), {"shuffle": True}, 1),
    ("samples of NumPy rows and ints", each(rows_of_arrays), {"shuffle": True}, 1),
    ("samples of dictionaries of numbers and texts", each(dictionaries), {"shuffle": True}, 1),
    ("samples of NumPy images, 2 processes", each(images, len(IMAGES)),
     {"shuffle": True, "num_workers": 2, "batch_size": 64}, 1),
    ("arrays of 1 MiB one by one, 2 processes", each(large_arrays, 256),
     {"num_workers": 2, "batch_size": None}, 1),
    ("samples of from_numpy(row) and ints", each(from_numpy), {"shuffle": True}, 1),
    ("samples x[i] * 2 - 1, computed one by one", each(scaled_rows), {"shuffle": True}, 1),
    ("the same by __getitems__, a batch at a time", scaled_batches, {"shuffle": True}, 1),
]


def epoch(t, make, options, finish):
    """A function that goes through one epoch, and gives the last batch."""
    loader = t.utils.data.DataLoader(make(t), **{"batch_size": BATCH, **options})

    def run():
        t.manual_seed(0)
        batch = collections.deque(loader, maxlen=1)[0]
        finish()
        return list(batch.values())[:2] if isinstance(batch, dict) else batch
    return run


def row(what, make, options, target):
    runs = {side.OURS: lambda: epoch(flambeau, make, options, side.synchronizer()),
            side.EAGER: lambda: epoch(torch, make, options, lambda: None)}
    return side.Row(what, runs, [side.Claim(target)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=side.ROUNDS)
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    side.two_cores()
    warnings.filterwarnings("ignore", "This DataLoader will create")
    shown = side.Table()
    for what, *rest in WORK:
        if not asked.words or any(word in what for word in asked.words):
            shown.race(row(what, *rest), rounds=asked.rounds)
    what = "a step of training in shared memory"
    if not asked.words or any(word in what for word in asked.words):
        runs = {side.OURS: lambda: shared_step(flambeau), side.EAGER: lambda: shared_step(torch)}
        shown.race(side.Row(what, runs, [side.Claim(1)]), rounds=asked.rounds)
    for what, figure, most in FIGURES:
        if not asked.words or any(word in what for word in asked.words):
            best = min(figure() for _ in range(asked.rounds))
            print(f"{what}: {side.clock(best)}, at most {side.clock(most)}{'' if best <= most else ': NOT REACHED'}")
    shown.close()


if __name__ == "__main__":
    main()
