"""What a call will give, before there is data: its Entry, which its operation keeps for the next call of its kind.

What of the arguments decides it is Note [Keys] in find.py, and where it is kept Note [What a call gives] in
base/entry.py.
"""
from operator import itemgetter

from ..base import dtypes, limited_dtypes, shapes
from ..base.arguments import fitted_places, fitting, rounded_places
from ..base.entry import ANY_VIEW, CHECKED, LONG_WAY, ONE_RESULT, ONE_VIEW, RULED, SEVERAL_RESULTS, Entry
from ..base.errors import need
from ..base.op import check_devices, known
from ..base.spec import META, Spec, make_room, on_too_many, spec
from .find import number_types
from .messages import explained
from .tensor import Tensor

MAX_REMEMBERED_CALLS = 50_000     # some three KiB each, with what is remembered elsewhere
n_entries = n_given = 0       # how many all operations have by now; about, where threads count at once
tables: list = []             # what is remembered of calls elsewhere


def forget():
    """Infer every call anew, since what it gives may have changed."""
    global n_entries
    forget_ways()
    for facts in known.copy().values():                   # to which another thread may add
        facts.entries.clear()
    n_entries = 0


def forget_ways():
    """Have every call go by way of `call`, which asks modes, and find its Entry anew."""
    global n_given
    for facts in known.copy().values():
        facts.given.clear()
        facts.operands.clear()
    n_given = 0
    for table in tables:
        table.clear()


dtypes.on_default_change.append(forget)
on_too_many.append(forget)


def prepared(op):
    """The facts of an operation that is called for the first time."""
    op.prepare()
    return known[op]


def remember(key, entry, binder):
    """Have `find` find `entry` for calls whose arguments, as given, have this key; `binder` then binds them."""
    global n_given
    if n_given > MAX_REMEMBERED_CALLS:
        forget_ways()
    known[entry.op].given[key] = (entry, binder)
    n_given += 1


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


def seen_arguments(op, args, template):
    """The arguments as `meta` and `view` see them."""
    seen = []
    for a, slot, typed in zip(args, template, known[op].typed, strict=False):
        if slot.__class__ is int:
            seen.append(a._spec)
        elif slot is not None:
            seen.append(tuple([None if b is None else b._spec for b in a]))
        else:
            seen.append(a.__class__ if typed and a.__class__ in number_types else a)
    return seen


def empty_entry(op, specs, template, param_at):
    """An Entry that says nothing of the results yet."""
    entry = Entry()
    entry.op = op
    entry.input_specs = tuple(specs)
    entry.template = template
    entry.param_at = tuple(param_at)
    entry.pick = _picker(param_at)
    entry.zeros = (0,) * len(specs)
    entry.simple = not param_at and not op.kwonly and not any(t.__class__ is tuple for t in template)
    entry.wrap = None
    entry.larger = False
    entry.deltas = entry.fits = entry.rounded = None
    entry.recipes = {}
    return entry


def infer_entry(op, args, key):
    """Infer a call that was not seen before; refusals get their call, names and lines here."""
    template, tensors = tensor_slots(op, args)
    specs = [t._spec for t in tensors]
    param_at = [at for at, slot in enumerate(template) if slot is None]
    seen = seen_arguments(op, args, template)
    entry = empty_entry(op, specs, template, param_at)
    try:
        op.check_flags(args)
        for at in param_at:                               # `meta` would take `float` for a number of that class
            if args[at] is seen[at] and seen[at].__class__ is type and known[op].typed[at]:
                need(False, f"argument '{op.arg_names[at]}' (position {at + 1}) must be "
                            f"{'Tensor' if op.operand_at[at] else 'Number'}, not type: got {args[at]}", TypeError)
        if op.is_view:
            return _view_entry(op, entry, seen, key)
        entry.device = check_devices(specs, not op.pointwise)
        out, casts, common = op.infer(tuple(seen))
        limited_dtypes.check(op, tuple(seen), specs, out, common)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    entry.many = out.__class__ is tuple or out.__class__ is list
    # A declared dtype alone says: the shape is known only when the reference has run.
    declared = tuple(out) if entry.many else (out,)
    entry.outs = tuple([o if o.dense else _gapless(o) for o in declared]) \
        if all(o.__class__ is Spec for o in declared) else None
    if entry.outs is not None and specs == []:
        entry.device = entry.outs[0].device
    entry.rounded = rounded_places(op, seen, template, common)
    if casts is not None:
        casts = tuple(c if c != k.dtype.np else k.dtype.np for c, k in zip(casts, specs, strict=True))
        if all(c is k.dtype.np for c, k in zip(casts, specs, strict=True)):
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
        and all(s.device is entry.device for s in (*specs, *(entry.outs or ())))
    entry.larger = _is_larger(entry) and (all_larger_noticed or _lacks_dimension(*specs))
    entry.way = way_of(entry)
    return _remembered(key, entry)


def way_of(entry):
    """The way in which calls of an entry are recorded: see base/entry.py."""
    op, outs = entry.op, entry.outs
    if entry.deltas is not None:
        common = not entry.many and op.differentiable and outs[0].dtype is entry.input_specs[0].dtype
        return ONE_VIEW if common else ANY_VIEW
    if outs is None or entry.device is META or op.eager or op.effect or entry.larger:
        return LONG_WAY
    if op.verify is not None:
        return CHECKED
    return SEVERAL_RESULTS if entry.many else ONE_RESULT


# --- results that are larger than both operands: see `larger_result` in watch/noticed.py ------------------------------


all_larger_noticed = False    # whether each such call is looked at, or those of (n, 1) with (n,) alone


def notice_all_larger(wanted):
    """Look at every call whose result is larger than both of its operands, or no longer."""
    global all_larger_noticed
    all_larger_noticed = wanted
    for op, facts in known.copy().items():
        for entry in list(facts.entries.values()) if op.pointwise else ():
            if entry.outs is not None and _is_larger(entry):
                entry.larger = wanted or _lacks_dimension(*entry.input_specs)
                entry.way = way_of(entry)
    forget_ways()                                         # some of which lead to `record_one` alone


def _is_larger(entry):
    """Whether an operation on two tensors gives more elements than either has."""
    specs = entry.input_specs
    return entry.op.pointwise and len(specs) == 2 and not entry.many \
        and entry.outs[0].numel > max(specs[0].numel, specs[1].numel)


def _lacks_dimension(one, other):
    """Whether one of two specs is (n, 1) where the other is (n,)."""
    column, row = (one, other) if one.ndim > other.ndim else (other, one)
    return column.shape == (*row.shape, 1)


def _gapless(like):
    """The Spec of a result declared like a tensor with gaps: memory of its own has room for the elements alone."""
    return spec(like.dtype, like.shape, shapes.preserved_strides(like.shape, like.strides), like.device)


def _picker(positions):
    """A function that takes the arguments at `positions` out of a call's, as a tuple; None for none of them."""
    if not positions:
        return None
    first, last = positions[0], positions[-1]
    return itemgetter(slice(first, last + 1)) if last - first + 1 == len(positions) else itemgetter(*positions)


def _remembered(key, entry):
    """Keep the entry for the next call of its kind. A program with ever new shapes starts afresh now and then."""
    global n_entries
    if n_entries > MAX_REMEMBERED_CALLS:
        make_room()
    n_entries += 1
    return known[entry.op].entries.setdefault(key, entry)


def _view_entry(op, entry, seen, key):
    view = seen[0]
    made = op.view(*seen)
    entry.many = made.__class__ is list
    looks = made if entry.many else [made]
    entry.outs = tuple(spec(look[3] if len(look) > 3 else view.dtype, tuple(look[0]), tuple(look[1]), view.device)
                       for look in looks)
    entry.deltas = tuple(look[2] for look in looks)
    entry.device = view.device
    entry.casts = None
    entry.way = way_of(entry)
    return _remembered(key, entry)


def ruled_entry(op, args):
    """What `add_history` needs to know of a composite's call, kept by the specs of its tensors and where they stand."""
    template, tensors = tensor_slots(op, args)
    key = (template, *[t._spec for t in tensors])
    entry = known[op].entries.get(key)
    if entry is None:
        entry = Entry()
        entry.op = op
        entry.input_specs = key[1:]
        entry.template = template
        entry.param_at = tuple(at for at, slot in enumerate(template) if slot is None)
        entry.recipes = {}
        entry.outs = None
        entry.many = True                                 # a list, however many there are
        entry.way = RULED
        entry = _remembered(key, entry)
    return entry, tensors
