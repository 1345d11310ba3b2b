"""Writing in place and into `out=`: what may be written, the bytes, and the history that goes with them.

Every write asks `before_write` first and changes nothing if it refuses. `assign` then puts the result into the
tensor's storage and gives the tensor, or the base it is a view of, its new history.
"""
import numpy as np

from ..autograd.edges import edge_of, requires
from ..autograd.forward_ad import tangent_of, write_tangent
from ..autograd.modes import modes
from ..autograd.node import OpNode
from ..autograd.slices import SharedCells, rebase
from ..base import dtypes, observers, shapes
from ..base.errors import line_of, name_of, user_frame, warn
from ..base.op import door, known
from ..base.spec import CPU, META, as_device, spec
from ..trace.recording.record import Trace, current, write_part
from ..trace.running.quick import here
from ..trace.value import Storage, Value
from . import overrides
from .batched import Batched, as_it_was, written
from .call import call_as_is, overridden
from .composite import tensors_in
from .infer import prepared
from .messages import explained, said
from .overrides import has_override, overrides_off
from .overwrite import hide_write, storage_gets, updated_whole, written_whole
from .results import named
from .tensor import Tensor, wrap


def inplace(op, args, kwargs, public=None):
    """`name_`: compute the result, check that it fits, write it into the first argument."""
    self = args[0]
    facts = known.get(op) or prepared(op)
    if not facts.composite and written_whole(op, facts, self, args, kwargs):
        return self
    if overrides.modes_active:
        if overrides.function_modes.stack:
            return overrides.handle_by_mode(public or getattr(Tensor, facts.in_place), args, kwargs)
        if overrides.calls_observed and overrides.function_modes.told is not facts:      # as `written_whole` asks
            return overrides.observed(facts, facts.in_place, inplace, (op, args, kwargs, public), args, kwargs)
        overrides.function_modes.told = op                 # and what computes it is this call
    if public is not None:
        for a in args:
            if a.__class__ is not Tensor and a.__class__ is not Batched and has_override(a.__class__) \
                    and not overrides_off():
                return overridden(op, args, kwargs, None, public)
    overlap_ok = facts.overlap_ok
    if callable(overlap_ok):
        overlap_ok = overlap_ok(*args, **kwargs)
    before_write(self, facts.in_place, True, overlap_ok)
    if overlap_ok == "deprecated" and any(s == 0 and n > 1 for n, s in zip(self._spec.shape, self._spec.strides)):
        warn(f"Use of {facts.in_place} on expanded tensors is deprecated. Please clone() the tensor before performing "
             "this operation. This also applies to advanced indexing e.g. tensor[indices] = tensor")
    if facts.no_overlap:
        refuse_overlap(op, self, args[1:], kwargs, 1)
    if op.creates and not (kwargs and kwargs.get("dtype") is not None):
        kwargs = {**(kwargs or {}), "dtype": self._spec.dtype}        # the tensor that is written says the dtype
    asked = kwargs.get("dtype") if kwargs else None
    if asked is not None and dtypes.given(asked) is not self._spec.dtype:
        raise RuntimeError(f"Bad in-place call: input tensor dtype {self._spec.dtype.name} and output tensor dtype "
                           f"{dtypes.given(asked).name} should match" + said(self))
    storage = self._storage
    while True:                               # see Note [Threads that write to one storage] in overwrite.py
        before, writer = storage.writer, (current().site or here(), facts.in_place)
        storage.writer = writer
        try:
            result = call_as_is(op, _to_differentiate(facts, args, kwargs) if modes.grad else args, kwargs)
        except Exception as error:
            storage.writer = before
            if getattr(error, "refusal", False):
                raise explained(error, op, args, kwargs, "_") from None
            raise
        if assign(self, result, facts.in_place, True, writer) is not None:
            return self


def _to_differentiate(facts, args, kwargs):
    """The arguments of an in-place call, the written tensor as it was where autograd keeps something of it."""
    self = args[0]
    if self.__class__ is Batched:
        if any(requires(t) for t in tensors_in((*args, *kwargs.values()) if kwargs else args)):
            return (as_it_was(self, _as_it_was), *args[1:])
    elif not has_override(self.__class__):
        if facts.blind and self._base is not None:        # CopySlices blanks the old slice: no history of it is needed
            return (wrap(self._storage, self._spec, self._offset), *args[1:])
        if any(requires(t) for t in tensors_in((*args, *kwargs.values()) if kwargs else args)):
            return (_as_it_was(self), *args[1:])
    return args


def update(op, tensors, numbers):
    """Call `op`, an operation without gradients, and put its results into those of its `tensors` that it `writes`.

    False, and nothing has been done, where the tensors are of several dtypes, or a tensor is among the numbers.
    """
    if updated_whole(op, tensors, numbers):
        return True
    common = tensors[0]._spec.dtype
    if any(isinstance(n, Tensor) for n in numbers) \
            or any(t is not None and t._spec.dtype is not common for t in tensors):
        return False
    made = call_as_is(op, tensors + numbers, {})
    for t, result in zip([tensors[at] for at in op.writes if tensors[at] is not None], made, strict=True):
        t.copy_(result)
    return True


def may_refill(tensor):
    """Whether `refill` may write to a tensor: it is all that a storage of the CPU holds, nothing outside looks at that
    memory, and calls are not observed."""
    storage, spec = tensor._storage, tensor._spec
    return storage.device is CPU and storage.nbytes == spec.nbytes and not tensor._offset and spec.dense \
        and not storage.exported and not storage.readonly and not storage.inference and storage.shared is None \
        and current().__class__ is Trace and not overrides.modes_active and observers.wrote is None \
        and tensor._data_version is None and not (modes.grad and requires(tensor))


def refill(tensor, number):
    """Have a tensor hold `number` everywhere, at once: what is known beforehand need not be recorded and run."""
    spec, site = tensor._spec, current().site or here()
    storage_gets(tensor, Value.of(np.full(spec.shape, number, spec.dtype.np), spec), (site, "fill_"))


def _as_it_was(self):
    """`self` before it is written, in a storage of its own, so that what autograd keeps of it outlives the write."""
    edge = edge_of(self)
    storage, spec = self._storage, self._spec
    if edge is not None and self._base is not None and not spec.dense and shapes.may_overlap(spec.shape, spec.strides):
        edge = (SharedCells(self._base, self), 0)
    value = storage.value
    if storage.exported and storage.still_exported():     # written in place: see Note [Exported storages] in value.py
        value = value.ready().copy_of_bytes()
    twin = wrap(Storage.of(value, storage.nbytes, storage.device), self._spec, self._offset)
    twin._site, twin._cut = self._site, self._cut
    if modes.level >= 0:
        twin._tangent = (modes.level, tangent_of(self))
    if edge is not None:
        twin._node, twin._nr = edge
    return twin


def refuse_overlap(op, written, args, kwargs, at=0):
    """Refuse operands that overlap the tensor `written` as `op.no_overlap` says; `args` start at its argument `at`."""
    never = op.no_overlap
    if never is True:
        never = ()
    else:
        never = (never(written, *args, **kwargs) if callable(never) else never).split()
    for name, given in (*zip(op.arg_names[at:], args), *kwargs.items()):
        if name == "value" or at and never and name not in never:      # a value is read before anything is written
            continue
        for t in given if given.__class__ in (tuple, list) else (given,):
            if isinstance(t, Tensor) and t._storage is written._storage \
                    and (partly_overlap(written, t) or name in never and same_look(written, t)):
                raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor "
                                   "refer to a single memory location. Please clone() the tensor before performing the "
                                   "operation." + said(written))


def same_look(a, b):
    """Whether two tensors over one storage look at the same cells in the same way."""
    return a._offset == b._offset and a._spec.shape == b._spec.shape and a._spec.strides == b._spec.strides


def partly_overlap(a, b):
    """Whether two dense looks at one storage share some cells but are not the same look (what PyTorch can decide)."""
    if not (a._spec.dense and b._spec.dense and a._spec.numel and b._spec.numel):
        return False
    if same_look(a, b):
        return False
    size_a, size_b = a._spec.dtype.itemsize, b._spec.dtype.itemsize
    start_a, start_b = a._offset * size_a, b._offset * size_b
    return start_a < start_b + b._spec.nbytes and start_b < start_a + a._spec.nbytes


def before_write(self, what, bytes=True, overlap=False):
    """Refuse a write that autograd or the memory cannot allow, before anything is computed.

    With `overlap` elements may share memory (filling an expanded tensor). Without `bytes` only the tensor's shape or
    strides will change (`t_`), which read-only memory allows too.
    """
    storage = self._storage
    if storage.in_flight is not None:
        storage.settle()
    if bytes and storage.readonly:
        raise RuntimeError(f"{what}: the tensor is read-only, since it shares the memory of a NumPy array that is not "
                           "writeable." + said(self) + "\n  clone() it first, or make it from a writeable array.")
    if storage.inference and not modes.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a "
                           "clone to get a normal tensor before doing inplace update." + said(self))
    spec = self._spec
    if bytes and not overlap and not spec.dense and shapes.may_overlap(spec.shape, spec.strides):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                           "memory location. Please clone() the tensor before performing the operation." + said(self))
    if modes.grad:
        if self._view_of is not None:
            _view_checks(self, self)
        base = self._base
        if base is not None and base._node is None and requires(self):
            # The leaf is the base, or another view of it, perhaps the written one: no history of the base can be made
            # that leads to it.
            of = said(self)[:-1] + f": a view of {name_of(base, user_frame()) or 'a leaf'}, made at " \
                                   f"{line_of(base._site)}."
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation." +
                               of + "\n  Writing to it would overwrite the leaf. Use with torch.no_grad(): for an "
                               "update, or clone() the leaf first.")
        if self._node is None and self._requires_grad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                               "operation." + said(self) +
                               f"\n  {what} would overwrite a leaf. Use with torch.no_grad(): for an update, or the "
                               "out-of-place form.")


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
                           "one." + said(self))
    if why in ("no_grad", "inference"):
        mode, other = ("no_grad", "with grad mode enabled") if why == "no_grad" else ("inference", "in normal mode")
        block = why if why == "no_grad" else "inference_mode"
        raise RuntimeError(f"A view was created in {mode} mode and {written} {other}. Given that this use case is "
                           "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the "
                           f"view and the inplace either both inside the {block} block (if you don't want the inplace "
                           "to be tracked) or both outside (if you want the inplace to be tracked)." + said(self))
    if why == "custom":
        raise RuntimeError(f"Output {self._nr} of {name} is a view and {written}. This view was created inside a "
                           "custom Function (or because an input was returned as-is) and the autograd logic to handle "
                           "view+inplace would override the custom backward associated with the custom Function, "
                           "leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning "
                           "the output of the custom Function." + said(self))


def assign(self, result, what, check_cast=True, writer=None):
    """Write `result` into `self` and carry the history over; `before_write` has been asked. Gives `self`; None, and
    nothing is written, where a `writer` was shown before the result was computed and another one is there now."""
    spec, made = self._spec, result._spec
    if made.shape != spec.shape:
        fits = len(made.shape) <= spec.ndim and shapes.broadcast(spec.shape, made.shape) == spec.shape
        if not fits:
            raise RuntimeError(f"output with shape {list(spec.shape)} doesn't match the broadcast shape "
                               f"{list(made.shape)}"
                               + said(self))
    if made.dtype is not spec.dtype:
        if check_cast and not dtypes.can_cast(made.dtype, spec.dtype):
            raise RuntimeError(f"result type {made.dtype.cname} can't be cast to the desired output type "
                               f"{spec.dtype.cname}"
                               + said(self) + "\n  Use the out-of-place form, or convert the tensor first.")
        result = result.to(spec.dtype) if result.__class__ is Batched else _converted(result, spec.dtype)
    if self.__class__ is Batched or result.__class__ is Batched:
        return written(self, result, what, assign)
    if made.shape != spec.shape:
        result = result.expand(spec.shape)
    if modes.grad:
        if self._view_of is not None:
            _view_checks(self, result)
        tracked = requires(result) or (self._base is not None and requires(self._base))
    else:
        tracked = False
    if tracked and self._base is not None:
        edge_self = edge_of(self._base)
    if not put(self, result, what, writer):
        return None
    if tracked and isinstance(result._node, OpNode):
        result._node.result_moved(result._storage, self)
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


def put(self, result, what, shown=None):
    """Replace the bytes of `self` by those of `result` (same shape and dtype) and raise the version. Whether that was
    done: see `assign`, and Note [Threads that write to one storage] in overwrite.py."""
    storage, own, writer = self._storage, self._spec, shown
    if (tell := observers.wrote) is not None:
        tell(storage)
    if modes.levels:
        modes.levels[-1].wrote(storage)
    if shown is None:
        writer = storage.writer = (current().site or here(), what)
    if own.device is META:
        return _written(self)
    source = result._storage
    if storage.exported and storage.still_exported():
        current().run()
        value = storage.value.ready()
        backend = own.device.backend
        incoming, target = source.value.ready().look(result._spec, result._offset), value.look(own, self._offset)
        if source is storage or backend.overlap(target, incoming):
            incoming = backend.copied(incoming)
        put_array = backend.put_changed if not own.dense and shapes.may_overlap(own.shape, own.strides) \
            else backend.put
        put_array(target, incoming)
        if storage.value is not value:        # another thread has moved it meanwhile: see Note [Moved beside a program]
            put_array(storage.value.ready().look(own, self._offset), incoming)
        return _written(self)
    whole = own.dense and self._offset == 0 and own.nbytes == storage.nbytes and result._spec is own \
        and result._offset == 0 and source.nbytes == own.nbytes and not source.exported
    cells_apart = own.dense or not shapes.may_overlap(own.shape, own.strides)
    while True:
        value = source.value if whole else \
            write_part(self, spec(dtypes.uint8, (storage.nbytes,), device=storage.device), result, writer[0]) \
            if cells_apart else _with_shared_cells(self, result)
        if storage.writer is writer:
            storage.value = value
            break
        if shown is not None:
            return False
        storage.writer = writer
    storage.version += 1
    if self._data_version is not None:
        hide_write(self)
    if not whole and source.exported and source.still_exported():
        current().run()
    return True


def _with_shared_cells(self, result):
    """The contents of the storage of `self`, some elements of which share a cell, after `result` is written to it."""
    value, own = self._storage.value.ready().copy_of_bytes(), self._spec
    own.device.backend.put_changed(value.look(own, self._offset),
                                   result._storage.value.ready().look(result._spec, result._offset))
    return value


def _written(self):
    """Count a write."""
    self._storage.version += 1
    if self._data_version is not None:
        hide_write(self)
    return True


def refuse_derivatives(name, tensors):
    """What a call with `out=` reads and writes has no derivative that is wanted: the call would forget it."""
    needing = next((t for t in tensors if requires(t)), None) if modes.grad else None
    if needing is not None:
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but "
                           "one of the arguments requires grad." + said(needing)
                           + "\n  Leave out= away, or use torch.no_grad().")
    dual = next((t for t in tensors if tangent_of(t) is not None), None) if modes.level >= 0 else None
    if dual is not None:
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an "
                                  "out= function" + said(dual) + "\n  Leave out= away, or detach() what has a tangent.")


def into(op, args, kwargs, out):
    """`out=`: compute, check, resize an empty out, write."""
    if "out" not in op.forms.split():
        raise TypeError(f"{op.__name__}() got an unexpected keyword argument 'out'; its arguments are "
                        f"({', '.join(op.arg_names)}). Use copy_ to write its result into a tensor.")
    outs = out if isinstance(out, (tuple, list)) else (out,)
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{op.__name__}(): argument 'out' must be Tensor, not {type(o).__name__}")
    refuse_derivatives(op.__name__, (*tensors_in(args), *outs))
    if op.out_each:
        return _copy_into_each(op, args, kwargs, outs)
    for o in outs:
        before_write(o, f"{op.__name__}(out=)")
        if op.out_no_overlap and any(_overlap(o, t) for t in tensors_in(args)):
            raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor "
                               "refer to a single memory location. Please clone() the tensor before performing the "
                               "operation." + said(o))
        if op.no_overlap:
            refuse_overlap(op, o, args, kwargs)
    if op.creates:
        if op.creates == "floating" and kwargs.get("dtype") is None and outs[0]._spec.dtype.is_integral \
                and not args[0]._spec.dtype.is_integral:
            raise NotImplementedError(f"\"{op.__name__}_cpu\" not implemented for '{outs[0]._spec.dtype.cname}'"
                                      + said(outs[0]))
        kwargs = _as_out(op, kwargs, outs[0])
    elif kwargs.get("dtype") is not None and dtypes.given(kwargs["dtype"]) is not outs[0]._spec.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {dtypes.given(kwargs['dtype'])}, but got "
                           f"{outs[0]._spec.dtype} instead" + said(outs[0]))
    before, modes.grad = modes.grad, False
    try:
        made = _write_results(op, args, kwargs, out, outs)       # a loop: behind a call
    finally:
        modes.grad = before
    if not isinstance(made, (tuple, list)):
        return out
    return named(op, outs)


def _write_results(op, args, kwargs, out, outs):
    """Compute, and write the results into `outs`, which are resized where they are empty; gives what was computed."""
    made = call_as_is(op, args, kwargs)
    results = made if isinstance(made, (tuple, list)) else (made,)
    if isinstance(out, (tuple, list)) and not hasattr(made, "_fields"):
        raise TypeError(f"{op.__name__}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if len(results) != len(outs):
        raise TypeError(f"{op.__name__}(): out takes {len(results)} tensors, got {len(outs)}")
    if kwargs.get("as_tuple"):
        raise RuntimeError(f"{op.__name__} does not support the out kwarg when as_tuple is True")
    for o, r in zip(outs, results, strict=True):
        if op.real_out and o._spec.dtype.is_complex:
            raise RuntimeError(f"{op.__name__.removeprefix('_fft_')} expects a floating point output tensor, but "
                               f"got {o._spec.dtype.cname}" + said(o))
        if r._spec.dtype is not o._spec.dtype and _strict_out(op, args, outs):
            raise RuntimeError(f"Found dtype {o._spec.dtype.cname} but expected {r._spec.dtype.cname} for "
                               "out" + said(o))
        if not dtypes.can_cast(r._spec.dtype, o._spec.dtype):
            raise op.out_error(f"result type {r._spec.dtype.cname} can't be cast to the desired output type "
                               f"{o._spec.dtype.cname}" + said(o))
        if r._spec.device is not o._spec.device:
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, "
                               f"{r._spec.device} and {o._spec.device}! (argument out)")
    # Memory that the outside holds may refuse to grow: it is asked first, while nothing has changed.
    how = op.out_resize.split()
    for o, r in sorted(zip(outs, results, strict=True), key=lambda pair: not pair[0]._storage.exported):
        if o._spec.numel != r._spec.numel if "count" in how else o._spec.shape != r._spec.shape:
            if o._spec.numel and "warn" in how:
                warn_of_resize(o._spec.shape, r._spec.shape, r._spec.numel if "count" in how else None)
            door.resize(o, r._spec.shape, r._spec.strides)     # the write that follows is counted, and this is not
    for o, r in zip(outs, results, strict=True):
        if "count" in how and o._spec.shape != r._spec.shape:
            r = r.reshape(o._spec.shape)
        assign(o, r, f"{op.__name__}(out=)", check_cast=False)
    return made


def _copy_into_each(op, args, kwargs, outs):
    """Write each result into the tensor of the list `outs` in its place; nothing is written where one is refused."""
    made = call_as_is(op, args, kwargs)
    if len(made) != len(outs):
        raise RuntimeError(f"{op.__name__}() expected an out= argument of size {len(made)}, got size {len(outs)}")
    for o, r in zip(outs, made, strict=True):
        before_write(o, f"{op.__name__}(out=)")
        shape, given = o._spec.shape, r._spec.shape
        if op.out_each == "resized":
            if o._spec.dtype is not r._spec.dtype:
                raise RuntimeError(f"Expected out tensor to have dtype {r._spec.dtype}, but got {o._spec.dtype} instead"
                                   + said(o))
        elif len(shape) < len(given) or any(a not in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False)):
            raise RuntimeError(f"output with shape {list(shape)} doesn't match the broadcast shape {list(given)}"
                               + said(o))
    for o, r in zip(outs, made, strict=True):
        if op.out_each == "resized" and o._spec.shape != r._spec.shape:
            if o._spec.numel:
                warn_of_resize(o._spec.shape, r._spec.shape)
            door.resize(o, r._spec.shape, r._spec.strides)
        o.copy_(r)


def warn_of_resize(old, new, count=None):
    """Say that an `out=` of another shape is made to fit; or of another number of elements than `count`."""
    if count is not None:
        return warn(f"The number of elements in the out tensor of shape {list(old)} is {shapes.numel(old)} which does "
                    f"not match the computed number of elements {count}. Note that this may occur as a result of "
                    f"rounding error. The out tensor will be resized to a tensor of shape ({count},).")
    return warn(f"An output with one or more elements was resized since it had shape {list(old)}, which does not match "
                f"the required output shape {list(new)}. This behavior is deprecated, and in a future PyTorch release "
                "outputs will not be resized unless they have zero elements. You can explicitly reuse an out tensor t "
                "by resizing it, inplace, to zero elements with t.resize_(0).")


def _overlap(a, b):
    """Whether two tensors span common memory."""
    if a is b:
        return True
    if a._storage is not b._storage:
        return False
    first, last = [], []
    for t in (a, b):
        first.append(t._offset * t._spec.dtype.itemsize)
        last.append(first[-1] + shapes.extent(t._spec.shape, t._spec.strides) * t._spec.dtype.itemsize)
    return first[0] < last[1] and first[1] < last[0]


def _strict_out(op, args, outs):
    """Whether `outs` must already have the dtypes of the results."""
    how = op.strict_out
    if callable(how):
        return how(*args)
    if how == "truth":
        return any(o._spec.dtype not in (dtypes.bool, dtypes.uint8) for o in outs)
    return how is True or (how == "several" and len(outs) > 1) \
        or (how == "tensors" and all(isinstance(a, Tensor) for a in args))


def _as_out(op, kwargs, out):
    """The arguments of a creating function with dtype and device taken from `out`, refused where they differ."""
    spec = out._spec
    dtype, where = dtypes.given(kwargs.get("dtype"), spec.dtype), kwargs.get("device")
    if dtype is not spec.dtype:
        raise RuntimeError(f"dtype {dtype.cname} does not match dtype of out parameter "
                           f"({spec.dtype.cname})" + said(out))
    if where is not None and as_device(where) is not spec.device:
        raise RuntimeError(f"device type {as_device(where).type} does not match device type of out parameter "
                           f"({spec.device.type})"
                           + said(out))
    return {**kwargs, "dtype": dtype, "device": spec.device} if "device" in op.arg_names else {**kwargs, "dtype": dtype}


door.inplace = inplace
door.into = into
door.before_write = before_write
door.refuse_view = refuse_view
door.hide_write = hide_write
