"""Predict prices from a table with columns of numbers and of words, and compare with linear least squares.

    python examples/table_regression.py [--rows 12000] [--quick]

The table, flats with their rents, is drawn here and written as a CSV file, so nothing is downloaded. Words become
vectors that are learned, numbers are standardised, and training stops when the rows held back for it get no better. R²
is the part of the variance that is explained, on rows that neither method has seen: about 0.80 for least squares, above
0.94 for the net (0.96 would be all there is, the rest is noise). Takes less than half a minute on two cores.

Nothing here is particular to Flambeau: with `import torch` in the place of its import it runs on PyTorch.
"""
import argparse
import copy
import csv
from pathlib import Path

import numpy as np
from progress import bar

import flambeau as torch

nn, F = torch.nn, torch.nn.functional

DISTRICTS = "Harbour", "Old Town", "Hillside", "River", "Market", "Mills", "Gardens", "Station", "Lakeside", "Quarry"
KINDS = "flat", "loft", "house", "basement"
HEATING = "district", "gas", "electric"
WORDS, NUMBERS, TARGET = ("district", "kind", "heating"), ("area", "year", "floor", "minutes"), "rent"


def drawn_flats(rng, rows):
    """`rows` flats and what they cost a month: for each the words, the numbers and the target, in the order above."""
    district, kind, heating = (rng.integers(0, len(of), rows) for of in (DISTRICTS, KINDS, HEATING))
    area = rng.gamma(6, 12, rows) + 18
    year = rng.integers(1880, 2025, rows)
    floor = np.where(kind == 2, 0, np.where(kind == 3, -1, rng.integers(0, 9, rows)))
    minutes = rng.gamma(3, 6, rows)                       # to the centre

    # What a square metre costs depends on everything at once: that is what a sum over columns cannot follow.
    base = np.array([16.0, 22, 13, 18, 20, 11, 15, 12, 19, 9])[district]
    base *= 1 - 0.5 * np.tanh(minutes / 30) * np.array([1.0, 0.2, 1.4, 0.6, 0.4, 1.2, 1.1, 0.3, 0.9, 1.3])[district]
    base *= 1 + 0.4 * ((year - 1965) / 60.0) ** 2         # the very old and the very new are dear
    base *= np.array([1.0, 1.25, 1.1, 0.65])[kind] * np.where(kind == 1, 1 + 0.04 * floor, 1 + 0.01 * floor)
    rent = base * area ** 0.85 * 1.6 + np.array([60.0, 90, 40])[heating]
    rent *= rng.lognormal(0, 0.1, rows)
    for i in range(rows):
        yield (DISTRICTS[district[i]], KINDS[kind[i]], HEATING[heating[i]], round(float(area[i]), 1), int(year[i]),
               int(floor[i]), round(float(minutes[i]), 1), round(float(rent[i]), 2))


def write_table(path, flats):
    """Write flats to `path`."""
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*WORDS, *NUMBERS, TARGET])
        table.writerows(flats)


def read_table(path):
    """A CSV file as (words (N, 3) by number, how many there are in each column, numbers (N, 4), target (N,))."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    known = [sorted({row[name] for row in rows}) for name in WORDS]
    words = [[kinds.index(row[name]) for name, kinds in zip(WORDS, known)] for row in rows]
    numbers = [[float(row[name]) for name in NUMBERS] for row in rows]
    target = [float(row[TARGET]) for row in rows]
    return torch.tensor(words), [len(kinds) for kinds in known], torch.tensor(numbers), torch.tensor(target)


class Net(nn.Module):
    """A vector for each word, beside the numbers, through two hidden layers."""

    def __init__(self, counts, numbers, width=64):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(count, min(8, count)) for count in counts)
        wide = sum(embedding.embedding_dim for embedding in self.embeddings) + numbers
        self.layers = nn.Sequential(nn.Linear(wide, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                    nn.Linear(width, 1))

    def forward(self, words, numbers):
        vectors = [embedding(words[:, i]) for i, embedding in enumerate(self.embeddings)]
        return self.layers(torch.cat([*vectors, numbers], dim=1)).squeeze(1)


def r_squared(predicted, target):
    return 1 - ((predicted - target).square().mean() / target.var(unbiased=False)).item()


def least_squares(counts, fitted, asked):
    """What a sum over the columns, one weight per word and number, fitted to some rows, says about others."""
    def columns(words, numbers, *_):
        marks = [F.one_hot(words[:, i], count)[:, 1:] for i, count in enumerate(counts)]      # all would add up to 1
        return torch.cat([torch.ones(len(words), 1), *marks, numbers], dim=1)
    weights = torch.linalg.lstsq(columns(*fitted), fitted[2].unsqueeze(1)).solution
    return (columns(*asked) @ weights).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help="default: 12000, or 3000 with --quick")
    parser.add_argument("--epochs", type=int, help="at most so many; default: 60, or 12 with --quick")
    parser.add_argument("--patience", type=int, default=6, help="stop after so many epochs that were no better")
    parser.add_argument("--quick", action="store_true", help="a smaller table, for a trial of some seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="where files are written")
    args = parser.parse_args()
    epochs = args.epochs or (12 if args.quick else 60)
    args.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(args.seed)
    path = args.out / "flats.csv"
    write_table(path, drawn_flats(np.random.default_rng(args.seed), args.rows or (3000 if args.quick else 12000)))
    words, counts, numbers, target = read_table(path)
    everything = torch.utils.data.TensorDataset(words, numbers, target)
    parts = torch.utils.data.random_split(everything, [0.7, 0.15, 0.15])
    train, valid, test = ([column[part.indices] for column in everything.tensors] for part in parts)

    # Standardised by what the training rows say, and by nothing else.
    mean, std, centre, spread = train[1].mean(dim=0), train[1].std(dim=0), train[2].mean(), train[2].std()
    train, valid, test = ([w, (n - mean) / std, (t - centre) / spread] for w, n, t in (train, valid, test))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*train), batch_size=128, shuffle=True)

    model = Net(counts, numbers.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2)
    print(f"{len(target):,} rows in {path}, {sum(p.numel() for p in model.parameters()):,} parameters")
    best, best_state, best_epoch = float("inf"), None, 0
    for epoch in range(1, epochs + 1):
        losses = []
        for w, n, t in (steps := bar(loader, f"epoch {epoch}/{epochs}")):
            loss = F.mse_loss(model(w, n), t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            steps.set_postfix_str(f"loss {losses[-1]:.4f}")
        with torch.no_grad():
            held_back = F.mse_loss(model(*valid[:2]), valid[2]).item()
        print(f"epoch {epoch}: first loss {losses[0]:.5f}, mean {sum(losses) / len(losses):.5f}, "
              f"held back {held_back:.5f}", flush=True)
        schedule.step(held_back)
        if held_back < 0.999 * best:                      # less than that is no progress
            best, best_state, best_epoch = held_back, copy.deepcopy(model.state_dict()), epoch
        elif epoch - best_epoch >= args.patience:
            print(f"no better since epoch {best_epoch}: that one is kept")
            break

    model.load_state_dict(best_state)
    with torch.no_grad():
        predicted = model(*test[:2])
    off = (predicted - test[2]).abs().mean().item() * spread.item()
    print(f"the net is off by {off:.0f} a month on average, of {centre.item():.0f}")
    print(f"R² on rows not trained on: {r_squared(predicted, test[2]):.3f}, "
          f"of linear least squares: {r_squared(least_squares(counts, train, test), test[2]):.3f}")


if __name__ == "__main__":
    main()
