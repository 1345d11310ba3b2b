"""How much memory does a training step need at its peak, beside PyTorch?

    python bench/memory.py

Each contender trains in a process of its own, which first trains a tiny model of the same kind: what the libraries and
compiled code take is then in memory, and what the resident memory grows by from there, at its highest, is what the
parameters, the optimizer's state, the gradients and the work of the steps need. Linux only.
"""
import argparse
import gc
import json
import subprocess
import sys

import models
import side
from side import COMPILED, EAGER, OURS

STEPS = 5
# The model, and a tiny one that runs the same code.
MODELS = {"784-512-512-10 MLP, batch 128": (lambda: models.mlp((784, 512, 512, 10), 128), models.mlp),
          "784-512-512-10 MLP, batch 4096": (lambda: models.mlp((784, 512, 512, 10), 4096), models.mlp),
          "CNN 32/64, 32x32, batch 32": (models.cnn, lambda: models.cnn(batch=2, size=8, channels=(4, 8))),
          "4-layer GPT, 8x128 tokens": (models.gpt, lambda: models.gpt(4, 16, 4, 16, 2, 50))}


def resident(what):
    """Bytes from /proc: "VmRSS" is resident now, "VmHWM" at the highest since it was last forgotten."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))


def forget_highest():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def train(contender, model):
    """Make the model and train it; gives all that has to stay alive."""
    if contender == EAGER:
        import torch as m
        step = models.training_step(m, model)
    else:
        import flambeau as m
        step = models.training_step(m, model, compile=m.compile if contender == COMPILED else None)
    batch = [m.tensor(array) for array in model.batch]
    for _ in range(STEPS):
        loss = step(*batch)
        if contender != EAGER:
            side.synchronize()
    return step, batch, loss


def child(contender, name):
    """Measure in this process, in bytes."""
    real, tiny = MODELS[name]
    if contender == EAGER:
        import torch
        torch.set_num_threads(2)
        train(contender, tiny())
    else:
        from flambeau.base import settings
        usual, settings.executor = settings.executor, "native"      # so little data would not be compiled for
        train(contender, tiny())
        settings.executor = usual
    model = real()
    gc.collect()
    forget_highest()
    before = resident("VmRSS")
    kept = train(contender, model)
    found = {"libraries": before, "peak": resident("VmHWM") - before, "after": resident("VmRSS") - before}
    if contender != EAGER:
        import flambeau
        count = getattr(getattr(flambeau, "cpu", None), "max_memory_allocated", None)
        found["allocator"] = count and count()
    del kept
    return found


def main():
    parser = argparse.ArgumentParser(description="Peak memory of training steps.")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(*args.child)))
        return
    import flambeau
    contenders = [EAGER, OURS] + [COMPILED] * hasattr(flambeau, "compile")
    print(f"{'MB, peak above what the libraries take':<42}{'peak':>8}{'after':>8}{'allocator':>11}{'libraries':>11}"
          f"{'PyTorch/ours':>14}")
    for name in MODELS:
        theirs = None
        for contender in contenders:
            ran = subprocess.run([sys.executable, __file__, "--child", contender, name], capture_output=True, text=True)
            if ran.returncode:
                print(f"{name + ', ' + contender:<42}", side.paint(ran.stderr.strip().splitlines()[-1], False))
                continue
            found = json.loads(ran.stdout.splitlines()[-1])
            cells = [found["peak"], found["after"], found.get("allocator"), found["libraries"]]
            cells = ["-" if cell is None else f"{cell / 1e6:.1f}" for cell in cells]
            verdict = ""
            if contender == EAGER:
                theirs = found["peak"]
            elif theirs:
                ratio = theirs / found["peak"]
                verdict = f"{ratio:14.2f}   " + ("reached" if ratio >= 1 else
                                                 side.paint(f"short by {100 * (1 - ratio):.0f}%", False))
            print(f"{name + ', ' + contender:<42}{cells[0]:>8}{cells[1]:>8}{cells[2]:>11}{cells[3]:>11}{verdict}",
                  flush=True)


if __name__ == "__main__":
    main()
