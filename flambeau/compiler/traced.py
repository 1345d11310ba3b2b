"""Numbers that remember where they came from, while a call is recorded.

A recording must read a learning rate again at every replay, so the copy of a function that runs while it is recorded
(follow.py) is given `Traced` objects for the numbers it reads. Arithmetic with them is written down as lines of Python;
a comparison gives its answer, and the replay will ask whether the answer is still the same; whatever else looks at the
number (`int()`, a dictionary, C code) fixes its value for this recording.

Note [Traced is no float]: C code reads the digits of a float, or of a subclass of it, without asking. An object that
is no float has to be asked (`__float__`, `__index__`), and so we know. `isinstance` asks for `__class__`, which says
float all the same; only the doors that operations come in by are told the truth, and send the call through
`__torch_function__`. An operation keeps a Traced where it takes a runtime number; the CallRecording (capture.py) puts
the plain number into the instruction and notes the line beside it.
"""
import math
import operator
import threading
from sys import _getframe

from ..autograd.modes import modes
from ..base.op import Op
from ..tensor import (
    call,
    composite,
    find,
    forms,
    history,
    infer,
    known_calls,
    overrides,
    results,
    subclass,
    views,
    write,
)

OPERATION_FILES = frozenset(module.__file__ for module in (call, composite, find, forms, history, infer, known_calls,
                                                           overrides, results, subclass, views, write))
# Composites that hand a number on to the operations they are made of, untouched but for comparisons.
PASS_NUMBERS_ON = frozenset(("div", "divide", "_rdiv", "__rdiv__", "pow", "pow_", "fill", "_fill", "_fill_inplace",
                             "clamp", "clip", "dropout"))
MATH_FUNCTIONS = ("sqrt", "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "tanh", "fabs", "pow")


class NumberLog:
    """What was done with the numbers of one recording: lines, answers, fixed values."""

    def __init__(self):
        self.thread = threading.get_ident()
        self.open = True
        self.lying = False        # inside an operation that was let in: it is to see plain numbers
        self.lines = {}           # name → (text, names that it reads); in order
        self.names = {}           # text of a line → its name: what is computed twice is written once
        self.answers = {}         # (text, answer) → names that it reads
        self.fixed = {}           # name → the value it has to have again

    def leaf(self, name, value):
        """The number `value` that the replay will know as `name`."""
        return (TracedInt if type(value) is int else TracedFloat)(self, value, name)

    def made(self, value, text, operands):
        """The result `value` of a line; a plain number where nothing is written down any more."""
        if type(value) not in (int, float):
            for x in operands:
                plain(x)
            return value
        name = self.names.get(text)
        if name is None:
            name = self.names[text] = f"t{len(self.lines)}"
            self.lines[name] = (text, tuple(x._name for x in operands if type(x) in TRACED))
        return self.leaf(name, value)

    def writes(self):
        return self.open and self.thread == threading.get_ident()

    def close(self):
        self.open = False

    def needed(self, names):
        """The lines that `names` come from, in order."""
        wanted, stack = set(), list(names)
        while stack:
            name = stack.pop()
            if name in self.lines and name not in wanted:
                wanted.add(name)
                stack += self.lines[name][1]
        return [(name, text) for name, (text, _) in self.lines.items() if name in wanted]


def word(x):
    """An operand as it stands in a line."""
    if type(x) in TRACED:
        return x._name
    text = repr(x)
    return text if text[0].isdigit() else f"({text})"         # inf and nan are names there


def plain(x):
    """`x` as the number it is, fixed for this recording."""
    if type(x) not in TRACED:
        return x
    if x._number_log.writes():
        x._number_log.fixed[x._name] = x._value
    return x._value


def computed(function, args):
    """What `function` gives for the plain numbers; if it raises, they have to be these again for a replay."""
    try:
        return function(*(x._value if type(x) in TRACED else x for x in args))
    except Exception:
        for x in args:
            plain(x)
        raise


def binary(sign, function, swapped=False):
    def method(self, other, *more):
        number_log = self._number_log
        cls = type(other)
        if cls not in NUMBER_TYPES or more:                        # a tensor takes it from here; an array or a complex
            if isinstance(other, (int, float, complex)) or cls in TRACED or more:     # number has it fixed
                return function(*(plain(x) for x in ((other, self) if swapped else (self, other, *more))))
            return NotImplemented
        pair = (other, self) if swapped else (self, other)
        value = computed(function, pair)
        if not number_log.writes():
            return value
        return number_log.made(value, f"{word(pair[0])} {sign} {word(pair[1])}", pair)
    return method


def unary(text, function):
    def method(self):
        value = computed(function, (self,))
        return self._number_log.made(value, text.format(self._name), (self,)) if self._number_log.writes() else value
    return method


def compared(sign, function):
    def method(self, other):
        if type(other) not in NUMBER_TYPES:
            if isinstance(other, (int, float)) or isinstance(other, complex) and sign in ("==", "!="):
                return function(plain(self), other)
            return NotImplemented
        pair = (self, other)
        answer = function(*(x._value if type(x) in TRACED else x for x in pair))
        if self._number_log.writes():
            self._number_log.answers[f"{word(self)} {sign} {word(other)}", answer] = \
                tuple(x._name for x in pair if type(x) in TRACED)
        return answer
    return method


def fixing(function):
    def method(self, *args):
        return function(plain(self), *args)
    return method


class Traced:
    """A number of the recording `_number_log`, known there as `_name`. See Note [Traced is no float]."""

    __slots__ = ("_number_log", "_value", "_name")

    def __init__(self, number_log, value, name):
        self._number_log, self._value, self._name = number_log, value, name

    @property                                                 # type: ignore[misc]
    def __class__(self):
        if not self._number_log.lying and _getframe(1).f_code.co_filename in OPERATION_FILES:
            return type(self)
        return type(self._value)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """An operation with such a number among its arguments. Where it takes a runtime number, it gets the Traced."""
        kwargs = kwargs or {}
        number_log = next(a._number_log for a in (*args, *kwargs.values()) if type(a) in TRACED)
        op = func if isinstance(func, Op) else getattr(func, "op", None)
        lets_in = number_log.writes() and op is not None and all(t in TRACED for t in types) \
            and not modes.levels                              # a `vmap` comes in by the same door
        args = [a if lets_in and keeps(op, at, a) else plain(a) for at, a in enumerate(args)]
        kwargs = {name: a if lets_in and keeps(op, name, a) else plain(a) for name, a in kwargs.items()}
        before, number_log.lying = number_log.lying, number_log.writes()
        try:
            return func(*args, **kwargs)
        finally:
            number_log.lying = before

    for _name, _function in (("add", operator.add), ("sub", operator.sub), ("mul", operator.mul),
                             ("truediv", operator.truediv), ("floordiv", operator.floordiv), ("mod", operator.mod),
                             ("pow", operator.pow)):
        _sign = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}[_name]
        locals()[f"__{_name}__"] = binary(_sign, _function)
        locals()[f"__r{_name}__"] = binary(_sign, _function, swapped=True)
    for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
        _sign = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}[_name]
        locals()[f"__{_name}__"] = compared(_sign, getattr(operator, _name))
    for _name, _function in (("hash", hash), ("float", float), ("int", int), ("complex", complex), ("str", str),
                             ("repr", repr), ("format", format), ("round", round), ("trunc", math.trunc),
                             ("floor", math.floor), ("ceil", math.ceil), ("divmod", divmod)):
        locals()[f"__{_name}__"] = fixing(_function)
    del _name, _function, _sign

    __neg__, __pos__, __abs__ = unary("-{}", operator.neg), unary("+{}", operator.pos), unary("abs({})", abs)

    def conjugate(self):
        return self

    @property
    def real(self):
        return self

    def __bool__(self):
        answer = bool(self._value)
        if self._number_log.writes():
            self._number_log.answers[f"bool({self._name})", answer] = (self._name,)
        return answer

    def __rdivmod__(self, other):
        return divmod(other, plain(self))

    def __array__(self, dtype=None, copy=None):
        import numpy as np
        return np.array(plain(self), dtype)

    def __reduce__(self):                                     # copies and pickles are plain numbers
        return type(self._value), (plain(self),)

    def __getattr__(self, name):
        if not hasattr(type(self._value), name):
            raise AttributeError(f"'{type(self._value).__name__}' object has no attribute '{name}'")
        return getattr(plain(self), name)


class TracedFloat(Traced):
    __slots__ = ()


class TracedInt(Traced):
    __slots__ = ()
    __index__ = fixing(operator.index)
    for _name in ("and_", "or_", "xor", "lshift", "rshift"):
        _function = getattr(operator, _name)
        locals()[f"__{_name.strip('_')}__"] = fixing(_function)
        locals()[f"__r{_name.strip('_')}__"] = fixing(lambda b, a, f=_function: f(a, b))
    del _name, _function
    __invert__ = fixing(operator.invert)


TracedFloat.__name__, TracedInt.__name__ = "float", "int"           # what C code calls them in its errors
TRACED = frozenset((TracedFloat, TracedInt))
NUMBER_TYPES = frozenset((bool, int, float)) | TRACED


def traced_in(x):
    """The Traced numbers in `x`: itself, or parts of a tuple."""
    return [x] if type(x) in TRACED else [part for part in x if type(part) in TRACED] if type(x) is tuple else []


def keeps(op, at, a):
    """Whether argument `at` (a position or a name) of `op` may stay a Traced: it is a runtime number there."""
    if type(a) not in TRACED:
        return True
    if op.composite:
        return type(a) is TracedFloat and op.__name__ in PASS_NUMBERS_ON
    if op.is_view or op.eager:
        return False
    if not op.prepared:
        op.prepare()
    if op.pointwise:
        return True
    if type(at) is str:
        at = op.arg_names.index(at) if at in op.arg_names else len(op.arg_names)
    return at < len(op.scalar_at) and op.scalar_at[at]


# --- math ------------------------------------------------------------------------------------------------------------


def aware(function):
    """A function of `math` that writes down what it does with Traced numbers."""
    def form(*args):
        value = computed(function, args)
        number_log = next(a._number_log for a in args if type(a) in TRACED)
        text = f"math.{function.__name__}({', '.join(map(word, args))})"
        return number_log.made(value, text, args) if number_log.writes() else value
    return form


MATH_MODELS = {getattr(math, name): aware(getattr(math, name)) for name in MATH_FUNCTIONS}
