"""`flambeau.compile`: record a function's call once, and replay it afterwards without running its Python.

A Compiled holds its recordings, the latest used first. A call is tried on each of them: one whose guards hold replays
it. Otherwise the call is recorded, which is the ordinary call and gives the ordinary result; a recording comes of it if
it can be replayed, and a reason why not otherwise.

Note [Giving up]: to record a call takes several times what the call takes, so it is done where replays will earn it. A
call that cannot be replayed for the same lasting reason as the call before it (a value is looked at half-way, NumPy is
asked for random numbers) will not be replayed next time, and the function is left alone; so it is after eight calls in
a row that could not for whatever reasons. Where every call has another structure, a few recordings are made, or all of
those that are kept where they are short; then each has to be earned by replays of those there are, and other calls run
as ordinary code.
"""
import functools
import types
import weakref

from ..autograd.modes import modes
from ..base import observers, settings
from ..base.errors import warn
from ..base.locks import new_lock
from ..base.weakbag import WeakBag
from ..tensor import overrides
from ..trace.recording.record import Trace, current
from ..trace.running.effects import forget as forget_effects
from .capture import CallRecording, Capture, is_recording
from .diff import Diff, NotReplayable
from .journal import Journal, name_of
from .runtime import REFUSED, Miss
from .source import Replay
from .traced import TRACED
from .watch import is_profiled

MAXIMUM_FAILED_CALLS = 8      # calls in a row that could not be replayed, until we give up,
MAXIMUM_SAME_FAILURES = 2     # and those of them that failed for the same lasting reason
MAXIMUM_RECORDINGS = 8        # recordings of one function; a new one takes the place of the longest unused
UNEARNED_RECORDINGS = 4       # those that are made whether or not others were replayed,
UNEARNED_OPERATIONS = 256     # or more of them, while they have no more operations than this together
MAXIMUM_REPLAYS_TO_EARN = 32  # replays that earn one more: 2 at first, twice as many for every other, up to so many
_all = WeakBag()


class Compiled:
    """A function that replays what it has recorded. `explain()` says what that is."""

    _is_compiled = True

    def __init__(self, fn, fullgraph=False):
        self._compiles = fn
        self.recordings = []          # the latest used first
        self.reasons = []             # why calls could not be replayed, each once, the latest last
        self.gave_up = None           # the reason for which it is left alone
        self._fullgraph = fullgraph
        self._lock = new_lock()
        self._varying = set()         # paths of whole numbers that were another at a later call
        self._failures = self._same_failures = self._since = self._strays = 0
        self._said = False
        if hasattr(fn, "__name__"):
            functools.update_wrapper(self, fn, updated=())
        _all.add(self)

    def __call__(self, *args, **kwargs):
        # part of what is being recorded, or a mode is to see what it calls
        if observers.looked is not None and is_recording() or overrides.modes_active and overrides.seen_by_modes():
            return self._compiles(*args, **kwargs)
        misses, taken = [], []
        for found in self.recordings:
            out = found.replay(args, kwargs, taken)
            if out.__class__ is not Miss:
                found.hits += 1
                if found is not self.recordings[0]:
                    self._to_front(found)
                return out
            misses.append((found, out.guard))
            if out is REFUSED:
                break
        return self._call(args, kwargs, misses, taken)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name):
        if name.startswith("__") or "_compiles" not in vars(self):
            raise AttributeError(name)
        return getattr(self._compiles, name)

    def __setattr__(self, name, value):
        """What is set on a compiled object is set on the object."""
        if name.startswith("_") or name in ("recordings", "reasons", "gave_up") or \
                isinstance(self._compiles, (types.FunctionType, types.MethodType)):
            object.__setattr__(self, name, value)
        else:
            setattr(self._compiles, name, value)

    def __reduce__(self):                                    # a copy has recordings of its own
        return Compiled, (self._compiles, self._fullgraph)

    def __repr__(self):
        return f"<compiled {self._compiles!r}>"

    # --- when no recording fits --------------------------------------------------------------------------------------

    def _to_front(self, found):
        with self._lock:
            self.recordings = [found, *filter(lambda other: other is not found, self.recordings)]

    def _call(self, args, kwargs, misses, taken):
        fn = self._compiles
        if self.gave_up or modes.level >= 0 or modes.anomaly or modes.saved_hooks or modes.autocast is not None \
                or is_profiled():
            return self._plainly(args, kwargs, taken)
        for found, guard in misses:
            if guard == -1 or guard == found.outside:        # refused data; memory that NumPy holds for a while
                return self._plainly(args, kwargs, taken)
            if guard in found.varies:
                self._varying.add(found.varies[guard])
        sliced = [found for found, guard in misses if guard in found.slice_guards]
        if not self._lock.acquire(blocking=False):           # another thread records it just now
            return self._plainly(args, kwargs, taken)
        try:
            if misses and not self._earned():
                found, guard = misses[0]
                words = (f"{len(self.recordings)} recordings, and none fits: the latest one needs that "
                         f"{found.guards[guard]}")
                self._reason(words)
                self._warn(f"{name_of(fn)} is compiled, but this call runs as ordinary code: {words}")
                self._stray(taken, words)
                return self._plainly(args, kwargs, taken)
            return self._record(args, kwargs, taken, sliced)
        finally:
            self._lock.release()

    def _earned(self):
        """Whether one more recording may be made; see Note [Giving up]."""
        made = len(self.recordings)
        more = made - UNEARNED_RECORDINGS
        if more < 0 or made < MAXIMUM_RECORDINGS and sum(r.operations for r in self.recordings) <= UNEARNED_OPERATIONS:
            return True
        replays = sum(r.hits for r in self.recordings) - self._since
        return replays >= min(2 << more, MAXIMUM_REPLAYS_TO_EARN)

    def _plainly(self, args, kwargs, taken):
        """The ordinary call. One for which replays have `taken` something is followed: see Note [Taken first]."""
        return self._record(args, kwargs, taken, keeps=False) if taken else self._compiles(*args, **kwargs)

    def _stray(self, taken, words):
        """Note a call that nothing fits. Where something was `taken` for many of them, leave the function alone."""
        self._strays += len(taken)
        if self._strays >= MAXIMUM_FAILED_CALLS and 4 * self._strays > sum(r.hits for r in self.recordings):
            self._give_up(words)

    def _give_up(self, reason):
        self.gave_up = reason
        self.recordings = [r for r in self.recordings if not r.takes]    # to miss one of these is dear

    def _record(self, args, kwargs, taken, others=(), keeps=True):
        """The call, recorded. `others` are the recordings that would fit it but for where slices begin."""
        fn, made, reason, again = self._compiles, None, "", False
        capture = Capture(fn, Journal(fn, list(args), dict(kwargs)), self._varying, self._fullgraph and keeps, taken)
        try:
            if not keeps:
                raise NotReplayable("")
            with capture.recording.lock:                      # another thread that needs a result waits to run it
                made = Replay(Diff(capture), functools.partial(drop, weakref.ref(self)), others)
        except NotReplayable as unfit:
            reason, again = str(unfit), unfit.again
            self._varying.update(unfit.varying)
        except Exception as error:                           # ours; the call itself is through, and its result is good
            reason, again = f"compile itself failed with {type(error).__name__}: {error}", False
            warn(f"{name_of(fn)}: {reason}. This is a mistake in Flambeau; the function runs as ordinary code.")
        if capture.pending:
            warn(f"{name_of(fn)}: an item was taken from an iterator for this call, which did not ask for it.")
        out, recording = with_plain_numbers(capture.out), capture.recording
        capture.follower.forget()                            # functions that were made inside may live on
        del capture
        try:
            recording.finish(None if made is None or made.head is not None else made.runner)
        except BaseException:
            forget_effects(recording)                     # the call ends here, as a replay does
            raise
        if not keeps:
            return out
        if made is None:
            self._failed(reason, again)
        else:
            self.recordings = [made, *self.recordings[:MAXIMUM_RECORDINGS - 1]]
            self._failures = self._same_failures = 0
            self._since = sum(r.hits for r in self.recordings)
        return out

    # --- reasons -----------------------------------------------------------------------------------------------------

    def _reason(self, reason):
        if reason in self.reasons:
            self.reasons.remove(reason)
        self.reasons.append(reason)
        del self.reasons[:-MAXIMUM_FAILED_CALLS]

    def _failed(self, reason, again):
        lasts = not again and self.reasons[-1:] == [reason]
        self._same_failures = 0 if again else self._same_failures + 1 if lasts else 1
        self._reason(reason)
        self._failures += 1
        if self._failures >= MAXIMUM_FAILED_CALLS or self._same_failures >= MAXIMUM_SAME_FAILURES:
            self._give_up(reason)
        if self._fullgraph and (not again or self.gave_up):
            raise RuntimeError(f"compile(fullgraph=True): {reason}")
        if self.gave_up:
            self._warn(f"{name_of(self._compiles)} is compiled, but runs as ordinary code: {reason}")

    def _warn(self, words):
        if not self._said:
            self._said = True
            warn(words)

    # --- telling -----------------------------------------------------------------------------------------------------

    def explain(self):
        """What was recorded, fused and guarded, and what could not be; prints as a report."""
        return Report(self)


def drop(owner, ref):
    """An argument that a recording was bound to is gone, and the recording goes with it."""
    compiled = owner()
    if compiled is not None:
        compiled.recordings = [r for r in compiled.recordings if not any(ref is b for b in r.bound)]


class Report:
    """What a compiled function has recorded, as text."""

    def __init__(self, compiled):
        lines = [f"{name_of(compiled._compiles)}: {len(compiled.recordings)} recordings"]
        if compiled.gave_up:
            lines.append(f"runs as ordinary code: {compiled.gave_up}")
        for i, found in enumerate(compiled.recordings):
            lines += ["", f"recording {i}: {found.operations} operations, replayed {found.hits} times"]
            runners = [found.runner] if found.head is None else [found.head.runner, found.runner]
            bound = [runner.plan() for runner in runners if runner.wanted]
            if None in bound or not bound and settings.executor == "reference":
                lines.append("  runs on the reference executor" if settings.executor == "reference" else
                             "  runs as recorded code does: no plan can be made for it")
            else:
                steps = [step.kind for one in bound for step in one.plan.steps]
                lines.append(f"  {steps.count('kernel')} kernels, {steps.count('library')} library calls, "
                             f"{steps.count('reference')} operations of the reference executor"
                             + (f", {steps.count('callback')} with an effect" if "callback" in steps else ""))
                lines += [f"    {line}" for one in bound for line in str(one.plan).splitlines()]
            for title, words in (("read at every replay", found.moving), ("checks data", found.checks),
                                 ("does", found.effects), ("guards", found.guards)):
                if words:
                    lines += [f"  {title}:", *[f"    {w}" for w in words]]
            if found.draws:
                lines.append(f"  draws random numbers {found.draws} times")
        if compiled.reasons:
            lines += ["", "calls that could not be replayed:", *[f"  {reason}" for reason in compiled.reasons]]
        self.text = "\n".join(lines)

    def __str__(self):
        return self.text

    __repr__ = __str__


def with_plain_numbers(out, done=None):
    """`out` with plain numbers in the place of Traced ones; `done`: what was gone through, by identity."""
    cls = type(out)
    if cls in TRACED:
        return out._value
    if cls is slice:
        return slice(*[with_plain_numbers(part) for part in (out.start, out.stop, out.step)])
    done = {} if done is None else done
    if id(out) in done:
        return done[id(out)][1]
    if cls is list or cls is dict:
        done[id(out)] = out, out
        for key, part in list(enumerate(out) if cls is list else out.items()):
            out[key] = with_plain_numbers(part, done)
    elif cls is tuple or isinstance(out, tuple) and hasattr(out, "_fields"):
        parts = [with_plain_numbers(part, done) for part in out]
        if any(a is not b for a, b in zip(parts, out, strict=True)):
            done[id(out)] = out, tuple(parts) if cls is tuple else out._make(parts)
            return done[id(out)][1]
    return out


def disabled(fn, reason):
    """`fn`, which a recording does not go into: one that meets it stops there."""
    words = f"{name_of(fn)} is marked with compiler.disable" + (f" ({reason})" if reason else "")

    @functools.wraps(fn)
    def form(*args, **kwargs):
        trace = current()
        if trace.__class__ is CallRecording and trace.reason is None:
            trace.stop(words)
            Trace.run(trace)
        return fn(*args, **kwargs)
    form._compile_disabled = True
    return form


def reset():
    """Forget every recording."""
    for compiled in _all:
        compiled.recordings, compiled.reasons, compiled.gave_up = [], [], None
        compiled._failures = compiled._same_failures = compiled._since = compiled._strays = 0
