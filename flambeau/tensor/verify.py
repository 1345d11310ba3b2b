"""Checks on the data itself, made at the call: an index that points outside, a probability above one."""
from ..base.bounds import NotKnown
from ..base.spec import CPU, META
from ..trace import on_host
from ..trace.bounds import PLAIN_PARAMETERS, bounds_of, give_up
from ..trace.recording.record import _local
from .messages import explained
from .reading import array_of
from .tensor import Tensor


def _for_a_check(tensor):
    """A tensor's contents for a check to read; see Note [Checks without waiting] in trace/on_host.py."""
    if tensor._spec.device is META:
        return array_of(tensor)
    storage = tensor._storage
    return on_host.read(storage.value, tensor._spec, tensor._offset, not storage.exported)


def _on_cpu(tensor):
    """The same, of a tensor that is known to be there."""
    value = tensor._storage.value
    if value.trace is not None:
        value.ready()
    return value.look(tensor._spec, tensor._offset)


def verify(op, args, device=None):
    """Check the data that the operation could fail on, at the call. `device`: that of all its tensors, where known."""
    asked, positions, bounded = op.__dict__.get("_verified") or _verified(op)
    trace = _local.trace
    passed = on_host.checks_passed(op, positions, args) if trace.reader is None and device is not CPU else None
    if passed is not None and passed[1] in passed[0]:            # a Value never changes
        return
    if bounded and (given := _known(op, positions, bounded, args, trace)) is not None:
        try:
            return _made(op, given, args)
        except NotKnown:
            pass
        for at in bounded:                                       # the contents have to say, to who asks next, too
            for tensor in (args[at],) if isinstance(args[at], Tensor) else args[at]:
                if isinstance(tensor, Tensor):
                    give_up(tensor)
    given = []
    read = trace.reader(op, asked, args) if trace.reader is not None else _on_cpu if device is CPU else _for_a_check
    for at, is_spec in positions:
        a = args[at]
        if is_spec:
            a = getattr(a, "_spec", None)
        elif isinstance(a, Tensor):
            a = read(a)
        elif op.lists and a.__class__ in (tuple, list):
            a = [read(b) if isinstance(b, Tensor) else b for b in a]
        given.append(a)
    _made(op, given, args)
    if passed is not None:
        passed[0].add(passed[1])


def _made(op, given, args):
    """Make the check, and explain a refusal."""
    try:
        op.verify(*given)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise


def _known(op, positions, bounded, args, trace):
    """What a check is given where it may pass without a look: Bounds in the place of data. None where nothing is known
    of one of its tensors, or it has none; see Note [Known bounds] in trace/bounds.py."""
    measures, given, has_any = trace.reader is None, [], False
    for at, is_spec in positions:
        a = args[at]
        if is_spec:
            a = getattr(a, "_spec", None)
        elif isinstance(a, Tensor):
            a = bounds_of(a, trace, measures) if at in bounded else None
            if a is None:
                return None
            has_any = True
        elif op.lists and a.__class__ in (tuple, list):
            a = [_mask_or_bounds(b, trace, measures) if isinstance(b, Tensor) else b for b in a]
            if any(known is None and b is not None for known, b in zip(a, args[at], strict=True)):
                return None
            has_any = True
        elif not measures and type(a) not in PLAIN_PARAMETERS:              # a number that a repetition has anew
            return None
        given.append(a)
    return given if has_any else None


def _mask_or_bounds(tensor, trace, measures):
    """A mask of an index where it is there, which it mostly is, since shapes depend on it; else Bounds, or None."""
    spec = tensor._spec
    if measures and spec.dtype.itemsize == 1 and spec.device is CPU and tensor._storage.value.trace is None:
        return _on_cpu(tensor)
    return bounds_of(tensor, trace, measures)


def _verified(op):
    """(The names of what the check of an operation asks for; (position of the argument, whether its spec) of each; the
    positions whose bounds may do)."""
    c = op.verify.__code__
    asked = c.co_varnames[:c.co_argcount]
    op._verified = asked, tuple([(op.arg_names.index(name.removesuffix("_spec")), name.endswith("_spec"))
                                 for name in asked]), tuple([op.arg_names.index(n) for n in op.by_bounds.split()])
    return op._verified
