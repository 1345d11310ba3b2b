"""Horizontal fusion: kernels in a row that have nothing to do with one another become one launch.

An optimizer's step is a kernel for each parameter, dozens of them over a few thousand elements, where a launch takes
longer than its work; so are the norms of all gradients. Blocks do not know of each other, so those of several kernels
can be blocks of one launch: some for the first, then some for the second, and so on. A block finds out by a search
which *part* it is of. What it does then is what that kernel's own text does (`render_part` in loops/gpu), so the
bits are the same. Parts of one text are a *family*: their code is there once, and what each is given stands in a row.

    struct Given { addresses; first block of each part; how many blocks its kernel has; integers; numbers };

The launch has as many threads to a block as the largest part along rows, whose threads wait for each other; of a
smaller one, the rest leave at once. Threads of maps and of reductions down columns share nothing, so theirs are dealt
out anew.

Only tasks that stand next to each other in a program are put together, and only where none touches memory that another
writes. Memory behind two indices of the program's table is never the same where one of them is written.
"""
from itertools import accumulate
from math import inf, prod

from ...loops.dialects.cuda import CUDA
from ...loops.gpu.render import render_part
from ...loops.ir import BYTES_OF_TYPE, FLOAT_TYPES, Launch
from .schedule import INT_LIMIT

MIN_PARTS = 3                      # of a launch: fewer are not worth a compiler's tenth of a second
MAX_FAMILIES = 16                  # of a launch, each of which is more code
MAX_SHARED_BYTES = 1 << 15         # that the families of a launch may have between them; CUDA's bound is 48 KiB
MAX_PART_THREADS = 256             # of a block: more would leave too few registers
MAX_GIVEN_WORDS_SINCE_12_1 = 4064  # CUDA's bound on arguments from version 12.1 on is 32,764 bytes
FUSED_NAME = "fused_"              # what a kernel is called before its text is known


class HorizontalLaunch:
    """Tasks of a program as one launch: what a LaunchCall has, and what it is given."""

    shared_bytes, name = 0, FUSED_NAME

    def __init__(self, tasks):
        families: dict = {}
        for task in tasks:
            families.setdefault(task.work.text, []).append(task)
        parts = [task for family in families.values() for task in family]
        launches = [task.work for task in parts]
        self.threads = max([_threads(launch) for launch in launches if launch.schedule.way == "rows"],
                           default=MAX_PART_THREADS)
        own = [launch.schedule.grid(launch)[0] for launch in launches]
        blocks = [count if launch.schedule.way == "rows" else -(-count * _threads(launch) // self.threads)
                  for count, launch in zip(own, launches, strict=True)]
        self.grid, self.block = (sum(blocks), 1, 1), (self.threads, 1, 1)
        self.slots = [slot for task in parts for slot in task.slots]
        self.ints = [*accumulate(blocks[:-1], initial=0), *own,
                     *(n for launch in launches for n in launch.schedule.ints(launch))]
        self.numbers = [n for task in parts for n in task.numbers]
        self.source = _text([(family[0], len(family)) for family in families.values()], self.threads)


def fused(tasks, versions):
    """What to launch for the tasks of a program: (a Task or a HorizontalLaunch, the number of its first task)."""
    found: list = []
    for group in grouped(tasks, versions):
        if len(group) >= MIN_PARTS:
            found.append((HorizontalLaunch([tasks[number] for number in group]), group[0]))
        else:
            found += [(tasks[number], number) for number in group]
    return found


def grouped(tasks, versions):
    """The numbers of the tasks of a program, in lists of those that may be one launch."""
    known = [tuple(map(int, str(versions[name]).split(".")[:2])) for name in ("driver", "nvrtc")]
    most_words = MAX_GIVEN_WORDS_SINCE_12_1 if min(known) >= (12, 1) else CUDA.max_given_words
    groups, now = [], None
    for number, task in enumerate(tasks):
        if not can_be_part(task.work):
            groups.append([number])
            now = now if _is_empty(task.work) else None
            continue
        if now is None or not now.takes(task, most_words):
            now = _Group()
            groups.append(now.numbers)
        now.add(number, task)
    return groups


def can_be_part(work):
    """Whether a task's work may be a part of a launch."""
    if not isinstance(work, Launch) or _is_empty(work):
        return False
    return work.schedule.way == "positions" or work.schedule.way == "rows" and not work.kernel.columns \
        and _threads(work) <= MAX_PART_THREADS


def _is_empty(work):
    """Whether it is a kernel over nothing, which has nothing to do and is in no other's way."""
    return isinstance(work, Launch) and not work.schedule.grid(work)[0]


class _Group:
    """Tasks that one launch may have: their numbers, and what they touch, as _touches has it."""

    def __init__(self):
        self.numbers, self.families = [], {}     # families: text → bytes of shared memory
        self.read, self.written = {}, {}         # index of the table → [(first byte, behind the last)]
        self.words = self.blocks = 0

    def takes(self, task, most_words):
        """Whether one task more can be among them."""
        read, written = _touches(task)
        return self.words + _words(task) <= most_words and self.blocks + _blocks(task) <= INT_LIMIT \
            and self._has_room({**self.families, task.work.text: _shared_bytes(task.work)}) \
            and not (_meet(written, self.read) or _meet(written, self.written) or _meet(read, self.written))

    def add(self, number, task):
        """One task more."""
        self.numbers.append(number)
        self.families[task.work.text] = _shared_bytes(task.work)
        self.words, self.blocks = self.words + _words(task), self.blocks + _blocks(task)
        for touched, more in zip((self.read, self.written), _touches(task), strict=True):
            for index, ranges in more.items():
                touched.setdefault(index, []).extend(ranges)

    @staticmethod
    def _has_room(families):
        return len(families) <= MAX_FAMILIES and sum(families.values()) <= MAX_SHARED_BYTES


def _shared_bytes(launch):
    """At most how many bytes of shared memory the text of a kernel has: for each accumulator of every thread."""
    if launch.schedule.way != "rows":
        return 0
    accs = [BYTES_OF_TYPE[e.type] + (BYTES_OF_TYPE["i64"] if reduction.startswith("arg") else 0)
            for one in launch.kernel.passes for reduction, e in one.accs]
    return (_threads(launch) + 1) * launch.schedule.vector * sum(accs)


def _touches(task):
    """What a task reads, and what it writes: {index of the table: [(first byte, behind the last)]} of each."""
    launch = task.work
    stored = {number for one in launch.kernel.passes for number, _ in one.stores}
    stored |= {number for number, _ in launch.kernel.finals}
    found: tuple = {}, {}
    for number, (index, offset) in enumerate(task.slots):
        access, nbytes = launch.kernel.accesses[number], BYTES_OF_TYPE[launch.kernel.accesses[number].type]
        if access.at is not None:                # anywhere
            low, high = -inf, inf
        else:
            moves = [(size - 1) * stride for size, stride in zip(launch.sizes, launch.strides[number], strict=True)]
            low = offset + nbytes * sum(move for move in moves if move < 0)
            high = offset + nbytes * (1 + sum(move for move in moves if move > 0))
        found[number in stored].setdefault(index, []).append((low, high))
    return found


def _meet(one, other):
    """Whether some bytes are in both."""
    return any(low < end and start < high for index in one.keys() & other.keys()
               for low, high in one[index] for start, end in other[index])


def _threads(launch):
    return prod(launch.schedule.block)


def _blocks(task):
    """At most how many blocks a part has in a launch."""
    return task.work.schedule.grid(task.work)[0] * MAX_PART_THREADS


def _words(task):
    """How many arguments a part is given, the first of its blocks and how many they are among them."""
    return 2 + len(task.slots) + len(task.work.schedule.ints(task.work)) + len(task.numbers)


# --- the text ---------------------------------------------------------------------------------------------------------

def _text(families, threads):
    """The CUDA C++ of families, (a task of theirs, how many parts), for blocks of so many threads."""
    parts = sum(count for _, count in families)
    functions, branches = [], []
    first, p, i, n = 0, 0, 2 * parts, 0
    for number, (task, count) in enumerate(families):
        launch, name = task.work, f"family{number}"
        types = launch.kernel.numbers
        pointers, ints, numbers = len(task.slots), len(launch.schedule.ints(launch)), len(types)
        given = [*(f"given.p[{p + at} + at * {pointers}]" for at in range(pointers)),
                 *(f"given.i[{i + at} + at * {ints}]" for at in range(ints)),
                 *(_number(f"given.n[{n + at} + at * {numbers}]", type) for at, type in enumerate(types))]
        functions += [f"namespace {name} {{", render_part(launch.kernel, launch.schedule, CUDA), "}"]
        branches += [f"  {'else ' if number else ''}if (part < {first + count}) {{",
                     f"    const int at = part - {first};",
                     f"    const {name}::Given mine = {{{', '.join(given)}}};",
                     *_position(launch, threads),
                     f"    if (block < (int)given.i[{parts} + part]{_beyond(launch, threads)}) "
                     f"{name}::part(mine, block, {_x_and_y(launch)});",
                     "  }"]
        first, p, i, n = first + count, p + count * pointers, i + count * ints, n + count * numbers
    return "\n".join([
        *functions,
        f"struct Given {{ unsigned long long p[{p}]; long long i[{i}];" + (f" long long n[{n}];" if n else "") + " };",
        f"{CUDA.kernel_head(FUSED_NAME, (threads,))} {{",
        f"  int part = 0, after = {parts};",
        "  while (after - part > 1) {",
        "    const int middle = (part + after) / 2;",
        "    if (given.i[middle] <= (long long)blockIdx.x) part = middle; else after = middle;",
        "  }",
        "  const int mine_of_part = (int)blockIdx.x - (int)given.i[part];",
        *branches, "}", ""])


def _position(launch, threads):
    """Lines that say which block of a part's own kernel a thread belongs to, and its number in that."""
    if launch.schedule.way == "rows":
        return ["    const int block = mine_of_part, thread = (int)threadIdx.x;"]
    own = _threads(launch)
    if own == threads:
        return ["    const int block = mine_of_part, thread = (int)threadIdx.x;"]
    if own > threads:
        times = own // threads
        return [f"    const int block = mine_of_part / {times}, "
                f"thread = mine_of_part % {times} * {threads} + (int)threadIdx.x;"]
    return [f"    const int block = mine_of_part * {threads // own} + (int)threadIdx.x / {own}, "
            f"thread = (int)threadIdx.x % {own};"]


def _beyond(launch, threads):
    """What threads that a part's own kernel does not have are told by."""
    return f" && thread < {_threads(launch)}" if launch.schedule.way == "rows" and _threads(launch) < threads else ""


def _x_and_y(launch):
    wide, high, _ = launch.schedule.block
    return "thread, 0" if high == 1 else f"thread % {wide}, thread / {wide}"


def _number(word, type):
    """A number that is given as a word of 64 bits."""
    return f"__longlong_as_double({word})" if type in FLOAT_TYPES else word
