"""What profiling costs a training step: `profile()`, with everything switched on, and `memory.record()`.

    python bench/profiler.py [words ...] [--rounds 10]

Each model trains in four ways, in one process, in turn, some steps at a time; the best step of each counts, and the
median of the ratios of the rounds stands beside it, since on a busy machine the best may have had a quieter moment.
"""
import argparse
import contextlib
import statistics
import time

import models

import flambeau
from flambeau import memory
from flambeau.profiler import profile

STEPS, WARM_ROUNDS = 12, 2    # steps of one way before the next has its turn; rounds that do not count
WAYS = {
    "without": contextlib.nullcontext,
    "profile()": profile,
    "everything": lambda: profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True),
    "memory.record()": memory.record,
}


def contender(model):
    """One step of training, run to its end."""
    step, batch = models.training_step(flambeau, model), [flambeau.tensor(part) for part in model.batch]

    def run():
        start = time.perf_counter()
        step(*batch)
        flambeau.cpu.synchronize()
        return time.perf_counter() - start
    return run


def measure(model, rounds):
    """{way: the best step of each round} of a model, of which each way trains its own."""
    runs = {way: contender(model) for way in WAYS}
    times = {way: [] for way in WAYS}
    for number in range(rounds + WARM_ROUNDS):
        for way, run in runs.items():
            with WAYS[way]():
                took = [run() for _ in range(STEPS)]
            if number >= WARM_ROUNDS:
                times[way].append(min(took[STEPS // 2:]))
    return times


def main():
    """Measure the models whose names have one of the words in them."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("words", nargs="*")
    given.add_argument("--rounds", type=int, default=10)
    asked = given.parse_args()
    for model in (models.mlp(), models.mlp((784, 512, 512, 10), 128), models.cnn(), models.gpt()):
        if asked.words and not any(word in model.name for word in asked.words):
            continue
        times = measure(model, asked.rounds)
        best = {way: min(took) for way, took in times.items()}
        shown = [f"{model.name:<48}{best['without'] * 1e3:9.2f} ms"]
        for way in list(WAYS)[1:]:
            middle = statistics.median(one / other for one, other in zip(times[way], times["without"], strict=True))
            shown.append(f"{way} {best[way] / best['without']:.2f} ({middle:.2f})")
        print("   ".join(shown), flush=True)


if __name__ == "__main__":
    main()
