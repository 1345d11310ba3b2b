"""Plans of calls that go element by element, which serve other sizes as well.

Note [Families]: what goes element by element is the same code whatever the sizes; they are numbers of its program. So
such a call is brought to as few dimensions as its operands can be walked along, and those calls are a family that agree
in all of this but the size of the first: `[n, 128] + [128]` for any n, and what is contiguous with any shape. One of
them is planned, with a size that is a prime and divides no other, by which it is found in the kernel's loops again.
The plan of another one is that one with its own size in this place: some twenty microseconds instead of hundreds.
Batches of as many rows as happen to be chosen, sequences of ever new lengths: their calls run natively at first sight.
"""
from ...base.entry import Entry
from ...base.op import NUMBER_CLASSES
from ...base.shapes import contiguous_strides
from ...base.spec import spec as make_spec
from ..recording.instructions import Instruction
from ..running.program import NativeStretch

MAX_NUMEL = 1 << 18               # of results: for larger ones, kernels are chosen by what they are
PRIMES = (1009, 1013)             # sizes to plan with; their product is over MAX_NUMEL, so one divides no other size
MIN_MEMBERS = 4                   # how often calls of a family were run without a plan before one is made
MAX_CALL_FAMILIES = 4096
_families: dict = {}              # what calls of a family agree in → Family


class Family:
    """Calls that differ in a size. `times`: how often one was run without a plan; `member`: the instruction with the
    size `prime`, and the specs of what it reads; `plan`: its plan, None as long as there is none, False where there is
    none that serves others; `dim`, `factor`: the loop that goes over that size times a factor."""

    __slots__ = ("prime", "times", "member", "plan", "dim", "factor")

    def __init__(self, prime):
        self.prime, self.times, self.member, self.plan = prime, 0, None, None


def forget_families():
    """Plan them anew."""
    _families.clear()


def planned_by_family(instruction, reads, offsets, plan_of):
    """The plan of an instruction that `reads` these slots, by that of its family; None where there is none yet, False
    where it has none. `offsets`: those of a key. `plan_of(instruction, reads, offsets, specs)` gives a plan, None or
    False in the same way."""
    entry = instruction.entry
    walked = _walked(entry)
    if walked is None:
        return False
    sizes, strides = walked
    given = tuple([p.__class__ if p.__class__ in NUMBER_CLASSES else p for p in instruction.params])
    key = (entry.op, entry.casts, entry.rounded, entry.compute, entry.template, entry.param_at, given,
           tuple([spec.dtype for spec in (*entry.input_specs, *entry.outs)]), sizes[1:], strides, reads, offsets)
    try:
        family = _families.get(key)
    except TypeError:                             # a parameter without a hash
        return False
    if family is None:
        if len(_families) >= MAX_CALL_FAMILIES:
            _families.clear()
        prime = next(p for p in PRIMES if all(n % p for n in sizes[1:]))
        family = _families.setdefault(key, Family(prime))
    if family.plan is None:
        family.times += 1
        if family.times < MIN_MEMBERS:
            return None
        if family.member is None:
            family.member = _member(instruction, reads, (family.prime, *sizes[1:]), strides)
        member, specs = family.member
        plan = plan_of(member, reads, offsets, specs)
        if plan is None:
            return None
        family.plan = plan and _serves(family, plan) and plan
    return family.plan and _resized(family, sizes[0], entry, len(set(reads)))


def _walked(entry):
    """(sizes of the dimensions that all of an entry's operands can be walked along, the first of which another member
    of its family may have otherwise; for each operand its strides along them); None for what belongs to no family."""
    outs, op = entry.outs, entry.op
    shape = outs[0].shape if outs else ()
    if not op.pointwise or not entry.input_specs or not 2 <= outs[0].numel <= MAX_NUMEL \
            or any(spec.dtype.is_complex for spec in (*entry.input_specs, *outs)) \
            or any(out.shape != shape or out.strides != contiguous_strides(shape) for out in outs):
        return None
    sizes, strides, ndim = [], [[] for _ in entry.input_specs], len(shape)
    along = [(0,) * (ndim - spec.ndim) + tuple([0 if n == 1 else s for n, s in zip(spec.shape, spec.strides)])
             for spec in entry.input_specs]
    for d in range(ndim):
        n = shape[d]
        if n == 1:
            continue
        if sizes and all(one[-1] == a[d] * n for one, a in zip(strides, along)):
            sizes[-1] *= n
            for one, a in zip(strides, along):
                one[-1] = a[d]
        else:
            sizes.append(n)
            for one, a in zip(strides, along):
                one.append(a[d])
    return tuple(sizes), tuple([tuple(one) for one in strides])


def _member(instruction, reads, sizes, strides):
    """(an instruction of the same call over these sizes; the specs of the slots that it reads)."""
    entry, made = instruction.entry, Entry()
    for name in ("op", "many", "casts", "template", "simple", "param_at", "pick", "wrap", "zeros", "deltas", "device",
                 "compiles", "recipes", "way", "compute", "fits", "rounded", "larger"):
        setattr(made, name, getattr(entry, name))
    made.input_specs = tuple([make_spec(spec.dtype, sizes, one, spec.device)
                              for spec, one in zip(entry.input_specs, strides, strict=True)])
    made.outs = tuple([make_spec(out.dtype, sizes, None, out.device) for out in entry.outs])
    made.nbytes, made.weight = sum(s.nbytes for s in made.outs), sum(s.weight for s in made.outs)
    of = dict(zip(reads, made.input_specs, strict=True))
    offsets = made.zeros if instruction.offsets is entry.zeros else instruction.offsets
    return Instruction.of(made, reads, offsets, instruction.params, len(of), instruction.site), \
        tuple([of[number] for number in range(len(of))])


def _serves(family, plan):
    """Whether the plan of one member serves the others, with another size of a loop; which one, is noted."""
    program = plan.program
    if len(plan.steps) != 1 or plan.steps[0].kind != "kernel" or program.blocks or program.takes or program.before:
        return False
    launch = plan.steps[0].launch
    kernel, schedule = launch.kernel, launch.schedule
    found = [dim for dim, size in enumerate(launch.sizes) if size % family.prime == 0]
    if len(found) != 1 or kernel.reduced or kernel.cut is not None or launch.block or any(launch.at_strides) \
            or schedule.turned or schedule.streams or schedule.scratch is not None or _goes_by_size(kernel):
        return False
    family.dim, family.factor = found[0], launch.sizes[found[0]] // family.prime
    return True


def _goes_by_size(kernel):
    """Whether an expression of a kernel asks where it is, or how far its loops go."""
    stack = [e for one in kernel.passes for _, e in one.stores] + [e for _, e in kernel.finals]
    seen = set()
    while stack:
        e = stack.pop()
        if e.op in ("index", "size"):
            return True
        if id(e) not in seen:
            seen.add(id(e))
            stack.extend(e.args)
    return False


def _twin(thing):
    """A copy of what keeps its attributes in a dictionary; `copy` takes as long as all that is done here."""
    made = object.__new__(thing.__class__)
    made.__dict__.update(thing.__dict__)
    return made


def _resized(family, size, entry, first):
    """The family's plan, with the `size` of a member, whose results are the entry's, in the slots from `first` on."""
    plan, program, step = _twin(family.plan), _twin(family.plan.program), family.plan.steps[0]
    sizes = list(step.launch.sizes)
    sizes[family.dim] = size * family.factor
    step = step.over(*sizes)
    program.outputs = [(slot, entry.outs[slot - first], index) for slot, _, index in program.outputs]
    program.last = NativeStretch([step], program.last.program.over(step.launch))
    program.stretches = [program.last]
    plan.steps, plan.program, plan.bound = [step], program, program.bind()
    plan.bound.use_spares(False)                  # until it has come some times
    return plan
