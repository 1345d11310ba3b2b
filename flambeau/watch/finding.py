"""Findings: what was noticed, said once for each line of the program, and how that is silenced or made an error.

The code that notices something calls `found`, with the name of the kind, the line and what to do; lower layers through
`door.noticed`. What becomes of it is decided here alone: nothing if the name is ignored or allowed, an error inside of
`watch(strict=True)`, else a warning, the first time for that line.
"""
import contextvars
import linecache
import warnings

from ..base import settings
from ..base.errors import file_and_line, line_of

# name → what the finding says, in a sentence; the order is that of docs/watch.md
FINDINGS = {
    "stale-gradients": "gradients of an earlier step were still there, and were added to",
    "old-graph": "graphs of earlier steps are still reachable",
    "unused-graph": "graphs are recorded that no backward goes through",
    "broadcast": "a result is larger than both of its operands",
    "transfer": "a line moves the same memory between devices again and again",
    "synchronisation": "a line waits for the device in every step",
    "split-module": "parameters of one module lie on different devices",
    "idle-accelerator": "a model trains on the CPU while an accelerator idles",
    "shared-memory": "memory that is shared with NumPy was written after a tensor was made of it",
    "scrambled-channels": "a reshape mixes axes in front of a norm over channels",
    "non-finite": "an operation made infinity or not-a-number from finite numbers",
    "underflow": "gradients of half precision are too small for it",
    "no-gradient": "parameters of an optimizer never receive a gradient",
    "dead-layer": "the gradients of a parameter are zero in every step",
    "exploding-gradients": "gradients grow from step to step without bound",
    "plain-container": "layers or parameters stand where their module does not look",
    "swallowed-error": "an error was caught by a broad except, and nobody was told",
    "same-random-numbers": "workers of a loader draw the same random numbers",
    "starved": "steps wait for their data",
    "input-requires-grad": "gradients of input data are computed, and nobody reads them",
    "cut-loss": "backward began at a tensor that was cut off from the parameters",
    "not-called": "a function was named and not called",
    "vmap": "vmap goes through its slices one by one",
}


class FindingWarning(UserWarning):
    """A finding of `flambeau.watch`; the text has its name, lines, cost and fix."""


class FindingError(RuntimeError):
    """A finding inside of `watch(strict=True)`; `finding` is it."""

    def __init__(self, finding):
        super().__init__(str(finding))
        self.finding = finding

    def __reduce__(self):
        return FindingError, (self.finding,)


class Finding:
    """Something that `watch` noticed: its `name`, the `line` it is about, `other_lines`, `text`, `cost` and `fix`.

    `line` is `train.py:42`, or `an unknown line`; `file` and `lineno` say the same in full. `count` is how often it was
    noticed there.
    """

    __slots__ = ("name", "line", "file", "lineno", "other_lines", "text", "cost", "fix", "count")

    def __init__(self, name, line, other_lines, text, cost, fix, file="", lineno=0):
        self.name, self.line, self.other_lines, self.text = name, line, tuple(other_lines), text
        self.cost, self.fix, self.file, self.lineno, self.count = cost, fix, file, lineno, 1

    @property
    def source(self):
        """The text of the line, '' where it cannot be read."""
        return linecache.getline(self.file, self.lineno).strip()

    def __str__(self):
        lines = [f"{self.text} [{self.name}]", f"at {self.line}"]
        if self.source:
            lines[-1] += f": {self.source}"
        lines += [f"and {other}" for other in self.other_lines]
        if self.cost:
            lines.append(f"cost: {self.cost}")
        lines.append(f"fix: {self.fix}")
        return "\n  ".join(lines)

    def __repr__(self):
        return f"Finding({self.name!r}, {self.line!r}, {self.text!r})"


def check_names(names):
    """Refuse names that no finding has."""
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name not in FINDINGS:
            raise ValueError(f"{name!r} is no finding of watch: the names are {', '.join(FINDINGS)}")
    return frozenset(names)


# --- what is said -----------------------------------------------------------------------------------------------------

_found: dict = {}             # (name, file, line) → Finding, in the order of their finding
_allowed = contextvars.ContextVar("allowed", default=frozenset())
in_force: list = []           # the `Watching`s that are in force, outermost first
check_names(settings.watch_ignore.split(",") if settings.watch_ignore else ())


def listens(name):
    """Whether a finding of this name would be said here; for code that would have to work to find it."""
    if settings.watch == "off" or name in _allowed.get() \
            or settings.watch_ignore and name in settings.watch_ignore.split(","):
        return False
    for one in in_force:
        if name in one.ignore:
            return False
    return True


def strict():
    """Whether findings are errors now."""
    return any(one.strict for one in in_force)


def found(name, text, site=None, others=(), cost="", fix="", raises=True, said=False):
    """Say a finding about the line `site`: a warning, or in a strict watch an error.

    `others` are the further lines as (words, site). Where nothing may be raised, `raises=False`: it is a warning then.
    `said`: PyTorch warns of it as well, in its own words, and that was done.
    """
    if not listens(name):
        return None
    file, lineno = file_and_line(site)
    finding = _found.get((name, file, lineno))
    if finding is not None:
        finding.count += 1
        if not (raises and strict()):
            return finding
    else:
        finding = Finding(name, line_of(site), [f"{words} {line_of(other)}" for words, other in others], text, cost,
                          fix, file, lineno)
        _found[name, file, lineno] = finding
    if raises and strict():
        raise FindingError(finding)
    if not said:
        warnings.warn_explicit(str(finding), FindingWarning, file or "<unknown>", lineno or 1)
    return finding


def findings():
    """What has been found in this process, in its order."""
    return list(_found.values())


def clear():
    """Forget what has been found, so that it is said again."""
    _found.clear()


class allow:
    """Inside of the `with`, or of a function that this decorates, findings of these names are not said.

    >>> with torch.watch.allow("broadcast"):
    ...     table = torch.ones(3, 1) * torch.ones(3)
    """

    def __init__(self, *names):
        self.names = check_names(names)
        self.before = []

    def __enter__(self):
        self.before.append(_allowed.set(_allowed.get() | self.names))
        return self

    def __exit__(self, *exc):
        _allowed.reset(self.before.pop())

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def form(*args, **kwargs):
            with allow(*self.names):
                return function(*args, **kwargs)
        return form
