"""What does the very first training step cost, and the first one with another batch size?

    python bench/cold.py [--compile]               two small models
    python bench/cold.py --nets [dense …]          first calls of nets with long traces and many shapes (nets.py)

Every contender runs in a fresh process with empty caches on disk. `--compile` lets torch.compile take part. Of the nets
the processor time is shown beside the time on the wall: a busy machine does not change it much.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import models
import nets
import side
from side import COMPILED, EAGER, INDUCTOR, JAX, OURS

MODELS = {"784-512-512-10 MLP": lambda other: models.mlp((784, 512, 512, 10), 128 + 23 * other),
          "4-layer GPT": lambda other: models.gpt(batch=8 + other)}
WORK = "first step, cold caches; first step, new batch size"
LIMIT = 1.0                   # seconds that the first step may take
CALLS = 4                     # of a net: how its first calls differ
TRIES = 3                     # fresh processes per contender, but one of torch.compile's


def compiled():
    """How many kernels this process has compiled; None where nobody counts."""
    machine_code = sys.modules.get("flambeau.backends.cpu.machine_code")    # importing it is part of the first step
    return getattr(machine_code, "compiled", None)


def child(contender, model):
    """Measure in this process: seconds of the first and second step, then of another batch size, as a dictionary."""
    built, other = MODELS[model](0), MODELS[model](1)
    mine = contender in (OURS, COMPILED)
    began = side.cores()
    start = time.perf_counter()
    if mine:
        import flambeau
        step = models.training_step(flambeau, built, compile=flambeau.compile if contender == COMPILED else None)
        tensor = flambeau.tensor
    elif contender == JAX:
        import jax
        step, tensor = built.jax_step(built), jax.numpy.array
    else:
        import torch
        torch.set_num_threads(2)
        step = models.training_step(torch, built, compile=torch.compile if contender == INDUCTOR else None)
        tensor = torch.tensor
    found = {"import and parameters": time.perf_counter() - start}

    for name, data in (("first", built), ("second", built), ("other", other), ("other again", other)):
        batch = [tensor(array) for array in data.batch]
        if mine:
            side.synchronize()
            before = compiled() or 0
        start = time.perf_counter()
        result = step(*batch)
        if mine:
            side.synchronize()
        elif contender == JAX:
            jax.block_until_ready(result)
        found[name] = time.perf_counter() - start
        if mine:
            found[f"{name} compiled"] = None if compiled() is None else compiled() - before
    return found | {"disturbed": side.taken(began, side.cores())}


def measure(contender, model):
    """`child` in processes of their own that find no cache, the best of them; or None, and the reason."""
    tries = []
    for _ in range(1 if contender == INDUCTOR else TRIES):
        with tempfile.TemporaryDirectory() as home:
            places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "FLAMBEAU_CACHE_DIR"), home)
            ran = subprocess.run([sys.executable, __file__, "--child", contender, model], env=os.environ | places,
                                 capture_output=True, text=True)
        if ran.returncode:
            return None, ran.stderr.strip().splitlines()[-1]
        tries.append(json.loads(ran.stdout.splitlines()[-1]))
    return min(tries, key=lambda found: found["first"]), None


def add(table, compile):
    """Put the lines on a `side.Table`."""
    import importlib.util

    import flambeau
    contenders = [OURS, EAGER]
    if hasattr(flambeau, "compile"):
        contenders.append(COMPILED)
    if compile:
        contenders.append(INDUCTOR)
    for model in MODELS:
        taking_part = list(contenders)
        if importlib.util.find_spec("jax") and MODELS[model](0).jax_step:
            taking_part.append(JAX)
        found, failed = {}, {}
        for name in taking_part:
            found[name], failed[name] = measure(name, model)
        for mine in (OURS, COMPILED):
            _lines(table, model + ", compiled" * (mine == COMPILED), mine, found, failed)


def _lines(table, model, mine, found, failed):
    """The two lines about one of our two contenders."""
    got, failure = found.get(mine), failed.get(mine, f"{mine} is not there yet")
    doubt = got and side.doubt(got["disturbed"])
    for name, what in (("first", "cold caches"), ("other", "new batch size")):
        times = {other: numbers[name] for other, numbers in found.items() if numbers}
        count, short = got and got[f"{name} compiled"], failure
        if name == "first":
            target, said = f"{LIMIT:.0f} s", None
            if got and got["first"] > LIMIT:
                short = f"short by {got['first'] - LIMIT:.2f} s"
            if short or doubt:
                short = (short or "reached") + (doubt or "")
        else:
            target, said = "0 new", None if count is None else f"{count} new"
            if got and count is None:
                short = "compilations are not counted yet"
            elif count:
                short = f"short: {count} kernels compiled"
        table.add(f"first step, {what}: {model}", times, said, target, short or "reached", not short, mine)


# --- nets with long traces --------------------------------------------------------------------------------------------

def net_child(contender, net, work, size):
    """Measure in this process: (seconds, seconds of processor time) of each of the first calls of a net."""
    if contender == OURS:
        import flambeau as m
    else:
        import torch as m
        m.set_num_threads(2)
    m.manual_seed(0)
    model, x = nets.NETS[net](m), m.randn(2, 3, size, size)
    model.train(work == "training")
    optimizer = m.optim.SGD(model.parameters(), lr=0.01)

    def call():
        if work == "forward":
            with m.no_grad():
                return model(x).sum().item()
        loss = model(x).logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()
    if contender == OURS:
        side.synchronize()
    times = []
    for _ in range(CALLS):
        start, before = time.perf_counter(), time.process_time()
        call()
        times.append((time.perf_counter() - start, time.process_time() - before))
    return times


def net_lines(names, size, tries):
    """Print the first calls of each net: with empty caches, in the next process, and PyTorch's."""
    print(f"images of {size} × {size}, batch 2; seconds of the first {CALLS} calls (of processor time)")
    for net in names or nets.NETS:
        for work in ("forward", "training"):
            found = {}
            for _ in range(tries):
                with tempfile.TemporaryDirectory() as home:
                    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "FLAMBEAU_CACHE_DIR"), home)
                    for which, contender in (("cold", OURS), ("next process", OURS), (EAGER, EAGER)):
                        ran = subprocess.run([sys.executable, __file__, "--net-child", contender, net, work, str(size)],
                                             env=os.environ | places, capture_output=True, text=True)
                        if ran.returncode:
                            sys.exit(f"{which} {net}: {ran.stderr.strip().splitlines()[-1]}")
                        times = json.loads(ran.stdout.splitlines()[-1])
                        found[which] = min(found.get(which, times), times, key=lambda times: times[0][1])
            for which, times in found.items():
                print(f"  {net + ', ' + work:<20} {which:<13} {'   '.join(f'{a:6.2f} ({b:.2f})' for a, b in times)}")
            print(f"  {'':<34} first call: {found['cold'][0][1] / found[EAGER][0][1]:.2f} times PyTorch's processor "
                  f"time, {found['next process'][0][1] / found[EAGER][0][1]:.2f} in the next process", flush=True)
            wall = {which: sum(seconds for seconds, _ in times[:3]) for which, times in found.items()}
            print(f"  {'':<34} first three calls, on the wall: PyTorch's over ours {wall[EAGER] / wall['cold']:.2f}")


def main():
    parser = argparse.ArgumentParser(description="The first step of a training.")
    parser.add_argument("--compile", action="store_true", help="let torch.compile take part")
    parser.add_argument("--nets", nargs="*", choices=list(nets.NETS), help="first calls of these nets, or of all")
    parser.add_argument("--size", type=int, default=64, help="of the nets' images")
    parser.add_argument("--tries", type=int, default=TRIES, help="processes for each net and contender")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--net-child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.net_child:
        *what, size = args.net_child
        print(json.dumps(net_child(*what, int(size))))
        return
    if args.nets is not None:
        side.two_cores()
        net_lines(args.nets, args.size, args.tries)
        return
    if args.child:
        print(json.dumps(child(*args.child)))
        return
    table = side.Table()
    add(table, args.compile)
    table.close()


if __name__ == "__main__":
    main()
