"""Pooling and padding against PyTorch where numbers are infinite, and where windows hold little or nothing.

An element gets the gradients of the windows that hold it and of no others: zero times infinity must not come in.
"""
import itertools
import random
import warnings

import numpy as np
import pytest
import torch

import flambeau

SPECIAL = [np.inf, -np.inf, np.nan]


def pooling(pick, n):
    size = pick.randrange(1, 4)
    args = dict(kernel_size=size, stride=pick.randrange(1, 6), padding=pick.randrange(size // 2 + 1),
                ceil_mode=pick.random() < 0.4)
    if pick.random() < 0.5:
        return f"avg_pool{n}d", (), args | dict(count_include_pad=pick.random() < 0.5)
    return f"max_pool{n}d", (), args | dict(dilation=pick.randrange(1, 4))


def adaptive(pick, n): return f"adaptive_{pick.choice(['avg', 'max'])}_pool{n}d", (pick.randrange(1, 9),), {}
def powers(pick, n):   return f"lp_pool{n}d", (2.0, pick.randrange(1, 3), pick.randrange(1, 5)), {}
def area(pick, n):     return "interpolate", ([pick.randrange(1, 9) for _ in range(n)],), dict(mode="area")
def nearest(pick, n):  return "interpolate", ([pick.randrange(1, 9) for _ in range(n)],), {}


def padding(pick, n):
    mode = pick.choice(["reflect", "replicate", "circular", "constant"])
    return "pad", ([pick.randrange(2) for _ in range(2 * n)], mode), {}


def call(lib, seed):
    """What a random call gives, and the gradient of its input for an incoming one with an infinity or a nan in it."""
    pick = random.Random(seed)
    n = pick.randrange(1, 4)
    name, args, kwargs = pick.choice([pooling, pooling, adaptive, powers, area, nearest, padding])(pick, n)
    shape = (pick.randrange(1, 3), 2, *[pick.randrange(3, 8) for _ in range(n)])

    def numbers(shape, special):
        made = np.array([pick.gauss(0, 1) for _ in range(int(np.prod(shape)))], np.float32)
        if special:
            made[pick.randrange(made.size)] = pick.choice(SPECIAL)
        return lib.tensor(made.reshape(shape))

    x = numbers(shape, seed % 2).requires_grad_()
    try:
        y = getattr(lib.nn.functional, name)(x, *args, **kwargs)
    except Exception as error:
        return type(error).__name__, (name, shape, args, kwargs)
    y.backward(numbers(tuple(y.shape), True))
    return (y.detach().numpy(), x.grad.numpy()), (name, shape, args, kwargs)


@pytest.mark.parametrize("executor", ["reference", "native"])
@pytest.mark.parametrize("seed", range(0, 240, 20))
def test_infinities_stay_in_their_windows(seed, executor):
    for each in range(seed, seed + 20):
        want, what = call(torch, each)
        with flambeau.config.using(executor=executor):
            got, _ = call(flambeau, each)
        assert isinstance(got, str) == isinstance(want, str), (what, got, want)
        if isinstance(want, str):
            assert got == want, what
            continue
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-4, err_msg=str(what))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_windows_of_padding_only(n):
    """Dilation can spread a window over padding alone: its largest is minus infinity, and no element gets its
    gradient. PyTorch's index points behind the image; ours says -1."""
    empty = 0
    every = itertools.product((1, 2, 4), (1, 2, 3), (1, 2), (1, 2, 3), (False, True))
    for size, k, stride, dilation, ceil_mode in every:
        for padding in range((k - 1) * dilation // 2 + 1):
            found = []
            for lib in (torch, flambeau):
                x = lib.arange(-3.0, size**n - 3).reshape(1, 1, *[size] * n).requires_grad_()
                pool = getattr(lib.nn.functional, f"max_pool{n}d")
                try:
                    y = pool(x, k, stride, padding, dilation, ceil_mode)
                except RuntimeError:
                    found.append("refused")
                    continue
                grads = None
                if lib is flambeau or not y.isinf().any():          # PyTorch's backward would write behind the image
                    y.sum().backward()
                    grads = x.grad.tolist()
                found.append((y.tolist(), grads))
            want, got = found
            if want == "refused" or got == "refused":
                assert got == want, (size, k, stride, padding, dilation)
                continue
            assert got[0] == want[0], (size, k, stride, padding, dilation)
            if want[1] is None:
                empty += 1
                assert sum(np.ravel(got[1])) == np.isfinite(got[0]).sum()
            else:
                assert got[1] == want[1], (size, k, stride, padding, dilation)
    assert empty


def test_indices_of_whole_numbers():
    for lib in (torch, flambeau):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = lib.tensor([[[3, 1, 4, 1]]])
            values, places = lib.nn.functional.max_pool1d(x, 2, return_indices=True)
            assert (values.tolist(), places.tolist()) == ([[[3, 4]]], [[[0, 2]]])
            with pytest.raises(NotImplementedError):
                lib.nn.functional.max_pool1d(x, 2)
