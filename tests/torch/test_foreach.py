"""`torch._foreach_*`: every name PyTorch has, with every kind of second argument, in place and not; and gradients."""
import numpy as np
import pytest
import torch

import flambeau
from flambeau.tensor import foreach

NAMES = sorted(name for name in dir(torch) if name.startswith("_foreach_"))


def test_all_names_are_here():
    assert sorted(foreach.FOREACH_NAMES) == NAMES and all(hasattr(flambeau, name) for name in NAMES)


def lists(m, dtype="float64"):
    draw = np.random.default_rng(0)
    return [m.tensor(draw.uniform(0.1, 0.9, shape)).to(getattr(m, dtype)) for shape in ((2, 3), (4,), (), (2, 0))]


def square(m):
    draw = np.random.default_rng(1)
    return [m.tensor(draw.uniform(0.1, 0.9, (2, 2))) for _ in range(4)]


def arguments(m, name):
    """What may follow the list."""
    base = name.removeprefix("_foreach_").rstrip("_")
    others = [x * 0.5 + 0.3 for x in lists(m)]
    numbers = [0.5, 1.5, 2.0, 3.0]
    if base in foreach.UNARY_FUNCTIONS or base in ("zero", "clone"):
        yield (), {}
    elif base in foreach.BINARY_OVERLOADS:
        yield (others,), {}
        yield (0.7,), {}
        yield (numbers,), {}
        if base in ("add", "mul", "div"):
            yield (m.tensor(2.0, dtype=m.float64),), {}
        if base in ("add", "sub"):
            yield (others,), {"alpha": 3}
    elif base in foreach.TERNARY_FUNCTIONS:
        yield (others, others), {}
        yield (others, others), {"value": 0.5}
        yield (others, others, numbers), {}
        yield (others, others, m.tensor(numbers, dtype=m.float64)), {}
    elif base == "lerp":
        yield (others, 0.3), {}
        yield (others, numbers), {}
        yield (others, others), {}
    elif base == "copy":
        yield (others,), {}
    elif base == "mm":
        yield (square(m),), {}
    elif base == "max":
        yield (), {}
    else:
        yield (), {}
        yield (1,), {}
        yield (3,), {"dtype": m.float64}


@pytest.mark.parametrize("name", NAMES)
def test_values_and_what_is_returned(name):
    cases = len(list(arguments(torch, name)))
    for case in range(cases):
        found = []
        for m in (flambeau, torch):
            xs = square(m) if name == "_foreach_mm" else lists(m)
            if name in ("_foreach_max",):
                xs = xs[:3]
            args, kwargs = list(arguments(m, name))[case]
            made = getattr(m, name)(xs, *args, **kwargs)
            assert (made is xs) == name.endswith("_")
            found.append((type(made), made))
        assert found[0][0] is found[1][0]
        for ours, theirs in zip(found[0][1], found[1][1], strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-12)


def test_a_number_to_the_power_of_each():
    ours, theirs = (m._foreach_pow(2.0, lists(m)) for m in (flambeau, torch))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", ["_foreach_add", "_foreach_addcdiv", "_foreach_sqrt", "_foreach_norm",
                                  "_foreach_lerp"])
def test_gradients(name):
    grads = []
    for m in (flambeau, torch):
        xs = [x.requires_grad_() for x in lists(m)]
        args, kwargs = next(iter(arguments(m, name)))
        sum(made.sum() for made in getattr(m, name)(xs, *args, **kwargs)).backward()
        grads.append([x.grad.numpy() for x in xs])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


REFUSED = [
    lambda m, xs: m._foreach_add(xs, xs[:1]), lambda m, xs: m._foreach_add([], 1), lambda m, xs: m._foreach_add(xs,
                                                                                                                [1.0]),
    lambda m, xs: m._foreach_add(xs, m.ones(2)), lambda m, xs: m._foreach_addcmul(xs, xs, xs, [1.0]),
    lambda m, xs: m._foreach_add([1.0], 1), lambda m, xs: m._foreach_sqrt(xs, 1),
    lambda m, xs: m._foreach_div_([m.ones(2, dtype=m.int64)], 2), lambda m, xs: m._foreach_add(m.ones(2), 1),
]


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_refusals(at):
    kinds = []
    for m in (flambeau, torch):
        with pytest.raises(Exception) as caught:
            REFUSED[at](m, lists(m))
        kinds.append((caught.type, str(caught.value)[:40] if caught.type is RuntimeError else ""))
    assert kinds[0] == kinds[1]
