"""`Compare`: measurements side by side, in PyTorch's table."""
import math
from enum import Enum

from .common import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

__all__ = ["Colorize", "Compare"]

BEST, GOOD, BAD, VERY_BAD, BOLD, PLAIN = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m"
SAME_SECONDS = 100e-9             # by which a time may be more than the best, and still be as good


class Colorize(Enum):
    """Whether the best times are shown in colours: of a column, of a row."""

    NONE, COLUMNWISE, ROWWISE = "none", "columnwise", "rowwise"


class _Cells:
    """How the numbers of a column are written."""

    def __init__(self, found, scale, trim, warn):
        present = [one for one in found if one is not None]
        self.trim, self.warn = trim, warn and any(one.has_warnings for one in present)
        self.scale = scale
        digits = [math.ceil(math.log10(one.median / scale)) for one in present]
        decimals = min(max(one.significant_figures - n, 0) for one, n in zip(present, digits, strict=True)) if trim \
            else 1
        self.decimals, self.width = decimals, max(digits) + decimals + (1 if decimals else 0)

    def text(self, one):
        """A measurement, or room for one."""
        if one is None:
            return " " * len(self._written(1.0, None))
        value = one.median / self.scale
        if self.trim:
            value = trim_sigfig(value, one.significant_figures)
        return self._written(value, one.iqr / one.median if one.has_warnings else None)

    def _written(self, value, spread):
        note = f" (! {spread * 100:.0f}%)" if self.warn and spread is not None else ""
        return f"{value:>{self.width}.{self.decimals}f}{note:>{7 if self.warn else 0}}"


def _coloured(text, value, best):
    if value <= best * 1.01 or value <= best + SAME_SECONDS:
        return BEST + BOLD + text + PLAIN * 2
    if value <= best * 1.1:
        return GOOD + BOLD + text + PLAIN * 2
    if value >= best * 5:
        return VERY_BAD + BOLD + text + PLAIN * 2
    return BAD + text + PLAIN * 2 if value >= best * 2 else text


class Compare:
    """A table of measurements: a row for each `sub_label`, a column for each `description`, a table for each `label`.

    `print()` shows it; `trim_significant_figures()`, `colorize()` and `highlight_warnings()` before that say how.
    """

    def __init__(self, results):
        self._results = []
        self._trim, self._colour, self._warn = False, Colorize.NONE, False
        self.extend_results(results)

    def extend_results(self, results):
        """Take in more measurements."""
        results = list(results)
        for one in results:
            if not isinstance(one, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(one)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self):
        """Show only figures that mean something."""
        self._trim = True

    def colorize(self, rowwise=False):
        """Show in colours which is best, of each column or of each row."""
        self._colour = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self):
        """Say where times are far apart."""
        self._warn = True

    def print(self):
        """Print the table."""
        print(str(self))

    def __str__(self):
        merged = Measurement.merge(self._results)
        labels = ordered_unique(one.label for one in merged)
        return "\n".join(self._table([one for one in merged if one.label == label]) for label in labels)

    def _table(self, results):
        unit, scale = select_unit(min(one.median for one in results))

        def env_of(one):
            return one.env or "Unspecified env"

        def row_of(one):
            return one.num_threads, env_of(one), one.as_row_name
        rows = sorted(ordered_unique(map(row_of, results)), key=lambda row: row[:2])
        columns = ordered_unique(one.description for one in results)
        placed = {(row_of(one), one.description): one for one in results}
        grid = [[placed.get((row, column)) for column in columns] for row in rows]
        cells = [_Cells([line[i] for line in grid], scale, self._trim, self._warn) for i in range(len(columns))]
        several = len({env_of(one) for one in results}) > 1
        room = max(len(env_of(one)) for one in results) + 4 if several else 4
        texts = [["", *[column or "" for column in columns]]]
        for at, (row, line) in enumerate(zip(rows, grid, strict=True)):
            new_env = several and (at == 0 or rows[at - 1][:2] != row[:2])
            env = f"({row[1]})" if new_env else ""
            texts.append([f"  {env:<{room}}{row[2]}", *[cell.text(one) for cell, one in zip(cells, line, strict=True)]])
        widths = [max(len(text) for text in column) for column in zip(*texts, strict=True)]
        lines = ["  |  ".join(text.center(width) for text, width in zip(texts[0], widths, strict=True))]
        whole = len(lines[0])
        for at, (row, line, text) in enumerate(zip(rows, grid, texts[1:], strict=True)):
            if at == 0 or rows[at - 1][0] != row[0]:
                lines.append(f"{row[0]} threads: ".ljust(whole, "-"))
            best = self._best(rows, grid, at)
            shown = [text[0].ljust(widths[0])]
            for i, one in enumerate(line):
                cell = text[i + 1].center(widths[i + 1])
                shown.append(_coloured(cell, one.median, best[i]) if one is not None and best is not None else cell)
            lines.append("  |  ".join(shown))
        noted = self._warn and any(one.has_warnings for one in results)
        note = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n" if noted else ""
        title = f" {results[0].label or ''} ".center(whole - 2, "-")
        return "\n".join([f"[{title}]", *lines, "", f"Times are in {unit_to_english(unit)}s ({unit}).", note])

    def _best(self, rows, grid, at):
        """The best times that the cells of a row are held against; None: no colours."""
        if self._colour is Colorize.NONE:
            return None
        if self._colour is Colorize.ROWWISE:
            return [min(one.median for one in grid[at] if one is not None)] * len(grid[at])
        same = [line for row, line in zip(rows, grid, strict=True) if row[0] == rows[at][0]]
        return [min((line[i].median for line in same if line[i] is not None), default=None)
                for i in range(len(grid[at]))]
