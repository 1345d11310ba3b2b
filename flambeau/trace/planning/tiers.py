"""What runs a trace: a plan, waited for or not, or one instruction after the other.

Note [What a plan is worth]: a plan costs its making, on the thread that runs, and its compilation, which another
processor can do. It pays with every run that would have been slower without. How often a trace will come again is not
known, but what it has done so far says much:
- a loop's body comes again with the next step. So what is seen a second time soon after the first is planned at once:
  no more than one run that trains lies between, or where nothing trains, not much else. Where a step trains several
  times, its parts come again after as many such runs as before, and are planned at the third sight. (Episodes of some
  twenty lengths come again after some other number each time, and too seldom to earn a plan);
- what comes again only after much else (a batch of the same structure an epoch later, a sequence of the same length) is
  run as often as its plan costs more than a run without, and planned then;
- what has so much data that fused loops win more in a single run than the plan costs is planned when it is first
  seen; so is a training step of some size, which will come again.

A plan for a training step at its first or second sight is a bet. Where several in a row were not won, because every
step has other shapes (or comes twice, in two nets that are trained side by side), no more are made until a step has
come oftener than that.

Whether a look waits for the compiler is decided in the same way. All processors compile what is waited for, and one
what is compiled in the background, while the program goes on at its slower pace. So what a loop needs is waited for, if
that takes no longer than the next few runs without; what may never come again, if it takes no longer than this run.
Otherwise the plan is taken over between two runs, when it is ready.

All of this is estimated from sizes and counts, and never measured: the same program takes the same decisions. (When
the background is done is another matter. The bits do not depend on either.)
"""
from ...backends.cpu_quota import processors, quota
from ..running.interpret import is_prepared

INSTRUCTION_NANOSECONDS = 30_000          # to run an instruction without a plan, apart from its data,
PREPARATION_NANOSECONDS = 200_000         # and to prepare it, the first time
BYTE_NANOSECONDS = 1                      # to make a byte of results without a plan
MIN_BYTES = 1 << 20                       # of the results of a trace that is planned when it is first seen,
BYTES_PER_INSTRUCTION = 1 << 19           # for each of its instructions, which takes 0.15 milliseconds to plan;
TRAINING_BYTES_PER_INSTRUCTION = 1 << 15  # where it trains, these are enough
MAX_TURNS = 8                             # runs that train in one step of a loop;
SOON_LENGTHS = 8                          # without any, what comes again within so many times its own instructions
SOON_INSTRUCTIONS = 512                   # and these is a loop's body
RARE_SIGHTINGS = 5                        # how often anything else is run before it has a plan
MAX_BETS = 4                              # training steps planned so soon, in a row, that do not come again
EXPECTED_RUNS = 8                         # of what comes again, or trains: so many the compiler may take as long as,
EXPECTED_RUNS_ALONE = 64                  # and on a single processor, where the background is no faster


class Sighting:
    """How often a trace was run without a plan; when it was last, in runs that trained and in instructions; and how
    many turns after the time before."""

    __slots__ = ("times", "turn", "turns", "instructions")

    def __init__(self):
        self.times = self.turn = self.turns = self.instructions = 0


class Sightings(dict):
    """key of a trace → Sighting. `turn` and `instructions` count what was run so far, `bets` the training steps that
    were planned at first or second sight since one came oftener."""

    def __init__(self):
        super().__init__()
        self.turn = self.instructions = self.bets = 0

    def count(self, trace, seen, has_plan):
        """Note that a trace, no segment, is about to run, which was `seen` so before or has a plan."""
        if trace.trains and (has_plan or seen is not None and seen.times > 1 and self.is_loop(seen, len(trace.code))):
            self.bets = 0
        self.turn += trace.trains
        self.instructions += len(trace.code)

    def note(self, key):
        """The trace of `key` is run without a plan now; gives how often it was before."""
        seen = self.get(key)
        if seen is None:
            seen = self[key] = Sighting()
        seen.times, seen.turns = seen.times + 1, self.turn - seen.turn
        seen.turn, seen.instructions = self.turn, self.instructions
        return seen.times - 1

    def is_loop(self, seen, length):
        """Whether a trace of `length` instructions that comes now was last seen, as `seen` says, only a little ago."""
        turns = self.turn - seen.turn
        if turns:
            return turns == 1 or turns <= MAX_TURNS and seen.times > 1 and turns == seen.turns
        return self.instructions - seen.instructions <= SOON_LENGTHS * length + SOON_INSTRUCTIONS


def has_a_choice(trace):
    """Whether the trace gives the same bits without a plan: see `Backend.interprets`."""
    for one in trace.code:
        if one.entry.compiles and not one.entry.device.backend.interprets:
            return False
    return True


def worth_a_plan(trace, seen, sightings):
    """Whether to make a plan for a trace now that was `seen` so before, if at all; see Note [What a plan is worth]."""
    if not has_a_choice(trace):
        return True
    may_bet = trace.trains and sightings.bets < MAX_BETS
    if seen is not None:
        return seen.times >= RARE_SIGHTINGS or sightings.is_loop(seen, len(trace.code)) \
            and (may_bet or seen.times > 1 or not trace.trains)
    least = TRAINING_BYTES_PER_INSTRUCTION if may_bet else BYTES_PER_INSTRUCTION
    return trace.bytes >= MIN_BYTES and trace.bytes >= least * len(trace.code)


def time_to_compile(trace, seen):
    """How many nanoseconds a look may wait for the kernels of a trace's plan, which was `seen` so before, if at all."""
    if seen is None and not trace.trains:
        return nanoseconds_without(trace)
    return nanoseconds_without(trace) * (EXPECTED_RUNS if min(processors(), quota()) > 1 else EXPECTED_RUNS_ALONE)


def nanoseconds_without(trace):
    """How long a run of the trace without a plan takes, as estimated from its sizes."""
    entries = {instruction.entry for instruction in trace.code}
    return INSTRUCTION_NANOSECONDS * len(trace.code) + BYTE_NANOSECONDS * trace.bytes \
        + PREPARATION_NANOSECONDS * sum(not is_prepared(entry) for entry in entries)
