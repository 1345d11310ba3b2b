"""What `flambeau.watch` costs a training step: the part that is always on, and the full watch.

    python bench/watch.py [words ...] [--rounds 40]

Each model trains in three ways, in one process, in turn, some steps at a time: with the part that is always on taken
out, as it is, and inside of `watch()`. What counts is processor time, of all threads, which other programs on the
machine disturb least: the ratio of the best steps, and beside it the median of the ratios of each round.
"""
import argparse
import contextlib
import statistics
import time

import models

import flambeau
from flambeau.watch import steps as watched

FREE_LIMIT, FULL_LIMIT = 1.03, 1.30
STEPS, WARM_ROUNDS = 12, 2    # steps of one way before the next has its turn; rounds that do not count


@contextlib.contextmanager
def without():
    """The part of watch that is always on, taken out of backward() and an optimizer's step."""
    before, after = watched.before_step, watched.after_step
    watched.before_step = watched.after_step = lambda number: None
    try:
        with flambeau.config.using(watch="off"):
            yield
    finally:
        watched.before_step, watched.after_step = before, after


WAYS = {"without": without, "free": contextlib.nullcontext, "full": flambeau.watch}


def contender(model):
    """One step of training, run to its end."""
    step, batch = models.training_step(flambeau, model), [flambeau.tensor(part) for part in model.batch]

    def run():
        step(*batch)
        flambeau.cpu.synchronize()
    return run


def measure(model, rounds):
    """{way: its times} of a model, of which each way trains its own."""
    runs = {way: contender(model) for way in WAYS}
    times = {way: [] for way in WAYS}
    for number in range(rounds + WARM_ROUNDS):
        for way, run in runs.items():
            with WAYS[way]():
                took = [timed(run) for _ in range(STEPS)]
            if number >= WARM_ROUNDS:
                times[way].append(min(took[STEPS // 2:]))     # what the last way has left in caches does not count
    return times


def timed(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    print(f"{'model':<34}{'without':>10}{'free':>10}{'full':>10}   free/without (median)   full/without (median)")
    for model in (models.mlp(), models.mlp((784, 512, 512, 10), 128), models.cnn(), models.gpt()):
        if given.words and not any(word in model.name for word in given.words):
            continue
        times = measure(model, given.rounds)
        best = {way: min(took) for way, took in times.items()}
        shown = []
        for way, limit in (("free", FREE_LIMIT), ("full", FULL_LIMIT)):
            ratio = best[way] / best["without"]
            middle = statistics.median(a / b for a, b in zip(times[way], times["without"], strict=True))
            shown.append(f"{ratio:6.3f} ({middle:5.3f}) {'ok  ' if min(ratio, middle) <= limit else 'over'}")
        print(f"{model.name:<34}" + "".join(f"{best[way] * 1e3:7.2f} ms" for way in WAYS) + "   " +
              "       ".join(shown), flush=True)
    for finding in flambeau.watch.findings():
        print(finding)


if __name__ == "__main__":
    main()
