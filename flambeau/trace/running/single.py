"""How a single instruction runs by a plan of its own, which its Entry finds.

Note [Single instructions]: where a program has another structure at every step (a net over trees, an episode, a beam),
no trace of it comes again, but the calls in it do. So an instruction that was run often enough without a plan gets one
for itself, and the next trace without a plan runs it by that, without a key: a native call, where the interpreter takes
several steps of NumPy's. Looks after every operation find their plans here as well (`cached_plan`). Such a plan goes by
the call, which of its operands lie in one storage, and which of them begin where that begins. It does not matter how
large the storages are: nothing may be written over.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ...base.counting import count_in
from ...base.ownership import INPUT, RESULT
from ...base.spec import CPU
from .key import moving_offsets

MAX_SINGLE_RUNS = 4096            # calls of which any are remembered,
MAX_LAYOUTS = 8                   # and layouts of the operands of each
MIN_RUNS_FOR_SPARES = 4           # before results are made in spare arrays, which are of one size each
MIN_INTERPRETED = 16              # how often it is run without a plan before it has one, which costs about as much
MAX_INLINE_BYTES = 1 << 16        # of inputs and results of what runs while no other thread is let in
MAX_COPIED_BYTES = 1 << 16        # of an operand that an instruction without a plan may write over
ONE_INPUT, TWO_INPUTS = (0,), (0, 1)      # what most instructions read, numbered from 0 on
_remembered: list = []            # the `singles` of entries
body_programs: dict = {}          # Entry → what runs its body alone, None where it has none: see interpret.py


class SingleRun:
    """How a call runs by itself: the offsets of what it reads, as they stand in a key, and the plan; None as long as it
    has none, and False where it never will. `times`: how often it was run, until it had a
    plan and since.

    The Entry has those of a call by the input slots (`x * x` reads one, `x * y` two)."""

    __slots__ = ("offsets", "plan", "times", "is_small")


def reads_of(slots):
    """The `slots` that an instruction reads, numbered from 0 on as they come."""
    if len(slots) == 1:
        return ONE_INPUT
    if len(slots) == 2 and slots[0] != slots[1]:
        return TWO_INPUTS
    number = {}
    for slot in slots:
        number.setdefault(slot, len(number))
    return tuple([number[slot] for slot in slots])


def cached_plan(trace):
    """The plan of a trace of one instruction, if it is like one that its entry remembers; else None."""
    instruction = trace.code[0]
    entry, slots, first = instruction.entry, instruction.slots, instruction.first
    values = trace.values
    if entry.singles is None or entry.many or len(trace.slots) != first or len(values) != first + 1 \
            or count_in(values, first) <= RESULT:
        return None
    runs = entry.singles.get(slots)
    if runs is None:
        return None
    for slot in range(first):
        if count_in(values, slot) <= INPUT:       # asked before a variable holds it
            return None
    single = _like(runs, offsets_of(instruction, slots))
    return None if single is None or single.plan is False else single.plan


def offsets_of(instruction, reads):
    """The offsets of an instruction as they stand in a key, where others hold its inputs, and it reads these slots."""
    entry, offsets = instruction.entry, instruction.offsets
    return offsets if offsets is entry.zeros else moving_offsets(entry, reads, offsets, None, {})


def _like(runs, offsets):
    """The SingleRun among `runs` of operands like these; None if there is none."""
    for single in runs:
        if single.offsets is offsets or single.offsets == offsets:
            return single
    return None


def _noted(entry, reads, offsets):
    """A new SingleRun without a plan, where `_like` finds it; None where there are too many of the call."""
    if entry.singles is None:
        entry.singles = {}
    if not entry.singles:
        if len(_remembered) >= MAX_SINGLE_RUNS:
            forget_single_runs()
        _remembered.append(entry.singles)
    before = entry.singles.get(reads, ())
    if len(before) >= MAX_LAYOUTS:
        return None
    single = SingleRun()
    single.offsets, single.plan, single.times = offsets, None, 0
    single.is_small = sum([spec.weight for spec in entry.input_specs]) + entry.weight <= MAX_INLINE_BYTES
    entry.singles[reads] = (*before, single)      # as a whole: see Note [First use] in base/once.py
    return single


def remember(trace, plan, found):
    """Have `cached_plan` find `plan`, if the trace is of the kind that it knows; `found`: what `key_of` says of it."""
    instruction = trace.code[0]
    entry, slots, first = instruction.entry, instruction.slots, instruction.first
    key, wanted, free = found
    if entry.many or free or wanted != (first,) or list(trace.slots.values()) != list(range(first)):
        return
    offsets = key[0][0][2]
    runs = entry.singles.get(slots, ()) if entry.singles is not None else ()
    single = _like(runs, offsets) or _noted(entry, slots, offsets)
    if single is not None:
        single.plan = plan


def forget_single_runs():
    """Forget how single instructions ran: their plans are no longer to be used."""
    for singles in _remembered:
        singles.clear()
    _remembered.clear()


# --- in a trace that has no plan --------------------------------------------------------------------------------------


def run_ahead(trace, index, stop, wanted, left):
    """Run the instructions of `trace` from `index` to `stop` that are `wanted`, as far as each has a plan of its own.
    Gives the index of the first that has none, or `stop`. What has run is noted with `left` in `unsettled`."""
    code, values, last = trace.code, trace.values, trace.last
    while index < stop:
        instruction = code[index]
        if wanted[index] and not _run_alone(instruction, values):
            break
        trace.unsettled = (left, index + 1)
        for slot in instruction.slots:
            if last[slot] == index:
                values[slot] = None
        slot = instruction.first
        entry = instruction.entry
        end = slot + (len(entry.outs) if entry.many else 1)
        while slot < end:
            if last[slot] == index:
                values[slot] = None
            slot += 1
        index += 1
    return index


def _run_alone(instruction, values):
    """Run an instruction over the `values` of its trace by a plan of its own. Returns True if there is one."""
    entry, slots = instruction.entry, instruction.slots
    if entry.singles is None:
        return False
    reads = reads_of(slots)
    runs = entry.singles.get(reads)
    if runs is None:
        return False
    single = _like(runs, offsets_of(instruction, reads))
    if single is None or single.plan is None or single.plan is False:
        return False
    inputs = _inputs(instruction, reads, values)
    slot = instruction.first
    inputs.extend(values[slot:slot + len(entry.outs)])
    inputs.append(None)                           # True, once it has run
    code = [instruction]
    single.times += 1
    if single.times == MIN_RUNS_FOR_SPARES:
        single.plan.bound.use_spares(True)
    try:
        return single.plan.bound.run(inputs, inputs, code, code, False, None, None, None, single.is_small)
    except Exception:
        return inputs[-1] is True                 # else nothing has changed, and the interpreter will say it


def _inputs(instruction, reads, values):
    """The inputs of an instruction, each once, in the order of its `reads`."""
    slots = instruction.slots
    if reads is ONE_INPUT:
        return [values[slots[0]]]
    if reads is TWO_INPUTS:
        return [values[slots[0]], values[slots[1]]]
    found = []
    for slot, number in zip(slots, reads, strict=True):
        if number == len(found):
            found.append(values[slot])
    return found


def has_plan_now(instruction, values, plan_alone):
    """Whether an instruction of a trace with these `values`, which had no plan so far, has one now: from `plan_alone`,
    where it was run often enough without."""
    entry = instruction.entry
    if not entry.compiles or entry.device is not CPU or entry.outs is None:
        return False
    reads = reads_of(instruction.slots)
    offsets = offsets_of(instruction, reads)
    runs = entry.singles.get(reads, ()) if entry.singles is not None else ()
    single = _like(runs, offsets) or _noted(entry, reads, offsets)
    if single is None or single.plan is not None:
        return False
    if entry.op.overwrites and values[instruction.slots[0]].spec.nbytes > MAX_COPIED_BYTES:
        single.plan = False
        return False
    single.times += 1
    spec_of = dict(zip(reads, entry.input_specs, strict=True))
    specs = tuple([spec_of[number] for number in range(len(spec_of))])
    single.plan = plan_alone(instruction, reads, offsets, specs, single.times > MIN_INTERPRETED)
    if single.plan is None or single.plan is False:
        return False
    single.times = 0
    return True
