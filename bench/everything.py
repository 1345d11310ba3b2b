"""How fast is every operation of PyTorch's own list, in three sizes, forward and with backward, beside PyTorch?

    python bench/everything.py                                      # everything, on two threads: a quarter of an hour
    python bench/everything.py softmax linalg.qr --size large       # what is called like this, a line each
    python bench/everything.py --forward --seconds 0.3 --json everything.json

The list is OpInfo's, with which PyTorch tests itself, in float32 where an operation takes it. `small` is a sample of
OpInfo's with a few elements, and its result is looked at at once; `middle` has about 256 x 512 elements, `large` about
2048 x 2048, grown out of such a sample (larger.py), or fewer where PyTorch would take longer than `--slowest`. Results
and gradients are compared first, and what differs is not timed. Ratios are PyTorch's time over ours, of both in their
best round.

With `--threads 1` a call takes the processor time of its thread, which says something on a busy machine, too.

The operations run in a process of their own. If it dies, or does not answer, that is counted, and the next goes on.
"""
import argparse
import collections
import contextlib
import dataclasses
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import larger
import numpy as np
import side
import torch
from torch.testing._internal.common_methods_invocations import op_db

import flambeau
from flambeau.backends import reference
from tests.torch import checks, harness

TARGETS = {"small": None, "middle": 256 * 512, "large": 2048 * 2048}          # size → elements
DIRECTIONS = ("forward", "backward")
SMALL_NUMEL = 500                # elements that the small sample should not exceed
DTYPES = ("float32", "int64", "bool", "complex64")      # the first that an operation takes
LOOSER = 100                     # times the conformance tests' tolerance: sums of millions, in another order
WARM_CALLS, WARM_SECONDS = 6, 0.05
ROUNDS = 3
OVERHEAD_SECONDS = 0.15          # for the rest of one operation in one size and direction: samples, compiling
SILENCE_SECONDS = 180            # after which the child is given up
WORST = 20
# Large samples of these have no one answer: eigenvalues come in any order, and equal elements; vectors of eigenvalues
# that are close to each other, and functions near a pole, magnify the rounding.
NO_ONE_ANSWER = {"forward": ("linalg.eig", "linalg.eigvals", "polygamma", "special.polygamma"),
                 "backward": ("linalg.eig", "linalg.eigvals", "linalg.eigh", "linalg.svd", "svd", "sort", "msort",
                              "mode", "digamma")}
UNINITIALISED = ("empty", "new_empty", "resize")
SPARSE_OR_PRIVATE = ("sparse.", "to_sparse", "torch._", "torch.ops.", "jiterator", "_")


@dataclasses.dataclass
class Outcome:
    """What came of an operation in one size and direction: two times, or why there are none."""
    op: str
    size: str
    direction: str
    problem: str = ""              # none where it was timed
    detail: str = ""
    ours: float = 0.0
    theirs: float = 0.0
    elements: int = 0
    call: str = ""                 # the arguments, in brief
    numpy: list = dataclasses.field(default_factory=list)      # our operations that had no native body
    view: bool = False             # whether PyTorch's result lies in its argument: a view, or written in place

    @property
    def ratio(self):
        return self.theirs / self.ours


class Problem(Exception):
    """Why an operation is not timed: what is counted, and what is only printed."""

    def __init__(self, word, detail=""):
        super().__init__(word)
        self.word, self.detail = word, " ".join(str(detail).split())[:200]


# --- one operation ---

def without_seeds(function):
    """A function of torch.testing's as one that does not set the seed at every call."""
    if getattr(function, "__module__", "").startswith("torch.testing") and hasattr(function, "__code__"):
        scope = {**function.__globals__, "wrapper_set_seed": lambda call, *args, **kwargs: call(*args, **kwargs)}
        twin = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__,
                                  function.__closure__)
        twin.__kwdefaults__ = function.__kwdefaults__
        return twin
    return function


def functions(op):
    """The operation in Flambeau and in PyTorch."""
    theirs = harness.torch_function(op)
    try:
        try:
            ours = harness.function(op)
            if isinstance(ours, flambeau.dtype):         # `cfloat` is a method as well
                raise AttributeError(op.name)
        except AttributeError:
            if op.method_variant is None:
                raise
            theirs = op.method_variant
            ours = harness.variant(theirs)
    except (AttributeError, NotImplementedError) as error:
        raise Problem("Flambeau has none", error) from None
    if without_seeds(theirs) is not theirs and hasattr(ours, "__globals__"):
        ours.__globals__["wrapper_set_seed"] = lambda call, *args, **kwargs: call(*args, **kwargs)
    return ours, without_seeds(theirs)


def dtype_of(op):
    for name in DTYPES:
        if getattr(torch, name) in op.dtypes:
            return getattr(torch, name)
    raise Problem("no dtype that is measured", ", ".join(map(str, op.dtypes)) or "none on a CPU")


def samples_of(op, dtype):
    """OpInfo's samples; their tensors require gradients where the operation has them."""
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    found = checks.drawn(op.sample_inputs_func(op, "cpu", dtype, differentiable))
    found = [checks.resolved(checks.calm(op, sample)) for sample in found if checks.callable_on(op, sample)]
    if any(t.layout is not torch.strided for sample in found[:1] for t in harness.tensors(sample)):
        raise Problem("sparse tensors")
    if not found:
        raise Problem("no samples")
    return found


def small_sample(theirs, samples):
    """The first with several elements, but not many, that PyTorch takes."""
    fitting = [s for s in samples if larger.elements(s) <= SMALL_NUMEL] or samples
    filled = [s for s in fitting if all(t.numel() for t in harness.tensors(s))] or fitting
    found = larger.likeliest_first(theirs, filled)
    if not found:
        raise Problem("PyTorch takes none of the samples")
    return found[0]


class Contest:
    """One operation on one sample: compares, then times, both libraries."""

    def __init__(self, op, dtype, sample, size, direction):
        self.op, self.dtype, self.direction, self.grown = op, dtype, direction, size != "small"
        self.backward = direction == "backward"
        if not self.backward:
            sample = sample.transform(lambda x: x.detach() if isinstance(x, torch.Tensor) else x)
        self.sample = harness.copy(sample)
        if any(isinstance(x, torch.nn.Module) for x in self.sample.kwargs.values()):
            raise Problem("not converted", "a module among the arguments")
        try:
            self.mine = harness.to_fb(self.sample)
        except harness.Unsupported as error:
            raise Problem("not converted", error) from None
        self.functions = functions(op)
        self.leaves = [[t for t in harness.tensors(s) if t.requires_grad] for s in (self.mine, self.sample)]
        if self.backward and not self.leaves[1]:
            raise Problem("nothing to differentiate")
        self.cotangents = None
        self.elements = 0

    def forward(self, which):
        sample = (self.mine, self.sample)[which]
        return self.functions[which](sample.input, *sample.args, **sample.kwargs)

    def gradients(self, which):
        """The gradients of all that requires one, from the same incoming gradients on either side."""
        made = (self.mine, self.sample)[which].output_process_fn_grad(self.forward(which))
        outs = [t for t in harness.tensors(made) if t.requires_grad]
        if self.cotangents is None:
            theirs = checks.cotangents(outs, seed=1)
            self.cotangents = harness.to_fb(theirs), theirs
        lib = (flambeau, torch)[which]
        return lib.autograd.grad(outs, self.leaves[which], self.cotangents[which], allow_unused=True)

    def call(self, which):
        return self.gradients(which) if self.backward else self.forward(which)

    def compare(self):
        """Raise a Problem unless ours gives what PyTorch gives. Whether its result lies in an argument."""
        given = harness.copy(self.sample), harness.to_fb(self.sample)
        torch.manual_seed(1)
        try:
            want = self.call(1)
        except Exception as error:
            raise Problem("PyTorch refuses the backward" if self.backward else "PyTorch refuses it", error) from None
        self.elements = max(larger.elements(self.sample), 0 if self.backward else larger.elements(want))
        try:
            got = self.call(0)
            flambeau.cpu.synchronize()
        except Exception as error:
            absent = isinstance(error, NotImplementedError) or "Flambeau has no " in str(error)
            raise Problem("Flambeau has none" if absent else "Flambeau raises",
                          f"{type(error).__name__}: {error}") from None
        inputs = {t.untyped_storage().data_ptr() for t in harness.tensors(self.sample) if t.numel()}
        found = [t for t in harness.tensors(want) if t.numel()]
        view = not self.backward and bool(found) and all(t.untyped_storage().data_ptr() in inputs for t in found)
        try:
            self.judge(given[0], got, want)
        except Exception as error:
            self.sample, self.mine = given
            self.leaves = [[t for t in harness.tensors(s) if t.requires_grad] for s in (self.mine, self.sample)]
            if not self.random(want):
                raise Problem("wrong", error) from None
            self.judge(given[0], got, want, values=checks.any_values)
        return view

    def judge(self, sample, got, want, values=None):
        """Raise Mismatch where they differ."""
        op, dtype = self.op, self.dtype
        if self.grown and op.name in NO_ONE_ANSWER[self.direction]:
            values = checks.any_values
        if self.backward:
            for mine, theirs in zip(got, want, strict=True):
                if mine is not None and theirs is not None:
                    harness.assert_same(mine, theirs, op, dtype, values=values or nearly, looser=LOOSER)
            return
        if op.name.startswith(UNINITIALISED):
            values = checks.any_values
        if op.name in checks.COMPARE and values is None:
            checks.COMPARE[op.name](op, sample, got, want, dtype=dtype, looser=LOOSER)
            return
        values = values or checks.VALUES.get(op.name, nearly)
        try:
            harness.assert_same(got, want, op, dtype, values=values, looser=LOOSER,
                                precise=checks.in_double(op, sample))
        except harness.Mismatch:       # signs of vectors are free: OpInfo says what is to be compared
            processed = [s.output_process_fn_grad(made) for s, made in ((self.mine, got), (self.sample, want))]
            harness.assert_same(*processed, op, dtype, values=values, looser=LOOSER)

    def random(self, want):
        """Whether PyTorch itself gives something else for another seed."""
        torch.manual_seed(2)
        again = self.call(1)
        return any(a is not None and b is not None and not torch.equal(a, b)
                   for a, b in zip(harness.tensors(want), harness.tensors(again)))

    def timed(self, size, seconds, threads):
        """The time of a call of (ours, PyTorch's): of the rounds the best one's median."""
        # One thread's own time leaves out what other processes take; of several only the wall clock knows.
        clock = time.thread_time if threads == 1 else time.perf_counter
        best = [np.inf, np.inf]
        for which in (0, 1):
            spent = 0
            for _ in range(WARM_CALLS):
                spent += self.clocked(which, size, clock)
                if spent > WARM_SECONDS:
                    break
        for turn in range(ROUNDS):
            for which in (0, 1):
                if size != "small" and threads > 1 and which == 0:
                    time.sleep(side.LULL)        # PyTorch's threads go on spinning for a while
                took = []
                while sum(took) < seconds / ROUNDS / 2:
                    took.append(self.clocked(which, size, clock))
                # not the least of them: a virtual machine's clock of a thread has now and then stood still
                best[which] = min(best[which], statistics.median(took))
            if turn and max(best) > 5 * seconds:
                break
        return best

    def clocked(self, which, size, clock=time.perf_counter):
        start = clock()
        with contextlib.nullcontext() if self.backward else (flambeau, torch)[which].no_grad():
            made = self.call(which)
        if size == "small":
            for t in harness.tensors(made):
                t.tolist()
        elif which == 0:
            flambeau.cpu.synchronize()
        return clock() - start           # with `made` still alive, so that all of it is computed

    def on_numpy(self):
        """The names of our operations that the reference executor runs in one more call."""
        names, plain = set(), reference.execute

        def noted(entry, *args, **kwargs):
            if entry.op.direct is None:          # else LAPACK has most likely done it
                names.add(entry.op.__name__)
            return plain(entry, *args, **kwargs)
        reference.execute = noted
        try:
            self.clocked(0, "small" if larger.elements(self.sample) <= SMALL_NUMEL else "large")
        finally:
            reference.execute = plain
        return sorted(names)


def nearly(got, want, rtol, atol, precise=None):
    """`assert_close`, with the absolute part in proportion to the largest number there is."""
    if want.is_floating_point() or want.is_complex():
        known = want[want.isfinite()]
        atol = max(atol, atol * float(known.abs().max()) if known.numel() else 0)
    checks.assert_close(got, want, rtol, atol)


def measured(op, asked):
    """An Outcome for every size and direction that is asked for."""
    def failed(problem, sizes=asked.sizes, directions=asked.directions):
        return [Outcome(op.full_name, size, direction, problem.word, problem.detail)
                for size in sizes for direction in directions]
    try:
        if op.name.startswith(SPARSE_OR_PRIVATE) and not op.name.startswith("__"):
            raise Problem("not public, or sparse")
        dtype = dtype_of(op)
        theirs = functions(op)[1]
        samples = samples_of(op, dtype)
    except Problem as problem:
        yield from failed(problem)
        return
    directions, differentiable = asked.directions, any(t.requires_grad for t in harness.tensors(samples[0]))
    if not differentiable and "backward" in directions:
        yield from failed(Problem("not differentiable"), directions=["backward"])
        directions = [direction for direction in directions if direction == "forward"]
    grower = None
    for size in asked.sizes:
        try:
            if size == "small":
                sample = small_sample(theirs, samples)
            else:
                torch.set_num_threads(1)         # how long calls take says more when there is other work
                grower = grower or larger.Grower(op, theirs, samples, asked.slowest)
                sample = grower.to(TARGETS[size])[0]
        except larger.NoLargerSample:
            yield from failed(Problem("no larger sample"), [size], directions)
            continue
        except Problem as problem:
            yield from failed(problem, [size], directions)
            continue
        finally:
            torch.set_num_threads(asked.threads)
        for direction in directions:
            outcome = Outcome(op.full_name, size, direction, call=harness.describe(sample)[:200])
            try:
                contest = Contest(op, dtype, sample, size, direction)
                outcome.view = contest.compare()
                outcome.elements = contest.elements
                outcome.ours, outcome.theirs = contest.timed(size, asked.seconds, asked.threads)
                outcome.numpy = contest.on_numpy()
            except Problem as problem:
                outcome.problem, outcome.detail = problem.word, problem.detail
            except Exception as error:       # such as a tensor of PyTorch's that has no contents to look at
                outcome.problem, outcome.detail = "raised here", f"{type(error).__name__}: {error}"[:200]
            yield outcome


def serve(asked):
    """In a process of its own: for every line with a name of an operation its Outcomes as lines, and an empty one."""
    torch.set_num_threads(asked.threads)
    flambeau.set_num_threads(asked.threads)
    known = {op.full_name: op for op in op_db}
    warnings.simplefilter("ignore")
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            for outcome in measured(known[name], asked):
                print(json.dumps(dataclasses.asdict(outcome)), flush=True)
        except Exception as error:
            for size in asked.sizes:
                for direction in asked.directions:
                    problem = Outcome(name, size, direction, "raised here", f"{type(error).__name__}: {error}"[:200])
                    print(json.dumps(dataclasses.asdict(problem)), flush=True)
        print(flush=True)


# --- all of them ---

class Child:
    """The process that measures."""

    def __init__(self, arguments, threads):
        command = [sys.executable, str(Path(__file__).resolve()), "--child", *arguments]
        libraries = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, **libraries})
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.line()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def line(self):
        """The next one; None when the process has died, or says nothing."""
        with contextlib.suppress(queue.Empty):
            return self.lines.get(timeout=SILENCE_SECONDS)
        return None

    def outcomes(self, name):
        """Those of one operation, and whether the process lives."""
        found = []
        with contextlib.suppress(BrokenPipeError):
            print(name, file=self.process.stdin, flush=True)
        while (line := self.line()) is not None:
            if not line:
                return found, True
            if line.startswith("{"):
                found.append(Outcome(**json.loads(line)))
        return found, False

    def end(self):
        """How it ended, in words."""
        died = self.process.poll()
        self.process.kill()
        self.process.wait()
        return f"died ({died})" if died is not None else f"no answer for {SILENCE_SECONDS} s"


def every(names, arguments, asked):
    """All outcomes, as they come."""
    child = Child(arguments, asked.threads)
    for number, name in enumerate(names, 1):
        found, lives = child.outcomes(name)
        if not lives:
            how, told = child.end(), {(outcome.size, outcome.direction) for outcome in found}
            found += [Outcome(name, size, direction, "crashed", how) for size in asked.sizes
                      for direction in asked.directions if (size, direction) not in told]
            child = Child(arguments, asked.threads)
        if sys.stderr.isatty():
            print(f"\r{number} of {len(names)}: {name:<60.60}", end="", file=sys.stderr, flush=True)
        yield from found
    child.end()


def line(outcome):
    """An outcome that was timed, on one line."""
    marks = ["in the argument"] * outcome.view + [f"NumPy: {' '.join(outcome.numpy)}"] * bool(outcome.numpy)
    return (f"{outcome.op:<46.46} ours {side.clock(outcome.ours):>9}  PyTorch {side.clock(outcome.theirs):>9}  "
            f"ratio {outcome.ratio:6.2f}  {', '.join(marks)}".rstrip())


def summary(outcomes, size, direction):
    """What is printed of one size and direction."""
    here = [o for o in outcomes if (o.size, o.direction) == (size, direction)]
    timed = sorted((o for o in here if not o.problem), key=lambda o: o.ratio)
    title = "forward" if direction == "forward" else "forward and backward"
    text = [f"\n{size}, {title}: {len(timed)} operations timed, {len(here) - len(timed)} not"]
    if timed:
        ratios = np.array([o.ratio for o in timed])
        text += [f"  geometric mean {np.exp(np.log(ratios).mean()):.2f}   median {np.median(ratios):.2f}   tenth "
                 f"percentile {np.percentile(ratios, 10):.2f}   at least 0.8: {100 * (ratios >= 0.8).mean():.0f} %   "
                 f"at least 0.6: {100 * (ratios >= 0.6).mean():.0f} %"]
        text += [f"  {line(o)}" for o in timed[:WORST]]
        slow = [o for o in timed if o.numpy]
        text += [f"  on NumPy, wholly or in part: {len(slow)}: {' '.join(o.op for o in slow)}"]
    problems = collections.Counter(o.problem for o in here if o.problem)
    for word, count in problems.most_common():
        names = [o.op for o in here if o.problem == word]
        text += [f"  not timed: {word}: {count}: {' '.join(names) if word != 'not differentiable' else '…'}"]
    wrong = [o for o in here if o.problem in ("wrong", "Flambeau raises", "raised here", "crashed")]
    return "\n".join(text + [f"  {o.problem}: {o.op}{o.call}: {o.detail}" for o in wrong])


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("words", nargs="*", help="names of operations, or `linalg.*`")
    parser.add_argument("--size", dest="sizes", action="append", choices=TARGETS)
    parser.add_argument("--forward", dest="directions", action="append_const", const="forward")
    parser.add_argument("--backward", dest="directions", action="append_const", const="backward")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.04, help="for timing one operation, size and direction")
    parser.add_argument("--slowest", type=float, default=0.03, help="seconds that a call of PyTorch's may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.sizes, asked.directions = asked.sizes or list(TARGETS), asked.directions or list(DIRECTIONS)
    return asked


def main():
    asked = options()
    if asked.child:
        serve(asked)
        return
    names = [op.full_name for op in op_db if not asked.words or any(Path(op.full_name).match(w) or op.name == w
                                                                    for w in asked.words)]
    runs = len(names) * len(asked.sizes) * len(asked.directions)
    print(f"{len(names)} entries of OpInfo, {asked.threads} thread(s): about "
          f"{runs * (asked.seconds + OVERHEAD_SECONDS) / 60 + 0.2:.1f} minutes", flush=True)
    outcomes, start = [], time.perf_counter()
    try:
        for outcome in every(names, [a for a in sys.argv[1:] if a not in asked.words], asked):
            outcomes.append(outcome)
            if asked.words:
                text = f"{outcome.op:<46} {outcome.problem} {outcome.detail}" if outcome.problem else line(outcome)
                print(f"{outcome.size:<7} {outcome.direction:<9} {text}", flush=True)
    finally:                                     # an interrupted run leaves what it has found
        if asked.json:
            found = [dataclasses.asdict(outcome) for outcome in outcomes]
            asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for size in asked.sizes:
        for direction in asked.directions:
            print(summary(outcomes, size, direction))
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
