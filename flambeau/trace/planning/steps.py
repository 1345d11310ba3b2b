"""The steps that a plan is made of, for the planner and for users who want to look: a class for each kind.

    kernel 0  over [4 × 1000]  mul, sub, exp, sum  reads %0  keeps %1, w0  gives %3

What a step keeps is in working memory, for later steps, and gone when the plan is through; what it gives is a result
that the program holds. `%1` is a slot of the trace, as the trace prints it, and `w0` has no slot. `%3 in %0` stands in
the memory of `%0`, which is no longer needed.

While a plan is built, a step holds the expressions of the graph that it computes. `settle` writes down what is shown
and lets go of the graph, since plans are kept.
"""
from bisect import bisect_right
from math import prod

from ...base.spec import CPU
from ...loops.ir import BYTES_OF_TYPE
from .fuse import REDUCING_KINDS, by_number

WORDS_SHOWN = 16
IN_NO_MEMORY = frozenset(("const", "number", "index", "view", "expand", "reshape", "permute"))
FREE_OF_CHARGE = frozenset(("cast", "copy", "gather", "index"))      # what moves a number and does not compute one


class Text(str):
    """Text that a console shows as it is, line by line."""

    __slots__ = ()
    __repr__ = str.__str__


class Step:
    """One step of a plan.

    `words` are the operations in it, `sizes` those of the positions it walks; `reads`, `keeps` and `gives` name the
    memory that it touches. `instructions` are the numbers of the trace's instructions that it computes a part of,
    `nbytes` and `flops` estimate its work: bytes that it moves, each counted once, and operations on numbers. `native`
    says that it is part of a program of its `device`, and cannot fail.
    """

    __slots__ = ("at", "group", "device", "number", "words", "sizes", "reads", "keeps", "gives", "instructions",
                 "nbytes", "flops")
    kind = ""
    native = True

    def __init__(self, group):
        self.group, self.device = group, group.device
        self.at = -1              # when it runs: its place among the steps as they were cut

    # --- while a plan is built --------------------------------------------------------------------------------------

    def touched(self):
        """The nodes in memory that it reads and writes, in the order of its arguments."""
        raise NotImplementedError

    def reads_and_writes(self, buffers):
        """The Buffers that it reads, and those that it writes."""
        raise NotImplementedError

    def nodes(self):
        """The nodes that it computes."""
        return self.group.nodes or [self.group.opaque]

    def settle(self, number, graph, buffers, named):
        """Write down what is shown, buffers by the names that `named` gives them, and forget the graph."""
        reads, writes = self.reads_and_writes(buffers)
        keeps = [b for b in writes if b.kind == "working" or b.slot is None]
        gives = [b for b in writes if b not in keeps]
        self.number = number
        self.words, self.sizes = self._words() or ("copy",), self._sizes()
        self.reads, self.keeps, self.gives = (tuple(dict.fromkeys(named(b))) for b in (reads, keeps, gives))
        self.instructions = tuple(sorted(self._instructions(graph)))
        self.nbytes, self.flops = self._bytes(reads, writes), self._flops()
        self.forget()

    def forget(self):
        """Let go of what only building needs."""
        self.group = None

    def _instructions(self, graph):
        """The numbers of the instructions that it computes a part of."""
        if self.group.instructions is None:           # a group may have thousands of steps: what it joins, each a copy
            self.group.instructions = instructions_of(self.nodes(), graph)
        return self.group.instructions

    def _words(self):
        raise NotImplementedError

    def _sizes(self):
        return ()

    def _bytes(self, reads, writes):
        return sum(b.spec.nbytes for b in {id(b): b for b in (*reads, *writes)}.values())

    def _flops(self):
        raise NotImplementedError

    # --- in words ---------------------------------------------------------------------------------------------------

    @property
    def loop(self):
        """A kernel in the loop language; None for other steps."""
        return None

    @property
    def llvm(self):
        """The step as LLVM's text, for this machine's vectors; None for the reference executor's."""
        texts = self._code()
        return Text("\n".join(texts)) if texts else None

    @property
    def assembly(self):
        """The step as this machine runs it; None for the reference executor's."""
        texts = self._code()
        return Text("\n".join(map(self.device.backend.assembly, texts))) if texts else None

    def _code(self):
        """What its device's compiler is given, in texts."""
        return []

    def __str__(self):
        words = ", ".join(self.words[:WORDS_SHOWN])
        if len(self.words) > WORDS_SHOWN:
            words += f" and {len(self.words) - WORDS_SHOWN} more"
        over = f"over [{' × '.join(map(str, self.sizes))}]" if self.sizes else ""
        where = f" on {self.device}" if self.device is not CPU and self.kind != "transfer" else ""
        parts = [f"{self.kind} {self.number}{where}", over, words]
        for title in ("reads", "keeps", "gives"):
            names = getattr(self, title)
            parts.append(f"{title} {', '.join(names)}" if names else "")
        return "  ".join(part for part in parts if part)

    __repr__ = __str__


def instructions_of(nodes, graph):
    """The numbers of the instructions that nodes belong to, and those nodes that stand in no memory and are computed
    wherever they are read."""
    found, stack = {}, list(nodes)
    while stack:
        node = stack.pop()
        found[id(node)] = node.number
        for arg in node.args:
            if (arg.inline or arg.op in IN_NO_MEMORY) and id(arg) not in found:
                stack.append(arg)
    begins, start, end = graph.begins, graph.start, graph.end
    return {bisect_right(begins, number) - 1 for number in found.values() if start < number < end}


class KernelStep(Step):
    """Generated code for a group of expressions."""

    __slots__ = ("nest", "launch")
    kind = "kernel"

    def __init__(self, group, nest):
        super().__init__(group)
        self.nest, self.launch = nest, nest.launch

    def over(self, *sizes):
        """The same step, which is settled, over other sizes."""
        made = KernelStep.__new__(KernelStep)
        made.at, made.group, made.device, made.number, made.words = self.at, None, self.device, self.number, self.words
        made.reads, made.keeps, made.gives, made.instructions = self.reads, self.keeps, self.gives, self.instructions
        made.nest, made.launch, made.sizes = None, self.launch.over(*sizes), sizes
        share = prod(sizes) / max(prod(self.sizes), 1)
        made.nbytes, made.flops = int(self.nbytes * share), int(self.flops * share)
        return made

    def touched(self):
        return [read.node for read in self.nest.reads]

    def reads_and_writes(self, buffers):
        walked = self.nest.reads
        return tuple([buffers.of(r.node) for r in walked if r.store is way] for way in (False, True))

    def tell_fresh(self, buffers):
        """Tell the launch which of its results fill memory of their own, from its start."""
        for number, read in enumerate(self.nest.reads):
            if read.store and read.offset == 0:
                buffer = buffers.of(read.node)
                if buffer.taken is None:
                    self.launch.fresh[number] = buffer.nbytes

    def forget(self):
        super().forget()
        self.nest = None

    def _instructions(self, graph):
        found, own = super()._instructions(graph), self.nest.group
        return found if own is self.group else found | instructions_of(own.nodes, graph)

    def _words(self):
        nodes = sorted(self.nest.group.nodes, key=by_number)
        return tuple(n.attr[0] if n.op in REDUCING_KINDS else n.op for n in nodes if n.op not in ("cast", "copy"))

    def _sizes(self):
        return tuple(self.nest.sizes_of_walk()) or (1,)

    def _bytes(self, reads, writes):
        """Of each way that memory is walked: the positions where it moves, or all of them where an index leads."""
        sizes = self.nest.sizes
        everywhere = prod(self.nest.sizes_of_walk())
        return sum(BYTES_OF_TYPE[r.type] * (everywhere if r.at is not None else
                                    prod(sizes.get(d, 1) for d, stride in r.strides.items() if stride))
                   for r in self.nest.reads)

    def _flops(self):
        return sum(n.args[0].numel if n.op in REDUCING_KINDS else n.numel for n in self.nest.group.nodes
                   if n.op not in FREE_OF_CHARGE)

    @property
    def loop(self):
        return Text(self.launch)

    def _code(self):
        return self.device.backend.code(self.launch)


class CopyStep(KernelStep):
    """A kernel that copies all of `old`, of which an in-place write of `source` then changes a part.

    It is dropped where the write can be made in the old memory itself.
    """

    __slots__ = ("old", "source")

    def __init__(self, group, nest, old, source):
        super().__init__(group, nest)
        self.old, self.source = old, source

    def touched(self):
        return [*super().touched(), self.old, self.source]

    def forget(self):
        super().forget()
        self.old = self.source = None


class LibraryStep(Step):
    """A call of a function of the device's library over `operands` and then results: a matrix product, say."""

    __slots__ = ("call", "operands", "results")
    kind = "library"

    def __init__(self, group, call, operands, results):
        super().__init__(group)
        self.call, self.operands, self.results = call, operands, results

    def touched(self):
        return [*self.operands, *self.results]

    def reads_and_writes(self, buffers):
        return [buffers.of(a) for a in self.operands], [buffers.of(a) for a in self.results]

    def forget(self):
        super().forget()
        self.operands = self.results = None

    def _words(self):
        node = self.group.opaque
        return (node.op if node.op == "gemm" else node.attr[0],)

    def _sizes(self):
        node = self.group.opaque
        if _is_product(node):
            return (*self.results[0].shape, self.operands[0].shape[-1])
        return self.results[0].shape

    def _bytes(self, reads, writes):
        return super()._bytes(reads, writes) if getattr(self.call, "share", 1.0) else 0

    def _flops(self):
        return round(self._defined_flops() * getattr(self.call, "share", 1.0))

    def _defined_flops(self):
        node, made = self.group.opaque, self.results[0]
        if _is_product(node):
            return 2 * made.numel * self.operands[0].shape[-1]
        if node.attr[0] == "convolve":                       # each result: a product with one filter, or a part of it
            x, weight = self.operands[:2]
            transposed = node.attr[1][4]
            return 2 * (x if transposed else made).numel * weight.numel // weight.shape[0]
        if node.attr[0] == "convolve_weight":
            return 2 * self.operands[1].numel * made.numel // made.shape[0]
        return max(a.numel for a in self.touched())

    def _code(self):
        return self.device.backend.code(self.call)


def _is_product(node):
    return node.op == "gemm" or node.attr[0] in ("gemm", "affine")


class RecurrenceStep(LibraryStep):
    """A step of a sequence, planned as `draft`, repeated along it; the last of its results is room to work in."""

    __slots__ = ("repeated", "draft", "works", "flops_of_each")
    kind = "recurrence"

    def __init__(self, group, repeated, draft, operands, results):
        super().__init__(group, None, operands, results)
        self.repeated, self.draft = repeated, draft
        self.works = [part.launch if isinstance(part, KernelStep) else part.call for part in draft.steps]
        self.flops_of_each = sum(part._flops() for part in draft.steps)

    def forget(self):
        super().forget()
        self.repeated = self.draft = None

    def _words(self):
        return (self.repeated.walk.step.__name__,)

    def _sizes(self):
        return (self.repeated.walk.count, *self.operands[self.repeated.walk.sequences].shape)

    def _flops(self):
        return self.repeated.walk.count * self.flops_of_each

    def _code(self):
        return [text for work in self.works for text in self.device.backend.code(work)]


class ReferenceStep(Step):
    """An operation left to the reference executor: instruction `index`, by its `entry`."""

    __slots__ = ("index", "entry", "made")
    kind = "reference"
    native = False

    def __init__(self, group):
        super().__init__(group)
        self.index, self.entry = group.opaque.attr
        self.made = []            # (number of the result, its PlanBuffer), for the results that are read

    def touched(self):
        return self.group.opaque.args

    def reads_and_writes(self, buffers):
        return [buffers.of(a) for a in self.group.opaque.args], [b for _, b in self.made]

    def forget(self):
        super().forget()
        self.made = None

    def _words(self):
        return (self.entry.op.__name__,)

    def _flops(self):
        return sum(spec.numel for spec in self.entry.outs)


class CallbackStep(ReferenceStep):
    """An operation with an effect: its `ref` is called, once and in order; see Note [Effects] in running/effects.py."""

    __slots__ = ()
    kind = "callback"


class TransferStep(Step):
    """A copy from one device to another: of what stands in `source`, to memory of its own."""

    __slots__ = ("source", "made", "origin")
    kind = "transfer"
    native = False

    def __init__(self, group):
        super().__init__(group)
        self.made = group.opaque
        self.source, = self.made.args
        self.origin, self.device = self.made.attr

    def touched(self):
        return [self.source, self.made]

    def reads_and_writes(self, buffers):
        return [buffers.of(self.source)], [buffers.of(self.made)]

    def forget(self):
        super().forget()
        self.source = self.made = None

    def _words(self):
        return (f"{self.origin} to {self.device}",)

    def _sizes(self):
        return self.made.shape

    def _bytes(self, reads, writes):
        return self.made.numel * self.made.dtype.itemsize

    def _flops(self):
        return 0
