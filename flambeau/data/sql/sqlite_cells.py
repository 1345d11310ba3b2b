"""Cells of SQLite as columns of arrays: whole rows by its own interface, or one by one."""
from array import array

import numpy as np

from . import sqlite_rows
from .source import Chunk
from .sqlite_statements import lost

ROWS_AT_ONCE = 256              # tuples that exist at a time
SCANNED_KEYS = 65_536           # keys that are scanned at a time
EXACT_INTEGERS = 2 ** 53        # beyond them float64 has gaps


def add_keys(scan, cursor):
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        scan.add(rows)


def all_added(scan, rows):
    """Give the keys to the scan, to the last; False if it finds that they are not in order."""
    while len(chunk := rows.take(SCANNED_KEYS)):
        if not scan.add_numbers(chunk.columns[0], chunk.nulls[0]):
            return False
        if len(chunk) < SCANNED_KEYS:
            break
    return True


class NativeRows:
    """The rows of a statement through the native loop."""

    def __init__(self, handle, text, params, wanted):
        self.wanted = wanted
        try:
            self.statement = sqlite_rows.SQLiteStatement(handle, text, params)
        except sqlite_rows.SQLiteError as error:
            raise lost(error) from error

    def take(self, rows):
        try:
            columns, nulls, _ = self.statement.rows([each.form for each in self.wanted], rows)
        except sqlite_rows.WrongCell as wrong:
            refuse_cell(self.wanted[wrong.column], wrong.value)
        for i, each in enumerate(self.wanted):
            if each.form == "bool":
                columns[i] = truth_values(each, columns[i])
        return Chunk(columns, nulls)

    def close(self):
        self.statement.close()


class CursorRows:
    """The rows of a cursor of Python's module."""

    def __init__(self, cursor, wanted):
        self.cursor, self.wanted = cursor, wanted

    def take(self, rows):
        columns = [CellColumn(each, rows) for each in self.wanted]
        at = 0
        while at < rows and (taken := self.cursor.fetchmany(min(ROWS_AT_ONCE, rows - at))):
            for column, cells in zip(columns, zip(*taken)):
                column.take(cells, at)
            at += len(taken)
        return Chunk([column.values[:at] for column in columns],
                     [None if column.nulls is None else column.nulls[:at] for column in columns])

    def close(self):
        self.cursor.close()


class CellColumn:
    """A column that is being filled from cells."""

    def __init__(self, wanted, rows):
        self.wanted, self.rows = wanted, rows
        self.values = np.empty(rows, object if wanted.form == "text" else wanted.form)
        self.nulls = None
        self.code = "d" if self.values.dtype.kind == "f" else "q"

    def take(self, cells, at):
        if self.wanted.form == "text":
            return self.take_text(cells, at)
        try:
            numbers = np.asarray(array(self.code, cells))
        except TypeError:
            numbers = self.without_nulls(cells, at)
        if self.code == "d" and (abs(numbers) >= EXACT_INTEGERS).any():
            for cell in cells:
                if isinstance(cell, int) and int(float(cell)) != cell:
                    refuse_cell(self.wanted, cell)
        self.values[at:at + len(cells)] = truth_values(self.wanted, numbers) if self.wanted.form == "bool" else numbers

    def take_text(self, cells, at):
        for cell in {*cells}:
            if not isinstance(cell, str) and cell is not None:
                refuse_cell(self.wanted, cell)
        if None in cells:
            self.found_nulls(cells, at)
        self.values[at:at + len(cells)] = cells

    def found_nulls(self, cells, at):
        if self.nulls is None:
            self.nulls = np.zeros(self.rows, bool)
        self.nulls[at:at + len(cells)] = [cell is None for cell in cells]

    def without_nulls(self, cells, at):
        """The cells as numbers, with 0 for NULL; what is neither is refused."""
        self.found_nulls(cells, at)
        try:
            return np.asarray(array(self.code, [0 if cell is None else cell for cell in cells]))
        except TypeError:
            right = (int, float) if self.code == "d" else int
            refuse_cell(self.wanted, next(cell for cell in cells if cell is not None and not isinstance(cell, right)))


def truth_values(wanted, numbers):
    wrong = (numbers < 0) | (numbers > 1)
    if wrong.any():
        refuse_cell(wanted, int(numbers[wrong][0]))
    return numbers.astype(bool)


def refuse_cell(wanted, cell):
    name = wanted.name
    said = repr(cell) if len(repr(cell)) < 60 else repr(cell)[:57] + "…"
    if isinstance(cell, int) and wanted.form == "float64":
        raise OverflowError(f"column {name!r} holds {cell}, which no float64 is equal to; declare the column INTEGER, "
                            "or cast it in the query")
    if isinstance(cell, str) and wanted.form != "text":
        hint = f"text becomes numbers by codes={{{name!r}: {{{said}: 0, …}}}}"
    else:
        hint = f"cast it in the query, such as CAST({name} AS {'TEXT' if wanted.form == 'text' else 'REAL'}) AS {name}"
    raise TypeError(f"column {name!r} is taken for {wanted.kind} and holds {said}; {hint}")
