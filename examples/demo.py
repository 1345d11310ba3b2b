"""From a table in a database to a page about the run: batches stream out of SQLite, a net learns from them, is tried on
rows that it has not seen, and the report is written.

    python examples/demo.py [--device cuda] [--rows 40000] [--epochs 8] [--quick]

The table, flats with their rents, is drawn here, so nothing is downloaded. It is never read whole: the database hands
out shuffled blocks of rows, in memory that does not grow with the table, and columns of words become numbers on the
way. R² is the part of the variance that is explained, above 0.94 on the rows that were held back. Takes ten seconds
on two cores. The last line is the path of the report; open it in a browser.
"""
import argparse
import sqlite3
import time
from pathlib import Path

import numpy as np
from progress import bar
from table_regression import DISTRICTS, HEATING, KINDS, NUMBERS, TARGET, WORDS, Net, drawn_flats

import flambeau as torch

F = torch.nn.functional
COLUMNS = ", ".join([*WORDS, *NUMBERS, TARGET])
CODES = {name: {word: number for number, word in enumerate(words)}
         for name, words in zip(WORDS, (DISTRICTS, KINDS, HEATING))}
HOLDOUT_EVERY = 5                  # every 5th row is held out
SHOWN_STEPS = 10                   # the loss is looked at once in so many steps: to look is to wait for the device


def make_table(path, rng, rows):
    """A database with one table of `rows` flats."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE flats (id INTEGER PRIMARY KEY, {', '.join(f'{w} TEXT' for w in WORDS)}, "
                           f"{', '.join(f'{n} REAL' for n in (*NUMBERS, TARGET))})")
        places = ", ".join("?" * (len(WORDS) + len(NUMBERS) + 1))
        connection.executemany(f"INSERT INTO flats ({COLUMNS}) VALUES ({places})", drawn_flats(rng, rows))
    connection.close()


def flats(path, condition):
    """Rows of the table as a dataset: words by number and numbers as they are, and the rent."""
    return torch.data.sql(f"SELECT id, {COLUMNS} FROM flats WHERE {condition}", path, key="id",
                          features=[*WORDS, *NUMBERS], label=TARGET, codes=CODES)


def scales(path):
    """(mean, spread) of the numbers and the rent over the rows that are trained on, which the database computes."""
    names = (*NUMBERS, TARGET)
    asked = ", ".join(f"avg({n}) AS {n}, avg({n} * {n}) AS {n}_squared" for n in names)
    mean, square = torch.data.sql(f"SELECT {asked} FROM flats WHERE id % {HOLDOUT_EVERY} != 0", path,
                                  dtype=torch.float64).read().reshape(-1, 2).T
    return mean.float(), (square - mean * mean).sqrt().float()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, or cuda; a GPU that is not there is said so at once")
    parser.add_argument("--rows", type=int, help="default: 40000, or 4000 with --quick")
    parser.add_argument("--epochs", type=int, help="default: 8, or 3 with --quick")
    parser.add_argument("--quick", action="store_true", help="a smaller table, for a trial of some seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="where files are written")
    args = parser.parse_args()
    device = torch.expect(args.device)
    rows, epochs = args.rows or (4000 if args.quick else 40000), args.epochs or (3 if args.quick else 8)
    args.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    torch.manual_seed(args.seed)
    path = args.out / "flats.db"
    make_table(path, np.random.default_rng(args.seed), rows)
    train, held_back = flats(path, f"id % {HOLDOUT_EVERY} != 0"), flats(path, f"id % {HOLDOUT_EVERY} = 0")
    mean, spread = (scale.to(device) for scale in scales(path))
    model = Net([len(codes) for codes in CODES.values()], len(NUMBERS)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    loader = torch.utils.data.DataLoader(train, batch_size=256, shuffle=True)
    print(f"{len(train):,} rows of {path} to train on, {len(held_back):,} held back; "
          f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")

    def predicted(features):
        """What the net says of a batch: rents, as so many spreads above their mean."""
        words = features[:, :len(WORDS)].long().to(device)     # positions: checked before they leave the CPU
        numbers = features[:, len(WORDS):].to(device)
        return model(words, (numbers - mean[:-1]) / spread[:-1])

    with torch.report(args.out / "report.html", title="flats and their rents") as run:
        for epoch in range(1, epochs + 1):
            total, steps = 0.0, bar(loader, f"epoch {epoch}/{epochs}")
            for number, (features, rent) in enumerate(steps):
                loss = F.mse_loss(predicted(features), (rent.to(device) - mean[-1]) / spread[-1])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
                if number % SHOWN_STEPS == 0:
                    steps.set_postfix_str(f"loss {loss.item():.4f}")
            r_squared, off = evaluated(predicted, held_back, device, mean[-1], spread[-1])
            run.log(held_back_r_squared=r_squared)
            print(f"epoch {epoch}: mean loss {total / len(loader):.4f}, R² {r_squared:.3f} on rows held back, "
                  f"off by {off:.0f} a month", flush=True)
    print(f"{time.perf_counter() - started:.0f} s. The report: {Path(run.path).resolve()}")


def evaluated(predicted, dataset, device, mean, spread):
    """(R², mean distance) over all rows of a dataset, batch by batch."""
    squares = distances = total = total_squares = 0.0
    with torch.no_grad():
        for features, rent in torch.utils.data.DataLoader(dataset, batch_size=2048):
            rent = rent.to(device)
            off = predicted(features) * spread + mean - rent
            squares, distances = squares + off.square().sum().item(), distances + off.abs().sum().item()
            total, total_squares = total + rent.sum().item(), total_squares + rent.double().square().sum().item()
    count = len(dataset)
    return 1 - squares / (total_squares - total * total / count), distances / count


if __name__ == "__main__":
    main()
