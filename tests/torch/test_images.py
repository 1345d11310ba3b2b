"""Convolution, pooling and resampling where PyTorch's OpInfo has no samples: old and rare functions, bytes, layouts."""
import itertools
import warnings

import numpy as np
import pytest

import flambeau as fb

torch = pytest.importorskip("torch")
F, G = torch.nn.functional, fb.nn.functional


def compare(name, *args, **kwargs):
    """The function `name` and its first two derivatives in both libraries, from the same numbers."""
    theirs = [a.clone().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in args]
    mine = [fb.tensor(a.detach().numpy()).requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
            for a in theirs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, got = getattr(F, name)(*theirs, **kwargs), getattr(G, name)(*mine, **kwargs)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-10, atol=1e-10)
    assert tuple(got.stride()) == want.stride()
    if not want.requires_grad:
        return
    assert got.grad_fn.name() == want.grad_fn.name()
    seed = torch.randn(want.shape, dtype=want.dtype).requires_grad_()
    mine_seed = fb.tensor(seed.detach().numpy()).requires_grad_()
    leaves = [[a for a in side if getattr(a, "requires_grad", False)] for side in (theirs, mine)]
    first = (torch.autograd.grad(want, leaves[0], seed, create_graph=True),
             fb.autograd.grad(got, leaves[1], mine_seed, create_graph=True))
    for a, b in zip(first[1], first[0], strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9)
    second = (torch.autograd.grad([g.square().sum() for g in first[0]], seed),
              fb.autograd.grad([g.square().sum() for g in first[1]], mine_seed))
    np.testing.assert_allclose(second[1][0].numpy(), second[0][0].numpy(), rtol=1e-9, atol=1e-9)


def numbers(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", [
    ("fold", (2, 12, 12), (4, 5), 2),
    ("fold", (18, 6), (5, 4), 3, 1, 0),
    ("fold", (2, 8, 9), (5, 5), 2, 2, 1, 2),
    ("lp_pool1d", (2, 3, 9), 2, 3),
    ("lp_pool2d", (2, 3, 7, 8), 3.0, (2, 3), 2, True),
    ("lp_pool3d", (2, 3, 4, 4, 4), 2, 2),
    ("affine_grid", (2, 2, 3), (2, 1, 4, 5), False),
    ("affine_grid", (2, 3, 4), (2, 1, 3, 1, 5), True),
    ("pixel_shuffle", (2, 8, 3, 2), 2),
    ("channel_shuffle", (2, 6, 3), 3),
    ("pad", (2, 3, 4, 5), (1, -1, 2, 0), "reflect"),
    ("pad", (3, 4, 5), (1, -1), "constant", 2.5),
], ids=str)
def test_rare_functions(case):
    name, shape, *args = case
    x = numbers(*shape)
    compare(name, x.abs() if name.startswith("lp") else x, *args)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(5, 4), (20, 9), (7, 30)])
def test_antialias(mode, size):
    compare("interpolate", numbers(2, 3, 12, 9), size, mode=mode, antialias=True)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("mode, how", [("bilinear", {}), ("bicubic", {}), ("bilinear", {"antialias": True}),
                                       ("bicubic", {"antialias": True}), ("bicubic", {"align_corners": True}),
                                       ("nearest", {}), ("nearest-exact", {})])
def test_bytes(channels, mode, how):
    image = torch.randint(0, 256, (2, channels, 37, 23), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for size in ((11, 9), (60, 41), (37, 8)):
        compare("interpolate", image, size, mode=mode, **how)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_nearest_by_scales_that_are_no_ratio_of_sizes(mode, n):
    """But for images PyTorch's gradient is not always that of its result, so ours is not compared there."""
    for size, scale in itertools.product(range(1, 7), (0.6, 0.9, 1.3, 1.9, 2.2, 2.3, 2.5)):
        x, how = numbers(1, 2, *[2] * (n - 1), size), dict(scale_factor=(1.0,) * (n - 1) + (scale,), mode=mode)
        if n == 2 and int(size * scale):
            compare("interpolate", x, **how)
        elif int(size * scale):
            np.testing.assert_array_equal(G.interpolate(fb.tensor(x.numpy()), **how).numpy(), F.interpolate(x, **how))


@pytest.mark.parametrize("transposed", [False, True])
def test_output_padding_beyond_the_stride(transposed):
    """Allowed where it stays below the dilation; its gradients then read fewer windows than there are."""
    x, w = numbers(1, 2, 4, 3), numbers(2, 2, 3, 2)
    if transposed:
        compare("conv_transpose2d", x, w, None, 1, 1, (2, 1), 1, 3)
    else:
        compare("conv2d", x, w, None, 3, 2, 2)


def test_channels_last_stays():
    x = numbers(2, 4, 8, 8, dtype=torch.float32).to(memory_format=torch.channels_last)
    mine = fb.tensor(x.numpy()).to(memory_format=fb.channels_last)
    w = numbers(4, 4, 3, 3, dtype=torch.float32)
    for name, args in (("conv2d", (w,)), ("max_pool2d", (2,)), ("avg_pool2d", (2,)), ("adaptive_avg_pool2d", (3,)),
                       ("interpolate", (5,)), ("pad", ((1, 1),)), ("pixel_shuffle", (2,)), ("channel_shuffle", (2,))):
        want = getattr(F, name)(x, *args)
        got = getattr(G, name)(mine, *[fb.tensor(a.numpy()) if isinstance(a, torch.Tensor) else a for a in args])
        steps = [[step for step, size in zip(t.stride(), t.shape) if size > 1] for t in (got, want)]
        assert steps[0] == steps[1], name


@pytest.mark.parametrize("name, args, words", [
    ("conv2d", ((1, 3, 4, 4), (4, 2, 3, 3)), "expected input[1, 3, 4, 4] to have 2 channels, but got 3 channels"),
    ("conv2d", ((1, 3, 4, 4), (4, 3, 5, 5)), "Kernel size can't be greater than actual input size"),
    ("max_pool2d", ((1, 3, 4, 4), 7), "Output size is too small"),
    ("avg_pool2d", ((1, 3, 4, 4), 2, 2, 2), "pad should be at most half of effective kernel size"),
    ("pad", ((1, 3, 4, 4), (4, 0, 0, 0), "reflect"), "Padding size should be less than the corresponding input"),
    ("pixel_shuffle", ((1, 3, 4, 4), 2), "divisible by the square of upscale_factor"),
])
def test_words(name, args, words):
    """A refusal holds PyTorch's words, and then the call."""
    for lib, functions in ((torch, F), (fb, G)):
        made = [lib.zeros(a) if isinstance(a, tuple) and len(a) == 4 and a[1] in (2, 3) else a for a in args]
        with pytest.raises(RuntimeError) as refused:
            getattr(functions, name)(*made)
        assert words in str(refused.value)
    assert f"in {name}(" in str(refused.value)
