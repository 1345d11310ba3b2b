"""One rule for numbers: what arrives is what the database holds, or an error or a warning says what does not."""
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.data.sql.columns import RowLayout
from flambeau.data.sql.source import Chunk, ColumnFact
from tests.thorough import THOROUGH

pytestmark = pytest.mark.pinned

FORMS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64]
EDGES = [0, 1, -1, 2, 127, 128, 255, 256, 257, 2 ** 11, 2 ** 11 + 1, 2 ** 15, 65_504, 65_535, 2 ** 24, 2 ** 24 + 1,
         2 ** 31, 2 ** 53, 2 ** 53 + 1, 2 ** 63 - 1, -2 ** 63, 2 ** 64 - 1, 0.5, 1e-300, 1e30, 1e300, math.inf,
         -math.inf, math.nan]


def fact(form, name="x"):
    kind = form.rstrip("0123456789")
    return ColumnFact(name, form.upper(), kind, int(form.removeprefix(kind) or 64))


def filled(form, dtype, values):
    layout = RowLayout([fact(form)], (), None, None, dtype, "raise", None, torch.float32)
    assert layout.wanted[0].form == form
    arrays = layout.empty(len(values))
    layout.fill(arrays, 0, Chunk([values], [None]))
    return arrays[0][:, 0], layout.lossy


def exactly(number):
    number = float(number) if not isinstance(number, int) else number
    return number if isinstance(number, int) or not math.isfinite(number) else Fraction(number)


@given(st.sampled_from(FORMS), st.sampled_from(DTYPES), st.lists(st.one_of(
    st.sampled_from(EDGES), st.integers(-2 ** 63, 2 ** 64 - 1), st.floats()), min_size=1, max_size=4))
@settings(max_examples=400 if THOROUGH else 100, deadline=None)
def test_a_number_is_itself_or_it_is_said(form, dtype, numbers):
    with np.errstate(all="ignore"):
        held = []
        for number in numbers:                          # those that the column can hold
            try:
                cell = np.array([number]).astype(form)[0] if form.startswith("float") else np.array([number], form)[0]
            except (OverflowError, ValueError):
                continue
            held.append(cell)
    values = np.array(held, form)
    try:
        cells, lossy = filled(form, dtype, values)
    except (OverflowError, ValueError) as error:
        wrong = [v for v in values.tolist() if not fits(v, dtype)]
        assert wrong and "column 'x' holds" in str(error), (values, error)
        return
    for value, cell in zip(values.tolist(), cells.tolist()):
        assert fits(value, dtype)
        if isinstance(value, float) and math.isnan(value):
            assert math.isnan(cell)
        elif exactly(cell) != exactly(value):           # rounded: as real numbers are, or said
            assert dtype.is_floating_point and (form.startswith("float") or "x" in lossy)
    if lossy:
        assert any(exactly(c) != exactly(v) for v, c in zip(values.tolist(), cells.tolist()))


def fits(value, dtype):
    """Whether `dtype` has a number for `value`, rounded if it is a floating one: by its range alone."""
    if dtype.is_floating_point:
        largest = torch.finfo(dtype).max
        half_a_step = Fraction(largest) * Fraction(torch.finfo(dtype).eps) / 4 if dtype is not torch.float64 else 0
        return not math.isfinite(value) or abs(Fraction(value)) < Fraction(largest) + half_a_step
    low, high = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return math.isfinite(value) and value == math.floor(value) and low <= value <= high


def test_a_column_that_no_tensor_holds():
    with pytest.raises(TypeError, match="column 'x' is BYTEA, which no tensor holds: leave it out of features="):
        RowLayout([ColumnFact("x", "BYTEA", "other")], (), None, None, None, "raise", None, torch.float32)


@pytest.mark.parametrize("options, words", [
    (dict(dtype="float32"), "dtype='float32' is no dtype"),
    (dict(dtype=torch.complex64), "columns of a database are real"),
    (dict(dtype=torch.float8_e5m2), "read as float32"), (dict(codes={"x": {"a": "b"}}), "a code is a number"),
    (dict(codes=["x"]), "give a dictionary for each column"), (dict(codes={"x": {"a": True}}), "a code is a number"),
])
def test_options_of_the_wrong_type(options, words):
    options = {**dict(dtype=None, codes=None), **options}
    with pytest.raises(TypeError, match=words):
        RowLayout([fact("int64")], (), None, None, options["dtype"], "raise", options["codes"], torch.float32)


def test_two_columns_of_one_name():
    with pytest.raises(ValueError, match="the query gives two columns 'x': name one of them differently with AS"):
        RowLayout([fact("int64"), fact("int64")], (), None, None, None, "raise", None, torch.float32)


def test_codes_of_whole_numbers():
    layout = RowLayout([fact("int64", "x"), fact("int64", "y")], (), ["x"], "y", None, "raise",
                    {"x": {5: 0.5, 7: 1}, "y": {1: 10}}, torch.float32)
    arrays = layout.empty(2)
    layout.fill(arrays, 0, Chunk([np.array([7, 5]), np.array([1, 1])], [None, None]))
    assert arrays[0].tolist() == [[1.0], [0.5]] and arrays[1].tolist() == [10, 10] and arrays[1].dtype == np.int64


def test_what_a_driver_leaves_at_a_null_does_not_matter():
    layout = RowLayout([fact("int64")], (), None, None, torch.int8, -3, None, torch.float32)
    arrays = layout.empty(2)
    layout.fill(arrays, 0, Chunk([np.array([10 ** 12, 5])], [np.array([True, False])]))
    assert arrays[0].tolist() == [[-3], [5]]
