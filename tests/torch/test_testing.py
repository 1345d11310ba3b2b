"""`torch.testing` beside PyTorch's: the same tensors are drawn, the same pairs refused, in the same words."""
import collections
import itertools
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau

torch = pytest.importorskip("torch")
from torch.testing import _comparison as theirs

from flambeau.testing import _comparison as ours

LIBRARIES = (flambeau, torch)
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn",
          "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")


def outcome(call):
    """What a call gives, or the class and the words of what it raises or warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            given = call()
        except Exception as error:                # whatever it is, the other library's has to be the same
            return type(error).__name__, str(error)
    return given, [(one.category.__name__, str(one.message)) for one in told]


def drawn(m, *shape, dtype, seed=0, **options):
    m.manual_seed(seed)
    made = m.testing.make_tensor(*shape, dtype=getattr(m, dtype), device="cpu", **options)
    plain = made.detach()
    numbers = plain.to(m.complex128 if "complex" in dtype else m.float64 if dtype in FLOATS else m.int64)
    return numbers.numpy().tolist(), str(made.dtype), tuple(made.shape), made.stride(), made.storage_offset(), \
        made.requires_grad


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("options", [
    {}, {"low": -2, "high": 3}, {"low": 0.5, "high": 1.5}, {"low": 0, "high": 1}, {"high": -1}, {"low": 5},
    {"noncontiguous": True}, {"exclude_zero": True, "low": 0, "high": 2}, {"requires_grad": True},
    {"low": 1, "high": 1}, {"low": float("nan")}, {"low": 3, "high": 1}, {"low": -float("inf"), "high": float("inf")},
    {"low": 1e30, "high": 1e31}, {"low": -1e31, "high": -1e30}], ids=str)
def test_the_same_tensors_are_drawn(dtype, options):
    for shape in ((3, 4), (0, 2), ()):
        ours, theirs = (outcome(lambda m=m: drawn(m, shape, dtype=dtype, **options)) for m in LIBRARIES)
        if theirs[0] == "NotImplementedError":    # zeros among float8 or large unsigned numbers, in their index_put_
            assert ours[0] == theirs[0] or "float8" in dtype
        elif isinstance(theirs[1], str):          # refused; its last sentence says where to report
            assert ours[0] == theirs[0] and ours[1].startswith(theirs[1].split(" To request")[0])
        else:
            assert ours == theirs, shape


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(INTEGERS[:6] + FLOATS[:4]), st.lists(st.integers(0, 4), max_size=3),
       st.booleans(), st.booleans(), st.floats(-300, 300), st.floats(-300, 300), st.integers(0, 99))
def test_whatever_is_asked_for(dtype, shape, noncontiguous, exclude_zero, low, high, seed):
    ours, theirs = (outcome(lambda m=m: drawn(m, *shape, dtype=dtype, seed=seed, low=low, high=high,
                                              noncontiguous=noncontiguous, exclude_zero=exclude_zero))
                    for m in LIBRARIES)
    assert ours == theirs


def test_a_memory_format_and_what_does_not_go_together():
    for m in LIBRARIES:
        made = m.testing.make_tensor(2, 3, 4, 5, dtype=m.float32, device="cpu", memory_format=m.channels_last)
        assert made.is_contiguous(memory_format=m.channels_last)
        with pytest.raises(ValueError, match="mutually exclusive"):
            m.testing.make_tensor(2, dtype=m.float32, device="cpu", noncontiguous=True,
                                  memory_format=m.channels_last)


# Pairs, each a function of the library.
THINGS = {
    "equal": lambda m: (m.tensor([1.0, 2.0]), m.tensor([1.0, 2.0])),
    "apart": lambda m: (m.tensor([1.0, 4.0, 5.0]), m.tensor([1.0, 2.0, 3.0])),
    "matrix": lambda m: (m.arange(6.0).reshape(2, 3), m.zeros(2, 3)),
    "integers": lambda m: (m.tensor([1, 200], dtype=m.uint8), m.tensor([1, 2], dtype=m.uint8)),
    "truth": lambda m: (m.tensor([True, False]), m.tensor([True, True])),
    "complex": lambda m: (m.tensor([1 + 1j]), m.tensor([1 + 2j])),
    "half": lambda m: (m.tensor([1.0, 1.1]).half(), m.tensor([1.0, 1.0]).half()),
    "bfloat16": lambda m: (m.tensor([1.0, 1.5]).bfloat16(), m.tensor([1.0, 1.0]).bfloat16()),
    "infinite": lambda m: (m.tensor([float("inf"), 1.0]), m.tensor([float("-inf"), 1.0])),
    "nan": lambda m: (m.tensor([float("nan"), 1.0]), m.tensor([float("nan"), 1.0])),
    "one number": lambda m: (m.tensor(1.0), m.tensor(2.0)),
    "empty": lambda m: (m.zeros(0, 3), m.zeros(0, 3)),
    "shape": lambda m: (m.zeros(2), m.zeros(3)),
    "broadcast": lambda m: (m.zeros(1), m.zeros(3)),
    "dtype": lambda m: (m.zeros(2), m.zeros(2, dtype=m.float64)),
    "unsigned": lambda m: (m.tensor([1, 2], dtype=m.uint16), m.tensor([1, 3])),
    "device": lambda m: (m.zeros(2), m.zeros(2, device="meta")),
    "meta": lambda m: (m.zeros(2, device="meta"), m.ones(2, device="meta")),
    "stride": lambda m: (m.zeros(2, 3), m.zeros(3, 2).t()),
    "requires grad": lambda m: (m.ones(2, requires_grad=True), m.ones(2)),
    "a number": lambda m: (m.tensor(1.0), 1.0),
    "numbers": lambda m: (1.0, 1.1),
    "an integer and a float": lambda m: (1, 1.0),
    "zero": lambda m: (1e-9, 0.0),
    "complex numbers": lambda m: (1j, 1j + 1e-3),
    "not numbers": lambda m: (float("nan"), float("nan")),
    "truths": lambda m: (True, np.bool_(False)),
    "of NumPy": lambda m: (np.float64(1), 1.0),
    "arrays": lambda m: (np.arange(3.0), np.arange(3.0) + 1),
    "an array and a tensor": lambda m: (np.ones(2), m.ones(2)),
    "lists": lambda m: ([m.zeros(2), 1], (m.zeros(2), 2)),
    "a list and a tensor": lambda m: ([1.0, 2.0], m.tensor([1.0, 2.0])),
    "lengths": lambda m: ([1, 2], [1]),
    "mappings": lambda m: ({"a": m.zeros(2), "b": [m.zeros(1), m.ones(1)]},
                           collections.OrderedDict(b=[m.zeros(1), m.zeros(1)], a=m.zeros(2))),
    "keys": lambda m: ({"a": 1, "c": 2}, {"a": 1, "b": 2}),
    "none": lambda m: (None, None),
    "none and something": lambda m: (None, m.zeros(1)),
    "words": lambda m: ("a", "a"),
    "objects": lambda m: (object, m),
}
OPTIONS = [{}, {"rtol": 0, "atol": 0}, {"rtol": 0.0, "atol": 3.0}, {"rtol": 1.0}, {"atol": 1.0}, {"equal_nan": True},
           {"check_dtype": False}, {"check_device": False}, {"check_stride": True}, {"msg": "no"},
           {"msg": lambda words: f"<{words.splitlines()[0]}>"}, {"allow_subclasses": False},
           {"rtol": float("inf"), "atol": float("inf")}]


def of_one_library(words):
    """Without the line that ours has besides, and the names of one library for both."""
    words = words.replace("'flambeau.", "'torch.")
    return re.sub(r"\nAt index .* instead of .*", "", words)


@pytest.mark.parametrize("things", THINGS)
def test_the_same_is_close_and_the_rest_is_said_in_the_same_words(things):
    for options in OPTIONS:
        found, wanted = (outcome(lambda m=m: m.testing.assert_close(*THINGS[things](m), **options)) for m in LIBRARIES)
        if isinstance(wanted[1], str) and things != "objects":
            found = found[0], of_one_library(str(found[1]))
            wanted = wanted[0], of_one_library(wanted[1])
        assert found[0] == wanted[0] and (things == "objects" or found[1] == wanted[1]), options


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(["float32", "float64", "int64", "float16"]),
       st.lists(st.tuples(*[st.one_of(st.integers(-3, 3), st.floats(-2, 2), st.sampled_from(
           [float("inf"), -float("inf"), float("nan")]))] * 2), min_size=1, max_size=5),
       st.sampled_from([None, (0, 0), (0.5, 0.0), (0.0, 1.0)]), st.booleans())
def test_numbers_are_close_where_pytorchs_are(dtype, pairs, tolerances, equal_nan):
    if dtype == "int64":
        pairs = [[int(x) if abs(x) < 9 else 9 for x in pair] for pair in pairs]
    options = {"equal_nan": equal_nan, **dict(zip(("rtol", "atol"), tolerances or ()))}
    found, wanted = (outcome(lambda m=m: m.testing.assert_close(
        *(m.tensor(side, dtype=getattr(m, dtype)) for side in zip(*pairs)), **options)) for m in LIBRARIES)
    if isinstance(wanted[1], str):
        found = found[0], of_one_library(str(found[1]))
    assert found == wanted


def test_pairs_of_a_suites_own():
    """What torchvision's tests do: a pair that takes some inputs, and says by how much they are apart on average."""
    for library, module in ((flambeau, ours), (torch, theirs)):
        class MeanPair(module.TensorLikePair):
            def __init__(self, actual, expected, *, mean=False, **other):
                if not mean:
                    self._inputs_not_supported()
                super().__init__(actual, expected, **other)
                self.mean = mean

            def compare(self):
                self._compare_attributes(self.actual, self.expected)
                actual, expected = self._equalize_attributes(self.actual, self.expected)
                apart = (actual - expected).abs().double().mean().item()
                if apart > self.atol:
                    self._fail(AssertionError, f"apart by {apart}")

        kinds = (module.NonePair, module.BooleanPair, module.NumberPair, MeanPair, module.TensorLikePair,
                 module.ObjectPair)
        actual, expected = ([library.ones(4), "a", None], [library.zeros(4), "b", None])
        metas = module.not_close_error_metas(actual, expected, pair_types=kinds, mean=True, rtol=0, atol=0.5)
        assert [(str(one.to_error()), one.type, one.id) for one in metas] == [
            ("apart by 1.0\n\nThe failure occurred for item [0]", AssertionError, (0,)),
            ("a != b\n\nThe failure occurred for item [1]", AssertionError, (1,))]
        assert not module.not_close_error_metas(actual[0], actual[0], pair_types=kinds, mean=True, rtol=0, atol=0.5)
        with pytest.raises(RuntimeError, match="unexpected exception above"):
            module.not_close_error_metas(library.ones(1), library.ones(1), pair_types=[
                type("Broken", (module.Pair,), {"compare": lambda self: 1 / 0})])
        with pytest.raises(TypeError, match="No comparison pair was able to handle"):
            module.not_close_error_metas(1, 2, pair_types=[module.NonePair])


def test_tolerances_and_what_is_listed():
    for dtypes in itertools.combinations_with_replacement(("float16", "bfloat16", "float32", "float64", "complex64",
                                                           "int64", "bool"), 2):
        found, wanted = (module.default_tolerances(*(getattr(m, name) for name in dtypes))
                         for m, module in ((flambeau, ours), (torch, theirs)))
        assert found == wanted
    for m, module in ((flambeau, ours), (torch, theirs)):
        assert module.get_tolerances(m.ones(1), rtol=1, atol=2) == (1, 2)
        with pytest.raises(TypeError, match="Expected a torch.Tensor or a torch.dtype"):
            module.default_tolerances(1)
        with pytest.warns(FutureWarning, match="assert_allclose"):
            m.testing.assert_allclose(m.tensor([1.0, float("nan")]), [1.00001, float("nan")])
    assert {name for name in vars(theirs) if not name.startswith("_") and callable(getattr(theirs, name))
            and getattr(theirs, name).__module__ == theirs.__name__} <= {*vars(ours)}
