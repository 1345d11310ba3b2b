"""Follow instead of record: what a function over tensors recorded once is recorded again without its Python.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.

Note [Followed functions]: the rules of gradients, and composites, decide by the specs of their tensors, by whether
these want a gradient, and by their other arguments. So a call like one before comes to the same operations over other
tensors. One of them is taped (`trace.tape` has what `record_one`, `record_several` and `view_one` made), and from the
next on the tape is followed: the same entries, with the tensors of this call, whose data is verified, and their history
as ever. What did anything else meanwhile cannot be followed, and False stands in the place of its tape: it looked at
contents, wrote or drew in place, read what has a shape that data made, warned or told `watch`, moved something to
another device, made a leaf that wants a gradient, or took a tensor from elsewhere. Composites that decide by more than
the key says declare it: `by_specs = False`; tests/tensor/test_follow.py reads the code of all others. Nothing is
followed while a mode has to be asked or new tensors go elsewhere than to the CPU, and nothing is taped that was given
the same tensor twice.

A composite with rules of its own is one step of a tape, which has a tape of its own and makes one node.
"""
from math import copysign

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..autograd.node import NUMBER
from ..autograd.walk import by_rules, fetch
from ..base import errors
from ..base.entry import ANY_VIEW, CHECKED, DETACHED, LONG_WAY, ONE_VIEW, RULED
from ..base.op import door, known
from ..base.spec import CPU, Size, _default_devices as new_tensors_go_to
from ..trace.recording.record import _local
from ..trace.running import quick
from ..trace.value import TensorBase, looks
from . import overrides
from .call import record_long
from .composite import NOT_REPLAYABLE, as_one_node, call_composite
from .find import plain_types
from .infer import prepared, tables
from .messages import explained
from .overrides import tensor_types
from .recorder import record_one, record_several
from .tensor import Tensor
from .verify import verify
from .views import view_any, view_one

MAX_TAPES = 20_000            # some fifty MiB of them
NO_VALUE = object()           # of an argument that is a tensor
WANTS_GRADIENT = object()     # in a key, behind the spec of a tensor that does
MAX_SIGHTED = 20_000          # keys alone, of which most never come again
tapes: dict = {}              # key of a call → Tape, False where it cannot be followed
sighted: set = set()          # the keys of calls of composites that came by once
latest: dict = {}             # BackwardRecipe → (key of the last backward by it, without itself; its Tape)
tables.extend((tapes, sighted, latest))
questions = vars(overrides)   # the module's dict: saves one attribute lookup per call


class TapedCall:
    """One operation of a Tape: `args` are all its arguments, with NO_VALUE where tensors go, `tensor_args` the
    (position, number of the tensor) of those, `list_args` the (position, numbers) of lists of tensors, with None where
    there is none, `inputs` the numbers of its tensors. A view may be `owned`: made a tensor of its own, since nothing
    else holds what it looks at. A composite with rules has its own Tape, `inner`, over its inputs."""

    __slots__ = ("entry", "args", "tensor_args", "list_args", "inputs", "params", "owned", "inner")

    def __init__(self, entry, args, tensor_args, list_args, inputs, params, owned, inner):
        self.entry, self.args, self.tensor_args, self.list_args = entry, args, tensor_args, list_args
        self.inputs, self.params, self.owned, self.inner = inputs, params, owned, inner

    def with_tensors(self, tensors):
        """All arguments, with tensors out of the list `tensors`."""
        args = list(self.args)
        for at, number in self.tensor_args:
            args[at] = tensors[number]
        for at, numbers in self.list_args:
            args[at] = tuple([None if number is None else tensors[number] for number in numbers])
        return tuple(args)


class Tape:
    """The operations that a call came to. Tensors are numbered: those it was given, and then what each step made.

    `made` is what it gave: the number of a tensor, None, or a list of such where it was `several`: a list or tuple of
    that class, else None.
    """

    __slots__ = ("steps", "made", "several")

    def __init__(self, steps, made, several):
        self.steps, self.made, self.several = steps, made, several


def follow(trace, tape, tensors):
    """What a call like the one that was taped gives for those in the list `tensors`, to which it adds its own."""
    wants_args = modes.grad or trace.tape is not None         # only nodes and tapes ask for all arguments
    args = None
    for step in tape.steps:
        entry = step.entry
        if wants_args or entry.way == CHECKED or entry.way > ONE_VIEW:
            args = step.with_tensors(tensors)
            if entry.way == CHECKED:
                verify(entry.op, args, entry.device)
        if entry.way == ONE_VIEW:
            seen = view_one(entry, args, tensors[step.inputs[0]], 0)
            if step.owned:
                seen._base = seen._view_of = None
            tensors.append(seen)
            continue
        inputs = tuple([tensors[number] for number in step.inputs])
        if entry.way > ONE_VIEW:
            if entry.way == RULED:
                made = as_one_node(entry, args, inputs, follow, trace, step.inner, list(inputs))[0]
            elif entry.way == ANY_VIEW:
                made = view_any(entry, entry.op, args, inputs[0], 0)
            elif entry.way == DETACHED:
                made = inputs[0].detach()
            else:
                made = record_long(entry, entry.op, args, inputs, step.params)
            tensors.extend(made) if entry.many else tensors.append(made)
        elif entry.many:
            tensors.extend(record_several(entry, args, inputs, step.params))
        else:
            tensors.append(record_one(entry, args, inputs, step.params))
    if tape.several is None:
        return tensors[tape.made]
    results = [None if number is None else tensors[number] for number in tape.made]
    return results if tape.several is list else tuple(results) if tape.several is tuple else \
        tape.several._make(results)


def taped(trace, key, function, args, given):
    """What `function(*args)` gives; notes under `key` how it can be followed. `given`: all tensors it is given."""
    outer, before, emptied, looked, told = trace.tape, _count(trace), trace.emptied, looks(), errors.told
    versions = [t._storage.version for t in given]
    trace.tape = tape = []
    try:
        made = function(*args)
    finally:
        trace.tape = outer
    if outer is not None:
        outer.extend(tape)
    # A run in between that came without a look was a bound's, or one for memory that the outside holds. After any
    # other the next call may tell.
    recorded, seen = _recorded(tape)
    no_look = looked + seen == looks()
    if _local.trace is trace and (trace.emptied == emptied or no_look):
        if len(tapes) >= MAX_TAPES:
            forget_tapes()
        tapes[key] = no_look and told == errors.told and _count(trace) - before == recorded \
            and versions == [t._storage.version for t in given] and _as_tape(tape, given, made)
    return made


def _recorded(tape):
    """(how many instructions the calls of a tape have recorded, how many tensors those run at the call looked at)."""
    count = seen = 0
    for one in tape:
        if one is NOT_REPLAYABLE or one.moved >= 0:
            continue
        if one.inner is not None:
            more, looked = _recorded(one.inner[0])
            count, seen = count + more, seen + looked
        elif one.entry.way == LONG_WAY:
            seen += len(one.inputs)
        else:
            count += 1
    return count, seen


def forget_tapes():
    """Follow nothing that was taped so far."""
    sighted.clear()
    tapes.clear()
    latest.clear()


def _count(trace):
    """How many instructions were ever appended to a trace, as far as that can be said."""
    return trace.gone + len(trace.code)


def all_differ(given):
    """Whether no tensor is given twice. Who taped `x * x` could not say which of the two an operation had read."""
    return len(set(map(id, given))) == len(given)


def _as_tape(taken, given, made):
    """What was taken down as a Tape; False if it reads a tensor from elsewhere."""
    if any(one is NOT_REPLAYABLE for one in taken):
        return False
    number_of = {id(t): number for number, t in enumerate(given)}
    steps, count, first_of_data = [], len(given), 1 << 30          # the number of the first result of unknown shape
    for call in taken:
        entry, moved = call.entry, call.moved
        positions = tuple([(at, number_of.get(id(a))) for at, a in enumerate(call.args) if isinstance(a, Tensor)])
        lists = tuple([(at, tuple([None if b is None else number_of.get(id(b)) for b in a]))
                       for at, a in enumerate(call.args) if _has_tensors(a)])
        numbers = tuple([number_of.get(id(t)) for t in call.inputs])
        if None in numbers or moved > 0:          # it may have been reckoned from where the tensor starts
            return False
        if any(number >= first_of_data for number in numbers):
            return False
        if entry.way == LONG_WAY and entry.outs is None:
            first_of_data = min(first_of_data, count)
        if entry.way == DETACHED and call.result._data_version is not call.inputs[0]._data_version:
            return False                          # it is `.data`
        results = call.result if entry.many else (call.result,)
        for one in results:
            if moved < 0 and (one._storage.version or one._requires_grad and one._node is None) \
                    or one._spec.device is not (given[0]._spec.device if given else CPU):
                return False
            if entry.way == ANY_VIEW and entry.op.differentiable and one._base is None:
                return False                      # it was made a tensor of its own
            number_of[id(one)] = count
            count += 1
        plain = tuple([NO_VALUE if isinstance(a, Tensor) or _has_tensors(a) else a for a in call.args])
        owned = entry.way == ONE_VIEW and call.result._base is None
        inner = _as_tape(call.inner[0], list(call.inputs), call.inner[1]) if call.inner is not None else None
        if inner is False:
            return False
        steps.append(TapedCall(entry, plain, positions, lists, numbers, call.params, owned, inner))
    several = made.__class__ if isinstance(made, (tuple, list)) else None
    if several not in (None, list, tuple) and not hasattr(several, "_make"):
        return False
    found = [None if t is None else number_of.get(id(t), -1) for t in ((made,) if several is None else made)]
    if -1 in found or several is None and found[0] is None:
        return False
    return Tape(tuple(steps), found[0] if several is None else found, several)


def _has_tensors(a):
    return isinstance(a, (tuple, list)) and any(isinstance(b, Tensor) for b in a)


# --- gradients -------------------------------------------------------------------------------------------------------


def gradients(node, grads):
    """The gradients of a node (autograd/walk.py), followed if a call like it was taped before."""
    trace = quick.this_trace()
    recipe = node.recipe
    if trace.special or questions["regions"]:
        return by_rules(node, grads, None)
    key, given, values = [modes.grad], [], []     # a rule may take a way that has no derivative where none is asked for
    for g in grads:
        if g is None:
            key.append(None)
        elif type(g) is not Tensor and type(g) not in tensor_types:
            return by_rules(node, grads, None)
        else:
            key.append(g._spec)
            if requires(g):
                key.append(WANTS_GRADIENT)
            given.append(g)
    for wanted in recipe.fetched:
        how = wanted[0]
        value = fetch(node, how, wanted[1])
        values.append(value)
        if how == NUMBER:
            if not is_plain(value):
                return by_rules(node, grads, None)
            noted(key, value)
        elif type(value) is tuple:                # all results of several
            return by_rules(node, grads, None)
        elif value is not None:
            tensor: TensorBase = value
            key.append(tensor._spec)              # a hook may have laid it out in another way than it was
            if requires(tensor):
                key.append(WANTS_GRADIENT)
            given.append(tensor)
    last = latest.get(recipe)
    if last is not None and same(last[0], key):
        return follow(trace, last[1], given)
    whole = (recipe, *key)
    table = tapes
    found = table.get(whole)
    if found:
        latest[recipe] = key, found
        return follow(trace, found, given)
    fetched = dict(zip(recipe.fetched, values, strict=True))
    if found is None and all_differ(given):
        return taped(trace, whole, by_rules, (node, grads, fetched), given)
    return by_rules(node, grads, fetched)


def same(one, two):
    """Whether two lists hold the same objects."""
    if len(one) != len(two):
        return False
    for at in range(len(one)):
        if one[at] is not two[at]:
            return False
    return True


def is_plain(value):
    """Whether an argument is one whose value can stand in a key: equal ones have to be the same, or zeros (`noted`)."""
    c = type(value)
    if c is tuple or c is Size or c is list:
        for part in value:
            if type(part) is not int and part is not None:
                return False
        return True
    return c in plain_types and c is not complex and (c is not float or value == value)


def noted(key, value):
    """Write a plain value into a key."""
    c = type(value)
    key.append(c)
    key.append(value if c is not list else tuple(value))
    if c is float and value == 0.0:               # as -0.0 is
        key.append(copysign(1.0, value) > 0)


door.gradients = gradients


# --- composites ------------------------------------------------------------------------------------------------------


def is_new(key):
    """Whether a call of this key comes by for the first time. Of those with a number that is another one every time
    none comes by again, and to tape them would be for nothing."""
    if key in sighted:
        return False
    if len(sighted) >= MAX_SIGHTED:
        sighted.clear()
    sighted.add(key)
    return True


def noted_list(key, several, given):
    """Write a list with tensors into a key, and those into `given`; False where another class than ours is in it."""
    key.append(type(several))
    key.append(len(several))
    for a in several:
        c = type(a)
        if a is None:
            key.append(None)
        elif c is Tensor or c in tensor_types:
            tensor: TensorBase = a
            key.append(tensor._spec)
            if requires(tensor):
                key.append(WANTS_GRADIENT)
            given.append(a)
        else:
            return False
    return True


def is_elsewhere(given):
    """Whether one of these tensors is on another device than the CPU."""
    for t in given:
        if t._spec.device is not CPU:
            return True
    return False


def followed(op, args, kwargs):
    """What a composite that is `by_specs` gives; None where its own way is to be gone.

    No argument's class needs to be asked whether it takes the call: they are plain tensors and plain values.
    """
    trace = quick.this_trace()
    if trace.special or questions["regions"] or new_tensors_go_to[-1] is not CPU:
        return None
    facts = known.get(op)
    if facts is None:
        facts = prepared(op)
    if not facts.follows or len(args) > facts.most_followed:
        return None
    key = [op, len(args), modes.grad]
    given = []
    for a in args if not kwargs else (*args, *kwargs.values()):
        c = type(a)
        if c is Tensor or c in tensor_types:
            tensor: TensorBase = a
            key.append(tensor._spec)
            if requires(tensor):
                key.append(WANTS_GRADIENT)
            given.append(a)
        elif is_plain(a):
            noted(key, a)
        elif c is not list and c is not tuple or not noted_list(key, a, given):
            return None
    if facts.only_on_cpu and is_elsewhere(given):
        return None
    if kwargs:
        where = kwargs.get("device")
        if "out" in kwargs or "pin_memory" in kwargs or where is not None and where != "cpu" and where != CPU:
            return None                           # "cuda" may be another one the next time
        key.extend(kwargs)
    whole = tuple(key)
    table = tapes
    found = table.get(whole)
    if found is False or found is None and (is_new(whole) or not all_differ(given)):
        return None
    outer = trace.site
    if outer is None:
        trace.site = quick.here()
    try:
        if found is None:
            return taped(trace, whole, call_composite, (op, facts, args, kwargs), given)
        return follow(trace, found, given)
    except Exception as error:
        if found is not None and getattr(error, "refusal", False):            # of what a step was to read
            raise explained(error, op, args, kwargs) from None
        raise
    finally:
        trace.site = outer
