"""Elementwise operations where OpInfo's samples do not go: those outside core_ops.txt, values at which something
happens (infinities, nan, ties, signed zeros, poles), mixed dtypes and numbers, and the names of autograd nodes."""
import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.torch.checks import CHECKS, dtypes_for, run
from tests.torch.harness import SELF, Raised, assert_same_error, attempt, by_path, fb

BEYOND = set("""
    acosh asinh bitwise_left_shift bitwise_right_shift positive conj_physical complex copysign deg2rad fmax fmin i0
    frexp imag lcm gcd nextafter igamma igammac mvlgamma rad2deg real sinc sgn __rand__ __ror__ __rxor__ angle isposinf
    isneginf isreal polar digamma special.i0e special.i1 special.i1e special.ndtr special.xlog1py special.entr
    special.ndtri special.log_ndtr special.erfcx logaddexp2 view_as_real view_as_complex resolve_conj resolve_neg
""".split())
NO_COMPLEX_HALF = {("complex", torch.float16), ("view_as_complex", torch.float16)}     # NumPy has no such dtype


@pytest.mark.parametrize("op", [op for op in op_db if op.name in BEYOND], ids=lambda op: op.full_name)
def test_beyond_the_list(op):
    for check in CHECKS:
        for dtype in dtypes_for(check, op):
            if check == "out" and dtype is torch.int64 or (op.name, dtype) in NO_COMPLEX_HALF:
                continue                            # a float32 result in complex128 is compared too strictly there
            outcome = run(check, op, dtype)
            assert not outcome.failures, f"{check} {dtype}: {outcome.first()}"


# ---- values at which something happens

VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, math.inf, -math.inf, math.nan, 1e-30, -1e-30, 100.0, -100.0, 3.5]
PAIRS = list(zip(*itertools.product(VALUES, VALUES)))
ONE = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv exp exp2 expm1 floor frac i0
    isfinite isinf isnan lgamma log log10 log1p log2 logical_not logit nan_to_num neg rad2deg reciprocal round
    rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc special.entr special.ndtr
    special.i1""".split()
TWO = """add sub mul div floor_divide remainder fmod pow atan2 hypot copysign fmax fmin maximum minimum logaddexp
    logaddexp2 xlogy special.xlog1py eq lt ge isclose clamp_min clamp_max heaviside nextafter""".split()
FORMS = {
    **{f"x ** {e}": lambda lib, x, e=e: x ** e for e in (0, 1, 2, 3, -1, 0.5, -0.5, 2.5)},
    **{f"{b} ** x": lambda lib, x, b=b: b ** x for b in (0, 1, 2, -2, 0.5)},
    **{f"clamp {lo} {hi}": lambda lib, x, lo=lo, hi=hi: x.clamp(lo, hi)
       for lo, hi in ((0, 1), (None, 1), (0, None), (2, 1), (math.nan, 1))},
    **{f"lerp {w}": lambda lib, x, w=w: x.lerp(2 * x + 1, w) for w in (0, 0.3, 0.7, 1, 2)},
    **{f"round {d}": lambda lib, x, d=d: x.round(decimals=d) for d in (1, -1)},
    **{f"logit {eps}": lambda lib, x, eps=eps: x.logit(eps) for eps in (0.0, 0.1)},
    **{f"div {mode}": lambda lib, x, mode=mode: lib.div(x, 0.7, rounding_mode=mode) for mode in ("floor", "trunc")},
}


def found(lib, f, *columns):
    """The result and the gradients of `f` at `columns`, as arrays; nothing for what has no gradient."""
    xs = [lib.tensor(column, dtype=lib.float64, requires_grad=True) for column in columns]
    out = f(lib, *xs)
    made = [out.detach().numpy()]
    if out.requires_grad and out.grad_fn.name() != "torch::autograd::NotImplemented":
        grads = lib.autograd.grad(out, xs, lib.ones_like(out), allow_unused=True)
        made += [np.zeros(len(columns[0])) if g is None else (g + 0).detach().numpy() for g in grads]
    return made


def agree(f, *columns):
    for k, (got, want) in enumerate(zip(found(fb, f, *columns), found(torch, f, *columns), strict=True)):
        close = np.isclose(got, want, rtol=1e-6, atol=1e-12, equal_nan=True)
        at = np.flatnonzero(~close)[:5]
        where = f"gradient {k - 1}" if k else "result"
        assert not len(at), [(where, *(c[i] for c in columns), got[i], want[i]) for i in at]


def path(lib, name):
    return by_path(name) if lib is fb else by_name(torch, name)


def by_name(found, name):
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", ONE)
def test_one_argument_at_its_edges(name):
    agree(lambda lib, x: path(lib, name)(x), VALUES)


@pytest.mark.parametrize("name", TWO)
def test_two_arguments_at_their_edges(name):
    agree(lambda lib, x, y: path(lib, name)(x, y), *PAIRS)


@pytest.mark.parametrize("name", FORMS)
def test_with_numbers_at_its_edges(name):
    agree(FORMS[name], VALUES)


def test_clamp_between_tensors():
    agree(lambda lib, x, lo, hi: lib.clamp(x, lo, hi),
          [1.5, 1.0, math.nan, 3.0, 0.0, 1.0], [2.0, 1.0, 1.0, 1.0, 1.0, 2.0], [1.0, 1.0, 2.0, 2.0, 2.0, 2.0])


# ---- mixed dtypes, numbers, nodes

DTYPES = "bool uint8 int64 float16 bfloat16 float32 float64 complex64".split()
MIXED = """add sub mul div true_divide rsub floor_divide fmod float_power atan2 hypot copysign fmax maximum gcd
    logaddexp logical_and bitwise_and bitwise_left_shift xlogy eq lt isclose clamp_min clamp""".split()


def outcome(lib, name, first, second):
    def operand(given):
        if not isinstance(given, str):
            return given
        x = lib.tensor([3.0, 2.0, 1.0, 5.0]).to(getattr(lib, given))
        return x.requires_grad_() if given.startswith(("f", "bf", "c")) else x
    return attempt(path(lib, name), operand(first), operand(second))


@pytest.mark.parametrize("name", MIXED)
def test_mixed_operands(name):
    for first, second in itertools.chain(itertools.product(DTYPES, [*DTYPES, 2, 2.5, 1j, True]),
                                         itertools.product([2, 2.5, 1j, True], DTYPES)):
        got, want = outcome(fb, name, first, second), outcome(torch, name, first, second)
        case = f"{name}({first}, {second})"
        if "ComplexHalf" in str(want) or getattr(want, "dtype", None) is torch.complex32:
            continue                                                           # NumPy has no such dtype
        if isinstance(want, Raised):
            if not (name.startswith("clamp") and ((first, second) == ("bool", True) or second == 1j)):    # its quirks
                assert_same_error(got, want)
            continue
        assert not isinstance(got, Raised), f"{case}: {got}"
        assert str(got.dtype) == str(want.dtype), case
        assert got.requires_grad == want.requires_grad, case
        assert (got.grad_fn and got.grad_fn.name()) == (want.grad_fn and want.grad_fn.name()), case


@pytest.mark.parametrize("call", [
    lambda x: 1 - x, lambda x: 1 / x, lambda x: x / 2, lambda x: 2 ** x, lambda x: x ** 2, lambda x: x ** x,
    lambda x: x % 2, lambda x: x // 2, lambda x: x.clamp(0, 1), lambda x: x.clamp(x), lambda x: x.lerp(x, 0.5),
    lambda x: x.lerp(x, x), lambda x: x.round(decimals=1), lambda x: x.div(2, rounding_mode="floor"),
    lambda x: x.square(),
])
def test_nodes_of_operators(call):
    names = [call(lib.tensor([2.0], requires_grad=True)).grad_fn.name() for lib in (fb, torch)]
    assert names[0] == names[1]


# ---- the rest

def test_integer_division_by_zero_is_refused_at_the_call():
    for divide in (lambda a, b: a // b, lambda a, b: a % b, fb.fmod, lambda a, b: fb.div(a, b, rounding_mode="trunc")):
        for zero in (0, fb.tensor([1, 0])):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                divide(fb.tensor([1, 2]), zero)


def test_integers_to_negative_powers():
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        fb.tensor([2]) ** -1
    bases, powers = fb.tensor([1, -1, -1, 2, 0]), fb.tensor([-3, -3, -2, -1, -1])
    assert (bases ** powers).tolist() == [1, -1, 1, 0, 0]


def test_in_place_keeps_what_it_overwrites():
    """The gradient of `exp_` or `sin_` needs what was there before: it is kept, as PyTorch keeps it."""
    for form in ("sin_", "square_", "acos_", "abs_"):
        got, want = (lib.tensor([0.25, -0.5], requires_grad=True) for lib in (fb, torch))
        for x in (got, want):
            y = x * 1
            getattr(y, form)()
            y[0].mul_(3)
            y.sum().backward()
        assert np.allclose(got.grad.numpy(), want.grad.numpy()), form


def test_parts_of_complex_tensors_are_views():
    z = fb.tensor([1 + 2j, 3 - 1j])
    z.real = fb.tensor([5.0, 6.0])
    z.imag = 0
    fb.view_as_real(z)[0, 1] = 7
    assert z.tolist() == [5 + 7j, 6 + 0j]
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        _ = fb.tensor([1.0]).imag


def test_a_number_is_compared_as_the_nearest_half():
    for dtype in (fb.float16, fb.bfloat16):
        x = fb.tensor([0.1], dtype=dtype)
        assert (x == 0.1).item() and not (x < 0.1).item()


@pytest.mark.skipif(SELF, reason="says what Flambeau adds to PyTorch's words")
def test_wrong_types_are_refused_at_the_call():
    x = fb.tensor([1.0])
    for call in (lambda: fb.add(x, "a"), lambda: fb.exp(2.0), lambda: fb.maximum(x, 2),
                 lambda: fb.add(x, x, alpha="2")):
        with pytest.raises(TypeError, match="must be (Tensor|Number), not"):
            call()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("lambd", [0.1, 0.3, 1 / 3, 0.7])
def test_shrinking_at_its_own_threshold(lambd, dtype):
    """A 16-bit element that is as near to the threshold as it can be is shrunk; zeros keep their sign."""
    def seen(lib):
        numbers = [sign * lambd * f for f in (1, 1.01, 0.99) for sign in (1, -1)]
        x = lib.tensor([*numbers, float("nan")], dtype=getattr(lib, dtype))
        made = [lib.nn.functional.hardshrink(x, lambd), x.hardshrink(lambd), lib.nn.functional.softshrink(x, lambd)]
        return [(t.tolist(), lib.signbit(t).tolist()) for t in made]
    assert repr(seen(fb)) == repr(seen(torch))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_log1p_of_small_complex_numbers(dtype):
    numbers = [1e-19 + 1e-18j, 1e-18 + 1e-19j, 1e-19j, 1e-19, 0.1 + 0.2j, -0.5 + 0.1j, 3 + 4j, 1e30 + 1e30j]
    given, expected = (lib.log1p(lib.tensor(numbers, dtype=getattr(lib, dtype))) for lib in (fb, torch))
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(given, part).numpy(), getattr(expected, part).numpy(), 1e-5, 0)


def test_exp2_of_complex_infinities():
    ends = (0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"))
    numbers = [complex(a, b) for a in ends for b in ends]
    given, expected = (lib.exp2(lib.tensor(numbers)) for lib in (fb, torch))
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(given, part).numpy(), getattr(expected, part).numpy(), 1e-5)
