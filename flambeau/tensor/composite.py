"""Composites: operations that are ordinary functions over tensors, run at the call."""
from ..autograd.modes import modes
from ..base.entry import NotedCall
from ..base.op import door
from ..trace.recording.record import _local
from ..trace.running.quick import here
from .batched import Batched
from .history import add_history
from .infer import ruled_entry
from .messages import explained
from .results import named
from .tensor import Tensor, wrap

NOT_REPLAYABLE = object()     # on a tape, which then cannot be followed


def call_composite(op, facts, args, kwargs):
    """Run a composite. All that it records inside belongs to the line that called the outermost one."""
    run = _ruled if facts.ruled else _unruled
    trace = _local.trace
    if trace.tape is not None and not op.by_specs:        # it goes by more than the key of the one around it says
        trace.tape.append(NOT_REPLAYABLE)
    if trace.site is not None:
        return run(op, facts, args, kwargs)
    trace.site = here()
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
        return named(op, made) if facts.several and made.__class__ is tuple else made
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
    if any(t.__class__ is Batched for t in tensors_in(args)):
        return door.batching.node(op, args)
    entry, inputs = ruled_entry(op, args)
    n = op.n_positional
    outs, many = as_one_node(entry, args, inputs, op.of, *args[:n], **dict(zip(op.kwonly, args[n:], strict=True)))
    return named(op, outs) if many else outs[0]


def as_one_node(entry, args, inputs, function, /, *given, **named_ones):
    """(a list of what `function` of these gives, with a single node over `inputs`; whether it gave several)."""
    op, trace = entry.op, _local.trace
    outer, before, level = trace.tape, modes.grad, modes.level
    if outer is not None:
        trace.tape = []
    modes.grad, modes.level = False, -1
    try:
        made = function(*given, **named_ones)
    except Exception as error:
        if getattr(error, "refusal", False):
            raise explained(error, op, args) from None
        raise
    finally:
        taken, trace.tape = trace.tape, outer
        modes.grad, modes.level = before, level
    many = made.__class__ in (tuple, list)
    site = trace.site or here()
    outs, is_step = list(made) if many else [made], False
    for i, out in enumerate(outs):
        if out._base is not None or any(out is t for t in inputs):   # a result is a tensor of its own
            is_step = True
            outs[i] = out = wrap(out._storage, out._spec, out._offset)
        out._site = site
        out._cut = None
        out._node = None
    add_history(op, entry, args, inputs, outs, site)
    if outer is not None:
        if is_step or any(out._node is not None for out in outs):
            outer.append(NotedCall(entry, args, inputs, (), -1, outs, (taken, made)))
        else:                                             # what it came to may stand on the tape by itself
            outer.extend(taken)
    return outs, many


def tensors_in(args):
    for a in args:
        if isinstance(a, Tensor):
            yield a
        elif isinstance(a, (tuple, list)):
            yield from (b for b in a if isinstance(b, Tensor))
