"""The one door: every operation on tensors comes through `call`.

Bind the arguments, look up what the result will be (cached by operation, specs and parameters), record one
instruction, wrap the results, and, where gradients are on, make the autograd node. Errors are raised here, at the
call, with the user's names and lines.
"""

import numpy as np

from ..autograd.forward_ad import propagate, tangent_of, write_tangent
from ..autograd.modes import modes
from ..autograd.node import OpNode, Plan, _count, edge_of, keep, requires
from ..autograd.slices import rebase
from ..backends.backend import execute
from ..base import dtypes, shapes
from ..base.errors import here, line_of, name_of, user_frame, warn
from ..base.op import NUMBERS, RENAMED, Entry, check_devices, door
from ..base.spec import META, Spec, forget_unused, of_array, place, spec
from ..trace.record import _local, current, write_part
from ..trace.value import Storage, Value
from .tensor import Tensor

_entries: dict = {}
_number_types = frozenset(NUMBERS)
dtypes.on_default_change.append(_entries.clear)


def wrap(storage, kind, offset=0):
    """A tensor that looks at `storage`."""
    tensor = _new(Tensor)
    tensor.storage = storage
    tensor.spec = kind
    tensor.offset = offset
    tensor._node = tensor._base = tensor._cut = None
    tensor._requires_grad = False
    return tensor


def call(op, args, kwargs, public=None):
    """Call `op` as the user wrote it; `public` is the method it was called by, for overrides."""
    if not op.prepared:
        op.prepare()
    out = kwargs.pop("out", None) if kwargs else None
    for a in (*args, *kwargs.values()) if kwargs else args:
        c = a.__class__
        if c is not Tensor and c not in _number_types and (
                _overrides(c) or op.lists and isinstance(a, (tuple, list)) and any(_overrides(b.__class__) for b in a)):
            return _overridden(op, args, kwargs, out, public)
    if out is not None:
        return into(op, args, kwargs, out)
    if op.composite:
        return _composite(op, args, kwargs)
    return dispatch(op, op.bind(args, kwargs))


def dispatch(op, args):
    """Record one call of a primitive operation; `args` are all its arguments in order."""
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
                key.append(c)
            else:
                key.append(a)
                key.append(c)
        elif c is tuple or c is list or isinstance(a, tuple):
            a = args[at] if c is tuple else tuple(a)
            if op.lists and any(isinstance(b, Tensor) for b in a):
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
        else:
            if isinstance(a, np.generic):                 # a NumPy scalar counts as the Python number it holds
                return dispatch(op, (*args[:at], a.item(), *args[at + 1:]))
            key.append(a)
    key = tuple(key)
    try:
        entry = _entries.get(key)
    except TypeError:
        raise TypeError(_call_words(op, args) + ": an argument of a type it cannot take") from None
    if entry is None:
        entry = _entry(op, args, key)
    if entry.quick:
        return record_one(entry, args, inputs)
    if entry.deltas is not None:
        return _view(entry, op, args, inputs[0])
    params = tuple([args[i] for i in entry.param_at]) if entry.param_at else ()
    if entry.device is META:
        if entry.outs is None:
            raise NotImplementedError(f"{op.__name__} on the meta device: its shape depends on data that is not there")
        storages = [Storage(None, s.nbytes, META) for s in entry.outs]
    else:
        if op.verify is not None:
            _verify(op, args)
        if entry.outs is None or op.eager:
            storages = _run_now(entry, op, args, inputs, params)
        else:
            values = _local.trace.append(entry, inputs, params)
            storages = [Storage(value, value.spec.nbytes, value.spec.device) for value in values]
            _run_if_exported(inputs)
    site = _local.trace.site or here(3)
    outs = []
    for storage in storages:
        tensor = wrap(storage, storage.value.spec if storage.value is not None else entry.outs[len(outs)])
        tensor.site = site
        outs.append(tensor)
    _history(op, entry, args, inputs, outs, site)
    if not entry.many:
        return outs[0]
    return _named(op, outs)


def record_one(entry, args, inputs, inside=4):
    """The common case, short: one result, on a device, nothing to verify. The same as the rest of `dispatch`.

    `inside`: how many frames, counted from `here`, are known to be ours.
    """
    trace = _local.trace
    value = trace.append(entry, inputs, tuple([args[i] for i in entry.param_at]) if entry.param_at else ())[0]
    kind = value.spec
    storage = _new(Storage)
    storage.value = value
    storage.nbytes = kind.nbytes
    storage.device = kind.device
    storage.version = 0
    storage.exported = storage.inference = False
    tensor = _new(Tensor)
    tensor.storage = storage
    tensor.spec = kind
    tensor.offset = 0
    tensor.site = site = trace.site or here(inside)
    tensor._node = tensor._base = tensor._cut = None
    tensor._requires_grad = False
    watched = False
    for t in inputs:
        if t.storage.exported:
            _run_if_exported(inputs)
        if t._node is not None or t._requires_grad or t._base is not None or t._cut is not None:
            watched = True
    if watched or modes.inference or modes.level >= 0:
        _history(entry.op, entry, args, inputs, (tensor,), site)
    return tensor


def _run_if_exported(inputs):
    """Run at the call what reads memory that the outside can write; see Note [Exported storages] in value.py."""
    for t in inputs:
        if t.storage.exported and t.storage.still_exported():
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
    entry.simple = not param_at and not op.kwonly and not any(t.__class__ is tuple for t in template)
    entry.wrap = None
    entry.quick = False
    entry.deltas = None
    entry.plans = {}
    try:
        if op.is_view:
            return _view_entry(op, entry, seen, key)
        entry.device = check_devices(kinds, not op.pointwise)
        out, casts, common = op.infer(tuple(seen))
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    entry.many = out.__class__ is tuple or out.__class__ is list
    # A declared dtype alone says: the shape is known only when the reference has run.
    declared = tuple(out) if entry.many else (out,)
    entry.outs = declared if all(o.__class__ is Spec for o in declared) else None
    if entry.outs is not None and kinds == []:
        entry.device = entry.outs[0].device
    if casts is not None:
        casts = tuple(c if c != k.dtype.np else k.dtype.np for c, k in zip(casts, kinds, strict=True))
        if all(c is k.dtype.np for c, k in zip(casts, kinds, strict=True)):
            casts = None
    entry.casts = casts
    if common is not None and common.category == 1:
        entry.wrap = common.np
    entry.nbytes = sum(s.nbytes for s in entry.outs) if entry.outs is not None else 0
    entry.quick = not entry.many and entry.outs is not None and entry.device is not META and not op.eager \
        and op.verify is None
    return _remembered(key, entry)


def _remembered(key, entry):
    """Keep the entry for the next call of its kind. A program with ever new shapes starts afresh now and then."""
    if len(_entries) > 100_000:
        _entries.clear()
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
    entry.device = kind.device
    entry.casts = None
    return _remembered(key, entry)


def _view(entry, op, args, source, moved=0, inside=4):
    """Views of `source`: same storage, no instruction. They start `moved` elements after where the entry says."""
    site = here(inside)
    storage = source.storage
    itemsize = source.spec.dtype.itemsize
    outs = []
    for kind, delta in zip(entry.outs, entry.deltas, strict=True):
        tensor = wrap(storage, kind)
        scale = kind.dtype.itemsize
        tensor.offset = (source.offset if scale == itemsize else source.offset * itemsize // scale) + delta + moved
        tensor.site = site
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
    _history(op, entry, args, (source,), outs, site)
    return tuple(outs) if entry.many else outs[0]


def _run_now(entry, op, args, inputs, params):
    """Run an operation at the call: its result's shape, or its refusal, depends on the data."""
    arrays = [t.storage.value.ready().look(t.spec, t.offset) for t in inputs]
    try:
        with np.errstate(all="ignore"):
            made = execute(entry, arrays, params)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    storages = []
    for i, array in enumerate(made):
        kind = entry.outs[i] if entry.outs is not None else of_array(array)
        storages.append(Storage(Value(array, kind), kind.nbytes, kind.device))
    return storages


def _verify(op, args):
    """Check the data that the operation could fail on, at the call."""
    asked = op.__dict__.get("_verify_names")
    if asked is None:
        c = op.verify.__code__
        asked = op._verify_names = c.co_varnames[:c.co_argcount]
    given = []
    for name in asked:
        if name.endswith("_spec"):
            given.append(args[op.arg_names.index(name.removesuffix("_spec"))].spec)
            continue
        a = args[op.arg_names.index(name)]
        if isinstance(a, Tensor):
            a = array_of(a)
        elif op.lists and a.__class__ in (tuple, list):
            a = [array_of(b) if isinstance(b, Tensor) else b for b in a]
        given.append(a)
    try:
        op.verify(*given)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise


def array_of(tensor):
    """The tensor's contents as an array to read, run if pending. Not to be written or handed out."""
    if tensor.spec.device is META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!" + _said(tensor))
    return tensor.storage.value.ready().look(tensor.spec, tensor.offset)


# --- autograd beside the call ---------------------------------------------------------------------------------------


def _history(op, entry, args, inputs, outs, site):
    """Make the node that `outs` came from, where gradients are on and somebody needs one."""
    _attach(op, entry, args, inputs, outs, site)
    if modes.level >= 0:
        propagate(op, entry, args, inputs, outs)


def _attach(op, entry, args, inputs, outs, site):
    if modes.inference:
        cut = any(requires(t) for t in inputs)
        for out in outs:
            if not any(out.storage is t.storage for t in inputs):          # a view is what it looks at
                out.storage.inference = True
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
        cut = ("torch.no_grad()" if not modes.grad else f"{_called(op)}(), which has no gradient", site)
        for out in outs:
            out._cut = cut
        return
    plan = entry.plans.get(wanted)
    if plan is None:
        plan = entry.plans[wanted] = Plan(op, entry.kinds, entry.template, wanted)
    kept = [None] * (len(args) + 1)
    for at in entry.param_at:
        kept[at] = args[at]
    for at in plan.singles:
        t = args[at]
        if t.storage.inference:
            _no_inference(t)
        kept[at] = keep(t)
    for at in plan.lists:
        kept[at] = tuple([b if b is None else keep(b) for b in args[at]])
    edges = []
    for t, use in zip(inputs, plan.live, strict=True):
        if not use:
            edges.append(None)
        elif t._base is None and t._node is not None:
            edges.append((t._node, t._nr))
        else:
            edges.append(edge_of(t))
    node = _new(plan.node)
    node.plan = plan
    node.edges = edges
    node.kept = kept
    node.outs = entry.outs if entry.outs is not None else tuple([o.spec for o in outs])
    node.site = site
    node.seq = next(_count)
    if len(outs) == 1:
        out = outs[0]
        if plan.keep_out:
            kept[-1] = keep(out, True)
        if out.spec.dtype.category >= 2:
            out._node = node
            out._nr = 0
        else:
            out._cut = (f"{_called(op)}(), whose result is {out.spec.dtype.name} and so has no gradient", site)
        return
    node.n_outputs = len(outs)
    if plan.keep_out:
        kept[-1] = tuple([keep(o, True, i) for i, o in enumerate(outs)])
    for nr, out in enumerate(outs):
        if out.spec.dtype.category >= 2 and nr not in op.nondiff:
            out._node = node
            out._nr = nr
        else:
            out._cut = (f"{_called(op)}(), whose result {nr} has no gradient", site)


def _no_inference(tensor):
    if tensor.storage.inference:
        raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in "
                           "inference mode in computation tracked by autograd. To work around this, you can make a "
                           "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
                           "`torch.inference_mode()`."
                           + _said(tensor))


def _composite(op, args, kwargs):
    """Run a composite. All that it records inside belongs to the line that called the outermost one."""
    run = _ruled if op.differentiable else _unruled
    trace = _local.trace
    if trace.site is not None:
        return run(op, args, kwargs)
    trace.site = here(3)
    try:
        return run(op, args, kwargs)
    finally:
        trace.site = None


def _unruled(op, args, kwargs):
    """A composite whose inner operations make the graph."""
    if kwargs and not op.of.__code__.co_flags & 8:                   # 8: it takes ** itself
        kwargs = {k if k in op.arg_names else RENAMED.get(k, k): v for k, v in kwargs.items()}
    try:
        made = op.of(*args, **kwargs)
        return _named(op, made) if op.returns is not None and made.__class__ is tuple else made
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args, kwargs) from None
        inner = f"{op.of.__qualname__}()"                            # Python's words about missing or surplus arguments
        if error.__class__ is TypeError and str(error).startswith(inner):
            raise TypeError(f"{op.__name__}(){str(error).removeprefix(inner)}; its arguments are "
                            f"({', '.join(op.arg_names)})") from None
        raise


def _ruled(op, args, kwargs):
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
            outs[i] = out = wrap(out.storage, out.spec, out.offset)
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


# --- writing in place -----------------------------------------------------------------------------------------------


def inplace(op, args, kwargs, public=None):
    """`name_`: compute the result, check that it fits, write it into the first argument."""
    self = args[0]
    if public is not None and any(_overrides(a.__class__) for a in args) and not modes_torch_function_off():
        return _overridden(op, args, kwargs, None, public)
    before_write(self, op.__name__ + "_", overlap=op.overlap_ok)
    if op.apart:
        for t in args[1:]:
            if t.__class__ is Tensor and t.storage is self.storage and partly_overlap(self, t):
                raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor "
                                   "refer to a single memory location. Please clone() the tensor before performing the "
                                   "operation."
                                   + _said(self))
    asked = kwargs.get("dtype")
    if asked is not None and dtypes.given(asked) is not self.spec.dtype:
        raise RuntimeError(f"Bad in-place call: input tensor dtype {self.spec.dtype.name} and output tensor dtype "
                           f"{dtypes.given(asked).name} should match" + _said(self))
    if modes.grad and not _overrides(self.__class__):
        if op.blind and self._base is not None:           # CopySlices blanks the old slice: no history of it is needed
            args = (wrap(self.storage, self.spec, self.offset), *args[1:])
        elif any(requires(t) for t in _tensors(args)):
            args = (_as_it_was(self), *args[1:])
    try:
        result = call(op, args, kwargs)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, (self, *args[1:]), kwargs, "_") from None
        raise
    return assign(self, result, op.__name__ + "_")


def _as_it_was(self):
    """`self` before it is written, in a storage of its own, so that what autograd keeps of it outlives the write."""
    edge = edge_of(self)
    storage = self.storage
    value = storage.value
    if storage.exported and storage.still_exported():     # written in place: see Note [Exported storages] in value.py
        value = Value(value.ready().memory.copy(), spec(dtypes.uint8, (storage.nbytes,)))
    twin = wrap(Storage(value, storage.nbytes, storage.device), self.spec, self.offset)
    twin.site, twin._cut = self.site, self._cut
    if modes.level >= 0:
        twin._tangent = (modes.level, tangent_of(self))
    if edge is not None:
        twin._node, twin._nr = edge
    return twin


def partly_overlap(a, b):
    """Whether two dense looks at one storage share some cells but are not the same look (what PyTorch can decide)."""
    if not (a.spec.dense and b.spec.dense and a.spec.numel and b.spec.numel):
        return False
    if a.offset == b.offset and a.spec.shape == b.spec.shape and a.spec.strides == b.spec.strides:
        return False
    size_a, size_b = a.spec.dtype.itemsize, b.spec.dtype.itemsize
    start_a, start_b = a.offset * size_a, b.offset * size_b
    return start_a < start_b + b.spec.nbytes and start_b < start_a + a.spec.nbytes


def before_write(self, what, bytes=True, overlap=False):
    """Refuse a write that autograd or the memory cannot allow, before anything is computed.

    With `overlap` elements may share memory (filling an expanded tensor). Without `bytes` only the tensor's shape or
    strides will change (`t_`), which read-only memory allows too.
    """
    storage = self.storage
    if bytes and storage.readonly:
        raise RuntimeError(f"{what}: the tensor is read-only, since it shares the memory of a NumPy array that is not "
                           "writeable." + _said(self) + "\n  clone() it first, or make it from a writeable array.")
    if storage.inference and not modes.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a "
                           "clone to get a normal tensor before doing inplace update." + _said(self))
    kind = self.spec
    if bytes and not overlap and not kind.dense and shapes.may_overlap(kind.shape, kind.strides):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                           "memory location. Please clone() the tensor before performing the operation." + _said(self))
    if modes.grad:
        if self._view_of is not None:
            _view_checks(self, self)
        if self._node is None and self._requires_grad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                               "operation." + _said(self) +
                               f"\n  {what} would overwrite a leaf. Use with torch.no_grad(): for an update, or the "
                               "out-of-place form.")
        base = self._base
        if base is not None:
            if base._node is None and base._requires_grad:
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place "
                                   "operation." +
                                   _said(self)[:-1] + f": a view of {name_of(base, user_frame()) or 'a leaf'}, made at "
                                                      f"{line_of(base.site)}.\n  Writing to it would overwrite the "
                                                      "leaf. Use with torch.no_grad(): for an update, or clone() the "
                                                      "leaf first.")


def _view_checks(self, result):
    """Refuse rebasing a view that must not carry a new history."""
    if self._view_of is not None and (requires(self) or requires(result)):
        refuse_view(self, "is being modified inplace")


def refuse_view(self, written):
    """Refuse to go on with a view of a kind whose history cannot follow a write; `written` says what happened."""
    why = self._view_of
    name = self._node.name() if self._node is not None else "a view function"
    if why == "several":
        raise RuntimeError(f"Output {self._nr} of {name} is a view and {written}. This view is the output of a "
                           "function that returns multiple views. Such functions do not allow the output views to be "
                           "modified inplace. You should replace the inplace operation by an out-of-place "
                           "one." + _said(self))
    if why in ("no_grad", "inference"):
        mode, other = ("no_grad", "with grad mode enabled") if why == "no_grad" else ("inference", "in normal mode")
        block = why if why == "no_grad" else "inference_mode"
        raise RuntimeError(f"A view was created in {mode} mode and {written} {other}. Given that this use case is "
                           "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the "
                           f"view and the inplace either both inside the {block} block (if you don't want the inplace "
                           "to be tracked) or both outside (if you want the inplace to be tracked)." + _said(self))
    if why == "custom":
        raise RuntimeError(f"Output {self._nr} of {name} is a view and {written}. This view was created inside a "
                           "custom Function (or because an input was returned as-is) and the autograd logic to handle "
                           "view+inplace would override the custom backward associated with the custom Function, "
                           "leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning "
                           "the output of the custom Function." + _said(self))


def assign(self, result, what, check_cast=True):
    """Write `result` into `self` and carry the history over; `before_write` has been asked."""
    kind, made = self.spec, result.spec
    if made.shape != kind.shape:
        fits = len(made.shape) <= kind.ndim and shapes.broadcast(kind.shape, made.shape) == kind.shape
        if not fits:
            raise RuntimeError(f"output with shape {list(kind.shape)} doesn't match the broadcast shape "
                               f"{list(made.shape)}"
                               + _said(self))
    if made.dtype is not kind.dtype:
        if check_cast and not dtypes.can_cast(made.dtype, kind.dtype):
            raise RuntimeError(f"result type {made.dtype.cname} can't be cast to the desired output type "
                               f"{kind.dtype.cname}"
                               + _said(self) + "\n  Use the out-of-place form, or convert the tensor first.")
        result = _converted(result, kind.dtype)
    if made.shape != kind.shape:
        result = result.expand(kind.shape)
    if modes.grad:
        if self._view_of is not None:
            _view_checks(self, result)
        tracked = requires(result) or (self._base is not None and requires(self._base))
    else:
        tracked = False
    if tracked and self._base is not None:
        edge_self = edge_of(self._base)
    put(self, result, what)
    if tracked and isinstance(result._node, OpNode):
        result._node.result_moved(result.storage, self)
    if modes.level >= 0:
        write_tangent(self, result)
    if tracked:
        if self._base is None:
            self._node, self._nr = result._node, result._nr
            if self._node is None:               # the result is itself a leaf (copy_ of a leaf into plain memory)
                self._node, self._nr = edge_of(result)
            self._requires_grad = False
        else:
            rebase(self, result, edge_self)
    elif modes.grad and self._node is None and result._cut is not None:
        self._cut = result._cut
    if tracked and self._retains:
        self.retain_grad()
    return self


def _converted(result, dtype):
    """`result` as `dtype`, without a node of its own: a gradient is brought to the dtype of what it is for anyway."""
    before, modes.grad = modes.grad, False
    try:
        made = result.to(dtype)
    finally:
        modes.grad = before
    made._node, made._nr, made._cut = result._node, result._nr, result._cut
    return made


def put(self, result, what):
    """Replace the bytes of `self` by those of `result` (same shape and dtype) and raise the version."""
    storage = self.storage
    kind = self.spec
    storage.version += 1
    storage.writer = (here(), what)
    if kind.device is META:
        return
    source = result.storage
    if storage.exported and storage.still_exported():
        current().run()
        value = storage.value.ready()
        incoming = array_of(result)
        target = value.look(kind, self.offset)
        if source is storage or np.may_share_memory(target, incoming):
            incoming = incoming.copy()
        if not kind.dense and shapes.may_overlap(kind.shape, kind.strides):
            _write_changed(target, incoming)
        else:
            target[...] = incoming
        return
    whole = kind.dense and self.offset == 0 and kind.nbytes == storage.nbytes
    if whole and result.spec is kind and result.offset == 0 and source.nbytes == kind.nbytes and not source.exported:
        storage.value = source.value
        return
    flat = spec(dtypes.uint8, (storage.nbytes,))
    if not kind.dense and shapes.may_overlap(kind.shape, kind.strides):
        now, incoming = array_of(self), array_of(result)
        memory = storage.value.memory.copy()
        _write_changed(np.ndarray(now.shape, now.dtype, memory, self.offset * now.itemsize, kind.np_strides), incoming)
        storage.value = Value(memory, flat)
        return
    storage.value = write_part(self, flat, result)
    if source.exported and source.still_exported():
        current().run()


def _write_changed(target, incoming):
    """Write to elements that share memory: only what differs, since an unchanged element written later would undo a
    changed one in the same cell."""
    changed = ~((target == incoming) | ((target != target) & (incoming != incoming)))
    target[changed] = incoming[changed]


def into(op, args, kwargs, out):
    """`out=`: compute, check, resize an empty out, write."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{op.__name__}(): argument 'out' must be Tensor, not {type(o).__name__}")
    needing = next((t for t in (*_tensors(args), *outs) if requires(t)), None) if modes.grad else None
    if needing is not None:
        raise RuntimeError(f"{op.__name__}(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires "
                           "grad." + _said(needing) + "\n  Leave out= away, or use torch.no_grad().")
    for o in outs:
        before_write(o, f"{op.__name__}(out=)")
        if op.out_apart and any(_overlap(o, t) for t in _tensors(args)):
            raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor "
                               "refer to a single memory location. Please clone() the tensor before performing the "
                               "operation." + _said(o))
    if op.creates:
        kwargs = _as_out(op, kwargs, outs[0])
    before, modes.grad = modes.grad, False
    try:
        made = call(op, args, kwargs)
        results = made if isinstance(made, (tuple, list)) else (made,)
        if isinstance(out, (tuple, list)) and not hasattr(made, "_fields"):
            raise TypeError(f"{op.__name__}(): argument 'out' must be Tensor, not {type(out).__name__}")
        if len(results) != len(outs):
            raise TypeError(f"{op.__name__}(): out takes {len(results)} tensors, got {len(outs)}")
        for o, r in zip(outs, results, strict=True):
            if r.spec.dtype is not o.spec.dtype and _strict_out(op, args, outs):
                raise RuntimeError(f"Found dtype {o.spec.dtype.cname} but expected {r.spec.dtype.cname} for "
                                   "out" + _said(o))
            if not dtypes.can_cast(r.spec.dtype, o.spec.dtype):
                raise op.out_error(f"result type {r.spec.dtype.cname} can't be cast to the desired output type "
                                   f"{o.spec.dtype.cname}" + _said(o))
            if r.spec.device is not o.spec.device:
                raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, "
                                   f"{r.spec.device} and {o.spec.device}! (argument out)")
        for o, r in zip(outs, results, strict=True):
            if o.spec.shape != r.spec.shape:
                if o.spec.numel:
                    warn("An output with one or more elements was resized since it had shape "
                         f"{list(o.spec.shape)}, which does not match the required output shape "
                         f"{list(r.spec.shape)}. This behavior is deprecated, and in a future PyTorch release "
                         "outputs will not be resized unless they have zero elements. You can explicitly "
                         "reuse an out tensor t by resizing it, inplace, to zero elements with "
                         "t.resize_(0).")
                o.resize_(r.spec.shape)
            assign(o, r, f"{op.__name__}(out=)", check_cast=False)
    finally:
        modes.grad = before
    if not isinstance(made, (tuple, list)):
        return out
    return _named(op, outs)


def _overlap(a, b):
    """Whether two tensors span common memory."""
    if a is b:
        return True
    if a.storage is not b.storage:
        return False
    first, last = [], []
    for t in (a, b):
        first.append(t.offset * t.spec.dtype.itemsize)
        last.append(first[-1] + shapes.extent(t.spec.shape, t.spec.strides) * t.spec.dtype.itemsize)
    return first[0] < last[1] and first[1] < last[0]


def _strict_out(op, args, outs):
    """Whether `outs` must already have the dtypes of the results."""
    how = op.strict_out
    if callable(how):
        return how(*args)
    return how is True or (how == "several" and len(outs) > 1) \
        or (how == "tensors" and all(isinstance(a, Tensor) for a in args))


def _as_out(op, kwargs, out):
    """The arguments of a creating function with dtype and device taken from `out`, refused where they differ."""
    kind = out.spec
    dtype, where = dtypes.given(kwargs.get("dtype"), kind.dtype), kwargs.get("device")
    if dtype is not kind.dtype:
        raise RuntimeError(f"dtype {dtype.cname} does not match dtype of out parameter "
                           f"({kind.dtype.cname})" + _said(out))
    if where is not None and place(where) is not kind.device:
        raise RuntimeError(f"device type {place(where).type} does not match device type of out parameter "
                           f"({kind.device.type})"
                           + _said(out))
    return {**kwargs, "dtype": dtype, "device": kind.device} if "device" in op.arg_names else {**kwargs, "dtype": dtype}


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
    if not types or modes_torch_function_off():
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
    return found


_asks: dict = {}


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
        return into(op, args, kwargs, out)
    if op.composite:
        return _composite(op, args, kwargs)
    return dispatch(op, op.bind(args, kwargs))


def modes_torch_function_off():
    return getattr(modes, "plain", False)


# --- messages -----------------------------------------------------------------------------------------------------


def _said(tensor):
    """Name, spec and birthplace of one tensor, for the end of a message."""
    name = name_of(tensor, user_frame()) or "the tensor"
    return f"\n  {name} is {tensor.spec}, made at {line_of(tensor.site)}."


def _called(op):
    """What the user calls `op`."""
    return op.called or op.__name__.strip("_")


def _call_words(op, args, kwargs=None, suffix=""):
    """The call with its arguments, tensors by their names in the user's frame and their specs."""
    frame = user_frame()
    words = []

    def worded(b):
        if not isinstance(b, Tensor):
            return repr(b)
        name = name_of(b, frame)
        return f"{name} {b.spec}" if name else str(b.spec)

    named = len(op.arg_names) if not op.composite or op.differentiable else op.n_positional     # beyond: its *args
    for at, a in enumerate(args):
        argument = op.arg_names[at] if at < named else ""
        if isinstance(a, Tensor):
            name = name_of(a, frame)
            words.append(f"{argument or name or 'tensor'}: "
                         f"{name + ' ' if name and argument and name != argument else ''}{a.spec}")
        elif isinstance(a, (tuple, list)) and any(isinstance(b, Tensor) for b in a):
            words.append(f"{argument or 'tensors'}: [{', '.join(worded(b) for b in a)}]")
        elif not argument:
            words.append(repr(a))
        elif a is not op.defaults[at]:
            words.append(f"{argument}={a!r}")
    words += [f"{argument}{': ' if isinstance(a, Tensor) else '='}{worded(a)}"
              for argument, a in (kwargs or {}).items()]
    return f"{_called(op)}{suffix}({', '.join(words)})"


def explained(error, op, args, kwargs=None, suffix=""):
    """The refusal with the call, and the lines that made its tensors, behind PyTorch's words.

    A composite explains anew what a part of it refused, as long as both stand in one call of the user's: the message
    then shows the call that the user wrote.
    """
    frame = user_frame()
    if getattr(error, "frame", id(frame)) != id(frame):
        return error
    refused = getattr(error, "refused", error.args[0])
    made = []
    for at, a in enumerate((*args, *kwargs.values()) if kwargs else args):
        for b in a if isinstance(a, (tuple, list)) else (a,):
            if isinstance(b, Tensor):
                name = name_of(b, frame) or (op.arg_names[at] if at < len(op.arg_names) else "argument")
                made.append(f"{name} at {line_of(b.site)}")
    message = f"{refused}\n  in {_call_words(op, args, kwargs, suffix)}"
    if made:
        message += f"\n  made: {', '.join(dict.fromkeys(made))}"
    complete = type(error)(message)
    complete.refusal, complete.refused, complete.frame = True, refused, id(frame)
    return complete


_new = object.__new__
door.call = call
door.tensor = Tensor
door.wrap = wrap
door.refuse_view = refuse_view
door.inplace = inplace
door.before_write = before_write
