"""Run a recording again: the plan of its instructions over the contents that are there now.

Inputs that the call overwrites are donated: their memory takes the results, if nothing else holds it at that moment.
Otherwise a second plan runs that leaves all inputs alone. Gradients of the last call that nothing else holds are
written over as well. Where there is no plan (the reference executor, an operation that none can be made for), or it
fails, the instructions themselves are put into a trace and run as always, but for the effects that have happened. If an
effect raises, the call ends there: those before it have happened, and those after it do not.
"""
from ..base import observers, settings
from ..base.locks import new_lock
from ..trace.planning import plan as plans
from ..trace.planning.lower import Unfusable
from ..trace.recording.instructions import Instruction
from ..trace.recording.record import Trace
from ..trace.running import effects
from ..trace.running.runner import Failure
from ..trace.value import Value
from .bound import BoundBase, RunnerBase
from .moving import moved_code, moves_alike, moving_parts


class Runner(RunnerBase):
    """The instructions of a recording, ready to run.

    `inputs` are the slots of what comes in, in order; `wanted` those of what is given back; `free` the inputs that are
    overwritten. `numbers` maps (instruction, parameter) to the place of a number that is read at every replay, `moved`
    (instruction, operand) to that of how many bytes it lies further on than it was recorded: see moving.py.
    """

    def __init__(self, code, specs, inputs, wanted, free, numbers):
        self.code, self.specs, self.inputs = code, specs, inputs
        self.wanted, self.free, self.numbers = wanted, free, numbers
        self.position_of = {slot: i for i, slot in enumerate(inputs)}
        self.moved = {}
        self.effects = any(one.entry.op.effect for one in code)
        self.plans = {}               # donating or not → BoundPlan, None where there is no plan
        self.bound = None
        self.lock = new_lock()

    def _run(self, values, numbers, made):
        """What `run` does where it takes more than one call."""
        if observers.during_runs and not observers.gathering():
            with observers.gathered():                       # see Note [Told after the run] in observers.py
                self._run(values, numbers, made)
            return
        happened, raised = {}, None           # index of an effect → its results
        if self.effects:
            effects.run_pending()
        if settings.executor != "reference":
            try:
                for donates in (True, False):
                    bound = self.plans[donates] if donates in self.plans else self.plan(donates)
                    if bound is not None and bound.run(values, numbers, made, happened, observers.during_runs):
                        return
            except (plans.Failed, MemoryError):              # nothing has changed; the reference executor says why
                pass
            except effects.Raised as stop:
                raised = Failure(stop.error, stop.entry, stop.site)
        try:
            if raised is not None:
                raise raised.explained(None)
        finally:
            raised = None                                    # a frame that holds its own error keeps all in it alive
        made[:] = (*self._refill(values, numbers, happened), True)

    def plan(self, donates=True):
        """The BoundPlan for inputs that are donated, or not; None where there is none."""
        if settings.executor == "reference":
            return None
        with self.lock:
            if donates not in self.plans:
                try:
                    made = plans.new_plan(self.code, self.specs, self.wanted, self.free if donates else (),
                                          parts=moving_parts(self.code, self.moved))
                    self._bind(made, donates)
                except Unfusable:
                    self.plans[donates] = None
            return self.plans[donates]

    def adopt(self, plan, parts):
        """Take over a plan that was made for the same instructions, wanted and free slots, if it is ready, and if what
        the `parts` of its key say of moving offsets holds here."""
        if plan and plan.waiting is None and moves_alike(parts, self.moved):
            self._bind(plan, True)

    def _bind(self, plan, donates):
        bound = self.plans[donates] = BoundPlan(plan, self, donates)
        if donates and bound.program.is_native:
            self.bound = bound

    def with_numbers(self, numbers):
        """The instructions, with the numbers of this replay in their places."""
        if not self.numbers and not self.moved:
            return self.code
        code = moved_code(self.code, self.moved, numbers)
        for (index, number), at in self.numbers.items():
            one = code[index]
            params = (*one.params[:number], numbers[at], *one.params[number + 1:])
            code[index] = Instruction.of(one.entry, one.slots, one.offsets, params, one.first, one.site)
        return code

    def held(self, values):
        """The Values of the inputs by slot; None for the others."""
        by_slot = [None] * len(self.specs)
        for slot, value in zip(self.inputs, values, strict=True):
            by_slot[slot] = value.ready()
        return by_slot

    def _refill(self, values, numbers, happened):
        """Run the instructions that have not `happened` through a trace of their own."""
        trace = Trace()
        with trace.lock:                                     # another thread may run every trace there is
            outs = self._fill(trace, values, numbers, happened)
        try:
            for value in outs:
                value.ready()
        except BaseException:
            with trace.lock:
                trace.clear()                                # the call ends here, and with it what it had still to do
            raise
        return outs


    def _fill(self, trace, values, numbers, happened):
        """Put the instructions into a trace; gives the Values of the wanted slots, and holds no others: those would be
        computed too."""
        by_slot, code = self.held(values), []
        for index, instruction in enumerate(self.with_numbers(numbers)):
            for number, slot in enumerate(instruction.results()):
                if index in happened:
                    by_slot[slot] = Value.of(happened[index][number], self.specs[slot])
                else:
                    value = by_slot[slot] = Value()
                    value.trace, value.slot, value.spec = trace, slot, self.specs[slot]
            if index not in happened:
                code.append(instruction)
        outs, trace.values = [by_slot[slot] for slot in self.wanted], by_slot
        trace._keep(code)
        return outs


class BoundPlan(BoundBase):
    """A plan bound to the inputs, results and numbers of a Runner."""

    def __init__(self, plan, runner, donates):
        self.plan, self.runner = plan, runner
        self.free = [runner.position_of[slot] for slot in sorted(runner.free)] if donates else []
        positions = runner.position_of if plan.is_native else None            # other steps find their operands by slot
        self.program = plan.program.bind(positions, {slot: at for at, slot in enumerate(runner.wanted)},
                                         runner.numbers, runner.code, runner.moved)

    def _run_step_by_step(self, values, numbers, made, happened, observed):
        """With steps of the reference executor between the native ones."""
        runner = self.runner
        by_slot, code = runner.held(values), runner.with_numbers(numbers)
        made[:] = [None] * len(made)              # such a run may fail in the middle, so nothing is written over

        def perform(index, arrays):
            happened[index] = given = effects.call(code[index], arrays)
            return given

        return self.program.run(by_slot, made, numbers, code, observed, None, None, perform)
