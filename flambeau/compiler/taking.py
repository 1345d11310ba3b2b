"""What a function takes from an iterator before it does anything else: the next batch.

Note [Taken first]: an iterator gives something else every time, and what it does meanwhile (indexing, shuffling,
drawing from NumPy) is not followed. But where a function begins with `next(batches)`, before it has computed, drawn or
written anything, that is as if the batch were an argument: a replay asks its guards, takes the batch, asks them once
more, since the iterator may have changed something, and then those of the batch, which is known by what it looks like.

If these do not hold, the batch has been taken all the same. It is handed to the other recordings, and in the end to the
ordinary call, which comes to the same `next` with nothing done before, and is given there what was taken; so that call
is followed, as if it were to be recorded. Where that happens again and again, the function is left alone.
"""
import sys

from ..autograd.modes import modes

FAILED = object()             # what `take` gives where the iterator raised, or another one was asked before


class Taken:
    """What was taken from an iterator for a call that has not asked for it yet: an `item`, or the `error` it raised."""

    __slots__ = ("iterator", "item", "error")

    def __init__(self, iterator, item, error=None):
        self.iterator, self.item, self.error = iterator, item, error


def take(taken, iterator):
    """The item for a replay; `taken` has what was taken for this call, or is empty."""
    if not taken:
        try:
            taken.append(Taken(iterator, next(iterator)))
        except Exception as error:                           # the ordinary call will raise it, where it asks
            taken.append(Taken(iterator, None, error))
    found = taken[0]
    return found.item if found.error is None and found.iterator is iterator else FAILED


class Unrecorded:
    """Code that runs in a call and is no part of what is recorded: the trace and the profiler are those of before."""

    def __init__(self, capture, set_current):
        self.capture, self.set_current = capture, set_current

    def __enter__(self):
        sys.setprofile(self.capture.watch.before)
        self.set_current(self.capture.before)

    def __exit__(self, *error):
        recording = self.capture.recording
        self.set_current(recording)
        recording.special = self.capture.before.special
        sys.setprofile(self.capture.watch._event)


def may_take(follower):
    """Whether nothing has been done in this call, so that an iterator can be asked for its next item."""
    capture, journal = follower.capture, follower.journal
    recording = capture.recording
    return not (recording.code or recording.draws or recording.checks or follower.put or follower.stored
                or follower.effect or recording.reason or journal.refusal or journal.taken) and journal.ahead is None \
        and capture.are_modes_unchanged() and modes.level < 0 and modes.autocast is None and not modes.anomaly \
        and not modes.saved_hooks


def taken_first(follower, iterator):
    """`next(iterator)`, for a copy. See Note [Taken first]."""
    journal, capture = follower.journal, follower.capture
    path = f"next({journal.path(iterator)})"
    able = may_take(follower)
    if capture.pending and capture.pending[0].iterator is iterator:
        found = capture.pending.pop()
        item, error = found.item, found.error
    else:
        item = error = None
        with Unrecorded(capture, capture.set_current):
            try:
                item = next(iterator)
            except Exception as raised:
                error = raised
        capture.note_drawn()
    if error is not None:
        journal.refuse(f"{path} raises {type(error).__name__}")
        raise error
    if not able:
        journal.refuse(f"{path} is asked amid the call")
        return item
    return follower.substitute(journal.take(iterator, item, path), item)
