"""The instance of DuckDB that the sessions of a source share in a process."""
import contextlib
import os

import duckdb

from ...base.locks import new_condition

SECONDS_TO_LEAVE = 2.0                    # an instance that is given up, for sessions that read from it
RANGES_OF_INSTANCE = 16                   # of keys, each in a row group or two, that are fetched from an instance
ROW_GROUP_ROWS = 122880
ROWS_OF_INSTANCE = RANGES_OF_INSTANCE * ROW_GROUP_ROWS       # of a larger table it is given up after so many ranges


class Instance:
    """An instance of DuckDB, with how many connections sessions have to it, those of them that no session has just now,
    and how many ranges of keys were fetched from it."""

    def __init__(self, con):
        self.con, self.sessions, self.ranges = con, 0, 0
        self.idle: list = []

    def close_idle(self):
        while self.idle:
            self.idle.pop().close()
            self.sessions -= 1

    def limit_memory(self, source):
        """Let it keep as much as its sessions need."""
        self.con.execute(f"SET memory_limit = '{source.memory_mib_of(self.sessions)}MiB'")


class SharedInstance:
    """The instance of a source in this process: opened for the first session, closed with the last, or when the last
    pass is over that holds it, so that the file is not written to meanwhile.

    DuckDB keeps a description of every row group that it has looked at, beside what `memory_limit` counts. So of a
    large table an instance is given up after some ranges. When all sessions have left it, the file is attached to it
    anew, or it is closed, and another is opened: two at a time would take twice the memory. Those that have nothing to
    read just then have laid their connections aside; the others are waited for, though not for ever.
    """

    def __init__(self, source):
        self.source, self.changed = source, new_condition()
        self.now, self.given_up, self.holders, self.pid = None, None, 0, 0
        self.of_parents: list = []            # instances whose threads did not come along: not even closed

    def cursor(self):
        """(a connection for one session, the Instance it is to)."""
        with self.changed:
            self.enter_process()
            if self.now is None and self.given_up is not None:
                self.changed.wait_for(lambda: self.now or not self.given_up.sessions, SECONDS_TO_LEAVE)
            if self.now is None:
                self.now = Instance(self.source.open(self.source.memory_mib, 1))    # each session's own thread works
            instance = self.now
            if instance.idle:
                return instance.idle.pop(), instance
            made = instance.con.cursor()
            made.execute(";".join(self.source.settings))
            self.source.enter(made)
            instance.sessions += 1
            instance.limit_memory(self.source)
        return made, instance

    def enter_process(self):
        if self.pid != os.getpid():
            self.of_parents.append(self.now)
            self.now, self.given_up, self.holders, self.pid = None, None, 0, os.getpid()

    def lay_aside(self, cursor, instance):
        """A session has nothing to read just now: it leaves, and any session may take its connection up."""
        with self.changed:
            if self.now is instance and self.holders:
                instance.idle.append(cursor)
                return
        self.leave(cursor, instance)

    def leave(self, cursor, instance):
        cursor.close()
        with self.changed:
            instance.sessions -= 1
            self.changed.notify_all()
            if instance.sessions and self.now is instance:        # one that is given up has to serve for a moment
                with contextlib.suppress(duckdb.OutOfMemoryException):        # others use it right now
                    instance.limit_memory(self.source)
            self.end_unused(instance)

    def hold(self, more):
        """So many more passes hold the instance, or fewer."""
        with self.changed:
            self.enter_process()
            self.holders += more
            if self.now is not None:
                self.end_unused(self.now)

    def end_unused(self, instance):
        if instance.sessions > len(instance.idle) or self.now is instance and self.holders:
            return
        instance.close_idle()
        if self.holders and self.now is None and self.given_up is instance and self.source.forget(instance.con):
            self.now, self.given_up = Instance(instance.con), None
            return
        instance.con.close()
        if self.now is instance:
            self.now = None

    def fetched(self, instance, ranges):
        """So many more ranges of a large table were fetched."""
        with self.changed:
            instance.ranges += ranges
            if instance.ranges > RANGES_OF_INSTANCE and self.now is instance:
                self.now, self.given_up = None, instance
                instance.close_idle()
