"""How fast do samples become batches, beside PyTorch's DataLoader?

    python bench/data.py [--rounds 5] [word ...]

One call is one epoch, shuffled from the same seed in both; the last batch is compared. Where the dataset is one of
tensors the loader takes batches whole, which PyTorch does not, so ten times its throughput is asked for. Where a
`__getitem__` in Python is called for each sample, it should at least not be slower. That is not so yet where
`__getitem__` makes or computes tensors: an operation on a few numbers costs more to record and run than to run at once.
Returning the NumPy array itself, or `__getitems__` (one call for a batch), is the way out. Workers are started anew in
every epoch, as the loader does. Words pick the rows that contain one of them.
"""
import argparse
import collections
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
    shown.close()


if __name__ == "__main__":
    main()
