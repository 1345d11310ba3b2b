"""For how long do threads wait for each other in a training step, and in which native steps?

    python bench/idle.py [word of a model …] [--threads 16] [--steps 25] [--rows 12]

Of a model of training.py: how long a training step takes, how much of that native steps take that threads share, and
how much they would if nobody ever waited; and what is left, on one thread. Then the steps in which the most time is
lost, by their function: how often it runs, how long altogether, the part of all threads' time in which they have
nothing to do, and how long a thread waits for its first piece (late) and after its last one (tail), on average.

Processors are not alike: those of a virtual machine may be halves of one core, and the host takes some away. A step
that is dealt out in as many pieces as there are threads waits for the slowest of them. The runtime is compiled with a
clock around every piece, so small steps take somewhat longer here.
"""
import argparse
import collections
import ctypes
import time

import numpy as np

from flambeau.backends.cpu import runtime

RECORDS = 1 << 20
WORDS_A_RECORD = 8
PIECE, SHARED, ALONE = range(3)                # what a record is of: a piece, a whole step, one on the caller's thread
WARM_STEPS = 12
log = (ctypes.c_int64 * (WORDS_A_RECORD * (RECORDS + 1)))()       # the first word counts records

NOTE_TEXT = f"""
define internal void @note(i64 %kind, ptr %fn, i64 %start, ptr %thread) noinline {{
  %end = call i64 @now()
  %log = inttoptr i64 {ctypes.addressof(log)} to ptr
  %number = atomicrmw add ptr %log, i64 1 monotonic, align 8
  %kept = icmp slt i64 %number, {RECORDS}
  br i1 %kept, label %write, label %done
write:
  %next = add i64 %number, 1
  %words = mul i64 %next, {WORDS_A_RECORD}
  %record = getelementptr i64, ptr %log, i64 %words
  store i64 %kind, ptr %record
  %fn.at = getelementptr i64, ptr %record, i64 1
  store ptr %fn, ptr %fn.at
  %start.at = getelementptr i64, ptr %record, i64 2
  store i64 %start, ptr %start.at
  %end.at = getelementptr i64, ptr %record, i64 3
  store i64 %end, ptr %end.at
  %thread.at = getelementptr i64, ptr %record, i64 4
  store ptr %thread, ptr %thread.at
  br label %done
done:
  ret void
}}
"""


def clocked(text, call, kind):
    """`text` with a record of every run of the instruction `call`."""
    assert text.count(call) == 1, call
    me = "" if kind != PIECE else "  %note.me = call ptr @pthread_self()\n"
    thread = "null" if kind != PIECE else "%note.me"
    return text.replace(call, f"{me}  %note.s{kind} = call i64 @now()\n{call}"
                              f"  call void @note(i64 {kind}, ptr %fn, i64 %note.s{kind}, ptr {thread})\n")


def record_everything():
    """Have the runtime, which is not compiled yet, note what threads do."""
    run, pool = runtime.RUN_TEXT, runtime.POOL_TEXT
    run = clocked(run, "  call void %fn(ptr %buffers, ptr %ints, ptr %scalars, i64 0, i64 %tiles, ptr %room)\n", ALONE)
    run = clocked(run, "  call void @parallel(ptr %pool, ptr %fn, ptr %buffers, ptr %ints, ptr %scalars, i64 %tiles, "
                       "i64 %grain, ptr %room)\n", SHARED)
    pool = clocked(pool, "  call void %fn(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %stop.min, "
                         "ptr %room)\n", PIECE)
    runtime.RUN_TEXT = run
    runtime.POOL_TEXT = pool + "declare ptr @pthread_self()\n" + NOTE_TEXT


def names_of_functions():
    """{address: name}, which fills as functions are compiled or found."""
    from flambeau.backends.cpu import machine_code
    names = {}

    def noting(plain):
        def found(*args, **more):
            made = plain(*args, **more)
            names.update({address: name.partition(" of the library")[0].partition("\n")[0]
                          for name, address in made.items()})
            return made
        return found

    for name in ("functions", "packaged_functions"):
        setattr(machine_code, name, noting(getattr(machine_code, name)))
    return names


def measured(step, steps):
    """(nanoseconds, records) of the quickest of `steps` training steps."""
    import flambeau
    best = None
    for number in range(WARM_STEPS + steps):
        log[0] = 0
        start = time.perf_counter_ns()
        step()
        flambeau.cpu.synchronize()
        took = time.perf_counter_ns() - start
        if number >= WARM_STEPS and (best is None or took < best[0]):
            count = min(log[0], RECORDS)
            best = took, np.ctypeslib.as_array(log)[WORDS_A_RECORD:][:WORDS_A_RECORD * count].reshape(-1, 8).copy()
    return best


def lost(records, threads):
    """{function: [steps, wall, thread time inside, late, tail]} of steps that are shared, in nanoseconds."""
    pieces = records[records[:, 0] == PIECE]
    found = collections.defaultdict(lambda: np.zeros(5))
    for _, fn, start, end, *_ in records[records[:, 0] == SHARED]:
        own = pieces[(pieces[:, 2] >= start) & (pieces[:, 3] <= end)]
        firsts, lasts = {}, {}
        for piece in own:
            firsts[piece[4]] = min(firsts.get(piece[4], end), piece[2])
            lasts[piece[4]] = max(lasts.get(piece[4], start), piece[3])
        late = sum(first - start for first in firsts.values()) + (threads - len(firsts)) * (end - start)
        tail = sum(end - last for last in lasts.values())
        found[fn] += [1, end - start, (own[:, 3] - own[:, 2]).sum(), late / threads, tail / threads]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", default=["ResNet"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--rows", type=int, default=12)
    args = parser.parse_args()
    record_everything()
    import training

    import flambeau
    names = names_of_functions()
    flambeau.set_num_threads(args.threads)
    for model, (build, *_) in training.MODELS.items():
        if not any(word in model for word in args.words):
            continue
        flambeau.manual_seed(0)
        took, records = measured(build(flambeau), args.steps)
        found = lost(records, args.threads)
        shared, inside = sum(one[1] for one in found.values()), sum(one[2] for one in found.values())
        alone = sum(end - start for _, _, start, end, *_ in records[records[:, 0] == ALONE])
        print(f"{model}: {took / 1e6:.2f} ms with {args.threads} threads; {shared / 1e6:.2f} in steps that they share, "
              f"{inside / args.threads / 1e6:.2f} if nobody waited; {alone / 1e6:.2f} in others; "
              f"{(took - shared - alone) / 1e6:.2f} in Python")
        print(f"  {'function':<32} {'steps':>5} {'ms':>8} {'idle':>6} {'late':>8} {'tail':>8}   (µs a step and thread)")
        ranked = sorted(found.items(), key=lambda item: item[1][2] - args.threads * item[1][1])
        for fn, (steps, wall, used, late, tail) in ranked[:args.rows]:
            print(f"  {names.get(int(fn), 'a kernel')[:32]:<32} {steps:5.0f} {wall / 1e6:8.2f} "
                  f"{1 - used / (args.threads * wall):6.0%} {late / steps / 1e3:8.1f} {tail / steps / 1e3:8.1f}")


if __name__ == "__main__":
    main()
