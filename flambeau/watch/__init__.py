"""`flambeau.watch()`: mistakes that raise no error are said once, with their line, what they cost and what to do.

    with flambeau.watch():                      # everything; a part of it is always on
        train()

    with flambeau.watch(strict=True, ignore=["starved"]):
        train()                                 # a finding is an error

    with flambeau.watch.allow("broadcast"):     # here it is meant
        table = rows * columns

    flambeau.watch.findings()                   # what has been found so far

`FLAMBEAU_WATCH=1` watches a whole program, `FLAMBEAU_WATCH=strict` makes findings errors, and
`FLAMBEAU_WATCH_IGNORE=name,name` silences some. docs/watch.md has the table of findings. What is always on is part of
the code that does the thing (an optimizer's step, a backward, the inference of a shape) and calls `found`; the rest
are observers, which `Watching` puts in force.
"""
from ..base.lazy import LazyModule as _LazyModule, import_when_asked as _import_when_asked
from .finding import FINDINGS, Finding, FindingError, FindingWarning, allow, clear, findings

__all__ = ["FINDINGS", "Finding", "FindingError", "FindingWarning", "Watching", "allow", "clear", "findings", "label",
           "non_finite", "settle", "start", "stop"]


class WatchModule(_LazyModule):
    """This module, which can be called: `flambeau.watch()`."""

    def __call__(self, *given, strict=False, ignore=()):
        if given:
            raise TypeError(f"watch() was given {given[0]!r}: it takes watch(strict=True) and watch(ignore=[names]); "
                            "watch.allow(names) is for what is meant")
        return self.Watching(strict=strict, ignore=ignore)


# Optimizers load this package, for what is always on; the rest is imported when it is asked for.
__getattr__ = _import_when_asked(__name__, {
    "Watching": "watch.watching:Watching", "settle": "watch.watching:settle", "start": "watch.watching:start",
    "stop": "watch.watching:stop", "label": "watch.axes:label", "non_finite": "watch.nonfinite:non_finite",
}, lambda name: AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"),
    WatchModule)
