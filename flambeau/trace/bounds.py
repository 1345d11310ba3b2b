"""What whole numbers can be, known from how they are computed.

Note [Known bounds]: a check at the call that looks at positions has everything run that was recorded before it, and so
cuts the trace of a rollout, of k-means or of a detector into many. But mostly it can only pass: positions out of an
`argmax` exist. So an operation says what its results can be (`bounds` in base/op.py), and a check that asks no more of
its tensors than that (`by_bounds`) is given these pairs first. They are found when a check asks, by going back over
the recorded instructions: from a pending Value to what it reads, some levels deep, down to contents that are there and
small, which are measured. What is found stays with the Value, which never changes; calls that no check asks about pay
nothing. Where the pairs do not do, the check is made with the data, as ever, and refuses in the words it always had.

Contents that are there are measured as a whole, once: a batch of class numbers is a view of them, and the next step
takes another one. Memory that is seen from outside changes unseen, so nothing is known of it (Note [Exported storages]
in value.py). What will be repeated over other contents (the `reader` of a trace) goes by the instructions alone.
"""
from bisect import bisect_right
from operator import attrgetter

from ..base import dtypes, once
from ..base.bounds import FEW_ELEMENTS, Bounds, hull, number
from ..base.op import known
from ..base.spec import CPU, Spec
from .recording import record
from .recording.update import update

MAX_DEPTH = 24                # instructions that are gone back over, one after the other
MAX_JOINED = 8                # tensors in a list: to go back over more takes longer than to compute what they join
MAX_MEASURED_ELEMENTS = 1 << 16   # of contents that something pending reads: a look costs some such time, too
LEAST_KEPT_ELEMENTS = 1 << 10     # of contents that a check looks at: fewer are looked at in less time than asked about
MAX_OVERSIZE = 8              # how many times what a check looks at may lie around it, and be measured as well
# Classes of parameters; a number that a repetition has anew (compiler/traced.py) says that it is of one, and is not.
PLAIN_PARAMETERS = frozenset((bool, int, float, complex, str, tuple, list, type(None)))
first_slot = attrgetter("first")


@once.cache
def range_of(dtype):
    """What numbers of a dtype can be at all; None of what are no whole numbers."""
    if dtype.category > 1 or dtype.np is None or dtype.family == "quantised":
        return None
    info = None if dtype is dtypes.bool else dtypes.iinfo(dtype)
    return (0, 1) if info is None else (info.min, info.max)


def bounds_of(tensor, trace, measures):
    """What is known of a tensor's elements, for a check, as Bounds; None where that is no more than their dtype says.

    `measures`: whether contents that are there may be asked, too.
    """
    spec, storage = tensor._spec, tensor._storage
    dtype, value = spec.dtype, storage.value
    if range_of(dtype) is None or dtype.itemsize == 1 or storage.exported:       # bytes in an index are a mask
        return None
    kept = getattr(value, "bounds", None) if measures or value.trace is trace else None
    if kept is None:
        if value.trace is not None:
            pair = _found(value, dtype, trace, MAX_DEPTH, measures)
        elif measures and LEAST_KEPT_ELEMENTS <= spec.numel and value.spec.nbytes <= MAX_OVERSIZE * spec.nbytes:
            pair = _measured(value, dtype)
        else:
            return None
    elif kept[0] is dtype:
        pair = kept[1]
    else:
        return None
    return None if pair == range_of(dtype) else Bounds(*pair, spec.shape, spec.numel, dtype.np)


def pending_bounds(tensor):
    """The pair of a tensor that is pending here: of one that is there, or whose pair is not known, None."""
    trace = record._local.trace
    if tensor._storage.value.trace is not trace:
        return None
    found = bounds_of(tensor, trace, trace.reader is None)
    return found and (found.low, found.high)


def declare(tensor, low, high):
    """Keep with the contents of a tensor, which are there, what they can be."""
    value, dtype = tensor._storage.value, tensor._spec.dtype
    if value is not None and value.trace is None and dtype.category == 1:
        value.bounds = (dtype, (low, high))


def give_up(tensor):
    """The check that asked needs the contents: no other need ask for the bounds of these."""
    value = tensor._storage.value
    value.bounds = (tensor._spec.dtype, range_of(tensor._spec.dtype))


def _measured(value, dtype):
    """The pair of contents that are there, kept with them; all that the dtype can be, where they stand elsewhere."""
    if value.spec.device is not CPU or value.array is None or value.spec.nbytes % dtype.itemsize:
        return range_of(dtype)
    array = value.array if value.spec.dtype is dtype else value.memory.view(dtype.np)
    if 0 < array.size <= FEW_ELEMENTS:
        numbers = array.reshape(-1).tolist()
        pair = int(min(numbers)), int(max(numbers))
    else:
        pair = (int(array.min()), int(array.max())) if array.size else (0, 0)
    value.bounds = (dtype, pair)
    return pair


def _found(value, dtype, trace, depth, measures):
    """The pair of a Value that holds numbers of `dtype`, which `trace` may have to compute; kept with it."""
    everything = range_of(dtype)
    if everything is None:
        return None
    if value.trace is None:
        if not measures:
            return everything
        if (kept := getattr(value, "bounds", None)) is not None:
            return kept[1] if kept[0] is dtype else everything
        return _measured(value, dtype) if value.spec.nbytes <= MAX_MEASURED_ELEMENTS * dtype.itemsize else everything
    if value.trace is not trace or not depth:
        return everything
    if (kept := getattr(value, "bounds", None)) is not None:
        return kept[1] if kept[0] is dtype else everything
    instruction = _maker(trace.code, value.slot)
    if instruction is None:
        return everything
    claimed = _updated if instruction.entry.op is update else _claimed
    made, pair = claimed(instruction, value.slot - instruction.first, trace, depth - 1, measures)
    if pair is None or not everything[0] <= pair[0] <= pair[1] <= everything[1]:       # it may wrap around
        pair = everything
    if made is not dtype:
        return everything
    value.bounds = (dtype, pair)
    return pair


def _maker(code, slot):
    """The instruction that gives a slot; None where another thread has just run it."""
    at = bisect_right(code, slot, key=first_slot) - 1
    return code[at] if at >= 0 and slot in code[at].results() else None


def _updated(instruction, number, trace, depth, measures):
    """(the dtype, the pair) of a storage that a tensor was written into."""
    target, source = instruction.entry.input_specs
    if source.dtype is not target.dtype:
        return target.dtype, None
    values = [_operand(trace, slot, source.dtype, depth, measures) for slot in instruction.slots]
    return target.dtype, hull(*values)


def _claimed(instruction, number, trace, depth, measures):
    """(the dtype, the pair) of a result of a declared operation, by what that says."""
    entry = instruction.entry
    claim = entry.claim
    if claim is None:
        claim = entry.claim = _claim_of(entry, instruction.params)
    if claim.__class__ is list:
        params, given = instruction.params, []
        for what, at in claim:
            if what is ITS_PAIR:
                given.append(_seen(entry, at, instruction, trace, depth, measures))
            elif what is ITS_PAIRS:
                given.append([_seen(entry, one, instruction, trace, depth, measures) for one in at])
            elif what is ITS_SPEC:
                given.append(at)
            elif type(params[at]) not in PLAIN_PARAMETERS:
                return entry.outs[number].dtype, None
            else:
                given.append(params[at] if what is AS_GIVEN else _number(params[at], entry.outs[number].dtype))
        found = entry.op.bounds(*given)
    else:
        found = claim[0]
    return entry.outs[number].dtype, found[number] if entry.many and found is not None else found


ITS_PAIR, ITS_PAIRS, ITS_SPEC, AS_GIVEN, AS_PAIR = range(5)


def _claim_of(entry, params):
    """How the `bounds` of an operation are asked: the result alone in a tuple, where all calls of the entry have the
    same; else what each parameter is given, and where it is."""
    op = entry.op
    if op.bounds is None:
        return (None,)
    asked = op.bounds.__code__.co_varnames[:op.bounds.__code__.co_argcount]
    claim, constant = [], []
    for name in asked:
        at = op.arg_names.index(name.removesuffix("_spec"))
        tensors = entry.template[at]
        if tensors is None:
            number_of = entry.param_at.index(at)
            claim.append((AS_PAIR if op.pointwise and op.operand_at[at] else AS_GIVEN, number_of))
            if not known[op].typed[at]:                   # it is in the entry's key
                constant.append(params[number_of])
        elif tensors.__class__ is tuple:
            if len(tensors) > MAX_JOINED:
                return (None,)
            claim.append((ITS_PAIRS, [one for one in tensors if one is not None]))
        elif name.endswith("_spec"):
            claim.append((ITS_SPEC, entry.input_specs[tensors]))
            constant.append(entry.input_specs[tensors])
        else:
            claim.append((ITS_PAIR, tensors))
    if op.pointwise or len(constant) < len(claim) or any(type(c) not in PLAIN_PARAMETERS | {Spec} for c in constant):
        return claim
    return (op.bounds(*constant),)


def _seen(entry, at, instruction, trace, depth, measures):
    """The pair of the tensor number `at` of a call, as the operation sees it."""
    dtype = entry.input_specs[at].dtype
    pair = _operand(trace, instruction.slots[at], dtype, depth, measures)
    if pair is None or entry.casts is None:
        return pair
    limits = range_of(dtypes.from_numpy(entry.casts[at]))
    return pair if limits is None or limits[0] <= pair[0] <= pair[1] <= limits[1] else limits


def _operand(trace, slot, dtype, depth, measures):
    """The pair of what an instruction reads; None of floats."""
    values = trace.values
    value = values[slot] if slot < len(values) else None          # another thread may just have run it all
    return range_of(dtype) if value is None else _found(value, dtype, trace, depth, measures)


def _number(given, dtype):
    """The pair of a number in the place of a tensor; that of the dtype where it does not fit."""
    if given is None:
        return None
    everything = range_of(dtype)
    pair = number(given)
    return pair if pair and everything and everything[0] <= given <= everything[1] else everything
