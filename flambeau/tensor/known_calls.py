"""Calls like one before, whose Entry is known: past binding, modes and overrides, straight to the recorder.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.

Note [Known calls]: `x + y`, `x.add(y)`, `torch.add(x, y)` and `2 ** x` are found in the operation's table `operands`:
what the first operand is → what the second is → a KnownCall. Of a tensor that is its spec, of a number its class, and
None where there is no second. All other calls of a primitive that are like one before are found by their arguments
(`find`), and the rest goes through `call`, after which a call of this kind is known. While a mode takes part nothing is
remembered, and tables are emptied before it begins (function_modes.py).
"""
from ..base.arguments import LEAST_INT, MOST_INT, beyond_64_bits
from ..base.entry import ONE_RESULT, ONE_VIEW
from ..base.op import door, known
from ..base.spec import CPU
from ..trace.value import TensorBase
from . import overrides
from .autocast import cast_of_operation, cast_on_accelerators
from .call import call, record
from .find import find, number_types
from .follow import followed
from .infer import check_fits
from .overrides import tensor_types
from .recorder import record_one
from .tensor import Tensor
from .views import view_one


class KnownCall:
    """What calls over one or two operands come to.

    `tail` are all arguments behind the operands, `params` those of them that are no tensors, and `number_at` the place
    of the operand that is a number, or -1. It `asks` autocast where that is on.
    """

    __slots__ = ("entry", "tail", "params", "number_at", "asks")

    def __init__(self, entry, tail, params, number_at, asks):
        self.entry, self.tail, self.params, self.number_at, self.asks = entry, tail, params, number_at, asks


class OperatorForm:
    """An operator's form, in the place of the method that it is spelled for modes: see `spelled`."""

    __slots__ = ("form",)

    def __init__(self, form):
        self.form = form


OTHERWISE = KnownCall(None, (), (), -1, False)        # stands in the table for calls that `find` is to find


def function(op, args, kwargs):
    """The function form."""
    if op.by_specs:
        made = followed(op, args, kwargs)
        if made is not None:
            return made
    if kwargs or not 0 < len(args) <= 2 or type(args[0]) is not Tensor and type(args[0]) not in tensor_types:
        return call_cached(op, args, kwargs, None)
    return operands(op, args, None)


def call_cached(op, args, kwargs, public):
    """`call`, shorter for a call of a primitive that is like one before: no mode and no `__torch_function__` takes part
    in it, and its Entry is known."""
    table = known                         # a local: of an imported name Python makes an object for each `table.get`
    facts = table.get(op)
    if facts is not None and not facts.composite and not overrides.regions and "pin_memory" not in kwargs:
        _, entry, full, inputs = find(op, facts, args, kwargs)
        if entry is not None:
            must_fit = kwargs or not facts.fits_by_name
            if entry.way != ONE_RESULT:
                return record(entry, full, inputs, must_fit)
            if must_fit and entry.fits is not None:       # from here on as `record` does it, for a call less
                check_fits(entry, full)
            return record_one(entry, full, inputs, entry.pick(full) if entry.pick is not None else ())
    return call(op, args, kwargs, public)


def operands(op, args, public):
    """The call of `op` over one or two operands, at least one of them a plain tensor. `public`: see `call`; of an
    operator an OperatorForm."""
    one, two = type(args[0]), type(args[1]) if len(args) == 2 else None
    if one is Tensor or one in tensor_types:
        left: TensorBase = args[0]
        first = left._spec
    else:
        first = one
    if two is Tensor or two in tensor_types:
        right: TensorBase = args[1]
        second = right._spec
    else:
        second = two
    table = known                         # as in `call_cached`
    facts = table.get(op)
    row = facts.operands.get(first) if facts is not None else None
    found: KnownCall = row.get(second) if row is not None else None
    if found is None or found is OTHERWISE or found.asks and overrides.regions:
        if type(public) is OperatorForm:
            public = spelled(op, public.form) if overrides.regions else None
        if found is OTHERWISE:
            return call_cached(op, args, {}, public)
        made = call(op, args, {}, public)
        if found is None:
            remember(op, args, first, second)
        return made
    entry = found.entry
    if found.number_at < 0:
        full = args + found.tail if found.tail else args
        if entry.way == ONE_RESULT:
            return record_one(entry, full, args, found.params)
        return view_one(entry, full, args[0], 0)
    number = args[found.number_at]
    if type(number) is int and not LEAST_INT <= number <= MOST_INT:
        beyond_64_bits(number)
    return record_one(entry, args + found.tail if found.tail else args, args[:1] if found.number_at else args[1:],
                      (number, *found.params))


def remember(op, args, first, second):
    """Have `operands` find what a call like this one is, if no mode and no `__torch_function__` takes part in it."""
    facts = known.get(op)                                    # none as yet, if a function mode took the call
    numbers = [a for a in args if type(a) not in tensor_types]
    if facts is None or overrides.modes_active or any(type(a) not in number_types for a in numbers):
        return                                               # a table that held a program's class would keep it alive
    found = OTHERWISE
    if not op.composite and (not numbers or op.pointwise):
        asks = op in cast_of_operation or any(asks_autocast(op, a) for a in args if isinstance(a, Tensor))
        if asks and overrides.regions:
            return                                           # it may have been called with other operands than these
        _, entry, full, _ = find(op, facts, args, None)
        if entry is not None and (entry.way == ONE_RESULT or entry.way == ONE_VIEW and len(args) == 1) \
                and (entry.fits is None or facts.fits_by_name):
            params = entry.pick(full) if entry.pick is not None else ()
            number_at = next((at for at, a in enumerate(args) if type(a) not in tensor_types), -1)
            found = KnownCall(entry, full[len(args):], params[len(numbers):], number_at, asks)
    facts.operands.setdefault(first, {})[second] = found


def spelled(op, form, suffix=""):
    """The method that an operator stands for, as overrides see it: `x + y` is `Tensor.add`."""
    name = op.__name__ + suffix
    for cls in Tensor.__mro__:            # not `getattr`, which would look for words to say that there is none
        if name in vars(cls):
            return getattr(Tensor, name)
    return form


def asks_autocast(op, tensor):
    """Whether a call over `tensor` has to go by way of `call`, which asks autocast, although it does not on the CPU."""
    return op in cast_on_accelerators and tensor._spec.device is not CPU


door.call = function
