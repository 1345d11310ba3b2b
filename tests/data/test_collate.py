"""Samples put together, and single samples converted: dtypes, containers, memory, refusals."""
import collections
import types

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.data import default_collate, default_convert
from flambeau.utils.data._utils.collate import collate

Point = collections.namedtuple("Point", "x y")


def said(thing):
    """A nested result as plain Python: a tensor as its dtype and elements."""
    if isinstance(thing, torch.Tensor):
        return str(thing.dtype).removeprefix("torch."), thing.tolist()
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return type(thing)(*map(said, thing))
    if isinstance(thing, list | tuple | collections.deque):
        return type(thing)(map(said, thing))
    if isinstance(thing, dict):
        return {key: said(value) for key, value in thing.items()}
    return thing


@pytest.mark.parametrize("batch, expected", [
    ([1, 2, 3], ("int64", [1, 2, 3])),
    ([1.5, 2.0], ("float64", [1.5, 2.0])),
    ([1, 2.5], ("float32", [1.0, 2.5])),                # an integer first: what `torch.tensor` makes of it
    ([1.5, 2], ("float64", [1.5, 2.0])),
    ([True, False], ("bool", [True, False])),
    (["a", "b"], ["a", "b"]),
    ([b"a"], [b"a"]),
    ([np.float32(1), np.float32(2)], ("float32", [1.0, 2.0])),
    ([np.int16(1), np.int16(2)], ("int16", [1, 2])),
    ([np.bool_(True)], ("bool", [True])),
    ([np.float64(1), 2], ("float64", [1.0, 2.0])),
    ([(1, 2.0), (3, 4.0)], [("int64", [1, 3]), ("float64", [2.0, 4.0])]),
    ([[1, "x"], [2, "y"]], [("int64", [1, 2]), ("x", "y")]),
    ([(), ()], []),
    ([Point(1, 2), Point(3, 4)], Point(("int64", [1, 3]), ("int64", [2, 4]))),
    ([{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}], {"a": ("int64", [1, 3]), "b": [("float64", [2.0, 4.0])]}),
    ([{"a": 1}, {"a": 2, "b": 3}], {"a": ("int64", [1, 2])}),                # the first sample has the say
    ([range(2), range(2)], [("int64", [0, 0]), ("int64", [1, 1])]),
    ([collections.deque([1, 2])] * 2, collections.deque([("int64", [1, 1]), ("int64", [2, 2])])),
])
def test_numbers_texts_and_containers(batch, expected):
    got = default_collate(batch)
    assert said(got) == expected and type(said(got)) is type(expected)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0), (2, 1, 3)])
@pytest.mark.parametrize("origin", ["rows", "columns", "own", "pending", "mixed"])
def test_tensors_are_stacked(dtype, shape, origin):
    count = int(np.prod(shape))
    grid = np.arange(5 * count).reshape(5, *shape) % 3
    whole = torch.tensor(grid).to(getattr(torch, dtype))
    if origin == "rows":
        batch = [whole[i] for i in (3, 0, 0, 4)]
    elif origin == "columns":                           # the samples are the last dimension: strided views
        turned = whole.permute(*range(1, whole.ndim), 0).contiguous()
        batch = [turned[..., i] for i in (3, 0, 0, 4)]
    elif origin == "own":
        batch = [whole[i].clone() for i in (3, 0, 0, 4)]
    elif origin == "pending":
        batch = [whole[i] + 0 if dtype != "bool" else whole[i] | False for i in (3, 0, 0, 4)]
    else:
        batch = [whole[3], whole[0].clone(), whole[0], whole[4]]
    got = default_collate(batch)
    assert got.dtype is whole.dtype and got.shape == (4, *shape) and got.is_contiguous()
    assert got.tolist() == whole[[3, 0, 0, 4]].tolist()


def test_a_batch_has_memory_of_its_own():
    whole = torch.zeros(4, 3)
    array = np.zeros((4, 3), np.float32)
    for batch in ([whole[i] for i in range(4)], [whole[0]], [torch.from_numpy(row) for row in array], list(array),
                  [whole]):
        default_collate(batch).fill_(7)
    assert whole.tolist() == [[0.0] * 3] * 4 and not array.any()


def test_a_gradient_goes_back_to_the_samples():
    leaf = torch.ones(3, 2, requires_grad=True)
    got = default_collate([leaf[0], leaf[2]])
    assert got.requires_grad
    (got * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert leaf.grad.tolist() == [[1, 2], [0, 0], [3, 4]]


def test_tensors_of_several_dtypes_are_promoted():
    assert said(default_collate([torch.tensor(1), torch.tensor(2.5)])) == ("float32", [1.0, 2.5])


@pytest.mark.parametrize("arrays", [
    [np.arange(6.0).reshape(2, 3), np.ones((2, 3))],
    [np.arange(6.0).reshape(3, 2).T, np.ones((3, 2)).T],
    [np.arange(6).reshape(3, 2).T, np.ones((2, 3), np.int64)],                # of different layout
    [np.array(1.5), np.array(2.5)],
    [np.zeros((2, 0)), np.zeros((2, 0))],
    [np.float32([1]), np.float64([2])],
])
def test_arrays_are_stacked(arrays):
    got = default_collate(arrays)
    assert got.is_contiguous() and np.array_equal(got.numpy(), np.stack(arrays))
    assert got.numpy().dtype == np.result_type(*arrays)


def test_a_map_of_ones_own():
    class Box:
        def __init__(self, held):
            self.held = held

    def boxes(batch, *, collate_fn_map=None):
        return Box(collate([box.held for box in batch], collate_fn_map=collate_fn_map))

    got = collate([(Box(1), True), (Box(2), False)],
                  collate_fn_map={Box: boxes, int: lambda batch, *, collate_fn_map=None: list(batch)})
    assert got[0].held == [1, 2] and got[1] == [True, False]           # a bool is an int


def test_subclasses_of_containers_are_kept():
    class Tagged(dict):
        pass

    class Rows(list):
        pass
    first = Tagged(a=1)
    first.tag = "t"
    got = default_collate([first, Tagged(a=2)])
    assert type(got) is Tagged and got.tag == "t" and got["a"].tolist() == [1, 2] and first["a"] == 1
    got = default_collate([Rows([1]), Rows([2])])
    assert type(got) is Rows and got[0].tolist() == [1, 2]
    got = default_collate([types.MappingProxyType({"a": 1})])
    assert type(got) is types.MappingProxyType and got["a"].tolist() == [1]


@pytest.mark.parametrize("batch, error, words", [
    ([None], TypeError, "must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'NoneType'>"),
    ([1j], TypeError, "found <class 'complex'>"),
    ([{1}], TypeError, "found <class 'set'>"),
    ([np.array(["a"])], TypeError, "found <U1"),
    ([np.array([None])], TypeError, "found object"),
    ([[1, 2], [1]], RuntimeError, "each element in list of batch should be of equal size"),
    ([torch.zeros(2), torch.zeros(3)], RuntimeError, "stack expects each tensor to be equal size"),
    ([torch.zeros(2), 1], TypeError, "expected Tensor as element 1"),
    ([np.zeros(3)[::-1], np.zeros(3)[::-1]], ValueError, "negative"),
    ([{"a": 1}, {"b": 1}], KeyError, "a"),
    ([2**63, 1], ValueError, "Overflow when unpacking long"),
    ([], IndexError, "index out of range"),
])
def test_refusals(batch, error, words):
    with pytest.raises(error, match=words):
        default_collate(batch)


def test_convert_makes_tensors_of_arrays_and_leaves_the_rest():
    sample = {"x": np.float32([1, 2]), "n": np.int64(3), "t": torch.ones(1), "s": "text", "b": b"b", "k": 1,
              "l": [np.zeros(1)], "p": Point(np.zeros(1), None), "u": np.array(["a"])}
    got = default_convert(sample)
    assert said(got["x"]) == ("float32", [1.0, 2.0]) and said(got["n"]) == ("int64", 3)
    assert got["t"] is sample["t"] and got["u"] is sample["u"]
    assert (got["s"], got["b"], got["k"]) == ("text", b"b", 1)
    assert said(got["l"]) == [("float64", [0.0])] and type(got["p"]) is Point and got["p"].y is None
    assert default_convert((1, "a")) == [1, "a"]
    array = np.zeros(2)
    default_convert(array)[0] = 5                       # the same memory
    assert array[0] == 5
