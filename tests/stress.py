"""Forks, interrupts and memory limits, many times over: nothing hangs, nothing is lost, and every number stays right.

`python -m tests.stress --forks 200 --interrupts 500 --interrupted 300 --limits 20` prints what came of each;
`tests/test_stress.py` runs a few of each.
"""
import argparse
import collections
import faulthandler
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings

import flambeau as torch
from flambeau.backends.cpu.memory import allocator
from flambeau.base import settings
from flambeau.trace.recording.record import current
from tests.patience import PATIENCE

# --- something to compute --------------------------------------------------


def program(size, seed):
    """Numbers that forward, backward, in-place writes, a compiled function and a small optimizer give."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, size, generator=generator)
    w = torch.randn(size, size, generator=generator).requires_grad_()
    step = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    out = []
    for n in range(2):
        step.zero_grad()
        loss = ((x @ w).tanh() * (n + seed % 3)).softmax(1).square().sum()
        loss.backward()
        step.step()
        out.append(loss.item())
    y = x.clone()
    y[1:3].mul_(2)
    y.index_add_(0, torch.tensor([0, 1]), y[2:4].clone())
    return [*out, round(y.sum().item(), 3), round(w.detach().abs().sum().item(), 2)]


def close(found, expected):
    return all(abs(a - b) <= 1e-3 * (1 + abs(b)) for a, b in zip(found, expected, strict=True))


# --- forks --------------------------------------------------


def forks(count, seed=0):
    """Fork `count` times while threads compute; (how many children were right, what came of the others)."""
    expected = [program(24, n) for n in range(8)]
    shared = torch.ones(64, requires_grad=True)
    twice = torch.compile(lambda x: x * 2 + 1)
    stop, draw = threading.Event(), random.Random(seed)

    def backward(n):
        while not stop.is_set():
            (shared * shared).tanh().sum().backward()       # all of them add to one gradient
            with torch.autocast("cpu"):
                torch.ones(4, 4) @ torch.ones(4, 4)

    def compute(n):
        while not stop.is_set():
            program(24, n % 8)
            twice(torch.ones(n % 5 + 1))
            torch.randn(200, 200).tanh().sum().item()
            torch.compile(lambda x, n=n: (x + n).exp())(torch.ones(3))
            n += 1

    threads = [threading.Thread(target=work, args=(n,))
               for n, work in enumerate([backward, backward, compute, compute])]
    for thread in threads:
        thread.start()
    outcomes: collections.Counter = collections.Counter()
    try:
        for n in range(count):
            time.sleep(draw.uniform(0, 0.01))
            child = os.fork()
            if not child:
                code = 3
                try:
                    signal.alarm(PATIENCE)
                    faulthandler.dump_traceback_later(PATIENCE - 5)
                    (shared * 2).sum().backward()
                    right = close(program(24, n % 8), expected[n % 8]) and twice(torch.ones(2)).tolist() == [3.0, 3.0]
                    code = 0 if right and torch.randn(300, 300).tanh().abs().max().item() < 1 else 2
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            outcomes[end_of(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))] += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return outcomes


def end_of(code):
    """In a word, how a process has ended."""
    return {0: "right", 2: "wrong", 3: "an exception", -signal.SIGALRM: "hung"}.get(code, f"died of {code}")


# --- interrupts --------------------------------------------------


def interrupts(count, seed=0):
    """Interrupt a program `count` times, anywhere; (how many reached it, what was swallowed, bytes that were lost)."""
    expected = [program(8, n) for n in range(4)]
    big = torch.ones(300, 300)
    big.numpy()                                             # it is in memory from now on
    outcomes: collections.Counter = collections.Counter()
    swallowed: list = []
    draw, sent = random.Random(seed), [0]

    def handler(number, frame):
        sent[0] += 1
        raise KeyboardInterrupt

    def settled():
        gc.collect()
        return allocator.stats()["allocated_bytes.all.current"]

    # Others may want to be called at garbage collections, as hypothesis does; an interrupt in there is theirs to lose.
    others, gc.callbacks[:] = gc.callbacks[:], []
    hook, sys.unraisablehook = sys.unraisablehook, lambda what: swallowed.append((what.exc_type, str(what.object)))
    old = signal.signal(signal.SIGALRM, handler)
    limit = settings.trace_instructions
    before = settled()
    try:
        while sent[0] < count:
            n, arrived = draw.randrange(4), sent[0]
            settings.trace_instructions = draw.choice([2000, 3, 8])
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.01))
                program(8, n)
                [big * 2 for _ in range(3)][0].sum(0).tolist()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                outcomes["reached the program"] += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                outcomes["reached the program"] += 1
            if sent[0] == arrived:
                continue
            trace = current()
            if trace.busy or trace.sealed or trace.site is not None or not torch.is_grad_enabled():
                outcomes["left a wrong state"] += 1
            if not close(program(8, n), expected[n]):
                outcomes["wrong"] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        sys.unraisablehook, settings.trace_instructions = hook, limit
        gc.callbacks[:] = others
    program(8, 0)
    outcomes["swallowed"] = len(swallowed)
    outcomes["bytes lost"] = max(0, settled() - before)
    return outcomes, swallowed


# --- interrupts while processes are forked --------------------------------------------------


INTERRUPTED = """
import collections, os, random, signal, sys, threading, time
import flambeau as torch
kind, count, patience = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
main, done, caught, lost, swallowed = os.getpid(), threading.Event(), [], [], []
signal.signal(signal.SIGINT, signal.default_int_handler)         # a shell's job in the background has it ignored
sys.unraisablehook = lambda what: swallowed.append(f"{what.exc_type.__name__} in {what.object}")

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, n):
        return torch.ones(200, 100) * n

def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)

def load():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert sum(batch.sum().item() for batch in loader) == 66 * 20000

def send():
    draw = random.Random(count)
    time.sleep(0.3)                                               # until the main thread has begun
    for n in range(count):
        time.sleep(draw.uniform(0.001, 0.02 if kind == "fork" else 0.15))
        before = len(caught)
        os.kill(main, signal.SIGINT)
        until = time.monotonic() + patience
        while len(caught) == before and time.monotonic() < until:
            time.sleep(0.0005)
        if len(caught) == before:
            lost.append(n)
    done.set()

def compute():
    while not done.is_set():
        torch.randn(200, 200).tanh().sum().item()

def work():
    while not done.is_set():
        fork() if kind == "fork" else load()

def guarded(work, depth):
    while not done.is_set():
        try:
            work() if not depth else guarded(work, depth - 1)     # an interrupt may come as the loop jumps back
        except KeyboardInterrupt:
            if os.getpid() != main:
                os._exit(1)
            caught.append(1)

threads = [threading.Thread(target=compute, daemon=True)] if kind == "fork" else []
threads += [threading.Thread(target=send, daemon=True)]
for thread in threads:
    thread.start()
guarded(work, 2)
for thread in threads:
    thread.join(patience)
print(f"{len(caught)} caught, {len(lost)} lost, {sum(t.is_alive() for t in threads)} threads hang, {swallowed[:3]}")
"""


def interrupted(kind, count):
    """Interrupt a process `count` times that does nothing but fork (kind "fork", while another thread computes), or
    load batches from worker processes ("load"); in words, what came of it."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", INTERRUPTED, kind, str(count), str(PATIENCE / 4)],
                          capture_output=True, text=True, timeout=10 * PATIENCE + count)
    return done.stdout.strip() or done.stderr


# --- memory limits --------------------------------------------------


LIMITED = """
import resource, sys, warnings
warnings.simplefilter("ignore")
megabytes, early = int(sys.argv[1]), sys.argv[2] == "early"

def limit():
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (megabytes << 20),) * 2)

if early:
    limit()
import flambeau as torch
from tests.stress import program
if not early:
    limit()
done = refused = 0
for n in range(12):
    try:
        program(8 + 16 * n, n)
        torch.randn(100 * n + 10, 100).tanh().sum(0).tolist()
        torch.compile(lambda x: (x * n).exp().sum())(torch.ones(n + 1)).item()
        done += 1
    except MemoryError:
        refused += 1
try:
    torch.ones(1 << 32).numpy()
    sys.exit("a limit that does not hold")
except MemoryError:
    pass
print(done, refused)
"""


# What Python, or NumPy at its import, say where they find no memory to begin with.
UNBEGUN = ("MemoryError", "ImportError", "OpenBLAS error", "OSError: [Errno 12]", "can't start new thread")


def limits(count, most=700):
    """Run a program under `count` limits of address space; what came of each: {megabytes beyond what it had: words}."""
    found = {}
    for n in range(count):
        early = n % 2 == 1
        share = n // 2 + 1
        megabytes = round(most * share / ((count + 1) // 2) if early else 2 * (most / 4) ** (n / max(count - 1, 1)))
        # By itself: with native code pinned, a process without room for the compiler is right to refuse. Two threads,
        # since OpenBLAS takes memory for each: on 16 cores it would not begin with what is plenty on two.
        environment = {**os.environ, "FLAMBEAU_CACHE_DIR": "", "FLAMBEAU_EXECUTOR": "auto", "OMP_NUM_THREADS": "2"}
        begun = time.monotonic()
        try:
            done = subprocess.run([sys.executable, "-c", LIMITED, str(megabytes), "early" if early else "late"],
                                  capture_output=True, text=True, timeout=PATIENCE, env=environment)
        except subprocess.TimeoutExpired:
            words = "hung"
        else:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            if done.returncode == 0:
                ran, refused = done.stdout.split()
                words = f"ended, {ran} programs ran and {refused} met a MemoryError"
            elif done.returncode > 0 and any(word in done.stderr for word in UNBEGUN):
                words = f"could not begin: {last[:70]}"
            else:
                words = f"died of {done.returncode}: {last[:200]}"
        found["before the import" if early else "after the import", megabytes] = words
        print(f"    {megabytes:4} MiB from {'before' if early else 'after'} the import: {words} "
              f"({time.monotonic() - begun:.1f} s)", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("forks", "interrupts", "interrupted", "limits"):
        parser.add_argument(f"--{name}", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.forks:
        begun = time.monotonic()
        print(f"{asked.forks} forks: {dict(forks(asked.forks))}, {time.monotonic() - begun:.0f} s", flush=True)
    if asked.interrupts:
        begun = time.monotonic()
        outcomes, swallowed = interrupts(asked.interrupts)
        print(f"{asked.interrupts} interrupts: {dict(outcomes)}, {time.monotonic() - begun:.0f} s", flush=True)
        for what, times in collections.Counter(swallowed).most_common(5):
            print(f"    swallowed {times} times: {what[0].__name__} in {what[1][:100]}")
    for kind in ("fork", "load") if asked.interrupted else ():
        print(f"{asked.interrupted} interrupts, {kind}: {interrupted(kind, asked.interrupted)}", flush=True)
    if asked.limits:
        print(f"{asked.limits} limits of address space", flush=True)
        limits(asked.limits)


if __name__ == "__main__":
    main()
