"""Record one call: the ordinary call, with a trace that is not run before its end and notes what a replay must repeat.

The results of the call are what they would have been anyway. What is noted besides the instructions: which inputs came
from which storage, the numbers that instructions read, the checks of data that operations made at the call, the random
numbers that were drawn, and the first thing that cannot be repeated: a value was looked at half-way.
"""
import sys
import threading

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import checksum
from ..base import dtypes, settings
from ..base.errors import COMPILER_FOLDER, PACKAGE, here, line_of, warn
from ..base.observers import Observer, observing, who_looked
from ..base.spec import CPU, place
from ..tensor.find import calls, entries
from ..tensor.tensor import Tensor
from ..trace import on_host
from ..trace.planning import plan as plans
from ..trace.recording.record import Trace, _local, current, set_current
from ..trace.recording.update import update
from ..trace.running.effects import stands_in
from ..trace.running.key import key_of
from ..trace.value import Value
from .follow import Follower
from .gradient import Differentiated, is_live, tensors_in
from .journal import MISSING, name_of
from .traced import TRACED, NumberLog, plain
from .watch import Watch

# The functions of ours that look at contents, as the user would call them.
READ_FORMS = {"item": ".item()", "tolist": ".tolist()", "truth": "bool()", "to_float": "float()", "to_int": "int()",
              "to_complex": "complex()", "to_index": "the use as an index", "text": "printing",
              "formatted": "formatting",
              "numpy": ".numpy()", "contains": "`in`", "getitem": "indexing", "setitem": "an item assignment",
              "reduce": "pickling", "deep": "deepcopy()", "is_nonzero": ".is_nonzero()", "export": ".numpy()"}



class Recorder(Trace):
    """A trace that is not run before its end, and knows where everything in it came from."""

    __slots__ = ("storages", "entry", "born", "numbers", "checks", "draws", "reason", "again", "strict",
                 "fixed_entries", "number_log", "versions", "entered", "hidden", "marked")

    def __init__(self, like, strict, number_log):
        super().__init__()
        self.special = like.special
        self.storages = {}            # Storage that was there before → how it is called
        self.entry = {}               # its Value when it was met → the Storage
        self.born = {}                # ready Value made during the call → True
        self.numbers = {}             # (instruction, parameter) → name of the line that gives it
        self.checks = []              # (operation, arguments of its check as (Value, spec, offset), Spec or plain)
        self.draws = []               # (draw, spec, Value)
        self.fixed_entries = []       # entries that were made with a Traced in their key
        self.reason, self.again = None, False
        self.strict, self.number_log = strict, number_log
        self.hidden = {}              # Storage that was there before → how many writes through `.data` it had seen
        self.entered = {}             # Storage that was there before → its version when it was met
        self.versions = {}            # storage whose version was asked for → the Traced that it was at first

    def stop(self, reason, again=False):
        """From here on this is ordinary recording. `again`: the next call may do better."""
        self.reason, self.again = reason, again
        if self.strict and not again:
            raise RuntimeError(f"compile(fullgraph=True): {reason}")

    def meet(self, storage, path):
        """A storage that was there before the call is met for the first time: it is known by a Value of its own."""
        if storage in self.storages or storage.value is None:
            return
        value = storage.value
        if value.trace is self:                              # written before we were told of it
            self.stop(f"{path} was written to before it could be found from the function", again=True)
            return
        while (trace := value.trace) is not None:            # Value.ready() would count as a look
            trace.run(value)
        if value in self.entry or value in self.born:        # two that share their contents until one is written to
            other = self.entry.get(value)
            if storage.exported and other is not None and not other.exported and value not in self.slots:
                del self.entry[value]
                other.value = Value.of(value.spec.device.backend.copied(value.array), value.spec)
                self.entry[other.value] = other
            else:
                value = storage.value = Value.of(value.spec.device.backend.copied(value.array), value.spec)
        self.storages[storage], self.entry[value], self.entered[storage] = path, storage, storage.version
        self.hidden[storage] = storage.hidden

    # --- what a trace does -------------------------------------------------------------------------------------------

    def append(self, entry, inputs, params, site):
        if any(type(p) in TRACED for p in params):
            params = self._numbers(entry, params)
        if any(type(t._offset) in TRACED for t in inputs):
            raise AssertionError(f"a number that may change is an offset in {entry.op.__name__}")
        return super().append(entry, inputs, params, site)

    def before_effect(self, op):
        if self.reason is None and not stands_in():
            self.stop(f"{op.__name__}() at {line_of(here())} has an effect that happens at the call")
            Trace.run(self)
        super().before_effect(op)

    def _numbers(self, entry, params):
        """The parameters as plain numbers; which of them a replay has to read again is noted."""
        made, op = [], entry.op
        for number, (at, p) in enumerate(zip(entry.param_at, params, strict=True)):
            if type(p) in TRACED:
                if self.reason is None and p._number_log.writes() and (op.pointwise or op.scalar_at[at]):
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
        """Nothing, unless contents are asked for: memory shared with the outside is read at the end as well."""
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
        """Run what was recorded, now that it is no longer asked what it was made of any more; `runner` may have the
        plan."""
        self.forget()
        key = None
        if runner is not None and settings.executor != "reference":
            key, wanted, free = key_of(self)
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
                    given.append(a._spec)
                elif isinstance(a, (tuple, list)):
                    given.append([noted(b) for b in a])
                else:
                    given.append(noted(a))
            self.checks.append((op, given))
        return self.peek

    def version(self, storage):
        """The version of a storage as a number: where it was there before, one that a replay reads again."""
        if self.reason is not None or storage not in self.entered or not self.number_log.writes():
            return storage.version
        if storage not in self.versions:
            self.versions[storage] = self.number_log.leaf(f"k{len(self.versions)}", self.entered[storage])
        rose = storage.version - self.entered[storage]
        return self.versions[storage] + rose if rose else self.versions[storage]

    def peek(self, tensor):
        """The contents of a tensor, computed on the side where it is pending here."""
        value = tensor._storage.value
        found = on_host.known(tensor)
        if found is not None:
            return found
        if value.trace is self and self.reason is None and self._comes_of_effect(value.slot):
            self.stop(f"a check of data at {line_of(here())} looks at what an operation with an effect gave")
            Trace.run(self)
        if value.trace is self and self.reason is None:
            value = evaluate(self.code, self.values, [value.slot])[value.slot]
        return on_host.read(value, tensor._spec, tensor._offset, not tensor._storage.exported)

    def mark(self):
        """From here on it is the backward that is recorded, ahead of its time; gives how much was recorded before."""
        self.marked = len(self.values), dict(self.born)
        return len(self.code)

    def is_younger(self, storage):
        """Whether the contents of a storage were made since `mark`."""
        value, (slots, born) = storage.value, self.marked
        return value.slot >= slots if value.trace is self else value in self.born and value not in born

    def _comes_of_effect(self, slot):
        """Whether a slot is computed from the results of an operation with an effect."""
        return any(entry.op.effect for entry, *_ in needed_for(self.code, [slot]))


class Noted:
    """A tensor as a check saw it: contents at that moment, spec, offset."""

    __slots__ = ("value", "spec", "offset", "slot")

    def __init__(self, tensor):
        self.value, self.spec, self.offset, self.slot = tensor._storage.value, tensor._spec, tensor._offset, None


def noted(a):
    return Noted(a) if isinstance(a, Tensor) else plain(a)


class Watcher(Observer):
    """Tells a Recorder what its own thread does besides recording."""

    def __init__(self, recorder, journal):
        self.recorder, self.journal = recorder, journal

    def _recorder(self):
        """The Recorder, if this thread still records there and it can still be replayed; else None."""
        recorder = self.recorder
        return recorder if recorder.reason is None and _local.trace is recorder else None

    def looked(self, value):
        recorder = self._recorder()
        if recorder is None:
            return
        frame = who_looked()
        if frame.f_code is checksum.__code__:
            return
        self.journal.now_or_never(look_words(frame))
        recorder.stop(look_words(frame))
        Trace.run(recorder)

    def wrote(self, storage):
        recorder = self._recorder()
        if recorder is not None and self.journal.ahead is not None and not recorder.is_younger(storage):
            self.journal.now_or_never("a tensor that was there before is written to")
        if recorder is not None and storage not in recorder.storages:
            value = storage.value
            if value is not None and value.trace is not recorder and value not in recorder.born \
                    and value not in recorder.entry:
                recorder.stop(f"a tensor that was there before is written to at {line_of(here())}, and it cannot be "
                              "found from the function: pass it as an argument", again=True)

    def made(self, value):
        if _local.trace is self.recorder:
            self.recorder.born[value] = True

    def drew(self, draw, kind, value):
        if _local.trace is self.recorder:
            self.recorder.draws.append((draw, kind, value))


def look_words(frame):
    """Who looked, and where: `.item() at train.py:12`."""
    last = frame
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if not frame.f_code.co_filename.startswith(COMPILER_FOLDER):
            last = frame
        frame = frame.f_back
    form = last.f_locals.get("op") or last.f_locals.get("function")       # that the frame's function is made for
    name = getattr(form, "__name__", None) or last.f_code.co_name.strip("_")
    what = READ_FORMS.get(last.f_code.co_name) or name + "()"
    where = line_of((frame.f_code, frame.f_lasti)) if frame is not None else "an unknown line"
    return f"{what} at {where} looks at a value half-way"


def recording():
    """Whether this thread is recording a call."""
    return current().__class__ is Recorder


class Capture:
    """One recorded call: `out`, and beside it the Journal, the Recorder, the NumberLog, and what ran."""

    def __init__(self, fn, journal, varying, strict):
        self.fn, self.journal = fn, journal
        self.number_log = NumberLog()
        self.watch = Watch()
        self.follower = follower = Follower(journal, self.number_log, varying)
        self.proxies = follower.proxies
        self.tensors_before = []      # (tensor, path, storage, what must not change about it, its history)
        before = current()
        before.run()
        self.recorder = recorder = Recorder(before, strict, self.number_log)
        self.versions = recorder.entered
        journal.known = self._known
        self.modes_before, self.drawn_before = mode_state(), numpy_state()
        with observing(Watcher(recorder, journal), only_this_thread=True):
            set_current(recorder)
            try:
                journal.take_arguments()
                journal.see(fn, "self")
                args = [follower.substitute(journal.find("item", journal.args, i), a)
                        for i, a in enumerate(journal.args)]
                kwargs = {name: follower.substitute(journal.find("item", journal.kwargs, name), a)
                          for name, a in journal.kwargs.items()}
                self.watch.start()
                try:
                    self.out = follower.call(fn, args, kwargs)
                    self.differentiated = None
                    try:
                        self._differentiate()
                    except Exception as error:               # ours: the call itself is through, and its result is good
                        journal.refuse(f"compile itself failed with {type(error).__name__}: {error}")
                        warn(f"{name_of(fn)}: {journal.refusal}. This is a mistake in Flambeau; the function runs as "
                             "ordinary code.")
                except BaseException:
                    recorder.forget()
                    raise
                finally:
                    self.watch.stop()
            finally:
                self.number_log.close()
                follower.close()
                self._forget_entries()
                set_current(before)
                before.special = recorder.special
                self.modes_after, self.drawn_after = mode_state(), numpy_state()
        journal.known = None
        self.moved = [(edge, now) for edge, now in follower.stored.items() if edge.read() is not MISSING]

    def _known(self, tensor, path):
        """A tensor that was there before the call is met for the first time."""
        self.recorder.meet(tensor._storage, path)
        self.tensors_before.append((tensor, path, tensor._storage, tensor_state(tensor), history(tensor)))

    def _differentiate(self):
        """Record the backward of results whose graph is still there."""
        known = self.journal.tensors
        places = [edge.read() for edge in self.journal.edges]
        found = tensors_in(self.out) + [t for t in places if isinstance(t, Tensor)]
        live = {id(t): t for t in found if id(t) not in known and t.grad_fn is not None and is_live(t)}
        if live and self.recorder.reason is None:
            self.differentiated = Differentiated(list(live.values()), self.journal, self.recorder)

    def _forget_entries(self):
        """Entries that were made with a Traced in their key are of no use to any other call."""
        for entry in self.recorder.fixed_entries:
            for key in [key for key, found in entries.copy().items() if found is entry]:
                entries.pop(key, None)
            for key in [key for key, found in calls.copy().items() if found[0] is entry]:
                calls.pop(key, None)


def history(t):
    """The node that a tensor came from, and that of what it is a view of: a write gives it another one."""
    base = t._base
    return t._node, None if base is None else base._node


def tensor_state(t):
    """What must not change about a tensor during a call."""
    return (type(t), t._spec, t._offset, t._requires_grad, t._node is None, len(t._leaf_hooks or ()),
            len(t._post_hooks or ()))


def mode_state():
    """The modes that decide what a call records."""
    return modes.grad, modes.inference, dtypes.default, place(None)


def numpy_state():
    """How far NumPy's own random numbers have been drawn."""
    if "numpy.random" not in sys.modules:
        return None
    state = np.random.get_state(legacy=False)
    return state["state"]["pos"], state["state"]["key"].tobytes(), state["has_gauss"]


def needed_for(code, wanted):
    """The instructions that the wanted slots come from, in order."""
    live, needed = set(wanted), []
    for instruction in reversed(code):
        entry, slots, _, _, first, _ = instruction
        if any(s in live for s in range(first, first + len(entry.outs))):
            needed.append(instruction)
            live.update(slots)
    return needed[::-1]


def evaluate(code, held, wanted):
    """{slot: Value} of the wanted slots, computed on the side, by the CPU; `held` has the Values of the inputs by slot.

    Contents that stand elsewhere are mostly known here: see Note [Checks without waiting] in trace/on_host.py.
    """
    made = {}
    with np.errstate(all="ignore"):
        for entry, slots, offsets, params, first, _ in needed_for(code, wanted):
            sources = [made[s] if s in made else held[s] for s in slots]
            arrays = [on_host.read(v, kind, offset)
                      for v, kind, offset in zip(sources, entry.kinds, offsets, strict=False)]
            outs = [spec.on(CPU) for spec in entry.outs]
            if entry.op is update:
                memory = sources[0].bytes_on_host().copy()
                if entry.kinds[0].numel:
                    CPU.backend.put(CPU.backend.look(memory, entry.kinds[0], offsets[0]), arrays[1])
                arrays = [memory]
            else:
                arrays = on_host.execute(entry, arrays, params)
            for i, (array, spec) in enumerate(zip(arrays, outs, strict=True)):
                made[first + i] = Value.of(array, spec)
    return {slot: made[slot] for slot in wanted}
