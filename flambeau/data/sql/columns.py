"""From database columns to the arrays that tensors are made of: types, NULLs, codes, and what would be lost.

A RowLayout is made once from what the query's columns are and what the user wants. It says which columns to ask for and
in which form, makes the arrays of a result (its parts: features, mask, label), and writes Chunks into them. There is
one rule for every engine: a number that its place cannot hold is an error, one that would be rounded among whole
numbers is warned of.
"""
import math
from typing import NamedTuple

import numpy as np

from ...base import dtypes
from ...base.errors import warn
from .source import Chunk, ColumnFact, Wanted

SPECIAL_NULLS = ("raise", "nan", "mask")


class NullFound(ValueError):
    """A NULL where nulls="raise": SQLDataset counts them all before it says so."""

    def __init__(self, column):
        super().__init__(column)
        self.column = column


class TargetColumn(NamedTuple):
    """A column of the query and where it goes."""
    fact: ColumnFact
    wanted: Wanted
    dtype: dtypes.dtype
    nulls: object                       # "raise", "nan", "mask" or a number
    codes: dict | None


class Part(NamedTuple):
    """One tensor of a sample: `width` columns side by side; None: a plain column."""
    name: str                           # "features", "mask" or "label"
    dtype: dtypes.dtype
    width: int | None

    def shape(self, rows):
        return (rows,) if self.width is None else (rows, self.width)


# --- what is asked for ----------------------------------------------------------------------------------------------


def form_of(fact, dtype, codes):
    """The form in which a column is asked for; see Wanted."""
    name, kind = fact.name, fact.kind
    if codes is not None:
        if kind == "text":
            return "text"
        if kind == "unknown":
            return "int64" if all(isinstance(key, int) for key in codes if key is not None) else "text"
    elif kind == "text":
        raise TypeError(f"column {name!r} is text ({fact.declared}): say which number each text is, "
                        f"codes={{{name!r}: {{'some text': 0, …}}}}")
    if kind == "unknown":
        return "float64" if dtype.is_floating_point else "int64"
    if kind in ("int", "uint", "float"):
        return f"{kind}{fact.bits}"
    form = {"bool": "bool", "decimal": "float64", "date": "int64", "timestamp": "float64"}.get(kind)
    if form is None:
        raise TypeError(f"column {name!r} is {fact.declared or kind}, which no tensor holds: leave it out of features= "
                        "and label=, or cast it in the query")
    return form


class RowLayout:
    """What a sample looks like, and how it is filled from columns."""

    def __init__(self, facts, key, features, label, dtype, nulls, codes, default):
        by_name = {fact.name: fact for fact in facts}
        if len(by_name) < len(facts):
            twice = next(fact.name for i, fact in enumerate(facts) if fact.name in [f.name for f in facts[:i]])
            raise ValueError(f"the query gives two columns {twice!r}: name one of them differently with AS")
        labels = names_of("label", label)
        features = [fact.name for fact in facts if fact.name not in (*key, *labels)] if features is None else \
            names_of("features", features)
        for given, names in (("key", key), ("features", features), ("label", labels)):
            for name in names:
                if name not in by_name:
                    raise ValueError(f"{given}={name!r} is no column of the query, which has {', '.join(by_name)}")
            if len({*names}) < len(names):
                raise ValueError(f"{given}={list(names)!r} names a column twice")
        if not features and not labels:
            raise ValueError(f"there is no column left for features beside the key {list(key)!r}: the query has "
                             f"{', '.join(by_name)}")
        codes = checked_codes(codes, by_name)
        known = {*features, *labels}
        for given, table in (("dtype", dtype), ("nulls", nulls), ("codes", codes)):
            for name in table if isinstance(table, dict) else ():
                if name not in known:
                    raise ValueError(f"{given}={{{name!r}: …}}: that is neither one of features= nor of label=, which "
                                     f"are {', '.join([*features, *labels])}")
        self.key = tuple(key)
        self.features = [target_column(by_name[name], feature_dtype(name, dtype, default), nulls, codes, "features")
                         for name in features]
        self.labels = [target_column(by_name[name], label_dtype(by_name[name], dtype, codes, default), nulls, codes,
                                     "label") for name in labels]
        self.masked = any(column.nulls == "mask" for column in self.features)
        self.parts = []
        for name, columns, width in (("features", self.features, len(features)),
                                     ("label", self.labels, None if isinstance(label, str) else len(labels))):
            if columns:
                first = columns[0].dtype
                other = next((column for column in columns if column.dtype is not first), None)
                if other is not None:
                    raise ValueError(f"{name}: {columns[0].fact.name!r} would be {first} and {other.fact.name!r} "
                                     f"{other.dtype}, but they are one tensor; give one dtype for all of them")
                self.parts.append(Part(name, first, width))
                if name == "features" and self.masked:
                    self.parts.append(Part("mask", dtypes.bool, width))
        self.columns = [*self.features, *self.labels]
        self.wanted = [column.wanted for column in self.columns]
        self.lossy: dict = {}               # column → what is to be said of it; workers find it, `say` warns
        self.said: set = set()

    @property
    def record_bytes(self):
        return sum(part.dtype.itemsize * (1 if part.width is None else part.width) for part in self.parts)

    def __str__(self):
        lines = []
        for part in self.parts:
            columns = self.labels if part.name == "label" else self.features
            shape = "n" if part.width is None else f"n, {part.width}"
            names = [column.fact.name for column in columns]
            shown = ", ".join(names if len(names) <= 8 else [*names[:6], "…", names[-1]])
            lines.append(f"{part.name:<11}{part.dtype.name}[{shape}]: {shown}")
        return "\n".join(lines)

    def say(self):
        """Warn of columns that were rounded, once for each: called where the user's line is on the stack."""
        for name in [name for name in list(self.lossy) if name not in self.said]:
            self.said.add(name)
            warn(self.lossy[name])

    # --- filling --------------------------------------------------------------------------------------------------

    def empty(self, rows):
        """Arrays for so many rows, one for each part."""
        return [np.empty(part.shape(rows), part.dtype.np) for part in self.parts]

    def fill(self, arrays, at, chunk: Chunk):
        """Write the rows of `chunk` into the arrays, from row `at` on."""
        rows = slice(at, at + len(chunk))
        by_part = dict(zip((part.name for part in self.parts), arrays))
        for i, column in enumerate(self.columns):
            is_label = i >= len(self.features)
            target = by_part["label" if is_label else "features"][rows]
            index = i - len(self.features) if is_label else i
            cells = target if target.ndim == 1 else target[:, index]
            nulls = chunk.nulls[i]
            if nulls is not None and not nulls.any():
                nulls = None
            self._write(column, cells, chunk.columns[i], nulls)
            if self.masked and not is_label:
                by_part["mask"][rows, index] = False if nulls is None else nulls

    def _write(self, column, cells, values, nulls):
        if column.codes is not None:
            values, nulls = coded(column, values, nulls)
        if nulls is not None:
            if column.nulls == "raise":
                raise NullFound(column.fact.name)
            values = np.where(nulls, values.dtype.type(0), values)        # what stands there is the driver's affair
        convert(column, values, cells, self.lossy)
        if nulls is not None:
            cells[nulls] = math.nan if column.nulls == "nan" else 0 if column.nulls == "mask" else column.nulls


def names_of(given, names):
    """The names of columns that were given: one, several in an order, or None."""
    if names is None or isinstance(names, str):
        return [] if names is None else [names]
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{given}={names!r}: give the name of a column, or a list of them")
    return list(names)


def feature_dtype(name, dtype, default):
    return checked_dtype((dtype.get(name) if isinstance(dtype, dict) else dtype) or default)


def target_column(fact, dtype, nulls, codes, part):
    coded = codes.get(fact.name)
    policy = nulls.get(fact.name, "raise") if isinstance(nulls, dict) else nulls
    own = isinstance(nulls, dict) and fact.name in nulls
    checked_nulls(policy, fact.name)
    if policy == "mask" and part == "label":
        if own:
            raise ValueError(f"nulls={{{fact.name!r}: 'mask'}}: masks are of features, and this is the label; give "
                             "a number, or leave the rows out with WHERE … IS NOT NULL")
        policy = "raise"
    if policy == "nan" and not dtype.is_floating_point:
        if own or part == "features":
            raise ValueError(f"nulls='nan': column {fact.name!r} becomes {dtype}, which has no NaN; give a number, "
                             "'mask', or a floating dtype")
        policy = "raise"
    if not isinstance(policy, str) and not holds(dtype, policy):
        if own or part == "features":
            raise ValueError(f"nulls={policy!r}: column {fact.name!r} becomes {dtype}, which cannot hold that; give "
                             "another number, or a dtype that can")
        policy = "raise"
    return TargetColumn(fact, Wanted(fact.name, fact.kind, form_of(fact, dtype, coded)), dtype, policy, coded)


def holds(dtype, number):
    """Whether a number that a user gives is one of this dtype's: whole where those are, and in their range."""
    if dtype.is_floating_point:
        with np.errstate(over="ignore"):
            return not math.isfinite(number) or bool(np.isfinite(np.array(number, np.float64).astype(dtype.np)))
    if not math.isfinite(number) or number != int(number):
        return False
    least, greatest = (0, 1) if dtype is dtypes.bool else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    return least <= number <= greatest


def label_dtype(fact, dtype, codes, default):
    """An int64 label of whole numbers, truth values and codes, which losses take for classes; else a floating one."""
    if isinstance(dtype, dict) and fact.name in dtype:
        return checked_dtype(dtype[fact.name])
    coded = codes.get(fact.name)
    whole = all(isinstance(code, int) for code in coded.values()) if coded else \
        fact.kind in ("int", "uint", "bool", "date")
    given = dtype if isinstance(dtype, dtypes.dtype) and dtype.is_floating_point else default
    return dtypes.int64 if whole else checked_dtype(given)


def checked_dtype(dtype):
    if not isinstance(dtype, dtypes.dtype) or dtype.np is None:
        raise TypeError(f"dtype={dtype!r} is no dtype that tensors have, such as torch.float32")
    if dtype.is_floating_point and dtype not in EXACT_WHOLE_NUMBERS:
        raise TypeError(f"dtype={dtype!r}: read as float32, and convert what comes")
    if dtype.is_complex:
        raise TypeError(f"dtype={dtype!r}: columns of a database are real; read two and make a complex tensor of them")
    return dtype


def checked_nulls(policy, name):
    if isinstance(policy, str) and policy in SPECIAL_NULLS or \
            isinstance(policy, int | float) and not isinstance(policy, bool):
        return
    raise ValueError(f"nulls={policy!r} for column {name!r}: give 'raise', 'nan', 'mask' or a number")


def checked_codes(codes, by_name):
    if codes is None:
        return {}
    if not isinstance(codes, dict) or not all(isinstance(table, dict) for table in codes.values()):
        raise TypeError(f"codes={codes!r}: give a dictionary for each column, "
                        "codes={'city': {'Rome': 0, 'Oslo': 1}}")
    for name, table in codes.items():
        if name not in by_name:
            raise ValueError(f"codes={{{name!r}: …}} is no column of the query, which has {', '.join(by_name)}")
        for text, code in table.items():
            if isinstance(code, bool) or not isinstance(code, int | float):
                raise TypeError(f"codes={{{name!r}: {{{text!r}: {code!r}}}}}: a code is a number")
        if not table:
            raise ValueError(f"codes={{{name!r}: {{}}}} has no codes")
    return codes


# --- numbers --------------------------------------------------------------------------------------------------------


def coded(column, values, nulls):
    """The codes of the values, and where there is none because of NULL (None may have a code)."""
    table, name = column.codes, column.fact.name
    values = values.tolist()
    if nulls is not None:
        values = [None if null else value for value, null in zip(values, nulls.tolist())]
    try:
        found = [table[value] for value in values] if nulls is None or None in table else \
            [0 if value is None else table[value] for value in values]
    except KeyError as error:
        known = ", ".join(map(repr, list(table)[:8])) + (", …" if len(table) > 8 else "")
        raise ValueError(f"column {name!r} holds {error.args[0]!r}, for which codes={{{name!r}: …}} has no number; it "
                         f"has {known}") from None
    whole = all(isinstance(code, int) for code in table.values())
    return np.array(found, np.int64 if whole else np.float64), None if nulls is None or None in table else nulls


# up to which every whole number is there
EXACT_WHOLE_NUMBERS = {dtypes.float64: 2 ** 53, dtypes.float32: 2 ** 24, dtypes.float16: 2 ** 11,
                       dtypes.bfloat16: 2 ** 8}


def convert(column, values, cells, lossy):
    """Write `values` into `cells`, an array of the target's dtype, and refuse what would not be itself there.

    What is only rounded is put into `lossy`, once for a column.
    """
    target, name = column.dtype, column.fact.name
    if target is dtypes.float32 and values.dtype == np.float64:
        try:
            with np.errstate(over="raise", invalid="ignore"):
                cells[...] = values               # the processor tells of an overflow: no pass has to look for it
            return
        except FloatingPointError:                # said below, with the value
            pass
    with np.errstate(over="ignore", invalid="ignore"):
        cells[...] = values
    if target.np == values.dtype or values.dtype.kind == "b":
        return
    if values.dtype.kind == "f" and target.is_floating_point:
        if target.np.itemsize < values.dtype.itemsize and not (fine := np.isfinite(cells)).all():
            wrong = ~fine & np.isfinite(values)
            if wrong.any():
                raise OverflowError(f"column {name!r} holds {values[wrong][0]!s}, which is too large for {target}; "
                                    "give dtype=torch.float64, or scale it in the query")
        return
    if values.dtype.kind in "iu" and target.is_floating_point:
        back = cells.astype(np.float64)
        if not np.isfinite(back).all():
            raise OverflowError(f"column {name!r} holds {values[~np.isfinite(back)][0]}, which is too large for "
                                f"{target}; give a wider dtype")
        exact = EXACT_WHOLE_NUMBERS[target]
        if name not in lossy and len(values) and (values.max() > exact or values.min() < -exact):
            with np.errstate(invalid="ignore"):
                wrong = back.astype(values.dtype) != values
            if wrong.any():
                lossy[name] = f"column {name!r} holds {values[wrong][0]}, which {target} rounds to " \
                              f"{int(back[wrong][0])}: beyond {exact} it does not have all whole " \
                              "numbers. Give a wider dtype, or codes"
        return
    low, high = (0, 1) if target is dtypes.bool else (np.iinfo(target.np).min, np.iinfo(target.np).max)
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.floor(values))
        if not whole.all():
            raise ValueError(f"column {name!r} holds {values[~whole][0]!s}, which is no whole number, and is to become "
                             f"{target}; give a floating dtype, or round it in the query")
        inside = (values >= low) & (values <= high) & (values < 2.0 ** 63)
    else:
        inside = (values >= low) & (values <= high)
    if not inside.all():
        raise OverflowError(f"column {name!r} holds {values[~inside][0]!s}, which {target} cannot hold: its range is "
                            f"{low} to {high}")
