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
import sys as _sys
import types as _types

from .axes import label
from .finding import FINDINGS, Finding, FindingError, FindingWarning, allow, clear, findings
from .nonfinite import non_finite
from .watching import Watching, settle, start, stop

__all__ = ["FINDINGS", "Finding", "FindingError", "FindingWarning", "Watching", "allow", "clear", "findings", "label",
           "non_finite", "settle", "start", "stop"]


class WatchModule(_types.ModuleType):
    """This module, which can be called: `flambeau.watch()`."""

    def __call__(self, *, strict=False, ignore=()):
        return Watching(strict=strict, ignore=ignore)


_sys.modules[__name__].__class__ = WatchModule
