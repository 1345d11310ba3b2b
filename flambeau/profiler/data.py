"""A Profile: all that was seen of a stretch of a program, its parts, and its tables."""
from dataclasses import dataclass, field
from functools import cached_property

from ..base.plain import PlainData, as_plain
from . import tables
from .model import PART_OF_KIND, PARTS


@dataclass
class Profile(PlainData):
    """All that was seen from `start` to `end`; `thread` is the one that asked for it.

    `memory` has the MemoryChanges, where they were asked for.
    """

    start: int
    end: int
    thread: int
    spans: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    memory: list = field(default_factory=list)
    memory_before: dict = field(default_factory=dict)      # device → {role: bytes in use when it began}
    limits: dict = field(default_factory=dict)        # device → MachineLimit
    threads: dict = field(default_factory=dict)       # number → name

    @property
    def wall(self):
        """How long it lasted."""
        return self.end - self.start

    @cached_property
    def parts(self):
        """{part: nanoseconds} of the time of the thread that asked for it, in the order of PARTS; together `wall`."""
        found = dict.fromkeys(PARTS, 0)
        for span in self.spans:
            if span.thread == self.thread:
                found[PART_OF_KIND[span.kind]] += span.own
        for step in self.steps:
            if step.thread == self.thread:
                found["copying" if step.kind == "transfer" else "running"] += step.nanoseconds
        found["python"] += self.wall - sum(found.values())
        return found

    @property
    def background(self):
        """{part: nanoseconds} of all other threads: of the compiler's, while it works ahead."""
        found: dict = {}
        for span in self.spans:
            if span.thread != self.thread:
                part = PART_OF_KIND[span.kind]
                found[part] = found.get(part, 0) + span.own
        for step in self.steps:
            if step.thread != self.thread:
                found["running"] = found.get("running", 0) + step.nanoseconds
        return found

    def to_dict(self):
        """Everything, with the rows of all tables, for a report."""
        return {**super().to_dict(), "wall": self.wall, "parts": self.parts, "background": self.background,
                **{by: as_plain(self.rows(by)) for by in ("line", "operation", "kernel", "module")}}

    def rows(self, by):
        """The rows of the table by "line", "operation", "kernel" or "module", the longest first."""
        return tables.rows(self, by)

    def table(self, by="line", limit=20):
        """The same as text."""
        return tables.table(self, by, limit)

    def __str__(self):
        return tables.overview(self)
