"""What an argument may be: flags are no numbers, numbers may be tensors, `dtype=` and `out=` agree, as in PyTorch.

Each call is made in both libraries. Where PyTorch refuses, the same type of exception is due; where it answers, the
same answer.
"""
import warnings

import pytest

torch = pytest.importorskip("torch")

import flambeau as fb

NAN, INF = float("nan"), float("inf")


def outcome(call, lib):
    try:
        made = call(lib)
    except Exception as error:
        return type(error).__name__
    parts = made if isinstance(made, tuple) and not isinstance(made, (torch.Size, fb.Size)) else (made,)
    return [(p.tolist(), str(p.dtype), tuple(p.shape)) if hasattr(p, "tolist") else p for p in parts]


def same(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, given = outcome(call, torch), outcome(call, fb)
    assert repr(given) == repr(expected)


def x(lib):
    return lib.arange(24.0).reshape(2, 3, 4)


# ---- flags and numbers -----------------------------------------------------------------------------------------------

FLAGS = {
    "sort(True)": lambda t: x(t).sort(True), "sort(0, 1)": lambda t: x(t).sort(0, 1),
    "argsort(True)": lambda t: x(t).argsort(True), "argsort(0, 1)": lambda t: x(t).argsort(0, 1),
    "topk(1, True)": lambda t: x(t).topk(1, True), "topk(True)": lambda t: x(t).topk(True),
    "topk(1, 0, 2)": lambda t: x(t).topk(1, 0, 2), "kthvalue(True)": lambda t: x(t).kthvalue(True),
    "sum(True)": lambda t: x(t).sum(True), "sum(0, 1)": lambda t: x(t).sum(0, 1),
    "mean(True)": lambda t: x(t).mean(True),
    "max(True)": lambda t: x(t).max(True), "amax(True)": lambda t: x(t).amax(True),
    "all(True)": lambda t: x(t).all(True),
    "argmax(True)": lambda t: x(t).argmax(True), "median(True)": lambda t: x(t).median(True),
    "cumsum(True)": lambda t: x(t).cumsum(True), "softmax(True)": lambda t: x(t).softmax(True),
    "softmax(1.0)": lambda t: x(t).softmax(1.0), "logsumexp(True)": lambda t: x(t).logsumexp(True),
    "unsqueeze(True)": lambda t: x(t).unsqueeze(True), "transpose(True, 0)": lambda t: x(t).transpose(True, 0),
    "select(True, 0)": lambda t: x(t).select(True, 0), "narrow(True, 0, 1)": lambda t: x(t).narrow(True, 0, 1),
    "split(1, True)": lambda t: x(t).split(1, True), "unbind(True)": lambda t: x(t).unbind(True),
    "cat(…, True)": lambda t: t.cat([x(t), x(t)], True), "stack(…, True)": lambda t: t.stack([x(t), x(t)], True),
    "index_select(True, …)": lambda t: x(t).index_select(True, t.tensor([0])),
    "gather(True, …)": lambda t: x(t).gather(True, x(t).long() * 0), "flatten(True)": lambda t: x(t).flatten(True),
    "tril(True)": lambda t: x(t).tril(True), "triu(1.0)": lambda t: x(t).triu(1.0),
    "unfold(0, True, 1)": lambda t: x(t).unfold(0, True, 1), "size(True)": lambda t: x(t).size(True),
    "std(True)": lambda t: x(t).std(True), "norm(True)": lambda t: x(t).norm(True),
    "arange(True)": lambda t: t.arange(True),
    "sort(descending=True)": lambda t: x(t).sort(descending=True),
    "topk(1, 0, False)": lambda t: x(t).topk(1, 0, False),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_no_number(name):
    same(FLAGS[name])


NUMBERS = {
    "sum": lambda t, n: x(t).sum(n(1)), "amax": lambda t, n: x(t).amax(n(-1)),
    "softmax": lambda t, n: x(t).softmax(n(0)),
    "sort": lambda t, n: x(t).sort(n(1)), "cat": lambda t, n: t.cat([x(t), x(t)], n(1)),
    "topk": lambda t, n: x(t).topk(n(2)),
    "unsqueeze": lambda t, n: x(t).unsqueeze(n(1)), "transpose": lambda t, n: x(t).transpose(n(0), n(1)),
    "reshape": lambda t, n: x(t).reshape(n(4), n(6)), "narrow": lambda t, n: x(t).narrow(n(0), 1, 1),
    "out of range": lambda t, n: x(t).sum(n(3)), "size": lambda t, n: t.Size([n(2), 3]),
}


@pytest.mark.parametrize("kind", ["int64", "int32", "float32"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_tensor_without_dimensions_is_a_number(name, kind):
    same(lambda t: NUMBERS[name](t, lambda i: t.tensor(i, dtype=getattr(t, kind))))


@pytest.mark.parametrize("call", [
    lambda t: t.Size(t.ones(3)), lambda t: t.Size([1.5]), lambda t: t.Size(t.tensor([1, 2])), lambda t: t.Size("ab"),
    lambda t: t.Size([1, 2]) + [3], lambda t: [3] + t.Size([1]), lambda t: (3,) + t.Size([1]), lambda t: t.Size(4),
    lambda t: t.Size([1]) + range(2), lambda t: t.Size(), lambda t: t.Size([1]) + Either(),
    lambda t: Either() + t.Size([1]),
])
def test_sizes(call):
    same(call)


class Either:
    """Something that can be added to anything."""

    def __add__(self, other):
        return "right"

    def __radd__(self, other):
        return "left"


# ---- dtype= and out= -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("out", ["int32", "float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "nansum", "cumsum", "cumprod", "softmax", "log_softmax"])
def test_dtype_beside_out(name, out, dtype):
    """`out=` must have the dtype that is asked for, where one is."""
    whole = "cum" in name or "soft" in name
    for kind in ("int32", "float32"):
        def call(t, kind=kind):
            given = t.arange(12).reshape(3, 4).to(getattr(t, kind))
            into = t.empty((3, 4) if whole else 4, dtype=getattr(t, out))
            return getattr(t, name)(given, 0, dtype=getattr(t, dtype), out=into).dtype is into.dtype
        same(call)


# ---- reductions at their edges ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float64", "complex64"])
def test_nansum_in_another_dtype(dtype):
    same(lambda t: t.nansum(t.tensor([[1.5, NAN], [2.5, 3.0]]), dim=1, dtype=getattr(t, dtype)))


def test_the_median_of_equal_elements_is_where_a_stable_sort_puts_it():
    torch.manual_seed(0)
    for n in (1, 2, 3, 8, 17, 100):
        for dtype in (torch.int64, torch.float32, torch.float16):
            values = torch.randint(0, 4, (n, 3)).to(dtype)
            same(lambda t, v=values: (t.tensor(v.tolist(), dtype=getattr(t, str(v.dtype)[6:])).median(0)))


@pytest.mark.parametrize("numbers", [
    [complex(INF, 1), complex(INF, 2)], [complex(-INF, 1), complex(-INF, 2)], [complex(INF, NAN), 1],
    [complex(-INF, NAN), 1], [1, complex(INF, 1), complex(1, 2)], [complex(1, 1), complex(NAN, 0), 2]])
def test_logcumsumexp_of_complex_infinities(numbers):
    same(lambda t: t.logcumsumexp(t.tensor(numbers), 0))


def test_cov_without_freedom_is_infinite_in_the_sign_of_the_products():
    same(lambda t: t.cov(t.tensor([[1.0, 2.0], [3.0, -5.0]]), correction=5))


# ---- warnings --------------------------------------------------------------------------------------------------------

WARNS = {
    "a mask of bytes": lambda t: t.zeros(3)[t.tensor([1, 0, 1], dtype=t.uint8)],
    "two masks of bytes": lambda t: t.zeros(2, 2)[t.ones(2, dtype=t.uint8), t.ones(2, dtype=t.uint8)],
    "index_put_ with bytes": lambda t: t.zeros(3).index_put_((t.tensor([1, 0, 1], dtype=t.uint8),), t.ones(2)),
    "normal into another shape": lambda t: t.normal(t.zeros(2, 3), t.ones(2, 3), out=t.empty(4)),
}


@pytest.mark.parametrize("name", WARNS)
def test_warnings(name):
    counts = []
    for lib in (torch, fb):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            WARNS[name](lib)
        counts.append([str(w.message)[:50] for w in said])
    assert counts[0] == counts[1] and counts[0]


# ---- integrals -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["trapezoid", "cumulative_trapezoid"])
@pytest.mark.parametrize("how", [
    lambda t: {"dx": 1 + 1j}, lambda t: {"dx": True}, lambda t: {"dx": 3}, lambda t: {"x": 2.0},
    lambda t: {"x": t.arange(4.0), "dx": 3}, lambda t: {"x": t.arange(4.0)}, lambda t: {"x": t.arange(2.0)}])
def test_points_or_their_distance(name, how):
    same(lambda t: getattr(t, name)(x(t), **how(t)))
