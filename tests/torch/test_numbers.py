"""A Python number enters a dtype: every operation that takes one, in every kind of dtype, with numbers that hardly fit
or do not fit, against PyTorch: what comes out, or the type of the exception."""
import math
import warnings

import pytest
import torch

import flambeau

NUMBERS = [-129, -1, 3, 256, 300, 2**31, 2**63 - 1, 2**64, -2**63 - 1, -2.5, 255.5, 70000.0, 1e40, math.nan, math.inf,
           1 + 2j, True, False]
DTYPES = "bool uint8 int8 int64 float16 bfloat16 float32 complex64".split()

BINARY = ("add sub mul div floor_divide remainder fmod pow eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor "
          "bitwise_left_shift bitwise_right_shift copysign").split()


def put(x, index, number):
    x = x.clone()
    x[index] = number
    return x


CALLS = {
    **{name: lambda t, x, n, name=name: getattr(t, name)(x, n) for name in BINARY},
    **{name + "_": lambda t, x, n, name=name: getattr(x.clone(), name + "_")(n) for name in BINARY},
    "x + n": lambda t, x, n: x + n, "n - x": lambda t, x, n: n - x, "n / x": lambda t, x, n: n / x,
    "x // n": lambda t, x, n: x // n, "x % n": lambda t, x, n: x % n, "x ** n": lambda t, x, n: x ** n,
    "x < n": lambda t, x, n: x < n, "x & n": lambda t, x, n: x & n, "x << n": lambda t, x, n: x << n,
    "add alpha": lambda t, x, n: t.add(x, x, alpha=n), "add_ alpha": lambda t, x, n: x.clone().add_(x, alpha=n),
    "sub alpha": lambda t, x, n: t.sub(x, x, alpha=n), "rsub alpha": lambda t, x, n: t.rsub(x, x, alpha=n),
    "add number alpha": lambda t, x, n: t.add(x, 1, alpha=n),
    "addcmul": lambda t, x, n: t.addcmul(x, x, x, value=n), "addcdiv": lambda t, x, n: t.addcdiv(x, x, x, value=n),
    "lerp": lambda t, x, n: t.lerp(x, x, n),
    "clamp min": lambda t, x, n: t.clamp(x, min=n), "clamp max": lambda t, x, n: t.clamp(x, max=n),
    "clamp": lambda t, x, n: t.clamp(x, n, n), "clamp_": lambda t, x, n: x.clone().clamp_(min=n),
    "clamp_min": lambda t, x, n: t.clamp_min(x, n), "clamp_max_": lambda t, x, n: x.clone().clamp_max_(n),
    "clip": lambda t, x, n: t.clip(x, n), "hardtanh": lambda t, x, n: t.nn.functional.hardtanh(x, -1, n),
    "threshold": lambda t, x, n: t.nn.functional.threshold(x, n, 5),
    "threshold value": lambda t, x, n: t.nn.functional.threshold(x, 1, n),
    "threshold_": lambda t, x, n: t.nn.functional.threshold_(x.clone(), n, n),
    "leaky_relu": lambda t, x, n: t.nn.functional.leaky_relu(x, n), "elu": lambda t, x, n: t.nn.functional.elu(x, n),
    "celu": lambda t, x, n: t.nn.functional.celu(x, n), "hardshrink": lambda t, x, n: t.nn.functional.hardshrink(x, n),
    "softshrink": lambda t, x, n: t.nn.functional.softshrink(x, n),
    "softplus": lambda t, x, n: t.nn.functional.softplus(x, n),
    "softplus threshold": lambda t, x, n: t.nn.functional.softplus(x, 1, n),
    "where": lambda t, x, n: t.where(x == x, x, n), "where number": lambda t, x, n: t.where(x == x, n, x),
    "x.where": lambda t, x, n: x.where(x == x, n),
    "fill_": lambda t, x, n: x.clone().fill_(n), "fill": lambda t, x, n: t.fill(x, n),
    "full_like": lambda t, x, n: t.full_like(x, n), "full": lambda t, x, n: t.full((2,), n, dtype=x.dtype),
    "new_full": lambda t, x, n: x.new_full((2,), n), "scalar_tensor": lambda t, x, n: t.scalar_tensor(n, dtype=x.dtype),
    "masked_fill": lambda t, x, n: x.masked_fill(x == x, n),
    "index_fill": lambda t, x, n: x.index_fill(0, t.tensor([0]), n),
    "scatter": lambda t, x, n: x.scatter(0, t.tensor([0]), n),
    "scatter add": lambda t, x, n: x.scatter(0, t.tensor([0]), n, reduce="add"),
    "index_add": lambda t, x, n: x.index_add(0, t.tensor([0]), x[:1], alpha=n),
    "x[0]": lambda t, x, n: put(x, 0, n), "x[:2]": lambda t, x, n: put(x, slice(2), n),
    "x[i]": lambda t, x, n: put(x, t.tensor([0, 1]), n), "x[mask]": lambda t, x, n: put(x, x == x, n),
    "addmm beta": lambda t, x, n: t.addmm(x[:2], x[:1, None], x[None, :2], beta=n),
    "addmm alpha": lambda t, x, n: t.addmm(x[:2], x[:1, None], x[None, :2], alpha=n),
    "addmv": lambda t, x, n: t.addmv(x[:1], x[None], x, alpha=n),
    "addr": lambda t, x, n: t.addr(x[:1, None], x[:1], x[:1], alpha=n, beta=2),
    "baddbmm": lambda t, x, n: t.baddbmm(x[:1, None, None], x[:1, None, None], x[:1, None, None], alpha=n),
    "constant_pad_nd": lambda t, x, n: t.constant_pad_nd(x, (1, 0), n),
    "tensor": lambda t, x, n: t.tensor([n], dtype=x.dtype), "new_tensor": lambda t, x, n: x.new_tensor(n),
    "fill_diagonal_": lambda t, x, n: x[None].expand(4, 4).clone().fill_diagonal_(n),
    "mul out": lambda t, x, n: t.mul(x, n, out=t.zeros_like(x)),
}

# Two reasons to refuse, and PyTorch names the other one: the number, before the dtype or the rest of the call.
TWICE_WRONG = {"add_", "sub", "sub_", "mul_", "div_", "floor_divide", "floor_divide_", "remainder", "remainder_",
               "fmod", "fmod_", "bitwise_and_", "bitwise_or_", "bitwise_xor_", "bitwise_left_shift_",
               "bitwise_right_shift_", "copysign_", "n - x", "x // n", "x % n", "pow", "pow_", "x ** n", "clamp min",
               "clamp max", "clamp", "clamp_", "clip", "hardtanh", "softshrink", "celu"}
# A complex infinity times a real one has many forms; complex halves are not there.
COMPLEX_FORMS = {"add_", "sub_", "add number alpha", "add", "sub", "x + n", "n - x"}


def attempt(lib, call, dtype, number):
    x = lib.tensor([1, 2, 0, 3], dtype=getattr(lib, dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = call(lib, x, number)
            return str(made.dtype), tuple(made.shape), made.reshape(-1).tolist()
        except Exception as error:
            return error


def same(got, want, dtype):
    rtol = {"float16": 2e-3, "bfloat16": 1e-2}.get(dtype, 1e-5)
    return got[:2] == want[:2] and all(
        a == b or a != a and b != b or not isinstance(b, (bool, int)) and abs(a - b) <= rtol * abs(b) + rtol
        for a, b in zip(got[2], want[2], strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_numbers(name):
    wrong = []
    for dtype in DTYPES:
        for number in NUMBERS:
            if isinstance(number, complex) and dtype == "float16":
                continue                             # PyTorch's complex halves are not there
            want, got = attempt(torch, CALLS[name], dtype, number), attempt(flambeau, CALLS[name], dtype, number)
            if isinstance(want, Exception) or isinstance(got, Exception):
                twice = isinstance(want, (OverflowError, RuntimeError)) and isinstance(got, RuntimeError)
                alike = type(got) is type(want) or name in TWICE_WRONG and twice
            else:
                alike = same(got, want, dtype) or name in COMPLEX_FORMS and dtype == "complex64"
            if not alike:
                wrong.append(f"{dtype} {number!r}: gives {got!r:.100}, PyTorch {want!r:.100}")
    assert not wrong, "\n".join(wrong)


EXACT = {name: CALLS[name] for name in ("add sub mul div remainder fmod copysign eq lt add_ mul_ remainder_").split()}
EXACT |= {"x - n": lambda t, x, n: x - n, "n - x": lambda t, x, n: n - x, "n / x": lambda t, x, n: n / x,
          "n % x": lambda t, x, n: n % x, "x // n": lambda t, x, n: x // n,
          "0-d + x": lambda t, x, n: t.tensor(n) + x, "x - 0-d": lambda t, x, n: x - t.tensor(n),
          "0-d * x": lambda t, x, n: t.tensor(n) * x, "x * 0-d": lambda t, x, n: x * t.tensor(n),
          "0-d / x": lambda t, x, n: t.tensor(n) / x, "x / 0-d": lambda t, x, n: x / t.tensor(n),
          "x % 0-d": lambda t, x, n: x % t.tensor(n, dtype=t.float64),
          "maximum": lambda t, x, n: t.maximum(x, t.tensor(n)),
          "whole +": lambda t, x, n: x + t.arange(250, 250 + len(x)),
          "whole *": lambda t, x, n: x * t.arange(250, 250 + len(x)),
          "whole /": lambda t, x, n: t.arange(2050, 2050 + len(x)) / x}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", EXACT)
def test_numbers_beside_sixteen_bits(name, dtype):
    """Operations with one right answer: whether a number is rounded to 16 bits first shows in it."""
    elements = [0.3, -0.3, 0.1, 1 / 3, 2.7, 3.14159, -7.77, 100.1, 0.7, 6.28, 0.6, 0.9, -4.576, -1.96, 257.0, -0.2596]
    for number in (0.3, -0.3, 0.1, 1 / 3, 2.7, 3.14159, -7.77, 100.1, 257, 2049, 1e-3):
        for lib in (want := []), (got := []):
            t = torch if lib is want else flambeau
            for _ in range(2):                       # the second time by a plan
                lib.append(EXACT[name](t, t.tensor(elements, dtype=getattr(t, dtype)), number).double().tolist())
        assert got == want, number


def test_nothing_is_left_behind():
    """What is refused is refused at the call, so that nothing later fails for it."""
    x = flambeau.ones(3, dtype=flambeau.int64)
    for number in (2**64, 2**63, -2**63):
        with pytest.raises((OverflowError, RuntimeError)):
            x.pow(number)
    assert (x + 1).tolist() == [2, 2, 2]
