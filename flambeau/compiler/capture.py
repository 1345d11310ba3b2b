"""Record one call: the ordinary call, with a Recording (recording.py) in the place of the thread's trace.

The results of the call are what they would have been anyway. What is noted besides what every Recording does: how
storages are found from the function, the numbers that instructions read, and the first thing that cannot be repeated: a
value was looked at half-way.
"""
import sys
import threading

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import checksum
from ..base import dtypes, settings
from ..base.errors import COMPILER_FOLDER, PACKAGE, here, line_of, warn
from ..base.observers import observing, who_looked
from ..base.op import known
from ..base.spec import as_device
from ..tensor.tensor import Tensor
from ..trace import on_host
from ..trace.planning import plan as plans
from ..trace.recording.instructions import needed_for
from ..trace.recording.record import Trace, current, set_current
from ..trace.running.effects import stands_in
from ..trace.running.key import key_of
from .follow import Follower
from .gradient import Differentiated, is_live, tensors_in
from .journal import MISSING, name_of
from .recording import Recording, RecordingObserver
from .traced import TRACED, NumberLog, plain
from .watch import Watch

# The functions of ours that look at contents, as the user would call them.
READ_FORMS = {"item": ".item()", "tolist": ".tolist()", "truth": "bool()", "to_float": "float()", "to_int": "int()",
              "to_complex": "complex()", "to_index": "the use as an index", "text": "printing",
              "formatted": "formatting",
              "numpy": ".numpy()", "contains": "`in`", "getitem": "indexing", "setitem": "an item assignment",
              "reduce": "pickling", "deep": "deepcopy()", "is_nonzero": ".is_nonzero()", "export": ".numpy()"}


class CallRecording(Recording):
    """A call that is recorded: what it reads can be found from the function, and what forbids a replay is noted."""

    __slots__ = ("storages", "numbers", "again", "strict", "fixed_entries", "number_log", "versions", "entered",
                 "hidden", "marked")

    def __init__(self, like, strict, number_log):
        super().__init__(like)
        self.storages = {}            # Storage that was there before → how it is called
        self.numbers = {}             # (instruction, parameter) → name of the line that gives it
        self.fixed_entries = []       # entries that were made with a Traced in their key
        self.again = False
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
        self.run_others(value)
        if value in self.read_from or value in self.born:
            other = self.read_from.get(value)
            if storage.exported and other is not None and not other.exported and value not in self.slots:
                self.part_from_others(other)
            else:
                self.part_from_others(storage)
        self.storages[storage], self.entered[storage] = path, storage.version
        self.read_from[storage.value] = storage
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
        if self.reason is None and value.trace is None and value not in self.read_from \
                and value not in self.born:
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
        self.storages, self.read_from, self.born, self.draws, self.checks, self.entered = {}, {}, {}, [], [], {}

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
            runner.adopt(plans._plans.get(key), key[0])

    # --- what is noted besides ---------------------------------------------------------------------------------------

    def version(self, storage):
        """The version of a storage as a number: where it was there before, one that a replay reads again."""
        if self.reason is not None or storage not in self.entered or not self.number_log.writes():
            return storage.version
        if storage not in self.versions:
            self.versions[storage] = self.number_log.leaf(f"k{len(self.versions)}", self.entered[storage])
        rose = storage.version - self.entered[storage]
        return self.versions[storage] + rose if rose else self.versions[storage]

    def peek(self, tensor):
        value = tensor._storage.value
        if value.trace is self and self.reason is None and on_host.known(tensor) is None \
                and self._comes_of_effect(value.slot):
            self.stop(f"a check of data at {line_of(here())} looks at what an operation with an effect gave")
            Trace.run(self)
        return super().peek(tensor)

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
        return any(self.code[index].entry.op.effect for index in needed_for([slot], self.code)[0])


class CallObserver(RecordingObserver):
    """Tells a CallRecording of looks and writes, too."""

    def __init__(self, recording, journal):
        super().__init__(recording)
        self.journal = journal

    def looked(self, value):
        recording = self.recording
        if not recording.is_current():
            return
        frame = who_looked()
        if frame.f_code is checksum.__code__:
            return
        self.journal.now_or_never(look_words(frame))
        recording.stop(look_words(frame))
        Trace.run(recording)

    def wrote(self, storage):
        recording = self.recording
        if not recording.is_current():
            return
        if self.journal.ahead is not None and not recording.is_younger(storage):
            self.journal.now_or_never("a tensor that was there before is written to")
        value = storage.value
        if storage not in recording.storages and value is not None and value.trace is not recording \
                and value not in recording.born and value not in recording.read_from:
            recording.stop(f"a tensor that was there before is written to at {line_of(here())}, and it cannot be "
                           "found from the function: pass it as an argument", again=True)


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


def is_recording():
    """Whether this thread is recording a call."""
    return current().__class__ is CallRecording


class Capture:
    """One recorded call: `out`, and beside it the Journal, the recording, the NumberLog, and what ran. `pending`: what
    was taken for it before: see Note [Taken first]."""

    set_current = staticmethod(set_current)

    def __init__(self, fn, journal, varying, strict, pending=()):
        self.fn, self.journal, self.pending = fn, journal, list(pending)
        self.number_log = NumberLog()
        self.watch = Watch()
        self.follower = follower = Follower(journal, self.number_log, varying)
        self.proxies = follower.proxies
        self.tensors_before = []      # (tensor, path, storage, what must not change about it, its history)
        follower.capture = self
        self.before = before = current()
        before.run()
        self.recording = recording = CallRecording(before, strict, self.number_log)
        self.versions = recording.entered
        journal.known = self._known
        self.modes_before, self.drawn_before = mode_state(), numpy_state()
        with observing(CallObserver(recording, journal), only_this_thread=True):
            set_current(recording)
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
                    recording.forget()
                    raise
                finally:
                    self.watch.stop()
            finally:
                self.number_log.close()
                follower.close()
                self._forget_entries()
                set_current(before)
                before.special = recording.special
                self.modes_after, self.drawn_after = mode_state(), numpy_state()
        journal.known = None
        self.moved = [(edge, now) for edge, now in follower.stored.items() if edge.read() is not MISSING]

    def are_modes_unchanged(self):
        """Whether the modes are those that the call began with."""
        return mode_state() == self.modes_before

    def note_drawn(self):
        """What was drawn from NumPy's random state so far was not drawn by the call."""
        self.drawn_before = numpy_state()

    def _known(self, tensor, path):
        """A tensor that was there before the call is met for the first time."""
        self.recording.meet(tensor._storage, path)
        self.tensors_before.append((tensor, path, tensor._storage, tensor_state(tensor), history(tensor)))

    def _differentiate(self):
        """Record the backward of results whose graph is still there."""
        known = self.journal.tensors
        values = [edge.read() for edge in self.journal.edges]
        found = tensors_in(self.out) + [t for t in values if isinstance(t, Tensor)]
        live = {id(t): t for t in found if id(t) not in known and t.grad_fn is not None and is_live(t)}
        if live and self.recording.reason is None:
            self.differentiated = Differentiated(list(live.values()), self.journal, self.recording)

    def _forget_entries(self):
        """Entries that were made with a Traced in their key are of no use to any other call."""
        for entry in self.recording.fixed_entries:
            facts = known[entry.op]
            for key in [key for key, found in facts.entries.copy().items() if found is entry]:
                facts.entries.pop(key, None)
            for key in [key for key, found in facts.given.copy().items() if found[0] is entry]:
                facts.given.pop(key, None)


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
    return modes.grad, modes.inference, dtypes.default, as_device(None)


def numpy_state():
    """How far NumPy's own random numbers have been drawn."""
    if "numpy.random" not in sys.modules:
        return None
    state = np.random.get_state(legacy=False)
    return state["state"]["pos"], state["state"]["key"].tobytes(), state["has_gauss"]
