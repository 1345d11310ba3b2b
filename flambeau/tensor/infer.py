"""What a call will give, before there is data: its Entry, found again by the operation, specs and parameters.

Note [Keys]: what of its arguments decides what a call gives. Of a tensor it is the spec; of a number that takes part in
arithmetic its class, so that a changing learning rate is one entry; of any other number the class and the number, since
True, 1 and 1.0 are equal to Python. A list counts as a tuple, and a tuple of whole numbers as itself; in any other the
classes count too, and tensors in it are the whole numbers they hold. A list of tensors is the tuple of their specs.
Everything else counts as itself.

`find` makes the key. `calls` has it from the arguments as they were given, so that a call like one before need not be
bound; `entries` has it from all arguments. The forms of single operations (forms.py) know in small tables of their own,
for one or two operands, what `find` has said of them before: a dictionary by the spec, and no key at all.
"""
from operator import itemgetter

import numpy as np

from ..base import dtypes, limited_dtypes, shapes
from ..base.arguments import LEAST_INT, MOST_INT, beyond_64_bits, fitted_places, fitting, rounded_places
from ..base.entry import Entry
from ..base.errors import need
from ..base.op import NUMBER_CLASSES, check_devices, known
from ..base.spec import META, Spec, device, forget_unused, spec
from .messages import call_words, explained
from .overrides import tensor_types
from .tensor import Tensor

entries: dict = {}            # (operation, specs and parameters of a call) → Entry
calls: dict = {}              # (operation, arguments as they were given) → (Entry, what binds such arguments)
tables: list = []             # what the forms remember of it for themselves
number_types = frozenset(NUMBER_CLASSES)
plain_types = {*NUMBER_CLASSES, type(None), str, dtypes.dtype, device}
UNKNOWN_KEY = (None, None, None, None)


def forget():
    """Infer every call anew, since what it gives may have changed."""
    entries.clear()
    calls.clear()
    for table in tables:
        table.clear()


dtypes.on_default_change.append(forget)


def prepared(op):
    """The facts of an operation that is called for the first time."""
    op.prepare()
    return known[op]


def find(op, facts, args, kwargs, bound=False):
    """(key, entry, all arguments, tensors) of a call like one before; the entry is None if there was none.

    The one place that says what counts of an argument: see Note [Keys]. The arguments are as the caller gave them, and
    those of a call like one before are bound as they were then. What may belong to somebody's `__torch_function__`, and
    what is rare, is not looked for: the key is None then. With `bound` they are all there, in the order of the
    signature, nobody is asked any more, and everything has a key.
    """
    # No variable of this function may stand in a comprehension's inside: Python would keep it in a cell, and read it
    # more slowly everywhere.
    key, inputs, typed, at = [op], [], facts.typed, 0
    for a in args:
        c = a.__class__
        if c is Tensor or c in tensor_types:
            inputs.append(a)
            key.append(a._spec)
        elif c in number_types:
            key.append(c)
            if not typed[at]:
                key.append(a)
            elif c is int and not LEAST_INT <= a <= MOST_INT:
                beyond_64_bits(a)
        elif c in plain_types:
            key.append(a)
        elif c is tuple or c is list or bound and isinstance(a, (tuple, list)):
            if c is not tuple:
                a = tuple(a)
                args = (*args[:at], a, *args[at + 1:])
            if facts.lists and any(isinstance(b, Tensor) for b in a):
                for i, b in enumerate(a):
                    if b.__class__ in tensor_types or bound and isinstance(b, Tensor):
                        inputs.append(b)
                    elif b is not None:
                        if not bound:
                            return UNKNOWN_KEY
                        raise TypeError(f"{op.__name__.strip('_')}(): expected Tensor as element {i} in argument {at}, "
                                        f"but got {type(b).__name__}")
                key.append(tuple([None if b is None else b._spec for b in a]))
            else:
                key.append(a)
                for b in a:
                    if b.__class__ is not int:
                        if not bound:
                            return UNKNOWN_KEY
                        if any(isinstance(b, Tensor) for b in a):     # its contents count, and they may change
                            return find(op, facts, (*args[:at], numbers_in(a, op, at), *args[at + 1:]), None, True)
                        key.append(classes(a))
                        break
        elif not bound:
            return UNKNOWN_KEY
        elif isinstance(a, Tensor):                       # of a class that overrides: its overrides are set aside
            inputs.append(a)
            key.append(a._spec)
        elif isinstance(a, np.generic):                   # a NumPy scalar counts as the Python number it holds
            return find(op, facts, (*args[:at], a.item(), *args[at + 1:]), None, True)
        else:
            key.append(c)                                 # float is not what 1.0 is, in arithmetic, which is float too
            key.append(a)
        at += 1
    if bound:
        key = tuple(key)
        try:
            return key, entries.get(key), args, inputs
        except TypeError:
            raise TypeError(call_words(op, args) + ": an argument of a type it cannot take") from None
    if kwargs:
        key.append(UNKNOWN_KEY)                                # from here on there are names
        for name, a in kwargs.items():
            c = a.__class__
            if c not in plain_types or name == "out":
                return UNKNOWN_KEY
            key.append(name)
            key.append(c)
            if name not in facts.typed_names or c not in number_types:
                key.append(a)
            elif c is int and not LEAST_INT <= a <= MOST_INT:
                beyond_64_bits(a)
    key = tuple(key)
    found = calls.get(key)
    if found is None:
        return key, None, None, None
    entry, binder = found
    if binder.__class__ is not tuple:
        args = binder((*args, *kwargs.values(), *facts.defaults))
    elif binder:
        args = args + binder
    return key, entry, args, inputs


def remember(given, entry, binder):
    """Have `find` find `entry` for calls whose arguments, as given, have the key `given`; `binder` then binds them."""
    if len(calls) > 100_000:
        calls.clear()
    calls[given] = (entry, binder)


def classes(a):
    """The classes of what is in a tuple, by which it is kept apart from others that are equal to it."""
    return tuple([classes(b) if b.__class__ is tuple else b.__class__ for b in a])


def check_fits(entry, args):
    """Refuse a number that the dtype of the computation cannot hold, where the operation asks for it."""
    for at, dtype in entry.fits:
        n = args[at]
        if n.__class__ is not int or not -129 < n < 128:             # these are in every dtype
            try:
                # The kernels of real dtypes take no complex number, even one without an imaginary part.
                fitting(n if n.__class__ is not complex or dtype.is_complex else 1j, dtype)
            except Exception as error:
                if getattr(error, "refusal", False):
                    raise explained(error, entry.op, args) from None
                raise


def number_in(tensor, name, at):
    """The whole number that a tensor stands for."""
    if tensor._spec.numel != 1 or tensor._spec.dtype.category > 1:
        raise TypeError(f"argument '{name}' (position {at + 1}) must be int, not Tensor: it is {tensor._spec}")
    return int(tensor.item())


def numbers_in(group, op, at):
    """A tuple at place `at`, with the whole numbers that tensors in it stand for."""
    return tuple([number_in(b, op.arg_names[at], at) if isinstance(b, Tensor) else b for b in group])


def tensor_slots(op, args):
    """(template, tensors) of bound arguments. The template has for each the number of its tensor, a tuple of them for a
    list of tensors, or None."""
    template, tensors = [], []
    for a in args:
        if isinstance(a, Tensor):
            template.append(len(tensors))
            tensors.append(a)
        elif op.lists and isinstance(a, (tuple, list)) and any(isinstance(b, Tensor) for b in a):
            slots = []
            for b in a:
                if isinstance(b, Tensor):
                    slots.append(len(tensors))
                    tensors.append(b)
                else:
                    slots.append(None)
            template.append(tuple(slots))
        else:
            template.append(None)
    return tuple(template), tensors


def infer_entry(op, args, key):
    """Infer a call that was not seen before; refusals get their call, names and lines here."""
    template, tensors = tensor_slots(op, args)
    kinds = [t._spec for t in tensors]
    param_at = [at for at, slot in enumerate(template) if slot is None]
    seen = []                                             # the arguments as `meta` and `view` see them
    for a, slot, typed in zip(args, template, known[op].typed, strict=False):
        if slot.__class__ is int:
            seen.append(a._spec)
        elif slot is not None:
            seen.append(tuple([None if b is None else b._spec for b in a]))
        else:
            seen.append(a.__class__ if typed and a.__class__ in number_types else a)
    entry = Entry()
    entry.op = op
    entry.kinds = tuple(kinds)
    entry.template = template
    entry.param_at = tuple(param_at)
    entry.pick = _picker(param_at)
    entry.zeros = (0,) * len(kinds)
    entry.simple = not param_at and not op.kwonly and not any(t.__class__ is tuple for t in template)
    entry.wrap = None
    entry.quick = entry.larger = False
    entry.deltas = entry.look = entry.fits = entry.rounded = None
    entry.recipes = {}
    try:
        op.check_flags(args)
        for at in param_at:                               # `meta` would take `float` for a number of that class
            if args[at] is seen[at] and seen[at].__class__ is type and known[op].typed[at]:
                need(False, f"argument '{op.arg_names[at]}' (position {at + 1}) must be "
                            f"{'Tensor' if op.operand_at[at] else 'Number'}, not type: got {args[at]}", TypeError)
        if op.is_view:
            return _view_entry(op, entry, seen, key)
        entry.device = check_devices(kinds, not op.pointwise)
        out, casts, common = op.infer(tuple(seen))
        limited_dtypes.check(op, tuple(seen), kinds, out, common)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    entry.many = out.__class__ is tuple or out.__class__ is list
    # A declared dtype alone says: the shape is known only when the reference has run.
    declared = tuple(out) if entry.many else (out,)
    entry.outs = tuple([o if o.dense else _gapless(o) for o in declared]) \
        if all(o.__class__ is Spec for o in declared) else None
    if entry.outs is not None and kinds == []:
        entry.device = entry.outs[0].device
    entry.rounded = rounded_places(op, seen, template, common)
    if casts is not None:
        casts = tuple(c if c != k.dtype.np else k.dtype.np for c, k in zip(casts, kinds, strict=True))
        if all(c is k.dtype.np for c, k in zip(casts, kinds, strict=True)):
            casts = None
    entry.casts = casts
    entry.compute = common
    if op.must_fit:
        entry.fits = fitted_places(op, seen, common or entry.outs[0].dtype)
    if common is not None and common.category == 1:
        entry.wrap = common.np
    entry.nbytes = sum(s.nbytes for s in entry.outs) if entry.outs is not None else 0
    entry.weight = sum(s.weight for s in entry.outs) if entry.outs is not None else 0
    entry.compiles = entry.device is not META and entry.device.backend.compiles \
        and all(s.device is entry.device for s in (*kinds, *(entry.outs or ())))
    entry.larger = _is_larger(entry) and (all_larger_noticed or _lacks_dimension(*kinds))
    entry.quick = _is_quick(entry)
    return _remembered(key, entry)


def _is_quick(entry):
    """Whether `record_one` does for a call: one result, on a device, nothing to verify or to look at."""
    op = entry.op
    return not entry.many and entry.outs is not None and entry.device is not META and not op.eager \
        and op.verify is None and not op.effect and not entry.larger


# --- results that are larger than both operands: see `larger_result` in watch/noticed.py ------------------------------


all_larger_noticed = False    # whether each such call is looked at, or those of (n, 1) with (n,) alone


def notice_all_larger(wanted):
    """Look at every call whose result is larger than both of its operands, or no longer."""
    global all_larger_noticed
    all_larger_noticed = wanted
    for entry in list(entries.values()):
        if getattr(entry, "outs", None) is not None and entry.op.pointwise and _is_larger(entry):
            entry.larger = wanted or _lacks_dimension(*entry.kinds)
            entry.quick = _is_quick(entry)
    for table in tables:                                  # which hold quick ones
        table.clear()


def _is_larger(entry):
    """Whether an operation on two tensors gives more elements than either has."""
    kinds = entry.kinds
    return entry.op.pointwise and len(kinds) == 2 and not entry.many \
        and entry.outs[0].numel > max(kinds[0].numel, kinds[1].numel)


def _lacks_dimension(one, other):
    """Whether one of two specs is (n, 1) where the other is (n,)."""
    column, row = (one, other) if one.ndim > other.ndim else (other, one)
    return column.shape == (*row.shape, 1)


def _gapless(kind):
    """The Spec of a result declared like a tensor with gaps: memory of its own has room for the elements alone."""
    return spec(kind.dtype, kind.shape, shapes.preserved_strides(kind.shape, kind.strides), kind.device)


def _picker(positions):
    """A function that takes the arguments at `positions` out of a call's, as a tuple; None for none of them."""
    if not positions:
        return None
    first, last = positions[0], positions[-1]
    return itemgetter(slice(first, last + 1)) if last - first + 1 == len(positions) else itemgetter(*positions)


def _remembered(key, entry):
    """Keep the entry for the next call of its kind. A program with ever new shapes starts afresh now and then."""
    if len(entries) > 100_000:
        forget()
        forget_unused()
    entries[key] = entry
    return entry


def _view_entry(op, entry, seen, key):
    kind = seen[0]
    made = op.view(*seen)
    entry.many = made.__class__ is list
    looks = made if entry.many else [made]
    entry.outs = tuple(spec(look[3] if len(look) > 3 else kind.dtype, tuple(look[0]), tuple(look[1]), kind.device)
                       for look in looks)
    entry.deltas = tuple(look[2] for look in looks)
    if len(looks) == 1 and not entry.many and op.differentiable and entry.outs[0].dtype is kind.dtype:
        entry.look = (entry.outs[0], entry.deltas[0])
    entry.device = kind.device
    entry.casts = None
    return _remembered(key, entry)


def ruled_entry(op, args):
    """What `add_history` needs to know of a composite's call, kept by the specs of its tensors and where they stand."""
    template, tensors = tensor_slots(op, args)
    key = (op, template, *[t._spec for t in tensors])
    entry = entries.get(key)
    if entry is None:
        entry = entries[key] = Entry()
        entry.op = op
        entry.kinds = key[2:]
        entry.template = template
        entry.param_at = tuple(at for at, slot in enumerate(template) if slot is None)
        entry.recipes = {}
        entry.outs = None
    return entry, tensors
