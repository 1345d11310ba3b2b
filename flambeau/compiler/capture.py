"""Record one call: the ordinary call, with a trace that is not run before its end and notes what a replay must repeat.

The results of the call are what they would have been anyway. What is noted besides the instructions: which inputs came
from which storage, the numbers that instructions read, the checks of data that operations made at the call, the random
numbers that were drawn, and the first thing that cannot be repeated: somebody looked at a value half-way.
"""
import contextlib
import sys
import threading

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import checksum
from ..backends.backend import execute
from ..base import settings
from ..base.errors import PACKAGE, here, line_of
from ..base.locks import new_lock
from ..tensor.dispatch import _calls, _entries
from ..tensor.tensor import Tensor
from ..trace import plan as plans, value as values
from ..trace.record import Trace, _at, _local, current, update
from ..trace.value import Value
from .gradient import Differentiated, is_live, tensors_in
from .see import is_ours
from .traced import AWARE, TRACED, Book, patch, plain, traced_in, unpatch
from .watch import Watch

# The functions of ours that look at contents, as the user would call them.
LOOKS = {"item": ".item()", "tolist": ".tolist()", "truth": "bool()", "to_float": "float()", "to_int": "int()",
         "to_complex": "complex()", "to_index": "the use as an index", "text": "printing", "formatted": "formatting",
         "numpy": ".numpy()", "contains": "`in`", "getitem": "indexing", "setitem": "an item assignment",
         "reduce": "pickling", "deep": "deepcopy()", "is_nonzero": ".is_nonzero()", "export": ".numpy()"}


# Where code names one of these, numbers stay as they are: only a true float will do there.
EXACT = frozenset("type id json dumps marshal Decimal timedelta sleep".split())


class Recorder(Trace):
    """A trace that is not run before its end, and knows where everything in it came from."""

    __slots__ = ("storages", "entry", "born", "numbers", "checks", "draws", "reason", "again", "strict",
                 "fixed_entries", "book", "versions", "entered")

    def __init__(self, like, storages, strict, book):
        super().__init__()
        self.special = like.special
        self.storages = storages      # Storage that was there before → how it is called
        self.entry = {s.value: s for s in storages if s.value is not None}
        self.born = {}                # ready Value made during the call → True
        self.numbers = {}             # (instruction, parameter) → name of the line that gives it
        self.checks = []              # (operation, arguments of its check as (Value, spec, offset), Spec or plain)
        self.draws = []               # (draw, spec, Value)
        self.fixed_entries = []       # entries that were made with a Traced in their key
        self.reason, self.again = None, False
        self.strict, self.book = strict, book
        self.entered = {s: s.version for s in storages}
        self.versions = {}            # storage whose version was asked for → the Traced that it was at first

    def stop(self, reason, again=False):
        """From here on this is ordinary recording. `again`: the next call may do better."""
        self.reason, self.again = reason, again
        if self.strict and not again:
            raise RuntimeError(f"compile(fullgraph=True): {reason}")

    # --- what a trace does -------------------------------------------------------------------------------------------

    def append(self, entry, inputs, params):
        if any(type(p) in TRACED for p in params):
            params = self._numbers(entry, params)
        return super().append(entry, inputs, params)

    def _numbers(self, entry, params):
        """The parameters as plain numbers; which of them a replay has to read again is noted."""
        made, op = [], entry.op
        for number, (at, p) in enumerate(zip(entry.param_at, params, strict=True)):
            if type(p) in TRACED:
                if self.reason is None and p._book.writes() and (op.pointwise or op.scalar_at[at]):
                    self.numbers[len(self.code), number] = p._name
                    p = p._value
                else:
                    self.fixed_entries.append(entry)
                    p = plain(p)
            made.append(p)
        return tuple(made)

    def _slot(self, value):
        if self.reason is None and value.trace is None and value not in self.entry and value not in self.born:
            self.stop(f"a tensor that was there before is read at {line_of(here())}, and it cannot be found from the "
                      "function: pass it as an argument", again=True)
        return super()._slot(value)

    def run(self, asked=None):
        """Nothing, unless somebody wants to see contents: memory shared with the outside is read at the end as well."""
        if self.reason is None:
            if asked is None and threading.get_ident() == self.owner:
                return
            self.stop("another thread ran everything that was recorded", again=True)
        super().run(asked)

    def forget(self):
        """From here on this is an ordinary trace."""
        self.reason = self.reason or "it is over"
        self.storages, self.entry, self.born, self.draws, self.checks, self.entered = {}, {}, {}, [], [], {}

    def finish(self, runner=None):
        """Run what was recorded, now that nobody asks what it was made of any more; `runner` may have the plan."""
        self.forget()
        key = None
        if runner is not None and settings.executor != "reference":
            key, wanted, free = plans._key(self)
            if wanted != runner.wanted or set(free) != set(runner.free):
                key = None
        super().run()
        if key is not None:
            runner.adopt(plans._plans.get(key))

    # --- what is noted besides ---------------------------------------------------------------------------------------

    def reader(self, op, names, args):
        """Note a check of data that `op` makes at the call; gives the function that reads its tensors."""
        if self.reason is None:
            given = []
            for name in names:
                a = args[op.arg_names.index(name.removesuffix("_spec") if name.endswith("_spec") else name)]
                if name.endswith("_spec"):
                    given.append(a.spec)
                elif isinstance(a, (tuple, list)):
                    given.append([noted(b) for b in a])
                else:
                    given.append(noted(a))
            self.checks.append((op, given))
        return self.peek

    def version(self, storage):
        """The version of a storage as a number: where it was there before, one that a replay reads again."""
        if self.reason is not None or storage not in self.entered or not self.book.writes():
            return storage.version
        if storage not in self.versions:
            self.versions[storage] = self.book.leaf(f"k{len(self.versions)}", self.entered[storage])
        rose = storage.version - self.entered[storage]
        return self.versions[storage] + rose if rose else self.versions[storage]

    def peek(self, tensor):
        """The contents of a tensor, computed on the side where it is pending here."""
        value = tensor.storage.value
        if value.trace is self and self.reason is None:
            value = Value.of(evaluate(self.code, self.values, [value.slot])[value.slot], value.spec)
        elif value.trace is not None:
            value.ready()
        return value.look(tensor.spec, tensor.offset)


class Noted:
    """A tensor as a check saw it: contents at that moment, spec, offset."""

    __slots__ = ("value", "spec", "offset", "slot")

    def __init__(self, tensor):
        self.value, self.spec, self.offset, self.slot = tensor.storage.value, tensor.spec, tensor.offset, None


def noted(a):
    return Noted(a) if isinstance(a, Tensor) else plain(a)


class Watching:
    """What trace and tensor call while anybody records; only the recording thread's own doings count."""

    users = 0
    lock = new_lock()

    @staticmethod
    def looked(value):
        """Somebody wants the contents of `value`."""
        recorder = _local.trace
        if recorder.__class__ is not Recorder or recorder.reason is not None:
            return
        frame = sys._getframe(2)
        if frame.f_code is checksum.__code__ or frame.f_code is Trace.append.__code__:
            return
        recorder.stop(look_words(frame))
        Trace.run(recorder)

    @staticmethod
    def wrote(storage):
        """The contents of `storage` are about to be replaced."""
        recorder = _local.trace
        if recorder.__class__ is Recorder and recorder.reason is None and storage not in recorder.storages:
            value = storage.value
            if value is not None and value.trace is not recorder and value not in recorder.born \
                    and value not in recorder.entry:
                recorder.stop(f"a tensor that was there before is written to at {line_of(here())}, and it cannot be "
                              "found from the function: pass it as an argument", again=True)

    @staticmethod
    def version(storage):
        """Somebody asks how often `storage` was written to."""
        recorder = _local.trace
        return recorder.version(storage) if recorder.__class__ is Recorder else storage.version

    @staticmethod
    def made(value):
        """Contents were made without an instruction."""
        recorder = _local.trace
        if recorder.__class__ is Recorder:
            recorder.born[value] = True

    @staticmethod
    def drew(draw, kind, value):
        """`value` holds random numbers of spec `kind`, from `draw(count)`."""
        recorder = _local.trace
        if recorder.__class__ is Recorder:
            recorder.draws.append((draw, kind, value))


def look_words(frame):
    """Who looked, and where: `.item() at train.py:12`."""
    last = frame
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        last, frame = frame, frame.f_back
    form = last.f_locals.get("op") or last.f_locals.get("function")       # that the frame's function is made for
    name = getattr(form, "__name__", None) or last.f_code.co_name.strip("_")
    what = LOOKS.get(last.f_code.co_name) or name + "()"
    where = line_of((frame.f_code, frame.f_lasti)) if frame is not None else "an unknown line"
    return f"{what} at {where} looks at a value half-way"


@contextlib.contextmanager
def watching():
    with Watching.lock:
        Watching.users += 1
        values.watching = Watching
    try:
        yield
    finally:
        with Watching.lock:
            Watching.users -= 1
            if not Watching.users:
                values.watching = None


def recording():
    """Whether this thread is recording a call."""
    return current().__class__ is Recorder


class Capture:
    """One recorded call: `out`, and beside it the Recorder, the Book of its numbers, and what ran."""

    def __init__(self, fn, scene, varying, strict):
        self.fn, self.scene = fn, scene
        self.book = Book()
        self.proxies = {}             # edge → the Traced, or tuple with some, that stands there during the call
        self.moved = []               # (edge, Traced or tuple): numbers that the call has put somewhere
        self.watch = Watch(scene.opaque)
        before = current()
        before.run()
        self.recorder = Recorder(before, prepared(scene), strict, self.book)
        self._take_stock()
        with watching():
            _local.trace = self.recorder
            patch()
            try:
                self._dress(varying)
                self.watch.start()
                try:
                    self.out = fn(*scene.args, **scene.kwargs)
                    self._differentiate()
                except BaseException:
                    self.recorder.forget()
                    raise
                finally:
                    self.watch.stop()
            finally:
                self.book.close()
                unpatch()
                self._undress()
                _local.trace = before
                before.special = self.recorder.special
                self.modes_after, self.drawn_after = mode_state(), numpy_state()

    def _differentiate(self):
        """Record the backward of results whose graph is still there."""
        known = self.scene.tensors
        found = tensors_in(self.out) + [t for t in (edge.read() for edge in self.scene.edges) if isinstance(t, Tensor)]
        live = {id(t): t for t in found if id(t) not in known and t.grad_fn is not None and is_live(t)}
        self.differentiated = None
        if live and self.recorder.reason is None:
            self.differentiated = Differentiated(list(live.values()), known.values(), self.recorder)

    def _take_stock(self):
        self.modes_before, self.drawn_before = mode_state(), numpy_state()
        self.tensors_before = [(t, path, t.storage, tensor_state(t)) for t, path in self.scene.tensors.values()]
        self.versions = self.recorder.entered

    def _dress(self, varying):
        """Put Traced numbers in the places of the numbers that the function can see."""
        named = {name for function in self.scene.functions for name in function.__code__.co_names}
        inexact, known = named.isdisjoint(EXACT), dict(AWARE.values())
        for edge in self.scene.edges:
            child, kind = edge.child, type(edge.child)
            if not edge.writable():
                continue
            if kind is float and inexact or kind is int and edge.path in varying \
                    and (inexact or is_ours(type(edge.holder))):         # counts of our own nobody asks for their type
                self.proxies[edge] = self.book.leaf(f"n{len(self.proxies)}", child)
                edge.write(self.proxies[edge])
            elif kind is tuple and is_floats(child) and inexact:
                self.proxies[edge] = tuple([self.book.leaf(f"n{len(self.proxies)}_{i}", x) if type(x) is float else x
                                            for i, x in enumerate(child)])
                edge.write(self.proxies[edge])
            elif kind is type(len) and child in known:       # from math import sqrt
                self.proxies[edge] = known[child]
                edge.write(known[child])

    def _undress(self):
        """Put the numbers back; what the call itself has put in their places becomes a plain number too."""
        for edge in self.scene.edges:
            now, mine = edge.read(), self.proxies.get(edge)
            if mine is not None and now is mine:
                edge.write(edge.child)
            elif traced_in(now) and edge.writable():
                self.moved.append((edge, now))
                edge.write(undressed(now))
        for held, _, _ in (*self.scene.sizes, *self.scene.spaces):
            undress(held)
        for entry in self.recorder.fixed_entries:
            for key in [key for key, found in list(_entries.items()) if found is entry]:
                del _entries[key]
            for key in [key for key, found in list(_calls.items()) if found[0] is entry]:
                del _calls[key]


def undress(held):
    """Make the Traced numbers that a container was given plain ones."""
    if isinstance(held, dict):
        for key, child in held.items():
            if traced_in(child):
                held[key] = undressed(child)
    elif isinstance(held, list):
        for i, child in enumerate(held):
            if traced_in(child):
                held[i] = undressed(child)


def undressed(x):
    """A Traced number, or a tuple with some, as plain numbers."""
    return x._value if type(x) in TRACED else tuple([part._value if type(part) in TRACED else part for part in x])


def is_floats(x):
    """Whether a tuple holds numbers and nothing else, some of them floats: the decay rates of an optimizer."""
    return all(type(part) in (int, float) for part in x) and any(type(part) is float for part in x)


def prepared(scene):
    """The storages that the tensors of a scene look at, contents ready and each with a Value of its own."""
    found, holders = {}, {}
    for tensor, path in scene.tensors.values():
        storage = tensor.storage
        if storage in found or storage.value is None:
            continue
        found[storage] = path
        holders.setdefault(storage.value.ready(), []).append(storage)
    for value, sharing in holders.items():                   # an input is known by its Value, so two must not share one
        sharing.sort(key=lambda s: not s.exported)
        for storage in sharing[1:]:
            storage.value = Value.of(value.array.copy(order="K"), value.spec)
    return found


def tensor_state(t):
    """What must not change about a tensor during a call."""
    return (type(t), t.spec, t.offset, t._requires_grad, t._node is None, len(t._leaf_hooks or ()),
            len(t._post_hooks or ()))


def mode_state():
    """The modes that decide what a call records."""
    from ..base import dtypes
    from ..base.spec import place
    return modes.grad, modes.inference, dtypes.default, place(None)


def numpy_state():
    """How far NumPy's own random numbers have been drawn."""
    if "numpy.random" not in sys.modules:
        return None
    state = np.random.get_state(legacy=False)
    return state["state"]["pos"], state["state"]["key"].tobytes(), state["has_gauss"]


def evaluate(code, held, wanted):
    """{slot: array} of the wanted slots, computed on the side; `held` has the Values of the inputs by slot."""
    live, needed = set(wanted), []
    for instruction in reversed(code):
        entry, slots, _, _, first = instruction
        if any(s in live for s in range(first, first + len(entry.outs))):
            needed.append(instruction)
            live.update(slots)
    made = {}
    with np.errstate(all="ignore"):
        for entry, slots, offsets, params, first in reversed(needed):
            sources = [made[s] if s in made else held[s] for s in slots]
            arrays = [v.look(kind, offset) for v, kind, offset in zip(sources, entry.kinds, offsets, strict=False)]
            if entry.op is update:
                memory = sources[0].memory.copy()
                if entry.kinds[0].numel:
                    _at(memory, entry.kinds[0], offsets[0])[...] = arrays[1]
                outs = [memory]
            else:
                outs = execute(entry, arrays, params)
            for i, array in enumerate(outs):
                made[first + i] = Value.of(array, entry.outs[i])
    return {slot: made[slot].array for slot in wanted}
