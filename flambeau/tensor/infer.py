"""What a call will give, before there is data: its Entry, found again by the operation, specs and parameters."""
from operator import itemgetter

from ..base import dtypes, limited_dtypes, shapes
from ..base.arguments import LEAST_INT, MOST_INT, beyond_64_bits, fitted_places, fitting, rounded_places
from ..base.op import NUMBER_CLASSES, Entry, check_devices, known
from ..base.spec import META, Spec, device, forget_unused, spec
from .messages import explained
from .overrides import tensor_types
from .tensor import Tensor

entries: dict = {}            # (operation, specs and parameters of a call) → Entry
calls: dict = {}              # (operation, arguments as they were given) → (Entry, what binds such arguments)
tables: list = []             # what the forms remember of it for themselves
number_types = frozenset(NUMBER_CLASSES)
plain_types = {*NUMBER_CLASSES, type(None), str, dtypes.dtype, device}
UNSEEN = (None, None, None, None)


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


def seen(op, facts, args, kwargs):
    """(key, entry, all arguments, tensors) of a call like one before; the entry is None if there was none.

    The short way for plain tensors and numbers: nothing is bound, and no class asked whether it overrides. The key is
    None where other things are among the arguments.
    """
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
        elif c is tuple and not facts.lists:
            for b in a:
                if b.__class__ is not int:        # (1,) equals (True,) and (1.0,): `dispatch` keeps them apart
                    return UNSEEN
            key.append(a)
        else:
            return UNSEEN
        at += 1
    if kwargs:
        key.append(UNSEEN)                        # from here on there are names
        for name, a in kwargs.items():
            c = a.__class__
            if c not in plain_types or name == "out":
                return UNSEEN
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


def classes(a):
    """The classes of what is in a tuple, by which it is kept apart from others that are equal to it."""
    return tuple([classes(b) if b.__class__ in (tuple, list) else b.__class__ for b in a])


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


def infer_entry(op, args, key):
    """Infer a call that was not seen before; refusals get their call, names and lines here."""
    seen = []
    kinds = []
    template = []
    param_at = []
    for at, a in enumerate(args):
        if isinstance(a, Tensor):
            template.append(len(kinds))
            kinds.append(a._spec)
            seen.append(a._spec)
        elif op.lists and a.__class__ in (tuple, list) and any(isinstance(b, Tensor) for b in a):
            slots = []
            for b in a:
                if b is None:
                    slots.append(None)
                else:
                    slots.append(len(kinds))
                    kinds.append(b._spec)
            template.append(tuple(slots))
            seen.append(tuple(None if b is None else b._spec for b in a))
        else:
            template.append(None)
            param_at.append(at)
            if a.__class__ in number_types and (op.pointwise or op.scalar_at[at]):
                seen.append(a.__class__)
            else:
                seen.append(a)
    entry = Entry()
    entry.op = op
    entry.kinds = tuple(kinds)
    entry.template = tuple(template)
    entry.param_at = tuple(param_at)
    entry.pick = _picker(param_at)
    entry.zeros = (0,) * len(kinds)
    entry.simple = not param_at and not op.kwonly and not any(t.__class__ is tuple for t in template)
    entry.wrap = None
    entry.quick = False
    entry.deltas = entry.look = entry.fits = entry.rounded = None
    entry.recipes = {}
    try:
        op.check_flags(args)
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
    entry.compiles = entry.device is not META and entry.device.backend.compiles \
        and all(s.device is entry.device for s in (*kinds, *(entry.outs or ())))
    entry.quick = not entry.many and entry.outs is not None and entry.device is not META and not op.eager \
        and op.verify is None
    return _remembered(key, entry)


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


def ruled_entry(op, args, inputs):
    """What `add_history` needs to know of a composite's call, kept by the specs of its tensors and where they stand."""
    template, count = [], 0
    for a in args:
        if isinstance(a, Tensor):
            template.append(count)
            count += 1
        elif op.lists and a.__class__ in (tuple, list) and any(isinstance(b, Tensor) for b in a):
            slots = []
            for b in a:
                slots.append(None if b is None else count)
                count += b is not None
            template.append(tuple(slots))
        else:
            template.append(None)
    key = (op, tuple(template), *[t._spec for t in inputs])
    entry = entries.get(key)
    if entry is None:
        entry = entries[key] = Entry()
        entry.op = op
        entry.kinds = key[2:]
        entry.template = key[1]
        entry.param_at = tuple(at for at, slot in enumerate(template) if slot is None)
        entry.recipes = {}
        entry.outs = None
    return entry
