"""What operations ask of their array module is in CuPy, or in arrays.py, with those arguments, and means the same.

The names of CuPy are a list (cupy_names.txt), so that this needs no CuPy; where there is one, the list is held to it.
"""
import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.backends.cpu import host
from flambeau.backends.cuda.arrays import ArrayModule, Checked, PairwiseFold
from flambeau.base import dtypes

from . import cupy_names

pytestmark = pytest.mark.pinned

PACKAGE = Path(flambeau.__file__).parent
HELD = Path(__file__).with_name("cupy_names.txt").read_text().splitlines()
# name → the names of its arguments, None for what is no function
CUPY = {line.partition("(")[0]: line.partition("(")[2].rstrip(")").split(", ") if "(" in line else None
        for line in HELD[1:]}
FOLDS = ("maximum", "minimum", "add", "multiply", "logaddexp")
ELSEWHERE = ("np", "math", "shapes", "dtypes", "itertools", "functools", "operator", "special_functions", "memory")


def references():
    """The functions of operations, and of what they call, that are handed an array module: (where, function)."""
    files = [*(PACKAGE / "ops").glob("*.py"), *(PACKAGE / "base").glob("*.py"), PACKAGE / "backends" / "reference.py"]
    for path in sorted(files):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and "xp" in [a.arg for a in node.args.args]:
                yield path.name, node


def dotted(node):
    """`xp.linalg.qr` of an attribute of a name, None of any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) and parts else None


def ours(name):
    """What arrays.py has under a name, None where CuPy's own is meant."""
    head, _, method = name.partition(".")
    if head in FOLDS:
        return getattr(PairwiseFold, method or "__call__", None)
    return None if method else inspect.getattr_static(ArrayModule, name, None)


def refused(name, positional, keywords):
    """Why a call of `xp.name` cannot be made, None where it can."""
    own = ours(name)
    if own is not None:
        if isinstance(own, staticmethod):
            return None
        names = [p for p in inspect.signature(own).parameters if p != "self"]
        return None if name in FOLDS else misfit(names, positional, keywords)
    if name not in CUPY:
        return "is not in CuPy"
    return None if CUPY[name] is None else misfit(CUPY[name], positional, keywords)


def misfit(names, positional, keywords):
    if positional > len(names) and not {"args", "*shape", "shape", "arrays_and_dtypes"} & set(names):
        return f"takes {len(names)} arguments"
    unknown = set(keywords) - set(names)
    return f"has no argument {', '.join(sorted(unknown))}" if unknown and "kwargs" not in names else None


def test_functions_of_the_array_module():
    wrong = set()
    for file, function in references():
        calls = {id(node.func): node for node in ast.walk(function) if isinstance(node, ast.Call)}
        for node in ast.walk(function):
            name = dotted(node) if isinstance(node, ast.Attribute) else None
            if name is None or not name.startswith("xp."):
                continue
            name, call = name[3:], calls.get(id(node))
            if name in ("linalg", "fft", "lib", "lib.stride_tricks"):
                continue
            if name.partition(".")[0] in FOLDS and "." in name and ours(name) is None:
                wrong.add(f"{file}:{node.lineno} xp.{name}: no such fold in arrays.py")
                continue
            keywords = [k.arg for k in call.keywords if k.arg] if call else ()
            positional = len([a for a in call.args if not isinstance(a, ast.Starred)]) if call else 0
            why = refused(name, positional, keywords)
            if why:
                wrong.add(f"{file}:{node.lineno} xp.{name} {why}")
    assert not wrong, "\n".join(sorted(wrong))


def test_methods_of_arrays():
    """A method that both NumPy's and CuPy's arrays have is called with arguments that both take."""
    wrong = set()
    for file, function in references():
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name, owner = node.func.attr, node.func.value
            if isinstance(owner, ast.Name) and owner.id in ELSEWHERE or not hasattr(np.ndarray, name):
                continue
            if dotted(node.func) and dotted(node.func).startswith("xp."):
                continue
            if f"ndarray.{name}" not in CUPY:
                wrong.add(f"{file}:{node.lineno} .{name}() is no method of CuPy's arrays")
                continue
            names = CUPY[f"ndarray.{name}"]
            why = names is not None and misfit(names, 0, [k.arg for k in node.keywords if k.arg])
            if why:
                wrong.add(f"{file}:{node.lineno} .{name}() {why}")
    assert not wrong, "\n".join(sorted(wrong))


def test_numpy_stays_out_of_references():
    """NumPy's own functions cannot take another module's arrays: a `ref` uses those of `xp`, and of NumPy's only dtypes
    and numbers."""
    fine = re.compile(r"(float|int|uint|complex)\d+|bool_|intp|integer|floating|complexfloating|generic|longdouble|"
                      r"dtype|inf|nan|pi|newaxis|[if]info|issubdtype|result_type|errstate|ndarray")
    known = {("axis_maps.py", "maximum"), ("axis_maps.py", "byte_sum"),         # rows of taps, which are the CPU's
             ("reference.py", "blank")}                                         # where that is the module
    wrong = []
    for file, function in references():
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np" \
                    and not fine.fullmatch(node.attr) and (file, function.name) not in known:
                wrong.append(f"{file}:{node.lineno} {function.name} uses np.{node.attr}")
    assert not wrong, "\n".join(wrong)


def test_the_list_is_that_of_cupy():
    try:
        import cupy
    except Exception as error:                               # CuPy's own words, where its libraries are not there
        pytest.skip(f"CuPy cannot be imported here: {error}")
    if cupy.__version__.split(".")[:2] != HELD[0].split()[1].split(".")[:2]:
        pytest.skip(f"{HELD[0]} is the one of the list, and {cupy.__version__} is here")
    gone = {name for name in ("row_stack",) if not hasattr(np, name)}        # in a later NumPy than that of the list
    assert [*cupy_names.lines(cupy)] == [line for line in HELD if line.partition("(")[0] not in gone]


# --- what arrays.py does itself ---------------------------------------------------------------------------------------


class Bare:
    """NumPy without what arrays.py is there for."""

    linalg = np.linalg

    def __getattr__(self, name):
        found = getattr(np, name)
        return (lambda *args, **named: found(*args, **named)) if isinstance(found, np.ufunc) else found


xp = ArrayModule(Bare(), host.address)
rng = np.random.default_rng(7)


@pytest.mark.parametrize("name", ("maximum", "minimum", "add", "multiply", "logaddexp"))
@pytest.mark.parametrize("shape, axis", [((1,), 0), ((2,), 0), ((7,), 0), ((8, 3), 0), ((3, 9, 2), 1), ((5, 4), -1)])
def test_folds(name, shape, axis):
    x = rng.standard_normal(shape)
    ours, theirs = getattr(xp, name), getattr(np, name)
    np.testing.assert_allclose(ours.accumulate(x, axis=axis), theirs.accumulate(x, axis=axis), rtol=1e-12)
    np.testing.assert_allclose(ours.reduce(x, axis=axis), theirs.reduce(x, axis=axis), rtol=1e-12)
    np.testing.assert_allclose(ours.reduce(x, axis=axis, keepdims=True), theirs.reduce(x, axis=axis, keepdims=True))


@pytest.mark.parametrize("name", ("add", "multiply", "maximum", "minimum"))
@pytest.mark.parametrize("n, rows", [(0, 3), (1, 1), (50, 1), (50, 4), (33, 100)])
@pytest.mark.parametrize("dtype", (np.float64, np.int64, np.int8))
def test_folds_at_positions(name, n, rows, dtype):
    table, at = rng.integers(-3, 4, (rows, 2)).astype(dtype), rng.integers(-rows, rows, n)
    values = rng.integers(-3, 4, (n, 2)).astype(dtype)
    expected = table.copy()
    getattr(np, name).at(expected, at, values)
    getattr(xp, name).at(table, at, values)
    np.testing.assert_array_equal(table, expected)
    columns = rng.integers(0, 2, n)
    getattr(np, name).at(expected, (at, columns), values[:, 0])
    getattr(xp, name).at(table, (at, columns), values[:, 0])
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("shape, axis", [((3, 4), None), ((3, 4), 1), ((3, 0), 1), ((0, 3), None), ((2, 3, 0), (1, 2))])
@pytest.mark.parametrize("keepdims", (False, True))
def test_extremes_with_an_initial_value(shape, axis, keepdims):
    x = rng.standard_normal(shape)
    for name in ("max", "min"):
        ours = getattr(xp, name)(x, axis=axis, keepdims=keepdims, initial=0.25)
        np.testing.assert_array_equal(ours, getattr(np, name)(x, axis=axis, keepdims=keepdims, initial=0.25))


def test_counts_indices_and_sorts():
    x = rng.integers(0, 3, (4, 5))
    np.testing.assert_array_equal(xp.count_nonzero(x, axis=1, keepdims=True), (x != 0).sum(1, keepdims=True))
    for ours, theirs in zip(xp.indices((2, 3), sparse=True), np.indices((2, 3), sparse=True), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(xp.lexsort(x), np.lexsort(x))
    np.testing.assert_array_equal(xp.argsort(x, axis=0, kind="stable"), np.argsort(x, axis=0, kind="stable"))
    assert xp.sort(np.zeros((0, 3))).shape == (0, 3) and xp.argsort(np.zeros((0, 3))).dtype == np.int64
    assert xp.partition(np.array([3, 1, 2]), 1).tolist() == [1, 2, 3]


def test_logic_of_complex_numbers():
    x, y = np.array([0, 1j, 0, 1 + 1j]), np.array([0, 0, 2.0, 1])
    for name in ("logical_and", "logical_or", "logical_xor"):
        np.testing.assert_array_equal(getattr(xp, name)(x, y), getattr(np, name)(x, y))
    np.testing.assert_array_equal(xp.logical_not(x), np.logical_not(x))
    assert xp.where(True, np.ones(2), np.zeros(2)).tolist() == [1, 1]


def test_memory_in_common():
    x = np.arange(24.0).reshape(4, 6)
    for a, b in ((x, x), (x[1], x), (x[:2], x[2:]), (x[::-1], x[3]), (x[:, :3], x[:, 3:]), (x[:0], x), (x, x.copy())):
        assert xp.may_share_memory(a, b) == np.may_share_memory(a, b)


def test_what_fails_in_linalg_is_raised():
    """Under a module that is not CuPy there is nothing to switch on."""
    assert isinstance(xp.linalg, Checked) and xp.linalg.LinAlgError is np.linalg.LinAlgError
    with pytest.raises(np.linalg.LinAlgError):
        xp.linalg.inv(np.zeros((2, 2)))


# --- 8-bit floats -----------------------------------------------------------------------------------------------------

FLOAT8 = [d for d in dtypes.ALL if d.family == "float8"]


@pytest.mark.parametrize("dtype", FLOAT8, ids=lambda d: d.name)
def test_float8_by_tables(dtype):
    """The tables are the conversions: every byte, and numbers at, below and above every step, NaN and infinities."""
    values = xp.from_bits(np.arange(256, dtype=np.uint8), dtype)
    np.testing.assert_array_equal(values, np.arange(256, dtype=np.uint8).view(dtype.np).astype(np.float32))
    finite = np.unique(values[np.isfinite(values)])
    between = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    x = np.concatenate([finite, between, -between, rng.standard_normal(1000) * 10.0 ** rng.integers(-30, 30, 1000),
                        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-45]]).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    np.testing.assert_array_equal(xp.to_bits(x, dtype), dtypes.as_dtype(x, dtype).view(np.uint8))


def test_bfloat16_by_bits():
    """For a CuPy that has no such arrays: every number there and back, halves to even, NaN and infinities."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    wide = every.view(dtypes.bfloat16.np).astype(np.float32)
    np.testing.assert_array_equal(xp.from_bits(every, dtypes.bfloat16), wide)
    with np.errstate(all="ignore"):
        between = np.concatenate([wide, wide * np.float32(1 + 2.0**-8), wide * np.float32(1 + 2.0**-9), wide / 3])
        np.testing.assert_array_equal(xp.to_bits(between, dtypes.bfloat16).view(dtypes.bfloat16.np).view(np.uint16),
                                      between.astype(dtypes.bfloat16.np).view(np.uint16))
