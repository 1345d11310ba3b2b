"""The one door: every operation on tensors comes through `call`.

Bind the arguments, look up what the result will be (cached by operation, specs and parameters), record one
instruction, wrap the results, and, where gradients are on, make the autograd node. Errors are raised here, at the
call, with the user's names and lines.
"""
import threading
from operator import itemgetter
from typing import Any

import numpy as np

from ..autograd.forward_ad import propagate
from ..autograd.modes import modes
from ..autograd.node import NUMBER, TENSOR, OpNode, Plan, _count, edge_of, keep, refresh, requires
from ..backends.memory import explained as out_of_memory
from ..base import dtypes, few, shapes
from ..base.arguments import LEAST_INT, MOST_INT, beyond_64_bits, fitted_places, fitting, rounded_places
from ..base.errors import here
from ..base.locks import new_lock
from ..base.op import NUMBERS, Entry, check_devices, door, known
from ..base.spec import CPU, META, Spec, device, forget_unused, of_array, spec
from ..trace import effects
from ..trace.record import _local, current
from ..trace.value import Storage, Value
from .autocast import arguments, aside, listed
from .messages import call_words, called_as, explained, said
from .tensor import Tensor

_entries: dict = {}           # (operation, specs and parameters of a call) → Entry
_calls: dict = {}             # (operation, arguments as they were given) → (Entry, what binds such arguments)
_tables: list = []            # what the forms remember of it for themselves
_number_types = frozenset(NUMBERS)
_plain_types = {*NUMBERS, type(None), str, dtypes.dtype, device}
_tensor_types = {Tensor}      # and the subclasses that take no part in `__torch_function__`
regions = 0                   # how often autocast, or any function mode, is on in some thread; see count_region
modes_active = 0              # how many function modes are active in all threads; see Note [Asking for modes]
_counting = new_lock()
UNSEEN = (None, None, None, None)


class _FunctionModes(threading.local):
    stack: tuple = ()         # those of this thread, the innermost last; see function_modes.py
    watchers: tuple = ()      # functions that are told of every operation that is recorded in this thread


function_modes = _FunctionModes()
handle_by_mode: Any = None    # handle_by_mode(func, args, kwargs), hung in here by function_modes.py
handle_watched: Any = None    # handle_watched(op, args, kwargs, public), too


def forget():
    """Infer every call anew, since what it gives may have changed."""
    _entries.clear()
    _calls.clear()
    for table in _tables:
        table.clear()


dtypes.on_default_change.append(forget)


def wrap(storage, kind, offset=0):
    """A tensor that looks at `storage`."""
    tensor = _new(Tensor)
    tensor._storage = storage
    tensor.spec = kind
    tensor.offset = offset
    tensor._node = tensor._base = tensor._cut = None
    tensor._requires_grad = False
    return tensor


def seen_by_modes():
    """Whether calls of this thread are shown to somebody."""
    return bool(function_modes.stack or function_modes.watchers)


def call(op, args, kwargs, public=None):
    """Call `op` as the user wrote it; `public` is the method it was called by, for overrides."""
    if regions:
        if modes_active:
            if function_modes.stack:
                return handle_by_mode(public or op, args, kwargs)
            if function_modes.watchers and not op.composite:
                return handle_watched(op, args, kwargs, public)
        if op in listed and modes.autocast is not None and kwargs.get("out") is None \
                and not _any_overrides(args, kwargs):
            args, kwargs = arguments(listed[op], args, kwargs)
            with aside():                                 # nothing further is cast inside
                return call(op, args, kwargs, public)
    facts = known.get(op) or prepared(op)
    key = None
    if not facts.composite:
        key, entry, full, inputs = seen(op, facts, args, kwargs)
        if entry is not None:
            if entry.fits is not None and (kwargs or not facts.fits_by_name):
                check_fits(entry, full)
            params = entry.pick(full) if entry.pick is not None else ()
            if entry.quick:
                return record_one(entry, full, inputs, params, 4)
            return record(entry, op, full, inputs, params, 4)
    out = kwargs.pop("out", None) if kwargs else None
    for a in (*args, *kwargs.values()) if kwargs else args:
        c = a.__class__
        if c is not Tensor and c not in _plain_types and (_overrides(c) or facts.lists and isinstance(a, (tuple, list))
                                                          and any(_overrides(b.__class__) for b in a)):
            return _overridden(op, args, kwargs, out, public)
    if out is not None:
        return door.into(op, args, kwargs, out)
    if op.deprecated and len(args) > op.n_positional:
        named = op.modern(args)
        if named is not None:
            return call(op, (), {**named, **kwargs}, public)
    if facts.composite:
        return _composite(op, facts, args, kwargs)
    full = op.bind(args, kwargs)
    if key is None:
        return dispatch(op, full)
    return dispatch(op, full, key, facts.pickers.get((len(args), *kwargs)) if kwargs else full[len(args):])


def count_region(change):
    """Autocast was switched on in one more thread, or off."""
    global regions
    with _counting:
        regions += change


def call_as_is(op, args, kwargs):
    """`call` without autocast: for what writes into a tensor, whose dtype is given."""
    if not regions:
        return call(op, args, kwargs)
    with aside():
        return call(op, args, kwargs)


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
        if c is Tensor or c in _tensor_types:
            inputs.append(a)
            key.append(a.spec)
        elif c in _number_types:
            key.append(c)
            if not typed[at]:
                key.append(a)
            elif c is int and not LEAST_INT <= a <= MOST_INT:
                beyond_64_bits(a)
        elif c in _plain_types:
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
            if c not in _plain_types or name == "out":
                return UNSEEN
            key.append(name)
            key.append(c)
            if name not in facts.typed_names or c not in _number_types:
                key.append(a)
            elif c is int and not LEAST_INT <= a <= MOST_INT:
                beyond_64_bits(a)
    key = tuple(key)
    found = _calls.get(key)
    if found is None:
        return key, None, None, None
    entry, binder = found
    if binder.__class__ is not tuple:
        args = binder((*args, *kwargs.values(), *facts.defaults))
    elif binder:
        args = args + binder
    return key, entry, args, inputs


def dispatch(op, args, given=None, binder=None):
    """Record one call of a primitive operation; `args` are all its arguments in order.

    `given` is the key under which `seen` is to find it from now on, `binder` what then makes `args` of the arguments.
    """
    inputs = []
    key = [op]
    scalars = op.pointwise
    for at, a in enumerate(args):
        c = a.__class__
        if c is Tensor or isinstance(a, Tensor):
            inputs.append(a)
            key.append(a.spec)
        elif c in _number_types:
            if scalars or op.scalar_at[at]:
                if c is int and not LEAST_INT <= a <= MOST_INT:
                    beyond_64_bits(a)
                key.append(c)
            else:
                key.append(a)
                key.append(c)
        elif c is tuple or c is list or isinstance(a, (tuple, list)):
            a = args[at] if c is tuple else tuple(a)
            if op.lists and any(isinstance(b, Tensor) for b in a):
                if c is not tuple and c is not list:      # a named tuple, or a list with a name of its own
                    args = (*args[:at], a, *args[at + 1:])
                for i, b in enumerate(a):
                    if b is not None:
                        if not isinstance(b, Tensor):
                            raise TypeError(f"{op.__name__.strip('_')}(): expected Tensor as element {i} in argument "
                                            f"{at}, but got {type(b).__name__}")
                        inputs.append(b)
                key.append(tuple([None if b is None else b.spec for b in a]))
            else:
                if c is not tuple:
                    args = (*args[:at], a, *args[at + 1:])
                key.append(a)
                for b in a:
                    if b.__class__ is not int:
                        key.append(_classes(a))
                        break
        else:
            if isinstance(a, np.generic):                 # a NumPy scalar counts as the Python number it holds
                return dispatch(op, (*args[:at], a.item(), *args[at + 1:]))
            key.append(a)
    key = tuple(key)
    try:
        entry = _entries.get(key)
    except TypeError:
        raise TypeError(call_words(op, args) + ": an argument of a type it cannot take") from None
    if entry is None:
        for at in op.number_at:                           # a zero-dimensional tensor may stand for a whole number
            if isinstance(args[at], Tensor):
                return dispatch(op, (*args[:at], _number_in(args[at], op.arg_names[at], at), *args[at + 1:]))
        for at in op.scalar_only_at:                      # and for any number, if it needs no gradient
            if isinstance(args[at], Tensor) and args[at].spec.ndim == 0 and not requires(args[at]):
                return dispatch(op, (*args[:at], args[at].item(), *args[at + 1:]))
        entry = _entry(op, args, key)
    if binder is not None and not modes_active:
        if len(_calls) > 100_000:
            _calls.clear()
        _calls[given] = (entry, binder)
    if entry.fits is not None:
        check_fits(entry, args)
    params = entry.pick(args) if entry.pick is not None else ()
    if entry.quick:
        return record_one(entry, args, inputs, params, 5)
    return record(entry, op, args, inputs, params, 5)


def _classes(a):
    """The classes of what is in a tuple, by which it is kept apart from others that are equal to it."""
    return tuple([_classes(b) if b.__class__ in (tuple, list) else b.__class__ for b in a])


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


def _number_in(tensor, name, at):
    """The whole number that a tensor stands for."""
    if tensor.spec.numel != 1 or tensor.spec.dtype.category > 1:
        raise TypeError(f"argument '{name}' (position {at + 1}) must be int, not Tensor: it is {tensor.spec}")
    return int(tensor.item())


def record(entry, op, args, inputs, params, inside):
    """Record a call of any kind; its results, with their history. `inside`: see `record_one`."""
    if entry.look is not None:
        return view_one(entry, args, inputs[0], 0, inside + 1)
    if entry.deltas is not None:
        return _view(entry, op, args, inputs[0], 0, inside + 1)
    if entry.device is META:
        if entry.outs is None:
            raise NotImplementedError(f"{op.__name__} on the meta device: its shape depends on data that is not there")
        storages = [Storage.of(None, s.nbytes, META) for s in entry.outs]
    else:
        if op.verify is not None:
            _verify(op, args)
        if entry.outs is None or op.eager:
            storages = _run_now(entry, op, args, inputs, params)
        else:
            values = _local.trace.append(entry, inputs, params) if not op.effect else \
                effects.append(_local.trace, entry, inputs, params)
            storages = [Storage.of(value, value.spec.nbytes, value.spec.device)
                        for value in (values if entry.many else (values,))]
            _run_if_exported(inputs)
    site = _local.trace.site or here(inside)
    outs = []
    for storage in storages:
        tensor = wrap(storage, storage.value.spec if storage.value is not None else entry.outs[len(outs)])
        tensor.site = site
        outs.append(tensor)
    _history(op, entry, args, inputs, outs, site)
    if not entry.many:
        return outs[0]
    return _named(op, outs)


def record_one(entry, args, inputs, params, inside):
    """The common case, short: one result, on a device, nothing to verify. The same as the rest of `dispatch`.

    `inside`: how many frames, counted from `here`, are known to be ours.
    """
    trace = _local.trace
    value = trace.append(entry, inputs, params)
    kind = value.spec
    storage = Storage()
    storage.value = value
    storage.nbytes = kind.nbytes
    storage.device = kind.device
    storage.version = 0
    storage.exported = storage.inference = False
    storage.print_at = None
    tensor = _new(Tensor)
    tensor._storage = storage
    tensor.spec = kind
    tensor.offset = 0
    tensor._node = tensor._base = tensor._cut = None
    tensor._requires_grad = False
    tensor.site = site = trace.site or here(inside)
    wanted, bit, cut = 0, 1, None
    for t in inputs:
        if t._node is not None or t._requires_grad or t._base is not None and requires(t):
            wanted |= bit
        elif t._cut is not None:
            cut = t._cut
        if t._storage.exported:
            _run_if_exported(inputs)
        bit += bit
    if trace.special:
        _history(entry.op, entry, args, inputs, (tensor,), site)
    elif wanted:
        if not modes.grad:
            tensor._cut = ("torch.no_grad()", site)
        else:
            _remember(entry, args, inputs, (tensor,), site, wanted, False)
    elif cut is not None:
        tensor._cut = cut
    return tensor


def _run_if_exported(inputs):
    """Run at the call what reads memory that the outside can write; see Note [Exported storages] in value.py."""
    for t in inputs:
        if t._storage.exported and t._storage.still_exported():
            current().run()
            return


def _named(op, outs):
    """Several results as PyTorch returns them: a named tuple where it has one, else a plain tuple."""
    if op.returns is None:
        return tuple(outs)
    made = op.__dict__.get("result_type")
    if made is None:
        made = op.result_type = result_tuple(op.returns)
    return made._make(outs)


_result_types: dict = {}


def result_tuple(words):
    """The named tuple type for "name field field"; one type for equal words."""
    made = _result_types.get(words)
    if made is None:
        from collections import namedtuple
        name, *fields = words.split()
        made = _result_types[words] = namedtuple(name, fields, module="flambeau.return_types")
        made.__repr__ = _result_words
    return made


def _result_words(result):
    """A result tuple as PyTorch prints it."""
    lines = ",\n".join(f"{field}={part!r}" for field, part in zip(result._fields, result, strict=True))
    return f"torch.return_types.{type(result).__name__}(\n{lines})"


def _entry(op, args, key):
    """Infer a call that was not seen before; refusals get their call, names and lines here."""
    seen = []
    kinds = []
    template = []
    param_at = []
    for at, a in enumerate(args):
        if isinstance(a, Tensor):
            template.append(len(kinds))
            kinds.append(a.spec)
            seen.append(a.spec)
        elif op.lists and a.__class__ in (tuple, list) and any(isinstance(b, Tensor) for b in a):
            slots = []
            for b in a:
                if b is None:
                    slots.append(None)
                else:
                    slots.append(len(kinds))
                    kinds.append(b.spec)
            template.append(tuple(slots))
            seen.append(tuple(None if b is None else b.spec for b in a))
        else:
            template.append(None)
            param_at.append(at)
            if a.__class__ in _number_types and (op.pointwise or op.scalar_at[at]):
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
    entry.plans = {}
    try:
        op.check_flags(args)
        if op.is_view:
            return _view_entry(op, entry, seen, key)
        entry.device = check_devices(kinds, not op.pointwise)
        out, casts, common = op.infer(tuple(seen))
        few.check(op, tuple(seen), kinds, out, common)
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
        and op.verify is None and not op.effect
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
    if len(_entries) > 100_000:
        forget()
        forget_unused()
    _entries[key] = entry
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


def view_one(entry, args, source, moved, inside):
    """The common case of `_view`, short: one view, of the same dtype, of an operation with a gradient."""
    trace = _local.trace
    storage = source._storage
    if trace.special or storage.inference:
        return _view(entry, entry.op, args, source, moved, inside + 1)
    base = source._base
    tensor = _new(Tensor)
    tensor._storage = storage
    tensor.spec, delta = entry.look
    tensor.offset = source.offset + delta + moved
    tensor._node = tensor._cut = None
    tensor._requires_grad = False
    tensor._seen = storage.version
    tensor.site = site = trace.site or here(inside)
    if source._data_version is not None:
        tensor._data_version = source._data_version
    if base is None:
        tensor._base = source
        why = None
        wanted = source._node is not None or source._requires_grad
    else:
        tensor._base = base
        why = source._view_of
        wanted = requires(source)
    grad = modes.grad
    if why is not None or not grad:
        tensor._view_of = why or "no_grad"
    if wanted:
        if grad:
            _remember(entry, args, (source,), (tensor,), site, 1, False)
        else:
            tensor._cut = ("torch.no_grad()", site)
    elif source._cut is not None:
        tensor._cut = source._cut
    return tensor


def _view(entry, op, args, source, moved, inside):
    """Views of `source`: same storage, no instruction. They start `moved` elements after where the entry says."""
    site = _local.trace.site or here(inside)
    storage = source._storage
    itemsize = source.spec.dtype.itemsize
    outs = []
    for kind, delta in zip(entry.outs, entry.deltas, strict=True):
        tensor = wrap(storage, kind)
        scale = kind.dtype.itemsize
        tensor.offset = (source.offset if scale == itemsize else source.offset * itemsize // scale) + delta + moved
        tensor.site = site
        if source._data_version is not None:
            tensor._data_version = source._data_version
        outs.append(tensor)
    if op.differentiable and not storage.inference:      # memory read as another dtype has no history, so no base
        base = source._base if source._base is not None else source
        version = storage.version
        why = "inference" if modes.inference else None if modes.grad else "no_grad"
        if entry.many:
            why = why or "several"
        elif source._view_of is not None:
            why = source._view_of
        for tensor in outs:
            tensor._base = base
            tensor._seen = version
            if why is not None:
                tensor._view_of = why
    if not storage.inference or modes.inference:         # outside, views of inference tensors have no history
        _history(op, entry, args, (source,), outs, site)
    return tuple(outs) if entry.many else outs[0]


def _run_now(entry, op, args, inputs, params):
    """Run an operation at the call: its result's shape, or its refusal, depends on the data."""
    if op.effect:
        _local.trace.before_effect(op)
    arrays = [t._storage.value.ready().look(t.spec, t.offset) for t in inputs]
    try:
        with np.errstate(all="ignore"):
            made = entry.device.backend.execute(entry, arrays, params)
    except MemoryError as error:
        error.entry = entry
        raise out_of_memory(error) from None
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    storages = []
    for i, array in enumerate(made):
        kind = entry.outs[i] if entry.outs is not None else of_array(array, True, entry.device)
        storages.append(Storage.of(Value.of(array, kind), kind.nbytes, kind.device))
    return storages


def _verify(op, args):
    """Check the data that the operation could fail on, at the call."""
    asked = op.__dict__.get("_verify_names")
    if asked is None:
        c = op.verify.__code__
        asked = op._verify_names = c.co_varnames[:c.co_argcount]
    given = []
    trace = _local.trace
    read = array_of if trace.reader is None else trace.reader(op, asked, args)
    for name in asked:
        if name.endswith("_spec"):
            given.append(getattr(args[op.arg_names.index(name.removesuffix("_spec"))], "spec", None))
            continue
        a = args[op.arg_names.index(name)]
        if isinstance(a, Tensor):
            a = read(a)
        elif op.lists and a.__class__ in (tuple, list):
            a = [read(b) if isinstance(b, Tensor) else b for b in a]
        given.append(a)
    try:
        op.verify(*given)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise


def array_of(tensor):
    """The tensor's contents as a NumPy array to read, run if pending. Not to be written or handed out."""
    if tensor.spec.device is META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!" + said(tensor))
    found = tensor._storage.value.ready().look(tensor.spec, tensor.offset)
    return found if tensor.spec.device is CPU else tensor.spec.device.backend.to_host(found)


# --- autograd beside the call ---------------------------------------------------------------------------------------


def _history(op, entry, args, inputs, outs, site):
    """Give `outs` their history: the autograd node, and in forward mode the tangents."""
    _attach(op, entry, args, inputs, outs, site)
    if modes.level >= 0:
        propagate(op, entry, args, inputs, outs)


def _attach(op, entry, args, inputs, outs, site):
    """Make the node that `outs` came from, where gradients are on and somebody needs one."""
    if modes.inference:
        cut = any(requires(t) for t in inputs)
        for out in outs:
            if not any(out._storage is t._storage for t in inputs):          # a view is what it looks at
                out._storage.inference = True
            if cut:
                out._cut = ("torch.inference_mode()", site)
        return
    wanted = 0
    cut = None
    bit = 1
    for t in inputs:
        if t._node is not None or t._requires_grad or (t._base is not None and requires(t)):
            wanted |= bit
        elif t._cut is not None:
            cut = t._cut
        bit += bit
    if not wanted:
        if cut is not None:
            for out in outs:
                out._cut = cut
        return
    if not modes.grad or not op.differentiable:
        cut = ("torch.no_grad()" if not modes.grad else f"{called_as(op)}(), which has no gradient", site)
        for out in outs:
            out._cut = cut
        return
    _remember(entry, args, inputs, outs, site, wanted, _local.trace.special)


def _remember(entry, args, inputs, outs, site, wanted, special):
    """Make the node. `wanted`: a bit for each input that wants a gradient; `special`: whether modes must be asked."""
    plan = entry.plans.get(wanted)
    if plan is None:
        op = entry.op
        if not op.differentiable:
            for out in outs:
                out._cut = (f"{called_as(op)}(), which has no gradient", site)
            return
        plan = entry.plans[wanted] = Plan(op, entry.kinds, entry.template, wanted)
    if plan.sole is not None:
        kept = _kept(args[plan.sole], special)
    elif not plan.asked and not plan.keep_out:
        kept = ()
    else:
        kept = []
        for at, how in plan.asked:
            held = args[at]
            kept.append(held if how == NUMBER else _kept(held, special) if how == TENSOR else
                        tuple([b if b is None else keep(b) for b in held]))
    if len(plan.inputs) == 1:
        t = inputs[plan.inputs[0]]
        edges = ((t._node, t._nr) if t._base is None and t._node is not None else edge_of(t),)
    else:
        edges = []
        for i in plan.inputs:
            t = inputs[i]
            edges.append((t._node, t._nr) if t._base is None and t._node is not None else edge_of(t))
    node = OpNode()
    node.plan = plan
    node.n_outputs = 1
    node.hooked = False
    node.edges = edges
    node.kept = kept
    node.outs = entry.outs if entry.outs is not None else tuple([o.spec for o in outs])
    node.site = site
    node.seq = next(_count)
    if len(outs) == 1:
        out = outs[0]
        storage = out._storage
        if plan.keep_out:
            if special or storage.exported:
                kept.append(keep(out, True))
            else:
                storage.saved_at = storage.version
                kept.append((storage, storage.version, out.spec, out.offset))
        if out.spec.dtype.category >= 2:
            out._node = node
            out._nr = 0
        else:
            out._cut = (f"{called_as(entry.op)}(), whose result is {out.spec.dtype.name} and so has no gradient", site)
        return
    node.n_outputs, op = len(outs), entry.op
    if plan.keep_out:
        kept.append(tuple([keep(o, True, i) if i in plan.keep_out else None for i, o in enumerate(outs)]))
    for nr, out in enumerate(outs):
        if out.spec.dtype.category >= 2 and nr not in op.nondiff:
            out._node = node
            out._nr = nr
        else:
            out._cut = (f"{called_as(op)}(), whose result {nr} has no gradient", site)


def _kept(tensor, special):
    """An argument of an operation as its node keeps it; see Note [What is kept] in node.py."""
    storage = tensor._storage
    if storage.inference:
        _no_inference(tensor)
    if special or storage.exported or tensor.__class__ is not Tensor and tensor.__class__ not in _tensor_types:
        return keep(tensor)
    storage.saved_at = version = storage.version
    if tensor._base is not None and tensor._seen != version:
        refresh(tensor)
    return (tensor, storage, version, tensor._node)


def _no_inference(tensor):
    if tensor._storage.inference:
        raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in "
                           "inference mode in computation tracked by autograd. To work around this, you can make a "
                           "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
                           "`torch.inference_mode()`."
                           + said(tensor))


def _composite(op, facts, args, kwargs):
    """Run a composite. All that it records inside belongs to the line that called the outermost one."""
    run = _ruled if facts.ruled else _unruled
    trace = _local.trace
    if trace.site is not None:
        return run(op, facts, args, kwargs)
    trace.site = here(4)
    try:
        return run(op, facts, args, kwargs)
    finally:
        trace.site = None


def _unruled(op, facts, args, kwargs):
    """A composite whose inner operations make the graph."""
    if kwargs and not facts.of.__code__.co_flags & 8:                # 8: it takes ** itself
        kwargs = {k if k in op.arg_names else op.given_name(k): v for k, v in kwargs.items()}
    try:
        made = facts.of(*args, **kwargs)
        return _named(op, made) if facts.several and made.__class__ is tuple else made
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args, kwargs) from None
        inner = f"{op.of.__qualname__}()"                            # Python's words about missing or surplus arguments
        if error.__class__ is TypeError and str(error).startswith(inner):
            raise TypeError(f"{op.__name__}(){str(error).removeprefix(inner)}; its arguments are "
                            f"({', '.join(op.arg_names)})") from None
        raise


def _ruled(op, facts, args, kwargs):
    """A composite with derivative rules: a single node over its inputs."""
    args = op.bind(args, kwargs)
    inputs = [a for a in args if isinstance(a, Tensor)] if not op.lists else list(_tensors(args))
    before, modes.grad = modes.grad, False
    level, modes.level = modes.level, -1
    n = op.n_positional
    try:
        made = op.of(*args[:n], **dict(zip(op.kwonly, args[n:], strict=True)))
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    finally:
        modes.grad, modes.level = before, level
    many = made.__class__ in (tuple, list)
    site = _local.trace.site
    outs = list(made) if many else [made]
    for i, out in enumerate(outs):
        if out._base is not None or any(out is t for t in inputs):   # a result is a tensor of its own
            outs[i] = out = wrap(out._storage, out.spec, out.offset)
        out.site = site
        out._cut = None
        out._node = None
    _history(op, _ruled_entry(op, args, inputs), args, inputs, outs, site)
    return _named(op, outs) if many else outs[0]


def _ruled_entry(op, args, inputs):
    """What `_history` needs to know of a composite's call, kept by the specs of its tensors and where they stand."""
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
    key = (op, tuple(template), *[t.spec for t in inputs])
    entry = _entries.get(key)
    if entry is None:
        entry = _entries[key] = Entry()
        entry.op = op
        entry.kinds = key[2:]
        entry.template = key[1]
        entry.param_at = tuple(at for at, slot in enumerate(template) if slot is None)
        entry.plans = {}
        entry.outs = None
    return entry


def _tensors(args):
    for a in args:
        if isinstance(a, Tensor):
            yield a
        elif isinstance(a, (tuple, list)):
            yield from (b for b in a if isinstance(b, Tensor))


# --- subclasses ---------------------------------------------------------------------------------------------------


def _overridden(op, args, kwargs, out, public=None):
    """Hand the call to the `__torch_function__` of the most derived argument that has one."""
    types = []
    for a in (*_open(args), *_open(kwargs.values())):
        c = type(a)
        if _overrides(c) and c not in types:
            at = next((i for i, t in enumerate(types) if issubclass(c, t)), len(types))
            types.insert(at, c)
    if out is not None:
        kwargs = {**kwargs, "out": out}
    if not types or overrides_off():
        return _call_plain(op, args, kwargs)
    for c in types:
        got = c.__torch_function__(public or op, tuple(types), args, kwargs)
        if got is not NotImplemented:
            return got
    raise TypeError(f"no implementation found for '{op.__name__}' on types that implement __torch_function__: "
                    f"{[t.__name__ for t in types]}")


def _overrides(c):
    """Whether class `c` takes part in `__torch_function__`: any subclass of Tensor does, unless it opted out."""
    found = _asks.get(c)
    if found is None:
        handler = getattr(c, "__torch_function__", None)
        found = _asks[c] = c is not Tensor and handler is not None and not getattr(handler, "opted_out", False)
        if not found and issubclass(c, Tensor):
            _tensor_types.add(c)
    return found


_asks: dict = {}


def _any_overrides(args, kwargs):
    """Whether the call goes to somebody's `__torch_function__`."""
    return not overrides_off() and any(_overrides(a.__class__) for a in (*_open(args), *_open(kwargs.values())))


def _open(args):
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from a
        else:
            yield a


def _call_plain(op, args, kwargs):
    """The call itself, with subclass overrides set aside."""
    out = kwargs.pop("out", None) if kwargs else None
    if out is not None:
        return door.into(op, args, kwargs, out)
    if op.composite:
        return _composite(op, known[op], args, kwargs)
    return dispatch(op, op.bind(args, kwargs))


def overrides_off():
    return getattr(modes, "plain", False)


_new = object.__new__
door.call = call
door.tensor = Tensor
door.wrap = wrap
