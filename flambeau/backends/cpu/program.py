"""What the CPU does with kernels: schedules, machine code, and programs of words that a native runner goes through.

A stretch of native steps is an array of words (see threads.py), which one call from Python runs over a table of
addresses.
"""
import hashlib
from array import array
from functools import partial
from math import prod

from ...loops.ir import Launch, verify
from ...loops.llvm import render
from ...loops.schedule import verify as verify_schedule
from ..backend import NotCompiled
from . import library, machine_code, threads
from .library import gemm
from .library.gemm_kernels import texts_of
from .schedule import schedule, settle  # noqa: F401  (schedule is the Backend's)

CHARACTER_NANOSECONDS = 500        # in which LLVM compiles one of a text
LONG_TEXT_CHARACTERS = 1 << 12     # of a text that is always waited for: less, and a thread of its own costs more
PIECE_NANOSECONDS = 12_000         # of work that are worth handing to another thread


def processor():
    """What code is compiled for, in words."""
    return f"this processor, {machine_code.processor().cpu}"


def forget():
    """Compile everything anew: another processor was chosen."""
    machine_code.forget_launches()
    library.forget()


def make_ready():
    """Have compiled beforehand what nearly every program asks for first: the runner, and products of float32."""
    machine_code.make_ready({"run": threads.text()})
    gemm.make_ready()


# --- code -------------------------------------------------------------------------------------------------------------


def rendered(launch):
    """(what the function of a launch is called, its LLVM text); the same for launches that differ in words alone."""
    text = render(launch.kernel, launch.schedule, "k", machine_code.target())
    name = "k" + hashlib.sha256(text.encode()).hexdigest()[:16]
    return name, text.replace("@k(", f"@{name}(", 1)


def code(work):
    """The LLVM texts of a Launch, or of a call of the library."""
    return [rendered(work)[1]] if isinstance(work, Launch) else texts_of(work.fn)


class Compilation:
    """Machine code for some launches: `missing` is {name: LLVM text} of those that have none yet, and `hasty` the names
    of those that are first compiled quickly; see Note [Quickly, then well] in machine_code.py."""

    def __init__(self, launches):
        self.launches, self.missing, self.hasty, self._names = launches, {}, set(), {}
        known, unknown = machine_code.host().store.launches, {}
        for launch in launches:
            settle(launch)
            launch.text = str(launch)
            if launch.text not in known:
                unknown.setdefault(launch.text, launch)
        known.update(machine_code.packaged_functions(unknown))
        for text, launch in unknown.items():
            if text not in known:
                verify(launch.kernel)
                verify_schedule(launch.kernel, launch.schedule)
                self._names[text], written = rendered(launch)
                self.missing[self._names[text]] = written
                if launch.hasty:
                    self.hasty.add(self._names[text])

    def prepare(self, spare):
        """Have them compiled in the background, where that takes longer than `spare` nanoseconds; whether it does."""
        characters = max(spare * machine_code.compilers() // CHARACTER_NANOSECONDS, LONG_TEXT_CHARACTERS)
        if sum(map(len, self.missing.values())) <= characters:
            return False
        left = machine_code.not_found(self.missing)
        if sum(map(len, left.values())) <= characters:
            return False
        machine_code.prepare(left)
        return True

    def is_ready(self):
        """Whether what was prepared is compiled, or no thread is about to."""
        return machine_code.are_ready(self.missing)

    def finish(self):
        """Have machine code for all of them, made in one go; NotCompiled where that fails for some."""
        threads.start()                           # not in the middle of a run
        known, error = machine_code.host().store.launches, None
        if self.missing:
            try:
                made = machine_code.functions(self.missing, quickly=self.hasty)
            except NotCompiled as failure:
                error, left = failure, {n: text for n, text in self.missing.items() if n not in failure.failed}
                made = machine_code.functions(left, quickly=self.hasty)
            for text, name in self._names.items():
                known[text] = made.get(name)
        failed = [launch for launch in self.launches if known[launch.text] is None]
        if failed:
            error = error or NotCompiled({"": "it could not be compiled before"})
            error.launches = failed
            raise error


# --- programs ---------------------------------------------------------------------------------------------------------


class Stretch:
    """Native steps that one call of the runner goes through: `words` says what they are."""

    __slots__ = ("words", "steps", "_start")
    lasts = True

    def __init__(self, tasks):
        self.words, self.steps = array("q"), len(tasks)
        add = self.words.extend
        for work, slots, numbers in tasks:
            if isinstance(work, Launch):
                address, ints = machine_code.host().store.launches[work.text], _ints(work)
                tiles = prod(work.schedule.counts(work.sizes))
                grain = _grain(tiles, work.schedule.cost)
            else:
                address, tiles, grain, ints = work[:4]
                if work.buffers is not None:
                    slots = [(slots[number][0], slots[number][1] + offset) for number, offset in work.buffers]
            add((address, tiles, grain, len(slots), len(numbers), len(ints)))
            for index, offset in slots:
                add((index, offset))
            add(numbers)
            add(ints)
        self._start = self.words.buffer_info()[0]

    def over(self, launch):
        """The same stretch, of one kernel, with this Launch of it, which has other sizes."""
        made = Stretch(())
        address, _, _, slots, numbers, ints = self.words[:6]
        tiles = prod(launch.schedule.counts(launch.sizes))
        made.words = array("q", (address, tiles, _grain(tiles, launch.schedule.cost), slots, numbers, ints))
        made.words.extend(self.words[6:len(self.words) - ints])
        made.words.extend(_ints(launch))
        made.steps, made._start = 1, made.words.buffer_info()[0]
        return made

    def run(self, table, cells, times=None):
        """Run over the addresses of `table` and the numbers in `cells`."""
        table = array("q", table)
        run = threads.run if times is None else threads.clocked(times)
        run(self._start, self.steps, table.buffer_info()[0], cells.buffer_info()[0])

    def bound(self, table, cells, times=None):
        """A function of no arguments that runs over arrays of words, which must outlive it. It is one call of C."""
        run = threads.run if times is None else threads.clocked(times)
        return partial(run, self._start, self.steps, table.buffer_info()[0], cells.buffer_info()[0])

    def direct(self):
        """What compiled code calls instead: the addresses of the runner and of the words, and how many steps."""
        return threads.address(), self._start, self.steps


def _ints(launch):
    """The integers that the code of a launch is called with; see `arguments` in loops/llvm.py."""
    kernel, plan, sizes = launch.kernel, launch.schedule, launch.sizes
    dims = plan.dims(kernel)
    ints = [sizes[d] for d in dims]
    ints += plan.counts(sizes)
    ints += plan.blocks
    if kernel.cut is not None:
        ints.append(launch.block)
    for access, strides, at_stride in zip(kernel.accesses, launch.strides, launch.at_strides, strict=True):
        ints += [strides[d] for d in dims if access.steps[d] == "s"]
        if access.at is not None:
            ints.append(at_stride)
    return ints


def _grain(tiles, cost):
    """How many tiles a thread takes at a time; all of them where the work is little."""
    if tiles * cost < 2 * PIECE_NANOSECONDS:
        return tiles
    return max(1, int(PIECE_NANOSECONDS // cost), -(-tiles // 64))
