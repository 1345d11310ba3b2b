"""Messages: the one place where a refusal gets its call, the tensors' names in the user's frame, and their lines."""
from ..base import dtypes
from ..base.errors import line_of, name_of, user_frame
from ..base.op import door
from .tensor import Tensor


def said(tensor):
    """Name, spec and birthplace of one tensor, for the end of a message."""
    name = name_of(tensor, user_frame()) or "the tensor"
    return f"\n  {name} is {tensor._spec}, made at {line_of(tensor._site)}."


def called_as(op):
    """What the user calls `op`."""
    return op.called or op.__name__.strip("_")


def call_words(op, args, kwargs=None, suffix=""):
    """The call with its arguments, tensors by their names in the user's frame and their specs."""
    frame = user_frame()
    words = []

    def worded(b):
        if not isinstance(b, Tensor):
            return repr(b)
        name = name_of(b, frame)
        return f"{name} {b._spec}" if name else str(b._spec)

    named = len(op.arg_names) if not op.composite or op.differentiable else op.n_positional     # beyond: its *args
    for at, a in enumerate(args):
        argument = op.arg_names[at] if at < named else ""
        if isinstance(a, Tensor):
            name = name_of(a, frame)
            words.append(f"{argument or name or 'tensor'}: "
                         f"{name + ' ' if name and argument and name != argument else ''}{a._spec}")
        elif isinstance(a, (tuple, list)) and any(isinstance(b, Tensor) for b in a):
            words.append(f"{argument or 'tensors'}: [{', '.join(worded(b) for b in a)}]")
        elif not argument:
            words.append(repr(a))
        elif a is not op.defaults[at]:
            words.append(f"{argument}={a!r}")
    words += [f"{argument}{': ' if isinstance(a, Tensor) else '='}{worded(a)}"
              for argument, a in (kwargs or {}).items()]
    return f"{called_as(op)}{suffix}({', '.join(words)})"


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
                made.append(f"{name} at {line_of(b._site)}")
    name = f"{called_as(op)}{suffix}(): " if isinstance(error, TypeError) and refused.startswith("argument ") else ""
    message = f"{name}{refused}\n  in {call_words(op, args, kwargs, suffix)}"
    if made:
        message += f"\n  made: {', '.join(dict.fromkeys(made))}"
    message += _conversions(refused, op, args, kwargs, frame)
    complete = type(error)(message)
    complete.refusal, complete.refused, complete.frame = True, refused, id(frame)
    if hasattr(error, "refused"):                      # told already, by a part of this call
        complete._noted = True
    else:
        door.noticed("error_raised", complete)
    return complete


ABOUT_DTYPES = ("dtype", "scalar type", "should be the same")


def _conversions(refused, op, args, kwargs, frame):
    """Where a refusal is about dtypes that differ: what to convert. A parameter stays, or else what came first."""
    if not any(word in refused for word in ABOUT_DTYPES):       # the words that PyTorch's refusals have in common
        return ""
    given = [*zip(op.arg_names, args, strict=False), *(kwargs or {}).items()]
    tensors = [(name, a) for name, a in given if isinstance(a, Tensor) and a._spec.dtype.category in (1, 2)]
    kept = next((pair for pair in tensors if pair[1]._requires_grad), None) \
        or next((pair for pair in tensors if pair[1]._spec.dtype.category == 2), None)
    others = [(name, a) for name, a in tensors if kept is not None and a._spec.dtype is not kept[1]._spec.dtype]
    if not others:
        return ""
    dtype = kept[1]._spec.dtype
    calls = [f"{name_of(a, frame) or name}.{dtypes.converter(dtype)}" for name, a in others]
    return f"\n  {' and '.join(dict.fromkeys(calls))} would fit: {name_of(kept[1], frame) or kept[0]} is {dtype.name}."
