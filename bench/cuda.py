"""How fast is Flambeau on an NVIDIA GPU beside PyTorch on the same GPU, and does it reach what it set out to reach?

    python bench/cuda.py [--rows REGEX] [--compile] [--seconds 1] [--json FILE] [--markdown FILE]

The ratio is PyTorch eager's time over ours. Both libraries run in one process, each on memory of its own, from the same
numbers, and results are compared before anything is timed. A call hands its work to the GPU and does not wait;
contenders take turns in bursts of calls, each burst ends with a wait for the GPU, and the median burst counts.
`--compile` lets torch.compile take part, which takes tens of seconds per row, and minutes for the models.

Rows run in processes that are replaced when one breaks: a row that fails, crashes or takes longer than `--limit` says
so in one line, and the next one starts on a GPU in order. `--tiny` is for trying this file where there is no GPU: small
sizes, PyTorch on the CPU, and for us the simulated driver of the tests (or another `--device`).
"""
import argparse
import gc
import json
import math
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import models
import nets
from side import COMPILED, EAGER, INDUCTOR, OURS, clock, paint

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)        # this checkout, and not this folder: NVIDIA's own package is called cuda too

ROUNDS = 7
WARM_CALLS = 4
LEAST_CALLS, MOST_CALLS = 5, 400      # in one burst: a loop that trains hands over a step while the last one runs
M = 1 << 20
GB = 10**9


@dataclass
class Row:
    """Some work under both libraries, and what is claimed about it; times of PyTorch 2.11 on an H200 in µs."""
    name: str
    make: object                      # make(m, bench, compile) → a function without arguments, and what to compare
    prepare: object                   # prepare(bench): draw what both libraries start from
    least: float                      # PyTorch eager's time over ours
    eager: float | None = None        # what PyTorch eager took when the targets were set
    inductor: float | None = None     # and torch.compile
    compiled: float | None = None     # the least ratio of ours under `flambeau.compile`
    memory: float | None = None       # the most bytes that may be in use at one time
    calls: int = 1                    # of the work, in one call of the function
    tolerance: float = 1e-4           # beside the largest number of a result
    first: float | None = None        # the most seconds that the first call may take, in a process of its own


ROWS = []


def row(name, least, prepare, **more):
    """Put the function that makes the contenders of a row on the list."""
    def put(make):
        ROWS.append(Row(name, make, prepare, least, **more))
        return make
    return put


def work(name, least, data, function, leaves=0, compared=slice(None), **more):
    """A row from `function(m, *tensors)`; `data(n, draw)` draws the tensors, with every size given through `n`.

    With `leaves`, the gradients of the first so many tensors are computed too.
    """
    @row(name, least, lambda bench: bench.drawn(name, data), **more)
    def make(m, bench, compile=None):
        tensors = [bench.tensor(m, drawn) for drawn in bench.drawn(name, data)]
        forward = lambda *tensors: function(m, *tensors)
        if compile:
            forward = compile(forward)
        if not leaves:
            run = lambda: forward(*tensors)
        else:
            tensors = [t.requires_grad_() if i < leaves else t for i, t in enumerate(tensors)]
            g = m.ones_like(forward(*tensors).detach())

            def run():
                out = forward(*tensors)
                return out, *m.autograd.grad(out, tensors[:leaves], g)
        return run, lambda made: (list(made) if isinstance(made, (tuple, list)) else [made])[compared]


# --- the rows -------------------------------------------------------------------------------------------------------

work("relu(x*y+z)*0.5+x, 64 M", 3.2, lambda n, draw: [draw(n(64 * M)) for _ in range(3)],
     lambda m, x, y, z: m.relu(x * y + z) * 0.5 + x, eager=819, inductor=243)

work("tanh(gelu(x)*sigmoid(x)+exp(-x*x)), 64 M", 6, lambda n, draw: [draw(n(64 * M))],
     lambda m, x: m.tanh(m.nn.functional.gelu(x) * m.sigmoid(x) + m.exp(-x * x)), eager=1206, inductor=185)

work("softmax, 16384x4096", 1.25, lambda n, draw: [draw(n(16384), n(4096))],
     lambda m, x: m.softmax(x, dim=-1), eager=210, inductor=164)

work("layer norm forward+backward, 16384x4096", 1.6, lambda n, draw: [draw(n(16384), n(4096)), draw(n(4096)),
                                                                       draw(n(4096))],
     lambda m, x, weight, bias: m.nn.functional.layer_norm(x, x.shape[-1:], weight, bias), leaves=3,
     eager=630, inductor=380, tolerance=1e-3)

work("cross entropy forward+backward, bf16 8192x50257", 1.2,
     lambda n, draw: [draw(n(8192), n(50257), dtype="bfloat16"), draw(n(8192), below=n(50257))],
     lambda m, x, y: m.nn.functional.cross_entropy(x, y), leaves=1, eager=1602, inductor=1360, memory=2.4 * GB,
     tolerance=2e-2)

for _over, _dim, _eager in (("all", (), 68), ("rows", (1,), 68), ("columns", (0,), 75)):
    work(f"sum over {_over} of 16384x4096", 1, lambda n, draw: [draw(n(16384), n(4096))],
         lambda m, x, dim=_dim: x.sum(*dim), eager=_eager, tolerance=1e-3)

work("(x.t()+1).contiguous(), 8192x8192", 3, lambda n, draw: [draw(n(8192), n(8192))],
     lambda m, x: (x.t() + 1).contiguous(), eager=589)

work("rows gathered, 500 k of 1 M x 128", 1.5, lambda n, draw: [draw(n(1_000_000), 128),
                                                                 draw(n(500_000), below=n(1_000_000))],
     lambda m, w, i: w[i], eager=304)

work("embedding gradient, 8192 of 50257x768", 1.5,
     lambda n, draw: [draw(n(50257), 768), draw(n(8192), below=n(50257))],
     lambda m, w, i: m.nn.functional.embedding(i, w), leaves=1, eager=263)

work("sort, 16 M", 1, lambda n, draw: [draw(n(16 * M))], lambda m, x: x.sort(), compared=slice(1), eager=819)

work("topk 50 of 4096x32768", 1.5, lambda n, draw: [draw(n(4096), n(32768))], lambda m, x: x.topk(min(50, x.shape[1])),
     compared=slice(1), eager=1604)

work("cumsum, 16384x4096", 1.2, lambda n, draw: [draw(n(16384), n(4096))], lambda m, x: x.cumsum(1), eager=289)

work("randn, 64 M", 1, lambda n, draw: [draw(n(64 * M))], lambda m, x: m.randn(x.shape, device=x.device),
     compared=slice(0), eager=154)

work("product, bf16 8192^3", 0.98, lambda n, draw: [draw(n(8192), n(8192), dtype="bfloat16") for _ in range(2)],
     lambda m, a, b: a @ b, eager=1556, tolerance=2e-2)

work("product, float32 4096^3", 0.98, lambda n, draw: [draw(n(4096), n(4096)) for _ in range(2)],
     lambda m, a, b: a @ b, eager=2664)

work("gelu(Linear 4096->16384), bf16, batch 8192", 1,
     lambda n, draw: [draw(n(8192), n(4096), dtype="bfloat16"), draw(n(16384), n(4096), dtype="bfloat16"),
                      draw(n(16384), dtype="bfloat16")],
     lambda m, x, w, b: m.nn.functional.gelu(m.nn.functional.linear(x, w, b)), eager=1786, tolerance=2e-2)

work("bmm, 256 of 128^3", 1, lambda n, draw: [draw(n(256), n(128), n(128)) for _ in range(2)],
     lambda m, a, b: m.bmm(a, b), eager=30)


def queries(n, draw):
    return [draw(n(8), n(16), n(4096), n(128), dtype="bfloat16") for _ in range(3)]


def attend(m, q, k, v):
    return m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


work("causal attention, bf16 8x16x4096x128, forward", 1, queries, attend, eager=1008, tolerance=2e-2)

work("causal attention, bf16 8x16x4096x128, forward+backward", 1, queries, attend, leaves=3, eager=4019, tolerance=3e-2)

work("3x3 convolution, bf16 64x128x56^2", 1,
     lambda n, draw: [draw(n(64), n(128), n(56), n(56), dtype="bfloat16"),
                      draw(n(128), n(128), 3, 3, dtype="bfloat16")],
     lambda m, x, w: m.nn.functional.conv2d(x, w, padding=1), eager=265, tolerance=2e-2)


def hundred_additions(m, x, y):
    for _ in range(100):
        x = x + y
    return x


work("tiny add, one of a hundred", 2, lambda n, draw: [draw(3), draw(3)], hundred_additions, calls=100, eager=6.9)


# --- training steps -------------------------------------------------------------------------------------------------

def training(name, least, build, batch, optimizer, **more):
    """A row that trains `build(m)` on `batch`, with autocast to bfloat16 where it says so."""
    autocast = more.pop("autocast", True)

    def prepare(bench):
        bench.state(name, build)
        bench.drawn(name, batch)

    @row(name, least, prepare, tolerance=2e-2, **more)
    def make(m, bench, compile=None):
        state = bench.state(name, build)
        with m.device(bench.device(m)):
            net = build(m, bench)
        net.load_state_dict({key: bench.tensor(m, held) for key, held in state.items()})
        update = optimizer(m, net.parameters())
        x, y = (bench.tensor(m, drawn) for drawn in bench.drawn(name, batch))
        kind = m.device(bench.device(m)).type

        def plainly(x, y):
            return m.nn.functional.cross_entropy(net(x), y.flatten())

        def in_bfloat16(x, y):
            with m.autocast(kind, dtype=m.bfloat16):
                return plainly(x, y)
        forward = in_bfloat16 if autocast else plainly
        step = update.step
        if compile and m.__name__ == "torch":     # whose compiler leaves the backward, and what calls it, to Python
            forward, step = compile(forward), compile(step)

        def train(x, y):
            update.zero_grad()
            loss = forward(x, y)
            loss.backward()
            step()
            return loss
        if compile and m.__name__ != "torch":
            train = compile(train)

        def compared(made):                       # five losses: an optimizer that is late or early by one would show
            return [made, *(train(x, y) for _ in range(4))]
        return lambda: train(x, y), compared


def adam(m, parameters): return m.optim.Adam(parameters, lr=1e-4)
def adamw(m, parameters): return m.optim.AdamW(parameters, lr=1e-4)
def sgd(m, parameters): return m.optim.SGD(parameters, lr=1e-3, momentum=0.9)


training("tiny MLP step, 64-64-64-10, batch 32, Adam", 3, lambda m, bench: models.mlp().module(m),
         lambda n, draw: [draw(32, 64), draw(32, below=10)], adam, autocast=False, eager=1038, compiled=20)

training("GPT-2-small step, bf16 autocast, 8x1024, AdamW", 1.05,
         lambda m, bench: models.gpt2_small(m, 16, 2, 32, 2, 50) if bench.tiny else models.gpt2_small(m),
         lambda n, draw: [draw(2, 16, below=50), draw(2, 16, below=50)] if n(1024) != 1024 else
         [draw(8, 1024, below=50257), draw(8, 1024, below=50257)],
         adamw, eager=25550, inductor=22414, compiled=1.2, memory=6 * GB, first=5)

training("ResNet-18 step, bf16 autocast, 128x3x224^2, SGD", 1,
         lambda m, bench: nets.residual(m, width=4, classes=10) if bench.tiny else nets.residual(m),
         lambda n, draw: [draw(8, 3, 64, 64), draw(8, below=10)] if n(1024) != 1024 else
         [draw(128, 3, 224, 224), draw(128, below=1000)],
         sgd, eager=23060, inductor=20562, compiled=1.1, first=5)


# --- one process that runs rows -------------------------------------------------------------------------------------

class Bench:
    """The libraries, their devices, and the numbers that both start from."""

    def __init__(self, args):
        import torch
        self.torch, self.flambeau, self.tiny, self.args = torch, None, args.tiny, args
        if not args.alone:
            import flambeau
            self.flambeau = flambeau
        self.ours = args.device
        self.theirs = "cuda" if torch.cuda.is_available() and args.device == "cuda" else "cpu"
        if args.device == "cuda" and self.theirs == "cpu" and not args.alone:
            self.simulate()
        self.kept = {}

    def simulate(self):
        from tests.cuda.simulated import simulating
        self.simulated = simulating(devices=1)        # for as long as this process lasts
        self.simulated.__enter__()

    def device(self, m):
        return self.theirs if m is self.torch else self.ours

    def size(self, n):
        """A size as it is given, or a small one in its place."""
        return n if not self.tiny else min(n, 4 + n % 29)

    def drawn(self, name, data):
        """The tensors of a row on PyTorch's device, drawn once."""
        if name not in self.kept:
            self.torch.manual_seed(0)
            self.kept[name] = data(self.size, self._draw)
        return self.kept[name]

    def _draw(self, *shape, dtype="float32", below=None):
        if below is not None:
            return self.torch.randint(below, shape, device=self.theirs)
        return self.torch.randn(shape, device=self.theirs).to(getattr(self.torch, dtype))

    def state(self, name, build):
        """The numbers that a model starts from: those that PyTorch draws."""
        if (name, "state") not in self.kept:
            self.torch.manual_seed(0)
            with self.torch.device(self.theirs):
                self.kept[name, "state"] = {key: held.detach().clone()
                                            for key, held in build(self.torch, self).state_dict().items()}
        return self.kept[name, "state"]

    def tensor(self, m, drawn):
        """A tensor of PyTorch's as one of `m`'s, on `m`'s device, with memory of its own."""
        if m is self.torch:
            return drawn.detach().clone()
        if str(drawn.dtype) == "torch.bfloat16":
            return m.from_numpy(drawn.cpu().view(self.torch.int16).numpy()).view(m.bfloat16).to(self.ours)
        return m.from_numpy(drawn.cpu().numpy()).to(self.ours)

    def on_host(self, tensor):
        """(dtype, numbers) of a tensor of either library, the numbers as a tensor of PyTorch's on the CPU."""
        dtype, tensor = str(tensor.dtype), tensor.detach().cpu()
        if not isinstance(tensor, self.torch.Tensor):
            wide = tensor.float() if dtype in ("torch.bfloat16", "torch.float16") else tensor
            tensor = self.torch.from_numpy(wide.numpy())
        return dtype, tensor.clone()

    # --- running

    def launch(self, m):
        """The function that hands over what is recorded to the device, without waiting."""
        return m.cpu.synchronize if m is self.flambeau else lambda: None

    def wait(self, m):
        """Wait for the device."""
        if m is self.flambeau:
            m.cpu.synchronize()
        if self.device(m) == "cuda":
            m.cuda.synchronize()

    def contender(self, m, run):
        """`run` such that its work is on the way when it returns; its result is held until then."""
        launch = self.launch(m)

        def call():
            result = run()
            launch()
            return result
        return call

    def differ(self, ours, theirs, tolerance):
        """None, or in words how two results differ."""
        if len(ours) != len(theirs):
            return f"we give {len(ours)} results, PyTorch {len(theirs)}"
        for i, ((mine, a), (other, b)) in enumerate(zip(ours, theirs)):
            if a.shape != b.shape or mine != other:
                return f"result {i} is {mine}{list(a.shape)}, PyTorch's {other}{list(b.shape)}"
            if not b.is_floating_point():
                if not bool((a == b).all()):
                    return f"result {i} has {int((a != b).sum())} other whole numbers"
                continue
            a, b = a.float(), b.float()
            most, apart = float(b.abs().max()), float((a - b).abs().max())
            if not apart <= tolerance * max(most, 1e-3):
                return f"result {i} differs by up to {apart:.3g}, where the largest number is {most:.3g}"
        return None

    def allocated(self, m):
        """The bytes that are in use now."""
        gc.collect()
        self.wait(m)
        return m.cuda.memory_allocated() if self.device(m) == "cuda" else 0

    def peak(self, m, run):
        """The most bytes in use at one time during three calls."""
        self.wait(m)
        m.cuda.reset_peak_memory_stats()
        for _ in range(3):
            run()
        self.wait(m)
        return m.cuda.max_memory_allocated()

    def burst(self, m, run, calls):
        """Seconds of a call, in a row of them that ends when the device has done its work."""
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.wait(m)
        return (time.perf_counter() - start) / calls

    def race(self, runs, seconds):
        """The median time of a call of each contender: {name: seconds}, and the spread of the bursts."""
        calls = {}
        for name, (m, run) in runs.items():
            for _ in range(WARM_CALLS):
                guess = self.burst(m, run, 1)
            guess = min(guess, self.burst(m, run, 3))
            calls[name] = max(LEAST_CALLS, min(MOST_CALLS, int(seconds / len(runs) / ROUNDS / max(guess, 1e-7))))
        gc.collect()
        gc.freeze()
        found = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, (m, run) in runs.items():
                run()                             # after the other: clocks and caches are its own
                self.wait(m)
                found[name].append(self.burst(m, run, calls[name]))
        gc.unfreeze()
        spread = {name: (max(times) - min(times)) / statistics.median(times) for name, times in found.items()}
        return {name: statistics.median(times) for name, times in found.items()}, spread

    def run(self, row):
        """A row as a dictionary: seconds, peaks, how results differ, and what failed."""
        who = {EAGER: (self.torch, None)}
        if self.flambeau is not None:
            who[OURS] = (self.flambeau, None)
        if self.flambeau is not None and row.compiled:
            who[COMPILED] = (self.flambeau, self.flambeau.compile)
        if self.args.compile and (row.inductor or row.compiled):
            who[INDUCTOR] = (self.torch, self.torch.compile)
        runs, results, found = {}, {}, {"row": row.name, "seconds": {}, "peak": {}, "failed": {}, "differ": {},
                                        "first_call": {}}
        row.prepare(self)
        for name, (m, compile) in who.items():
            try:
                before = self.allocated(m) if row.memory else 0
                run, compared = row.make(m, self, compile)
                run = self.contender(m, run)
                self.wait(m)
                start = time.perf_counter()
                made = run()
                self.wait(m)
                found["first_call"][name] = time.perf_counter() - start
                results[name] = [self.on_host(result) for result in compared(made)]
                del made
                if row.memory and self.device(m) == "cuda":
                    found["peak"][name] = self.peak(m, run) - before
                runs[name] = m, run
            except Exception as error:
                found["failed"][name] = in_a_line(error)
        for name in (OURS, COMPILED):
            if name in results and EAGER in results:
                differ = self.differ(results[name], results[EAGER], row.tolerance)
                if differ:
                    found["differ"][name] = differ
        results.clear()
        gc.collect()
        times, spread = self.race(runs, self.args.seconds)
        found["seconds"] = {name: seconds / row.calls for name, seconds in times.items()}
        found["spread"] = spread
        return found

    def clean(self):
        """Give memory back, and say whether the device still answers."""
        self.kept.clear()
        gc.collect()
        for m in filter(None, (self.torch, self.flambeau)):
            self.wait(m)
            if self.device(m) == "cuda":
                m.cuda.empty_cache()


def in_a_line(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def say(**words):
    print(json.dumps(words), flush=True)


def child(args):
    """Run the rows whose numbers come in, one line for each beginning and each result."""
    bench = Bench(args)
    say(begun="libraries")
    for number in map(int, args.child.split(",")):
        row = ROWS[number]
        say(begun=row.name)
        try:
            say(done=bench.run(row))
        except Exception as error:
            say(done={"row": row.name, "failed": {"the row": in_a_line(error)}})
        try:
            bench.clean()
        except Exception as error:                # one wrong access, and a process has no GPU any more
            say(broken=in_a_line(error))
            return


def first_call(args):
    """The first training step of a process whose caches are empty: of ours alone, with its data on the device."""
    bench = Bench(args)
    row = ROWS[int(args.first)]
    run, _ = row.make(bench.flambeau, bench, bench.flambeau.compile if args.compiled else None)
    run = bench.contender(bench.flambeau, run)
    bench.kept.clear()
    bench.wait(bench.flambeau)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        bench.wait(bench.flambeau)
        seconds.append(time.perf_counter() - start)
    say(first=seconds)


# --- the process that starts them -----------------------------------------------------------------------------------

def spoken(process, limit):
    """What a child says, line by line, as dictionaries; ends when it does, or after `limit` seconds of silence."""
    lines = queue.Queue()

    def listen():
        for line in process.stdout:
            if line.startswith("{"):
                lines.put(json.loads(line))
        lines.put(None)
    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            said = lines.get(timeout=limit)
        except queue.Empty:
            process.kill()
            yield {"silent": limit}
            return
        if said is None:
            return
        yield said


def start(args, cache, *more):
    command = [sys.executable, str(HERE / "cuda.py"), "--seconds", str(args.seconds), "--device", args.device, *more]
    command += ["--tiny"] * args.tiny + ["--compile"] * args.compile + ["--alone"] * args.alone
    errors = tempfile.TemporaryFile("w+")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                               env={**os.environ, "FLAMBEAU_CACHE_DIR": cache, "PYTHONUNBUFFERED": "1"})
    process.errors = errors
    return process


def last_words(process):
    process.wait()
    process.errors.seek(0)
    lines = process.errors.read().strip().splitlines()
    return f"the process ended with {process.returncode}: {lines[-1][:300] if lines else 'and said nothing'}"


def measure(args, chosen, cache, hear):
    """Run the rows of these numbers, in as many processes as it takes, and hand each result to `hear`."""
    rest = list(chosen)
    while rest:
        process = start(args, cache, "--child", ",".join(map(str, rest)))
        running = None
        for said in spoken(process, args.limit):
            if "begun" in said:
                running = said["begun"]
            elif "done" in said:
                hear(said["done"])
                running = None
                rest.pop(0)
            elif "broken" in said:
                print(f"  (a new process: {said['broken']})", flush=True)
            elif "silent" in said:
                hear({"row": ROWS[rest[0]].name, "failed": {"the row": f"took longer than {args.limit:.0f} s"}})
                rest.pop(0)
                running = None
        process.wait()
        if running is not None:
            hear({"row": ROWS[rest[0]].name, "failed": {"the row": last_words(process)}})
            rest.pop(0)
            if running == "libraries":            # nothing can start here
                for number in rest:
                    hear({"row": ROWS[number].name, "failed": {"the row": "not tried"}})
                return


def measure_first(args, number, compiled):
    """What the first three steps take in a new process with an empty cache on disk, or what went wrong, in words."""
    with tempfile.TemporaryDirectory() as cache:
        process = start(args, cache, "--first", str(number), *["--compiled"] * compiled)
        for said in spoken(process, args.limit):
            if "first" in said:
                process.wait()
                return said["first"]
            if "silent" in said:
                return f"took longer than {args.limit:.0f} s"
        return last_words(process)


# --- the table ------------------------------------------------------------------------------------------------------

HEAD = ("work", "ours", "PyTorch", "torch.compile", "ratio", "target", "")
WIDTHS = (58, 10, 10, 13, 7, 7, 0)


class Table:
    """Prints a line for each claim as soon as it is measured, and keeps them."""

    def __init__(self, tiny):
        self.lines, self.rows, self.tiny = [], [], tiny
        self.print(HEAD)

    def print(self, cells, good=True):
        name, *rest, verdict = cells
        print(name.ljust(WIDTHS[0]) + " ".join(c.rjust(w) for c, w in zip(rest, WIDTHS[1:])), " ", paint(verdict, good),
              flush=True)

    def add(self, work, ours, theirs, inductor, ratio, target, verdict, good):
        self.lines.append({"work": work, "ours": ours, "PyTorch": theirs, "torch.compile": inductor, "ratio": ratio,
                           "target": target, "verdict": verdict, "reached": good})
        self.print((work, ours, theirs, inductor, ratio, target, verdict), good)

    def hear(self, found):
        """The lines of one row: plain, compiled, memory."""
        self.rows.append(found)
        row = next(row for row in ROWS if row.name == found["row"])
        seconds, failed, differ = (found.get(key, {}) for key in ("seconds", "failed", "differ"))
        for note, least, who in (("", row.least, OURS), (", compiled", row.compiled, COMPILED)):
            if least is None:
                continue
            ours, theirs, inductor = (seconds.get(name) for name in (who, EAGER, INDUCTOR))
            if ours is None or theirs is None:
                why = failed.get(who) or failed.get(EAGER) or failed.get("the row") or "not measured"
                self.add(row.name + note, clock(ours), clock(theirs), clock(inductor), "-", f"{least:g}", why, False)
                continue
            ratio = theirs / ours
            good = ratio >= least and who not in differ
            verdict = f"DIFFERS: {differ[who]}" if who in differ else "reached" if good else \
                f"short by {100 * (1 - ratio / least):.0f}%"
            if row.eager and not self.tiny and not 0.8 < theirs * 1e6 / row.eager < 1.25:
                verdict += f"; PyTorch took {row.eager:g} µs when the target was set"
            self.add(row.name + note, clock(ours), clock(theirs), clock(inductor), f"{ratio:.2f}", f"{least:g}",
                     verdict, good)
        if row.memory and found.get("peak"):
            self.memory(row, found["peak"])

    def memory(self, row, peak):
        for note, who in ((", memory", OURS), (", memory, compiled", COMPILED)):
            if peak.get(who) is None:
                continue
            ours, theirs, inductor = (f"{peak[name] / GB:.2f} GB" if peak.get(name) else "-"
                                      for name in (who, EAGER, INDUCTOR))
            good = peak[who] <= row.memory
            over = f"too much by {100 * (peak[who] / row.memory - 1):.0f}%"
            ratio = f"{peak[EAGER] / peak[who]:.2f}" if peak.get(EAGER) and peak[who] else "-"
            self.add(row.name + note, ours, theirs, inductor, ratio, f"{row.memory / GB:g} GB",
                     "reached" if good else over, good)

    def first(self, row, compiled, found):
        work = f"{row.name}, first step{', compiled' * compiled}"
        if isinstance(found, str):
            self.add(work, "-", "-", "-", "-", f"{row.first:g} s", found, False)
            return
        good = found[0] < row.first
        more = ", ".join(clock(seconds) for seconds in found[1:])
        self.add(work, clock(found[0]), "-", "-", "-", f"{row.first:g} s",
                 f"{'reached' if good else 'too long'}; then {more}", good)

    def markdown(self):
        """The lines as a table of a page."""
        rows = ["| work | ours | PyTorch | torch.compile | ratio | at least | |",
                "| --- | --- | --- | --- | --- | --- | --- |"]
        for line in self.lines:
            verdict = line["verdict"].replace("|", "\\|")
            rows.append(f"| {line['work']} | {line['ours']} | {line['PyTorch']} | {line['torch.compile']} | "
                        f"{line['ratio']} | {line['target']} | {verdict} |")
        return "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Flambeau beside PyTorch on an NVIDIA GPU.")
    parser.add_argument("--rows", default="", help="run only the rows whose name has this regular expression in it")
    parser.add_argument("--compile", action="store_true", help="let torch.compile take part")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a row is timed, all contenders together")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a row is given up")
    parser.add_argument("--total", type=float, default=math.inf, help="seconds after which no further row is begun")
    parser.add_argument("--no-first", action="store_true", help="leave out the first steps, which need new processes")
    parser.add_argument("--json", help="write the measurements to this file")
    parser.add_argument("--markdown", help="write the table to this file")
    parser.add_argument("--alone", action="store_true", help="PyTorch by itself, in a process without Flambeau")
    parser.add_argument("--tiny", action="store_true", help="small sizes, for trying this file")
    parser.add_argument("--device", default="cuda", help="ours; with another than cuda PyTorch is on the CPU")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    if args.first:
        first_call(args)
        return

    began = time.perf_counter()
    chosen = [number for number, row in enumerate(ROWS) if re.search(args.rows, row.name, re.IGNORECASE)]
    table = Table(args.tiny)
    with tempfile.TemporaryDirectory() as cache:
        hear = table.hear

        def heard(found):
            hear(found)
            if time.perf_counter() - began > args.total:
                raise TimeoutError
        try:
            measure(args, chosen, cache, heard)
            for number in chosen:
                if ROWS[number].first and not args.no_first and not args.alone:
                    for compiled in (False, True):
                        table.first(ROWS[number], compiled, measure_first(args, number, compiled))
                        if time.perf_counter() - began > args.total:
                            raise TimeoutError
        except TimeoutError:
            print(f"stopped after {args.total:.0f} s")
    held = sum(line["reached"] for line in table.lines)
    print(f"\n{held} of {len(table.lines)} reached, in {time.perf_counter() - began:.0f} s")
    if args.json:
        Path(args.json).write_text(json.dumps({"lines": table.lines, "rows": table.rows}, indent=1), encoding="utf-8")
    if args.markdown:
        Path(args.markdown).write_text(table.markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
