"""Modes that see every call: `torch.overrides.TorchFunctionMode`.

While a mode is active, each call of a torch function, method, property or factory in its thread goes to the mode's
`__torch_function__(func, types, args, kwargs)` instead. Inside that, the mode itself is set aside, so that `func(*args,
**kwargs)` goes to the mode around it, and at last to the operation.

Note [Asking for modes]: nearly always there is no mode, and a plain call must not pay for the question. So two things
are different while a mode is active somewhere, and only then:
- operations forget the calls they have seen, and remember no new ones. A call that was not seen before goes the long
  way, through `call` in call.py or `inplace` in write.py, and those ask;
- the bodies of public functions and of Tensor's methods that are no operations (`torch.tensor`, `Tensor.size`) are
  exchanged for one that asks. The function objects stay the same ones, since modes are handed them and compare them.
Observers of calls (base/observers.py) count as a mode in this, which takes over nothing. While there is no other one,
calls are remembered all the same, and looked up when observers have been told of them.
"""
import contextlib
import functools
from types import FunctionType

from ..autograd import engine
from ..base import observers
from ..base.locks import new_lock
from . import functions, infer, overrides
from .subclass import UNASKED_ATTRIBUTES
from .tensor import Tensor

# Functions that tell or set what has nothing to do with tensors, which PyTorch does not ask modes about either.
UNASKED_FUNCTIONS = frozenset("""is_tensor is_storage typename get_default_device set_default_tensor_type manual_seed
    seed initial_seed get_rng_state set_rng_state from_numpy""".split())

_lock = new_lock()
_bodies: dict = {}            # function → its own body, of those that are exchanged now


def push(mode):
    """Make `mode` the innermost of this thread's."""
    overrides.function_modes.stack += (mode,)
    _count(1)


def pop():
    """Take away the innermost mode of this thread; it is returned."""
    stack = overrides.function_modes.stack
    if not stack:
        raise RuntimeError("there is no TorchFunctionMode to take away")
    overrides.function_modes.stack = stack[:-1]
    _count(-1)
    return stack[-1]


@contextlib.contextmanager
def watching(watcher):
    """Inside, `watcher(op, args, result)` is told of every operation that this thread records, in backward too."""
    local = overrides.function_modes
    local.watchers += (watcher,)
    _count(1)
    try:
        yield
    finally:
        local.watchers = tuple(w for w in local.watchers if w is not watcher)
        _count(-1)


def _count(change):
    """One more or less is active. The first has calls go the long way, the last lets them be; see the note above."""
    with _lock:
        overrides.modes_active += change
        if overrides.modes_active > overrides.calls_observed or change > 0 and overrides.modes_active == 1:
            infer.forget_ways()
        if change > 0 and overrides.modes_active == 1:
            overrides.count_region(1)
            _exchange()
        elif not overrides.modes_active:
            _put_back()
            overrides.count_region(-1)


def _put_back():
    """Give functions the bodies that they had."""
    while _bodies:
        function, body = _bodies.popitem()
        function.__code__ = body


def own_code(function):
    """The code of a function, be it exchanged now."""
    return _bodies.get(function) or function.__code__


def ask(func, plain, args, kwargs):
    """The body that functions have while a mode is active somewhere."""
    local = overrides.function_modes
    stack = local.stack
    if not stack:
        if overrides.calls_observed and func.__class__ is FunctionType:
            return overrides.observed(None, func.__name__, _plainly, (plain, args, kwargs), args, kwargs)
        return plain(*args, **kwargs)
    if func is not None:
        return overrides.handle_by_mode(func, args, kwargs)
    local.stack = ()                      # backward: its steps are not calls of the program's
    try:
        return plain(*args, **kwargs)
    finally:
        local.stack = stack


def _observe():
    """The first observer of calls came, or the last has gone."""
    asked = observers.called is not None or observers.calling is not None
    if asked is not overrides.calls_observed:
        overrides.calls_observed = asked
        _count(1 if asked else -1)


observers.on_change.append(_observe)


def _plainly(plain, args, kwargs):
    return plain(*args, **kwargs)


# --- other bodies --------------------------------------------------


# The numbers stand for `ask`, the public function and its plain body. It has the free variables of the function whose
# body it takes the place of: Python copies them into a frame by an instruction at the beginning of the code, and
# crashes where a debugger asks such a frame for its variables and they are not there.
TEMPLATE = """\
def outer():
    {cells}
    def template(*args, **kwargs):
        asking = 0.25
        func, plain = 0.5, 0.75
        return asking(func, plain, args, kwargs)
        {names}
    return template
"""


@functools.cache
def _template(freevars):
    """The code of such a body."""
    made: dict = {}
    exec(TEMPLATE.format(cells=" = ".join([*freevars, "None"]), names=", ".join(freevars) or "None"), made)
    return made["outer"]().__code__


def _exchange():
    """Give all functions that are no operations the body that asks."""
    for function, public in _asked():
        own = function.__code__
        plain = FunctionType(own, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        plain.__kwdefaults__ = function.__kwdefaults__
        stand = {0.25: ask, 0.5: public, 0.75: plain}
        template = _template(own.co_freevars)
        body = template.replace(
            co_consts=tuple(stand.get(c, c) if isinstance(c, float) else _filled(c, stand) for c in template.co_consts),
            co_name=own.co_name, co_filename=own.co_filename, co_firstlineno=own.co_firstlineno)
        _bodies[function] = own
        function.__code__ = body


def _filled(constant, stand):
    """A tuple of constants, as compilers make of several."""
    return tuple(stand.get(c, c) for c in constant) if isinstance(constant, tuple) else constant


@functools.cache
def _asked():
    """(function, what modes are told was called) of all public functions that are no operations."""
    found, seen = [], set()

    def add(function, public):
        if isinstance(function, FunctionType) and id(function) not in seen and \
                function.__module__ != f"{__package__}.forms":
            seen.add(id(function))
            found.append((function, public))
    for module in functions.PUBLIC_MODULES:
        for name in module.PUBLIC:
            if name not in UNASKED_FUNCTIONS:
                add(getattr(module, name), getattr(module, name))
    add(engine.grad, engine.grad)
    add(engine.backward, None)
    for name, attribute in vars(Tensor).items():
        ours = name.startswith("_") and not name.endswith("__") and name not in ("_version", "_is_view")
        if ours or name in UNASKED_ATTRIBUTES:
            continue
        if isinstance(attribute, property):
            add(attribute.fget, attribute.__get__)
            add(attribute.fset, attribute.__set__)
        else:
            add(attribute, attribute)
    return found

