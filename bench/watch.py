"""What `flambeau.watch` costs a training step: the part that is always on, and the full watch.

    python bench/watch.py [words ...] [--rounds 40]

Each model, those of models.py and of training.py, trains in three ways, in one process, in turn, some steps at a time:
with the part that is always on taken out, as it is, and inside of `watch()`. What counts is the processor time of the
thread that trains, which other programs on the machine disturb least: the ratio of the best steps, and beside it the
median of the ratios of each round. (That of all threads would not do: those that help wait by spinning.)
"""
import argparse
import contextlib
import functools
import statistics
import time

import models
import training

import flambeau
from flambeau.watch import steps as watched

FREE_LIMIT, FULL_LIMIT = 1.03, 1.30
WARM_ROUNDS = 2               # rounds that do not count
TURN_SECONDS = 0.4            # of one way before the next has its turn
LEAST_STEPS, MOST_STEPS = 2, 12


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


def rows():
    """(name, function that gives a function for one step of training, run to its end) of each model."""
    for model in (models.mlp(), models.mlp((784, 512, 512, 10), 128), models.cnn(), models.gpt()):
        batch = [flambeau.tensor(part) for part in model.batch]
        yield model.name, lambda model=model, batch=batch: functools.partial(
            models.training_step(flambeau, model), *batch)
    for name, (build, *_) in training.MODELS.items():
        if build is not training.policy:                 # which trains nothing
            yield name, functools.partial(training.built, flambeau, build)


def measure(make, rounds):
    """{way: its times} of a model, of which each way trains its own."""
    runs = {way: make() for way in WAYS}
    times = {way: [] for way in WAYS}
    for way, run in runs.items():
        with WAYS[way]():
            timed(run)
    steps = int(min(max(TURN_SECONDS / timed(runs["without"]), LEAST_STEPS), MOST_STEPS))
    for number in range(rounds + WARM_ROUNDS):
        for way, run in runs.items():
            with WAYS[way]():
                took = [timed(run) for _ in range(steps)]
            if number >= WARM_ROUNDS:
                times[way].append(min(took[steps // 2:]))     # what the last way has left in caches does not count
    return times


def timed(run):
    start = time.thread_time()
    run()
    flambeau.cpu.synchronize()
    return time.thread_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    print(f"{'model':<66}{'without':>10}{'free':>10}{'full':>10}   free/without (median)   full/without (median)")
    for name, make in rows():
        if given.words and not any(word in name for word in given.words):
            continue
        times = measure(make, given.rounds)
        best = {way: min(took) for way, took in times.items()}
        shown = []
        for way, limit in (("free", FREE_LIMIT), ("full", FULL_LIMIT)):
            ratio = best[way] / best["without"]
            middle = statistics.median(a / b for a, b in zip(times[way], times["without"], strict=True))
            shown.append(f"{ratio:6.3f} ({middle:5.3f}) {'ok  ' if min(ratio, middle) <= limit else 'over'}")
        print(f"{name:<66}" + "".join(f"{best[way] * 1e3:7.2f} ms" for way in WAYS) + "   " +
              "       ".join(shown), flush=True)
    for finding in flambeau.watch.findings():
        print(finding)


if __name__ == "__main__":
    main()
