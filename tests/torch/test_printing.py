"""Every printed letter against PyTorch's own `repr`, on a table of cases and on random arrays and options."""

import itertools
import math
import warnings

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings, strategies as st
from torch._tensor_str import get_printoptions as torch_options, printoptions as torch_printoptions

from flambeau.tensor import printing
from flambeau.tensor.printing import format_array, format_tensor, format_with_spec

INTS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
FLOAT8S = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
COMPLEX = ["complex64", "complex128"]
DTYPES = ["bool", *INTS, *FLOATS, *COMPLEX]
ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, 1 / 3, 2.5, 1e-4, 9.9999e-5, 1e-8,
       5e-324, 1e-40, 999.0, 1000.0, 1001.0, 65504.0, 1e8, 1.1e8, 16777217.0, 1e20, 3.4e38, 1e300,
       1.7e308, 0.99995, 9.99995, -1234.5678]


def name(dtype):
    return str(dtype).removeprefix("torch.")


def to_numpy(tensor):
    """The same bits as NumPy sees them; the small floats through an integer of their size."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16 or name(tensor.dtype).startswith("float8"):
        bits = tensor.view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.uint8).numpy()
        return bits.view(getattr(ml_dtypes, name(tensor.dtype)))
    return tensor.numpy()


def ours(tensor, **more):
    array = None if tensor.is_meta else to_numpy(tensor)
    grad_fn_name = tensor.grad_fn and tensor.grad_fn.name()
    return format_tensor(array, name(tensor.dtype), name(torch.get_default_dtype()), str(tensor.device),
                         tensor.requires_grad, grad_fn_name, tensor.is_meta, tuple(tensor.shape), **more)


def same(tensor, **options):
    with printing.printoptions(**options), torch_printoptions(**options):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            text = ours(tensor)
        assert text == repr(tensor)


def ramp(shape, dtype):
    """Numbers of several widths and both signs, of any dtype."""
    numbers = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    if dtype == torch.bool:
        return numbers % 3 == 0
    if dtype.is_complex:
        return torch.complex(numbers / 7 - 2, 3 - numbers / 11).to(dtype)
    if dtype.is_floating_point:
        return (numbers / 7 - 2).to(dtype)
    return (numbers % 101 * 37 % 128).to(dtype) if dtype.itemsize == 1 else (numbers * 37).to(dtype)


SHAPES = [(), (1,), (5,), (40,), (0,), (0, 3), (2, 0, 4), (1, 1), (2, 3), (3, 30), (2, 3, 4),
          (2, 1, 3, 2), (1, 1, 1, 1, 1), (1000,), (1001,), (7, 200), (6, 200), (200, 7), (2, 600),
          (11, 11, 11), (3, 2, 40, 9), (7, 8, 7, 8), (2, 2, 2, 2, 100)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, *FLOAT8S])
def test_shape(dtype, shape):
    same(ramp(shape, getattr(torch, dtype)))


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8S])
def test_odd_numbers_alone_and_in_pairs(dtype):
    odd = torch.tensor(ODD, dtype=torch.float64).to(getattr(torch, dtype))
    same(odd)
    for i, j in itertools.product(range(len(odd)), repeat=2):
        same(odd[i])
        same(odd[[i, j]])


@pytest.mark.parametrize("dtype", COMPLEX)
def test_odd_complex_numbers(dtype):
    for real, imag in itertools.product(ODD, repeat=2):
        number = torch.tensor([complex(real, imag), 1 - 2j], dtype=torch.complex128).to(getattr(torch, dtype))
        same(number)
        same(number[0])


@pytest.mark.parametrize("dtype", INTS)
def test_integer_ends(dtype):
    info = torch.iinfo(getattr(torch, dtype))
    same(torch.tensor([info.min, 0, 1, info.max], dtype=getattr(torch, dtype)))


OPTIONS = [
    {"precision": 2}, {"precision": 0}, {"precision": 10},
    {"threshold": 5}, {"threshold": 0}, {"threshold": 5, "edgeitems": 1}, {"threshold": 5, "edgeitems": 50},
    {"edgeitems": 0}, {"threshold": 0, "edgeitems": 0},
    {"linewidth": 20}, {"linewidth": 200}, {"linewidth": 1},
    {"profile": "short"}, {"profile": "full"}, {"profile": "default"}, {"profile": "nonsense"},
    {"profile": "short", "precision": 6},
    {"sci_mode": True}, {"sci_mode": False}, {"sci_mode": True, "precision": 1, "linewidth": 40},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int64", "int16", "bfloat16", "float32", "complex64"])
def test_option(dtype, options):
    for shape in [(), (0,), (0, 2), (1,), (8,), (3, 9), (2, 3, 8), (1100,), (30, 40), (8, 7, 9, 8)]:
        same(ramp(shape, getattr(torch, dtype)), **options)
        same(torch.zeros(shape, dtype=getattr(torch, dtype)), **options)


def test_options_follow_torch_through_any_history():
    for options in [*OPTIONS, {"sci_mode": True}, {"precision": 3}, {}, {"profile": "default"}]:
        printing.set_printoptions(**options)
        torch.set_printoptions(**options)
        assert printing.get_printoptions() == torch_options()
    assert printing.get_printoptions() == {**printing.PROFILES["default"], "sci_mode": None}


@pytest.mark.parametrize("default", ["float16", "bfloat16", "float32", "float64"])
def test_what_goes_without_saying(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        shapes = [(), (2,), (0,), (0, 3), (2, 3)]
        for dtype, shape, device in itertools.product(DTYPES, shapes, ["cpu", "meta"]):
            same(ramp(shape, getattr(torch, dtype)).to(device))
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("width", range(1, 14))
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex128"])
def test_notes_wrap(dtype, width):
    leaf = ramp((width,), getattr(torch, dtype)).requires_grad_()
    column = leaf.unsqueeze(0).t() * 2
    for tensor in [leaf, leaf + 1, leaf.exp(), leaf[:0], column, leaf.to("meta"), leaf.sum()]:
        same(tensor)
        for linewidth in range(20, 80, 7):
            same(tensor, linewidth=linewidth)


def test_parameters_and_subclasses():
    class Mine(torch.Tensor):
        pass

    class Weight(torch.nn.Parameter):
        pass

    for value in [torch.randn(2, 30), torch.zeros(0, 2), torch.tensor(1.5), torch.randn(2, device="meta")]:
        parameter = torch.nn.Parameter(value)
        assert ours(parameter, parameter=True) == repr(parameter)
        weight = Weight(value)
        assert ours(weight, prefix="Weight(", parameter=True) == repr(weight)
        mine = value.as_subclass(Mine)
        assert ours(mine, prefix="Mine(") == repr(mine)
        marked = torch.nn.Parameter(mine)
        assert ours(marked, prefix="Mine(", marked=True) == repr(marked)


def test_tangent_is_an_extra():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.zeros(2))
        assert ours(torch.ones(2), extras=["tangent=tensor([0., 0.])"]) == repr(dual)


@pytest.mark.parametrize("spec", ["", ".2f", "8.3e", ">12", "d", "x", "%", "nonsense"])
def test_format_with_spec(spec):
    def outcome(call, *args):
        try:
            return call(*args)
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    for tensor in [torch.tensor(3.14159), torch.tensor(7), torch.tensor(True), torch.tensor(1 + 2j),
                   torch.ones(2), torch.tensor(2.5, requires_grad=True), torch.ones((), device="meta")]:
        assert outcome(format_with_spec, tensor, spec) == outcome(format, tensor, spec)
    parameter = torch.nn.Parameter(torch.tensor(1.5))
    assert outcome(format_with_spec, parameter, spec, False) == outcome(format, parameter, spec)


def test_strided_and_reversed_arrays():
    square = np.arange(2000.0).reshape(40, 50)
    broad = np.broadcast_to(square[:, None], (40, 30, 50))
    for array in [square.T, square[::-1, ::-3], broad, np.asfortranarray(square)]:
        expected = repr(torch.tensor(array.copy(), dtype=torch.float32))
        assert f"tensor({format_array(array, 'float32')})" == expected


@st.composite
def tensors(draw):
    """A random tensor of any dtype: bit patterns, odd numbers, round ones or a wide spread."""
    dtype = getattr(torch, draw(st.sampled_from(DTYPES)))
    sizes = draw(st.sampled_from([[1, 2, 3], [0, 1, 2, 3, 5, 6, 7, 12, 40]]))
    shape = draw(st.lists(st.sampled_from(sizes), max_size=4))
    if math.prod(shape) > 20_000:
        shape = shape[:2]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = math.prod(shape)
    if dtype == torch.bool:
        return torch.tensor(rng.random(n) < draw(st.floats(0, 1)), dtype=dtype).reshape(shape)
    kind = draw(st.sampled_from(["bits", "odd", "round", "spread", "normal"]))
    if kind == "bits" and n:
        octets = rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8)
        return torch.from_numpy(octets).view(dtype).reshape(shape)
    if not (dtype.is_floating_point or dtype.is_complex):
        high = min(torch.iinfo(dtype).max, 10 ** draw(st.integers(1, 18)))
        low = 0 if torch.iinfo(dtype).min == 0 else -high
        return torch.tensor(rng.integers(low, high, n, endpoint=True), dtype=dtype).reshape(shape)

    def numbers():
        if kind == "odd":
            return rng.choice(draw(st.lists(st.sampled_from(ODD) | st.floats(), min_size=1, max_size=6)), n)
        if kind == "round":
            return rng.integers(-20, 20, n) * draw(st.sampled_from([1, 0.5, 100, 1e6]))
        if kind == "spread":
            return 10.0 ** (rng.random(n) * draw(st.floats(0, 9)) + draw(st.floats(-6, 4)))
        return rng.normal(size=n)

    values = torch.tensor(numbers(), dtype=torch.float64)
    if dtype.is_complex:
        values = torch.complex(values, torch.tensor(numbers(), dtype=torch.float64))
    return values.to(dtype).reshape(shape)


options = st.fixed_dictionaries({}, optional={
    "precision": st.integers(0, 9),
    "threshold": st.sampled_from([0, 3, 10, 100, 1000, math.inf]),
    "edgeitems": st.integers(0, 5),
    "linewidth": st.integers(1, 150),
    "sci_mode": st.sampled_from([None, True, False]),
    "profile": st.sampled_from(["default", "short", "full"]),
})


@settings(max_examples=400, deadline=None)
@given(tensors(), options)
def test_random_tensor(tensor, options):
    same(tensor)
    same(tensor, **options)
