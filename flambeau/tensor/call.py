"""The one door: every operation on tensors comes through `call`.

Bind the arguments, look up what the result will be (infer.py), record one instruction, wrap the results, and, where
gradients are on, make the autograd node (history.py). Errors are raised here, at the call, with the user's names and
lines.
"""
from operator import index as as_int

import numpy as np

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..backends.cpu.memory.allocator import explained as out_of_memory
from ..backends.devices import accelerator, execute as by_reference
from ..base import observers
from ..base.arguments import DERIVED_BASES, underived
from ..base.entry import ANY_VIEW, CHECKED, ONE_RESULT, ONE_VIEW, SEVERAL_RESULTS, NotedCall
from ..base.op import door, known
from ..base.spec import META
from ..trace import on_host
from ..trace.recording.instructions import Instruction
from ..trace.recording.record import _local
from ..trace.running import effects
from ..trace.running.quick import here
from ..trace.value import Storage, Value
from . import overrides
from .autocast import aside, handled
from .batched import Batched
from .composite import call_composite
from .find import find, number_in, plain_types
from .history import add_history
from .infer import check_fits, infer_entry, prepared, remember
from .messages import explained
from .movement import new_pinned
from .overrides import (
    any_override,
    function_modes,
    handle_by_class,
    handle_by_mode,
    has_override,
    observed,
    opened,
    overloaded,
)
from .recorder import read_exported, record_one, record_several
from .results import named
from .tensor import Tensor, wrap
from .verify import verify
from .views import view_any, view_one


def call(op, args, kwargs, public=None):
    """Call `op` as the user wrote it; `public` is the method it was called by, for overrides."""
    if overrides.regions:
        if overrides.modes_active:
            if function_modes.stack:
                return handle_by_mode(public or op, args, kwargs)
            if function_modes.watchers and not op.composite:
                return watched(op, args, kwargs, public)
            if overrides.calls_observed and function_modes.told is not op:
                return observed(op, op.__name__, call, (op, args, kwargs, public), args, kwargs)
            function_modes.told = None
        if modes.autocast is not None and kwargs.get("out") is None and not any_override(args, kwargs):
            found = handled(op, args, kwargs)
            if found is not None:
                inside, args, kwargs = found
                with inside:
                    return call(op, args, kwargs, public)
    table = known                         # a local, as in `call_cached`
    facts = table.get(op) or prepared(op)
    key = None
    if kwargs and kwargs.get("pin_memory") and accelerator() is not None:
        return new_pinned(call(op, args, {**kwargs, "pin_memory": False}, public))
    if not facts.composite:
        key, entry, full, inputs = find(op, facts, args, kwargs)
        if entry is not None:
            return record(entry, full, inputs, kwargs or not facts.fits_by_name)
    out, derived = kwargs.pop("out", None) if kwargs else None, False
    for a in (*args, *kwargs.values()) if kwargs else args:
        c = a.__class__
        if c is not Tensor and c not in plain_types:
            if has_override(c) or facts.lists and isinstance(a, (tuple, list)) and any(has_override(b.__class__)
                                                                                       for b in a):
                return overridden(op, args, kwargs, out, public)
            derived = derived or isinstance(a, DERIVED_BASES)
    if derived:
        args = tuple([underived(a) for a in args])
        kwargs = {name: underived(a) for name, a in kwargs.items()}
    if out is not None:
        return door.into(op, args, kwargs, out)
    if op.deprecated and len(args) > op.n_positional:
        named = op.modern(args)
        if named is not None:
            return call(op, (), {**named, **kwargs}, public)
    if facts.composite:
        return call_composite(op, facts, args, kwargs)
    full = op.bind(args, kwargs)
    if key is None:
        return call_primitive(op, full)
    return call_primitive(op, full, key, facts.pickers.get((len(args), *kwargs)) if kwargs else full[len(args):])


def call_as_is(op, args, kwargs):
    """`call` without autocast: for what writes into a tensor, whose dtype is given."""
    if not overrides.regions:
        return call(op, args, kwargs)
    with aside():
        return call(op, args, kwargs)


def overridden(op, args, kwargs, out, public=None):
    """Hand the call to the `__torch_function__` of the most derived argument that has one."""
    found = overloaded((*opened(args), *opened(kwargs.values())))
    if out is not None:
        kwargs = {**kwargs, "out": out}
    if not found:
        return call_plain(op, args, kwargs)
    return handle_by_class(public or op, op.__name__, found, args, kwargs)


def watched(op, args, kwargs, public):
    """Call an operation, and tell those that watch. What they call themselves is not told."""
    without_out = {name: a for name, a in kwargs.items() if name != "out"}      # a loop: see test_interrupts.py
    watchers, function_modes.watchers = function_modes.watchers, ()
    try:
        made = call(op, args, dict(kwargs), public)
        tell(watchers, op, op.bind(args, without_out), made)
    finally:
        function_modes.watchers = watchers
    return made


def tell(watchers, op, given, made):
    """Tell them of a call."""
    for watcher in watchers:
        watcher(op, given, made)


def call_plain(op, args, kwargs):
    """The call itself, with subclass overrides set aside."""
    out = kwargs.pop("out", None) if kwargs else None
    if out is not None:
        return door.into(op, args, kwargs, out)
    if op.composite:
        return call_composite(op, known[op], args, kwargs)
    return call_primitive(op, op.bind(args, kwargs))


def call_primitive(op, args, given=None, binder=None):
    """Record one call of a primitive operation; `args` are all its arguments in order.

    `given` is the key under which `find` is to find it from now on, `binder` what then makes `args` of the arguments.
    """
    key, entry, args, inputs = find(op, known[op], args, None, True)
    for t in inputs:
        if t.__class__ is Batched:
            return door.batching.call(op, args, key, entry)
    if entry is None:
        for at in op.number_at:                           # a zero-dimensional tensor may stand for a whole number
            if isinstance(args[at], Tensor):
                return call_primitive(op, (*args[:at], number_in(args[at], op.arg_names[at], at), *args[at + 1:]))
            if args[at].__class__ not in plain_types and hasattr(args[at].__class__, "__index__"):
                return call_primitive(op, (*args[:at], as_int(args[at]), *args[at + 1:]))
        for at in op.scalar_only_at:                      # and for any number, if it needs no gradient
            if isinstance(args[at], Tensor) and args[at]._spec.ndim == 0 and not requires(args[at]):
                return call_primitive(op, (*args[:at], args[at].item(), *args[at + 1:]))
        entry = infer_entry(op, args, key)
    if binder is not None and overrides.modes_active == overrides.calls_observed:        # there is no real mode
        remember(given, entry, binder)
    return record(entry, args, inputs, True)


def record(entry, args, inputs, must_fit):
    """Record a call of any kind; its results, with their history. `must_fit`: whether it has numbers that may not fit
    into the dtype of the computation, where the operation asks for it."""
    op, way = entry.op, entry.way
    if way == ONE_VIEW:
        return view_one(entry, args, inputs[0], 0)
    if way == ANY_VIEW:
        return view_any(entry, op, args, inputs[0], 0)
    if must_fit and entry.fits is not None:
        check_fits(entry, args)
    params = entry.pick(args) if entry.pick is not None else ()
    if way == CHECKED:
        verify(op, args, entry.device)
        way = SEVERAL_RESULTS if entry.many else ONE_RESULT
    if way == ONE_RESULT:
        return record_one(entry, args, inputs, params)
    if way == SEVERAL_RESULTS:
        return named(op, record_several(entry, args, inputs, params))
    return record_long(entry, op, args, inputs, params)


def record_long(entry, op, args, inputs, params):
    """Record a call that is more than an instruction: run here and now, told to `watch`, or of no device."""
    site = _local.trace.site or here()
    if entry.larger:
        door.noticed("larger_result", op, entry, inputs, site)
    if entry.device is META:
        if entry.outs is None:
            raise NotImplementedError(f"{op.__name__} on the meta device: its shape depends on data that is not there")
        storages = [Storage.of(None, s.nbytes, META) for s in entry.outs]
    else:
        if op.verify is not None:
            verify(op, args)
        if entry.outs is None or op.eager:
            storages = run_now(entry, op, args, inputs, params, site)
        else:
            values = _local.trace.append(entry, inputs, params, site) if not op.effect else \
                effects.append(_local.trace, entry, inputs, params, site)
            storages = [Storage.of(value, value.spec.nbytes, value.spec.device)
                        for value in (values if entry.many else (values,))]
            read_exported(inputs, op.effect)
    outs = []
    for storage in storages:
        tensor = wrap(storage, storage.value.spec if storage.value is not None else entry.outs[len(outs)])
        tensor._site = site
        outs.append(tensor)
    add_history(op, entry, args, inputs, outs, site)
    made = named(op, outs) if entry.many else outs[0]
    if _local.trace.tape is not None and op.eager and op.verify is None and not op.effect \
            and entry.device is not META:
        _local.trace.tape.append(NotedCall(entry, args, inputs, params, -1, made))
    return made


def run_now(entry, op, args, inputs, params, site):
    """Run an operation at the call: its result's shape, or its refusal, depends on the data."""
    if op.effect:
        _local.trace.before_effect(op)
    arrays = [t._storage.value.ready().look(t._spec, t._offset) for t in inputs]
    try:
        with np.errstate(all="ignore"):
            if observers.during_runs:
                made = _run_observed(entry, arrays, params, site)
            else:
                made = by_reference(entry, arrays, params)
    except MemoryError as error:
        error.entry, error.site = entry, site
        raise out_of_memory(error) from None
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    storages = []
    for i, array in enumerate(made):
        spec = entry.outs[i] if entry.outs is not None else entry.device.backend.spec_of(array)
        storages.append(Storage.of(Value.of(array, spec), spec.nbytes, spec.device))
    return storages


def _run_observed(entry, arrays, params, site):
    """Run an operation at the call, and tell observers of it as of an instruction that stands in no trace."""
    made = None
    with observers.gathered():
        instruction = Instruction.of(entry, (), (), params, 0, site)
        start = observers.begin(instruction)
        try:
            made = by_reference(entry, arrays, params)
            return made
        finally:
            observers.tell_ran(None, (instruction,), start, failed=made is None)


def _remember(moved, source):
    value = source._storage.value
    if value.trace is None:
        on_host.remember(moved._storage.value, value.look(source._spec, source._offset))


door.remember = _remember
