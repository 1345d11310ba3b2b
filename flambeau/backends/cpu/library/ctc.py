"""Connectionist temporal classification as a native step: for each sample the loss, and its gradient.

Forward and backward probabilities (Graves et al., 2006) are logarithms in float64. All labels of a step of time are
done together, by vectors: what a label is reached from lies one and two places before it, where places that do not
exist are impossible, and so is a jump over a blank that may not be left out. A tile is a sample.
"""
import math
from itertools import count

from ....loops.emit import Emit, Term
from ....loops.scalar import SCALAR_FUNCTIONS
from ....loops.spelling import literal
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import compiled_kernels

CTC_FIELDS = "steps batch classes blank zeroed places row".split()
IMPOSSIBLE = literal(-math.inf, "f64")
SPARE_PLACES = 2              # impossible ones before the first and behind the last
CYCLES_OF_A_PLACE = 60        # in one step, forward and backward


def ctc(dtype, log_probs, targets, params):
    """A LibraryCall for the losses of log_probs [steps, batch, classes] and their gradients; or None.

    The buffers are log_probs, the targets (int64), the losses, the gradients and working memory. `params` are the
    lengths of inputs and of targets, the blank, and whether infinite losses become zero.
    """
    element = {"float32": "float", "float64": "double"}.get(dtype.name)
    (steps, batch, classes), (shape, _) = log_probs[0], targets
    input_lengths, target_lengths, blank, zeroed = params
    if element is None or not steps * batch * classes or not math.prod(shape):
        return None
    machine = compiled_kernels("float64", CTCKernels)
    lanes = machine.kernels.lanes
    places = -(-(2 * max(target_lengths) + 1) // lanes) * lanes
    row = places + SPARE_PLACES + lanes
    starts = [b * shape[1] if len(shape) == 2 else sum(target_lengths[:b]) for b in range(batch)]
    ints = [steps, batch, classes, blank, int(zeroed), places, row, *input_lengths, *target_lengths, *starts]
    each = steps * (places * CYCLES_OF_A_PLACE // lanes + 2 * classes)
    return LibraryCall(machine.function("ctc", element), batch, min(batch, max(1, PIECE_CYCLES // each)), ints,
                       batch * 8 * (3 * places + (steps + 2) * row))


class CTCKernels:
    """The LLVM text of the step."""

    word = "ctc"
    drivers = inner = ()

    def every(self, machine):
        """The function for float32; the other is compiled when it is needed."""
        return [("ctc", "float")]

    def __init__(self, element, target):
        self.target, self.lanes = target, target.vector_bytes // 8

    def ctc(self, name, element):
        return _CTCWriter(self.target, self.lanes, name, element).text()


class _CTCWriter:
    """Writes the step; `vector` is the type of so many logarithms."""

    def __init__(self, target, lanes, name, element):
        self.w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        self.declared, self.defined, self.lanes, self.element = set(), {}, lanes, element
        self.e = Emit(self.w.lines, count(), self.declared, self.defined, "entry", target)
        self.vector = f"<{lanes} x double>" if lanes > 1 else "double"

    # --- numbers in memory

    def load(self, pointer):     return Term(self.e, "f64", self.lanes, self.w.load(self.vector, pointer, 8))
    def one(self, pointer):      return Term(self.e, "f64", 1, self.w.load("double", pointer, 8))
    def put(self, x, pointer):   self.w.store(self.vector if x.lanes > 1 else "double", x.text, pointer, 8)
    def at(self, base, index):   return self.w.at("double", base, index)

    def read(self, pointer):
        """An element of the operand, as a float64."""
        return self.e.cast(Term(self.e, "f32" if self.element == "float" else "f64", 1,
                                self.w.load(self.element, pointer)), "f64")

    def write(self, x, pointer):
        self.w.store(self.element, self.e.cast(x, "f32" if self.element == "float" else "f64").text, pointer)

    def added(self, a, b):
        """The logarithm of the sum of two exponentials."""
        high, low = self.e.where(a > b, a, b), self.e.where(a > b, b, a)
        sums = high + SCALAR_FUNCTIONS["log1p"](self.e, SCALAR_FUNCTIONS["exp"](self.e, low - high))
        return self.e.where(high == -math.inf, -math.inf, sums)

    # --- the step

    def text(self):
        w = self.w
        f = self.f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(CTC_FIELDS)}
        buffers = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(5)]
        self.probs, self.targets, self.losses, self.grads, memory = buffers
        lists = w.at("i64", "%ints", len(CTC_FIELDS))
        self.stride = w.mul(f["batch"], f["classes"])                          # from a step of time to the next
        room = w.add(w.mul(3, f["places"]), w.mul(w.add(f["steps"], 2), f["row"]))
        with w.loop("%begin", "%end") as tile:
            b = tile.i
            steps, labels, start = [w.load("i64", w.at("i64", lists, w.add(w.mul(i, f["batch"]), b))) for i in range(3)]
            self.labels = w.at("i64", memory, w.mul(b, room))
            self.skip, self.emit = self.at(self.labels, f["places"]), self.at(self.labels, w.mul(2, f["places"]))
            self.ahead = self.at(self.labels, w.mul(3, f["places"]))           # rows of forward ones, then two others
            self.behind = self.at(self.ahead, w.mul(f["steps"], f["row"]))
            self.first = w.mul(b, f["classes"])
            self.ends = w.add(w.mul(labels, 2), 1)
            self.list_places(start)
            self.fill(steps, f["steps"], lambda _: self.e.const(0.0, "f64"))
            loss = w.at(self.element, self.losses, b)
            w.either(w.is_("eq", steps, 0), lambda: self.no_steps(labels, loss),
                     lambda: self.sample(steps, loss))
        return "\n".join([*sorted(self.declared), "declare i64 @llvm.smin.i64(i64, i64)", *self.defined.values(),
                          w.text()])

    def list_places(self, start):
        """Which class stands at each place, and whether it may be reached from two before: 0, or minus infinity."""
        w, f = self.w, self.f
        with w.loop(0, f["places"]) as s:
            is_label = w.is_("eq", w(f"and i64 {s.i}, 1"), 1)
            inside = w.both(is_label, w.is_("slt", s.i, self.ends))
            at = w.add(start, w(f"ashr i64 {w.pick(inside, s.i, 0)}, 1"))
            w.store("i64", f["blank"], w.at("i64", self.labels, s.i))
            w.store("double", IMPOSSIBLE, self.at(self.skip, s.i))
            with w.when(inside):
                label = w.load("i64", w.at("i64", self.targets, at))
                w.store("i64", label, w.at("i64", self.labels, s.i))
                with w.when(w.is_("sgt", s.i, 1)):
                    before = w.load("i64", w.at("i64", self.targets, w.sub(at, 1)))
                    other = w.both(w.is_("ne", label, f["blank"]), w.is_("ne", label, before))
                    w.store("double", w.pick(other, "0.0", IMPOSSIBLE, "double"), self.at(self.skip, s.i))

    def fill(self, start, end, value):
        """Write `value(the logarithm there)` as the gradients of some steps of time."""
        w = self.w
        with w.loop(start, end) as t:
            offset = w.add(w.mul(t.i, self.stride), self.first)
            with w.loop(0, self.f["classes"]) as c:
                at = w.add(offset, c.i)
                self.write(value(w.at(self.element, self.probs, at)), w.at(self.element, self.grads, at))

    def no_steps(self, labels, loss):
        w = self.w
        possible = w(f"or i1 {w.is_('eq', labels, 0)}, {w.is_('ne', self.f['zeroed'], 0)}")
        self.write(Term(self.e, "f64", 1, w.pick(possible, "0.0", literal(math.inf, "f64"), "double")), loss)

    def emitted(self, t):
        """The logarithms of the classes that stand at the places, at time `t`."""
        w = self.w
        offset = w.add(w.mul(t, self.stride), self.first)
        with w.loop(0, self.f["places"]) as s:
            label = w.load("i64", w.at("i64", self.labels, s.i))
            found = self.read(w.at(self.element, self.probs, w.add(offset, label)))
            there = Term(self.e, "b1", 1, w.is_("slt", s.i, self.ends))
            self.put(self.e.where(there, found, -math.inf), self.at(self.emit, s.i))

    def nothing(self, row):
        """All places of a row impossible, those around it too."""
        with self.w.loop(0, self.f["row"]) as s:
            self.w.store("double", IMPOSSIBLE, self.at(row, s.i))

    def begin(self, row, places):
        """A row in which only `places` are possible: what is emitted there."""
        self.nothing(row)
        for place in places:
            with self.w.when(self.w.is_("sge", place, 0)):
                self.put(self.one(self.at(self.emit, place)), self.at(row, self.w.add(place, SPARE_PLACES)))

    def sample(self, steps, loss):
        w, f = self.w, self.f
        row = lambda t: self.at(self.ahead, w.mul(t, f["row"]))
        self.emitted(0)
        self.begin(row(0), [0])
        with w.when(w.is_("sgt", self.ends, 1)):
            self.put(self.one(self.at(self.emit, 1)), self.at(row(0), 1 + SPARE_PLACES))
        with w.loop(1, steps) as t:
            self.emitted(t.i)
            now, before = row(t.i), row(w.sub(t.i, 1))
            self.nothing(now)
            with w.loop(0, f["places"], self.lanes) as s:
                stay, step, jump = [self.load(self.at(before, w.add(s.i, SPARE_PLACES - back))) for back in range(3)]
                best = self.added(self.added(stay, step), jump + self.load(self.at(self.skip, s.i)))
                self.put(best + self.load(self.at(self.emit, s.i)), self.at(now, w.add(s.i, SPARE_PLACES)))
        last = self.at(row(w.sub(steps, 1)), self.ends)              # one before the last place, with those spare
        total = self.added(self.one(self.at(last, 1)), self.one(last))
        self.write(-total, loss)
        finite = (self.e.abs(total) < math.inf).text
        w.either(finite, lambda: self.gradient(steps, total), lambda: self.no_gradient(steps, total, loss))

    def no_gradient(self, steps, total, loss):
        w = self.w
        zeroed = w.both(w.is_("ne", self.f["zeroed"], 0), (self.e.abs(total) == math.inf).text)
        value = Term(self.e, "f64", 1, w.pick(zeroed, "0.0", literal(math.nan, "f64"), "double"))
        self.fill(0, steps, lambda _: value)
        with w.when(zeroed):
            self.write(self.e.const(0.0, "f64"), loss)

    def gradient(self, steps, total):
        """e to the logarithms, less the probability that a class is at its places. PyTorch's, too, takes log_probs to
        be normalised: it is the gradient for the logits behind them."""
        w, f = self.w, self.f
        self.fill(0, steps, lambda at: SCALAR_FUNCTIONS["exp"](self.e, self.read(at)))
        self.nothing(self.behind)
        self.nothing(self.at(self.behind, f["row"]))
        with w.loop(0, steps, 1, [("ptr", self.behind), ("ptr", self.at(self.behind, f["row"]))]) as turn:
            t = w.sub(w.sub(steps, 1), turn.i)
            now, later = turn.values
            self.emitted(t)
            w.either(w.is_("eq", turn.i, 0), lambda: self.begin(now, [w.sub(self.ends, 1), w.sub(self.ends, 2)]),
                     lambda: self.back(now, later))
            self.shared(t, now, total)
            turn.next = [later, now]

    def back(self, now, later):
        w = self.w
        with w.loop(0, self.f["places"], self.lanes) as s:
            stay, step, jump = [self.load(self.at(later, w.add(s.i, SPARE_PLACES + on))) for on in range(3)]
            skip = self.load(self.at(self.skip, w.add(s.i, 2)))              # of the place that is jumped to
            best = self.added(self.added(stay, step), jump + skip)
            self.put(best + self.load(self.at(self.emit, s.i)), self.at(now, w.add(s.i, SPARE_PLACES)))

    def shared(self, t, now, total):
        """Take the probability of each place off the gradient of its class."""
        w, e = self.w, self.e
        row = self.at(self.ahead, w.mul(t, self.f["row"]))
        with w.loop(0, self.f["places"], self.lanes) as s:
            at = w.add(s.i, SPARE_PLACES)
            both = self.load(self.at(row, at)) + self.load(self.at(now, at))
            emit = self.load(self.at(self.emit, s.i))
            share = SCALAR_FUNCTIONS["exp"](e, both - emit - e.spread(total, self.lanes))
            self.put(e.where(emit == -math.inf, 0.0, share), self.at(self.emit, s.i))
        grads = w.at(self.element, self.grads, w.add(w.mul(t, self.stride), self.first))
        with w.loop(0, self.ends) as s:
            to = w.at(self.element, grads, w.load("i64", w.at("i64", self.labels, s.i)))
            self.write(self.read(to) - self.one(self.at(self.emit, s.i)), to)
