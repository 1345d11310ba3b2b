"""Convolution, pooling, padding, normalisation and resampling layers, held against NumPy and SciPy."""
import itertools
import math

import numpy as np
import pytest
from scipy import spatial

import flambeau as torch
from flambeau import nn
from flambeau.autograd import gradcheck
from flambeau.trace.recording.record import current

random = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same ones, whichever ran before."""
    global random
    random = np.random.default_rng(0)
    torch.manual_seed(0)


def numbers(*shape):
    return torch.tensor(random.normal(size=shape), dtype=torch.float64)


def close(got, want, tolerance=1e-9):
    got = got.detach().numpy() if isinstance(got, torch.Tensor) else got
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else want
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


# --- convolution ------------------------------------------------------------------------------------------------------


def correlated(x, w, b, stride, dilation, groups):
    """The convolution, window by window."""
    n = w.ndim - 2
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:])]
    size = [(s - r) // t + 1 for s, r, t in zip(x.shape[2:], reach, stride)]
    out = np.empty((x.shape[0], w.shape[0], *size))
    each_in, each_out = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*map(range, size)):
        window = x[(slice(None), slice(None), *[slice(p * t, p * t + r, d) for p, t, r, d
                                                in zip(place, stride, reach, dilation)])]
        for o in range(w.shape[0]):
            start = o // each_out * each_in
            seen = window[:, start:start + each_in]
            out[(slice(None), o, *place)] = (seen * w[o]).sum(tuple(range(1, n + 2))) + b[o]
    return out


CONVOLUTIONS = [
    (nn.Conv1d, (9,), {"kernel_size": 3}),
    (nn.Conv1d, (9,), {"kernel_size": 2, "stride": 3, "padding": 2, "dilation": 2, "groups": 2}),
    (nn.Conv2d, (5, 6), {"kernel_size": (3, 2)}),
    (nn.Conv2d, (5, 6), {"kernel_size": 3, "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 4}),
    (nn.Conv3d, (3, 4, 3), {"kernel_size": 2, "stride": (1, 2, 1), "padding": 1, "groups": 2}),
]


@pytest.mark.parametrize("kind, size, how", CONVOLUTIONS, ids=str)
def test_convolution_is_a_sum_over_windows(kind, size, how):
    layer, x = kind(4, 8, dtype=torch.float64, **how), numbers(2, 4, *size)
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), *[(p, p) for p in layer.padding]))
    want = correlated(padded, layer.weight.detach().numpy(), layer.bias.detach().numpy(), layer.stride, layer.dilation,
                      layer.groups)
    close(layer(x), want)
    close(layer(x[0]), want[0])


@pytest.mark.parametrize("kind, size, how", CONVOLUTIONS, ids=str)
def test_transposed_convolution_is_the_adjoint(kind, size, how):
    """<conv(x), y> = <x, convT(y)> with one weight."""
    layer = kind(4, 8, bias=False, dtype=torch.float64, **how)
    other = getattr(nn, kind.__name__.replace("Conv", "ConvTranspose"))(8, 4, bias=False, dtype=torch.float64, **how)
    other.load_state_dict(layer.state_dict())
    x = numbers(2, 4, *size)
    out = layer(x)
    y = numbers(*out.shape)
    close((out * y).sum(), (x * other(y, output_size=x.shape)).sum())


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
                                  nn.ConvTranspose3d])
def test_initial_weights(kind):
    """Uniform within one over the square root of the fan-in: the second dimension times the kernel."""
    torch.manual_seed(0)
    layer = kind(8, 40, 3)
    bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
    for held in layer.parameters():
        assert held.abs().max() <= bound
    flat = layer.weight.detach().numpy().ravel() / bound
    assert abs(flat.mean()) < 0.1 and abs(flat.var() - 1 / 3) < 0.05
    again = kind(8, 40, 3)
    assert not torch.equal(layer.weight, again.weight)
    torch.manual_seed(0)
    assert torch.equal(kind(8, 40, 3).bias, layer.bias)


@pytest.mark.parametrize("mode, word", [("zeros", "constant"), ("reflect", "reflect"), ("replicate", "edge"),
                                        ("circular", "wrap")])
def test_padding_modes(mode, word):
    layer = nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode=mode, dtype=torch.float64)
    plain = nn.Conv2d(2, 3, 3, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    x = numbers(2, 2, 5, 4)
    close(layer(x), plain(torch.tensor(np.pad(x.numpy(), ((0, 0), (0, 0), (2, 2), (1, 1)), mode=word))))


@pytest.mark.parametrize("kernel, dilation", [(3, 1), (4, 1), (4, 3), (1, 1), (5, 2)])
def test_same_padding(kernel, dilation):
    """As long as the input; an odd rest goes behind it."""
    layer = nn.Conv1d(2, 3, kernel, padding="same", dilation=dilation, dtype=torch.float64)
    plain = nn.Conv1d(2, 3, kernel, dilation=dilation, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    x, total = numbers(2, 2, 15), dilation * (kernel - 1)
    before = np.pad(x.numpy(), ((0, 0), (0, 0), (total // 2, total - total // 2)))
    assert layer(x).shape == (2, 3, 15)
    close(layer(x), plain(torch.tensor(before)))


def test_sizes_of_transposed_convolution():
    layer, x = nn.ConvTranspose2d(2, 3, 3, stride=(2, 3), padding=1), torch.zeros(1, 2, 4, 4)
    assert layer(x).shape == (1, 3, 7, 10)
    for wanted in itertools.product((7, 8), (10, 11, 12)):
        assert layer(x, output_size=wanted).shape == (1, 3, *wanted)
        assert layer(x[0], output_size=(3, *wanted)).shape == (3, *wanted)
    with pytest.raises(ValueError, match=r"output size of \[9, 10\].* \[7, 10\] to \[8, 12\]"):
        layer(x, output_size=(9, 10))


def test_a_lazy_layer_becomes_an_ordinary_one():
    layer = nn.LazyConv2d(6, 3, groups=2)
    assert "Uninitialized" in repr(layer.weight)
    out = layer(torch.zeros(1, 4, 5, 5))
    assert type(layer) is nn.Conv2d and layer.weight.shape == (6, 2, 3, 3) and out.shape == (1, 6, 3, 3)
    assert layer.in_channels == 4
    with pytest.raises(RuntimeError, match="4 channels"):
        layer(torch.zeros(1, 6, 5, 5))


# --- pooling ----------------------------------------------------------------------------------------------------------


def blocks(x, kernel, stride):
    """[N, C, *places, *kernel]: the windows."""
    n = len(kernel)
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, tuple(range(2, n + 2)))
    return seen[(slice(None), slice(None), *[slice(None, None, s) for s in stride])]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pooling(n):
    x, kernel, stride = numbers(2, 3, *(5, 6, 4)[:n]), (2, 3, 2)[:n], (2, 1, 1)[:n]
    seen = blocks(x.numpy(), kernel, stride)
    over = tuple(range(-n, 0))
    close(getattr(nn, f"MaxPool{n}d")(kernel, stride)(x), seen.max(over))
    close(getattr(nn, f"AvgPool{n}d")(kernel, stride)(x), seen.mean(over))
    close(getattr(nn, f"LPPool{n}d")(3, kernel, stride)(x.abs()), (np.abs(seen) ** 3).sum(over) ** (1 / 3))


def test_mean_over_padding():
    x = torch.ones(1, 1, 3, dtype=torch.float64)
    close(nn.AvgPool1d(3, 1, 1)(x), [[[2 / 3, 1, 2 / 3]]])
    close(nn.AvgPool1d(3, 1, 1, count_include_pad=False)(x), [[[1, 1, 1]]])
    close(nn.AvgPool2d((1, 3), divisor_override=2)(x), [[[1.5]]])


@pytest.mark.parametrize("n, sizes", [(1, (3,)), (2, (2, 4)), (2, (None, 3)), (3, (2, 1, 3))])
def test_adaptive_windows(n, sizes):
    """Window i of m over s elements runs from floor(i s / m) to ceil((i + 1) s / m)."""
    x = numbers(2, 3, *(5, 7, 4)[:n])
    sizes = tuple([s or full for s, full in zip(sizes, x.shape[2:])])
    wide, mean = np.empty((2, 3, *sizes)), np.empty((2, 3, *sizes))
    for place in itertools.product(*map(range, sizes)):
        at = (..., *[slice(i * s // m, -(-(i + 1) * s // m)) for i, s, m in zip(place, x.shape[2:], sizes)])
        wide[(..., *place)] = x.numpy()[at].max(tuple(range(-n, 0)))
        mean[(..., *place)] = x.numpy()[at].mean(tuple(range(-n, 0)))
    close(getattr(nn, f"AdaptiveMaxPool{n}d")(sizes)(x), wide)
    close(getattr(nn, f"AdaptiveAvgPool{n}d")(sizes)(x), mean)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_puts_elements_back(n):
    x = numbers(2, 3, *(6,) * n)
    values, places = getattr(nn, f"MaxPool{n}d")(2, return_indices=True)(x)
    back = getattr(nn, f"MaxUnpool{n}d")(2)(values, places)
    kept = back != 0
    assert back.shape == x.shape and kept.sum() == values.numel()
    assert torch.equal(back[kept], x[kept])
    close(torch.gather(x.flatten(2), 2, places.flatten(2)), values.flatten(2))


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_windows(n):
    """Each result is the largest of the window that its plane's sample places; the last window ends with the input."""
    size, out, kernel = (7, 9, 8)[:n], (4, 5, 3)[:n], (2, 3, 2)[:n]
    x, samples = numbers(2, 3, *size), torch.tensor(random.uniform(size=(2, 3, n)))
    layer = getattr(nn, f"FractionalMaxPool{n}d")(kernel, out, return_indices=True, _random_samples=samples)
    values, places = layer(x)
    close(torch.gather(x.flatten(2), 2, places.flatten(2)), values.flatten(2), 0)
    order = (1, 0) if n == 2 else (0, 1, 2)          # over two dimensions the first sample is for the width
    for b, c in itertools.product(range(2), range(3)):
        starts = []
        for d in range(n):
            u, alpha = float(samples[b, c, order[d]]), (size[d] - kernel[d]) / (out[d] - 1)
            starts.append([int((i + u) * alpha) - int(u * alpha) for i in range(out[d] - 1)] + [size[d] - kernel[d]])
        for place in itertools.product(*map(range, out)):
            at = tuple([slice(starts[d][p], starts[d][p] + kernel[d]) for d, p in enumerate(place)])
            assert values[(b, c, *place)] == x[b, c].numpy()[at].max()


def test_fractional_sizes_are_drawn_from_the_seed():
    layer, x = nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0.7)), numbers(1, 2, 10, 10)
    torch.manual_seed(0)
    first = layer(x)
    assert first.shape == (1, 2, 5, 7)
    assert any(not torch.equal(first, layer(x)) for _ in range(5))
    torch.manual_seed(0)
    assert torch.equal(first, layer(x))


# --- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name, mode", [("Zero", "constant"), ("Reflection", "reflect"), ("Replication", "edge"),
                                        ("Circular", "wrap")])
def test_padding(n, name, mode):
    x, sides = numbers(2, 3, *(4, 3, 5)[:n]), (1, 2, 0, 1, 2, 0)[:2 * n]
    pairs = [(sides[2 * d], sides[2 * d + 1]) for d in reversed(range(n))]          # the last dimension comes first
    layer = getattr(nn, f"{name}Pad{n}d")
    close(layer(sides)(x), np.pad(x.numpy(), [(0, 0), (0, 0), *pairs], mode=mode))
    close(layer(1)(x), layer((1,) * 2 * n)(x))


def test_constant_padding():
    x = numbers(2, 3, 4)
    close(nn.ConstantPad1d((1, 2), 7)(x), np.pad(x.numpy(), ((0, 0), (0, 0), (1, 2)), constant_values=7))
    close(nn.ConstantPad2d((-1, -1, 1, 0), -3)(x), np.pad(x.numpy(), ((0, 0), (1, 0), (0, 0)),
                                                          constant_values=-3)[..., 1:-1])


# --- normalisation ----------------------------------------------------------------------------------------------------


def standard(x, over, eps=1e-5):
    return (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + eps)


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 3)])
def test_batch_norm(shape):
    layer = getattr(nn, f"BatchNorm{max(len(shape) - 2, 1)}d")(3, dtype=torch.float64)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    x, lay = numbers(*shape), (1, 3, *[1] * (len(shape) - 2))
    over = (0, *range(2, len(shape)))
    w, b = (p.detach().numpy().reshape(lay) for p in (layer.weight, layer.bias))
    close(layer(x), standard(x.numpy(), over) * w + b)
    close(layer.running_mean, 0.1 * x.numpy().mean(over))
    close(layer.running_var, 0.9 + 0.1 * x.numpy().var(over, ddof=1))
    assert layer.num_batches_tracked == 1
    layer.eval()
    mean, var = (s.numpy().reshape(lay) for s in (layer.running_mean, layer.running_var))
    close(layer(x), (x.numpy() - mean) / np.sqrt(var + 1e-5) * w + b)
    assert layer.num_batches_tracked == 1


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_cumulative_average(dtype, tolerance):
    """Without a momentum, the running statistics are the plain means of those of the batches."""
    layer, batches = nn.BatchNorm1d(3, momentum=None, dtype=dtype), random.normal(size=(5, 7, 3))
    for batch in batches:
        layer(torch.tensor(batch, dtype=dtype))
    close(layer.running_mean, batches.mean((0, 1)), tolerance)
    close(layer.running_var, batches.var(1, ddof=1).mean(0), tolerance)
    layer.reset_running_stats()
    assert layer.num_batches_tracked == 0
    close(layer.running_var, np.ones(3))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_looks_at_no_value(momentum):
    layer, x = nn.BatchNorm1d(3, momentum=momentum), torch.randn(5, 3)
    current().run()
    layer(x).sum().backward()
    assert len(str(current()).splitlines()) > 3                  # recorded, and not run
    assert layer.num_batches_tracked == 1
    assert not str(current())


def test_statistics_that_are_not_tracked():
    layer, x = nn.BatchNorm1d(3, track_running_stats=False), torch.randn(5, 3)
    assert layer.running_mean is None and list(layer.state_dict()) == ["weight", "bias"]
    trained = layer(x)
    close(layer.eval()(x), trained, 1e-5)


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 3, 4)])
def test_norms_of_samples(shape):
    x, n = numbers(*shape), len(shape) - 2
    inner = tuple(range(2, len(shape)))
    close(getattr(nn, f"InstanceNorm{n}d")(6)(x), standard(x.numpy(), inner))
    close(nn.GroupNorm(6, 6, dtype=torch.float64)(x), standard(x.numpy(), inner))
    close(nn.GroupNorm(1, 6, dtype=torch.float64)(x), standard(x.numpy(), (1, *inner)))
    close(nn.LayerNorm(shape[1:], dtype=torch.float64)(x), standard(x.numpy(), (1, *inner)))
    pairs = x.numpy().reshape(2, 3, 2, *shape[2:])
    close(nn.GroupNorm(3, 6, dtype=torch.float64)(x), standard(pairs, tuple(range(2, len(shape) + 1))).reshape(shape))
    square = (x.numpy() ** 2).mean(-1, keepdims=True)
    close(nn.RMSNorm(shape[-1], eps=0.1, dtype=torch.float64)(x), x.numpy() / np.sqrt(square + 0.1))
    exact = nn.RMSNorm(shape[-1], elementwise_affine=False)(x)
    close(exact, x.numpy() / np.sqrt(square + np.finfo(np.float64).eps))


def test_instance_norm_tracks_means_over_samples():
    layer, x = nn.InstanceNorm1d(3, track_running_stats=True, dtype=torch.float64), numbers(4, 3, 5)
    layer(x)
    close(layer.running_mean, 0.1 * x.numpy().mean((0, 2)))
    close(layer.running_var, 0.9 + 0.1 * x.numpy().var(2, ddof=1).mean(0))
    lay = (1, 3, 1)
    mean, var = layer.running_mean.numpy().reshape(lay), layer.running_var.numpy().reshape(lay)
    close(layer.eval()(x), (x.numpy() - mean) / np.sqrt(var + 1e-5))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_local_response(size):
    x = numbers(2, 5, 3)
    padded = np.pad(x.numpy() ** 2, ((0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    mean = sum(padded[:, i:i + 5] for i in range(size)) / size
    close(nn.LocalResponseNorm(size, alpha=0.5, beta=0.6, k=2.0)(x), x.numpy() / (2 + 0.5 * mean) ** 0.6)


def test_cross_map_response():
    """With no more channels than a window reaches, all of them count for each."""
    x = numbers(2, 3, 2, 2)
    total = (x.numpy() ** 2).sum(1, keepdims=True)
    close(nn.CrossMapLRN2d(5, alpha=0.5, beta=0.6, k=2)(x), x.numpy() * (2 + 0.5 / 5 * total) ** -0.6)


def test_statistics_in_files_of_old_versions():
    """Before num_batches_tracked was kept, files did not hold it: it stays as it is."""
    layer = nn.BatchNorm1d(2)
    layer(torch.randn(3, 2))
    layer.load_state_dict({"weight": torch.ones(2), "bias": torch.ones(2), "running_mean": torch.ones(2),
                           "running_var": torch.ones(2)})
    assert layer.num_batches_tracked == 1
    state = layer.state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match='Missing key.*"num_batches_tracked"'):
        layer.load_state_dict(state)


def test_sync_batch_norm_alone_is_batch_norm():
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(made[1]) is nn.SyncBatchNorm and made[0] is net[0]
    x = torch.randn(2, 1, 3, 3)
    between = made[0](x).detach().numpy()
    close(made(x), standard(between, (0, 2, 3)), 1e-5)
    close(made[1].running_mean, 0.1 * between.mean((0, 2, 3)), 1e-5)


# --- moving elements --------------------------------------------------------------------------------------------------


def test_upsampling():
    x = numbers(1, 2, 3, 4)
    twice = x.numpy().repeat(2, 2).repeat(3, 3)
    close(nn.Upsample(scale_factor=(2, 3))(x), twice)
    close(nn.UpsamplingNearest2d(size=(6, 12))(x), twice)
    ramp = torch.arange(4.0, dtype=torch.float64).reshape(1, 1, 1, 4) + torch.zeros(1, 1, 3, 1, dtype=torch.float64)
    close(nn.UpsamplingBilinear2d(size=(5, 7))(ramp)[0, 0], np.broadcast_to(np.linspace(0, 3, 7), (5, 7)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lasts", [False, True])
def test_whole_factors_and_adjoining_windows_are_kernels(dtype, lasts):
    """Nothing is left to the reference, and nothing stands in memory between them and their neighbours."""
    f = nn.functional
    layout = torch.channels_last if lasts else torch.contiguous_format
    x = numbers(2, 3, 6, 8).to(dtype).contiguous(memory_format=layout).requires_grad_()
    with torch.config.using(executor="native"):
        y = f.avg_pool2d(f.interpolate(x * 2, scale_factor=(2, 3)) + 1, (4, 6))
        (y * y).sum().backward()
        torch.cpu.synchronize()
        assert {step.kind for step in torch.plans.last().steps} == {"kernel"}
    blocks = x.detach().numpy().reshape(2, 3, 3, 2, 4, 2)
    want = 2 * blocks.mean((3, 5)) + 1
    close(y, want, 1e-5)
    close(x.grad, (want[:, :, :, None, :, None] + np.zeros_like(blocks)).reshape(x.shape), 1e-5)


@pytest.mark.parametrize("executor", ["reference", "native"])
def test_one_tap_transposed_with_more_around_it(executor):
    """Output padding makes the result larger than what is read, though the kernel has one tap: there is the bias."""
    x, w, b = numbers(2, 4, 3, 5).requires_grad_(), numbers(4, 6, 1, 1).requires_grad_(), numbers(6).requires_grad_()
    with torch.config.using(executor=executor):
        y = nn.functional.conv_transpose2d(x, w, b, output_padding=(1, 2), dilation=3)
        g = numbers(*y.shape)
        made = torch.autograd.grad(y, (x, w, b), g)
    matrix, source, g = w.detach().numpy()[:, :, 0, 0], x.detach().numpy(), g.numpy()
    want = np.zeros((2, 6, 4, 7))
    want[:, :, :3, :5] = np.einsum("nchw,cd->ndhw", source, matrix)
    close(y, want + b.detach().numpy()[:, None, None])
    inner = g[:, :, :3, :5]
    for got, right in zip(made, (np.einsum("ndhw,cd->nchw", inner, matrix),
                                 np.einsum("nchw,ndhw->cd", source, inner)[:, :, None, None], g.sum((0, 2, 3)))):
        close(got, right)


def mean_windows(x, kernel, stride, padding, ceil, counts_padding):
    """(means over windows along the last dimension, what each element adds to each of them), window by window."""
    size = x.shape[-1]
    out = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
    if (out - 1) * stride >= size + padding:              # a window that would begin behind everything
        out -= 1
    share = np.zeros((size, out))
    for o in range(out):
        begin = o * stride - padding
        end = min(begin + kernel, size + padding)
        inside = range(max(begin, 0), min(end, size))
        share[inside, o] = 1 / (end - begin if counts_padding else len(inside))
    return x @ share, share


@pytest.mark.parametrize("size", range(1, 8))
def test_means_over_every_small_window(size):
    """Those whose windows lie side by side are other kernels: padding must not be forgotten there."""
    x = numbers(2, size).requires_grad_()
    every = itertools.product((1, 2, 3), (1, 2, 3), (0, 1), (False, True), (False, True))
    with torch.config.using(executor="native"):
        for kernel, stride, padding, ceil, counts_padding in every:
            if padding > kernel // 2 or size + 2 * padding < kernel:
                continue
            want, share = mean_windows(x.detach().numpy(), kernel, stride, padding, ceil, counts_padding)
            y = nn.functional.avg_pool1d(x, kernel, stride, padding, ceil, counts_padding)
            g = numbers(*y.shape)
            what = str((kernel, stride, padding, ceil, counts_padding))
            np.testing.assert_allclose(y.detach().numpy(), want, 1e-9, 1e-9, err_msg=what)
            np.testing.assert_allclose(torch.autograd.grad(y, x, g)[0].numpy(), g.numpy() @ share.T, 1e-9, 1e-9,
                                       err_msg=what)


def test_shuffles():
    x = numbers(2, 12, 3, 2)
    big = nn.PixelShuffle(2)(x)
    want = x.numpy().reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 6, 4)
    close(big, want, 0)
    assert torch.equal(nn.PixelUnshuffle(2)(big), x)
    dealt = nn.ChannelShuffle(3)(x)
    close(dealt, x.numpy().reshape(2, 3, 4, 3, 2).swapaxes(1, 2).reshape(x.shape), 0)
    assert torch.equal(nn.ChannelShuffle(4)(dealt), x)


def test_fold_adds_up_what_unfold_laid_out():
    x, how = numbers(2, 3, 5, 6), {"dilation": (1, 2), "padding": 1, "stride": (2, 1)}
    columns = nn.Unfold((2, 3), **how)(x)
    cover = nn.Fold((5, 6), (2, 3), **how)(nn.Unfold((2, 3), **how)(torch.ones_like(x)))
    close(nn.Fold((5, 6), (2, 3), **how)(columns), x * cover)
    windows = blocks(x.numpy(), (2, 3), (1, 1))                     # [N, C, 4, 4, 2, 3]
    close(nn.Unfold((2, 3))(x), windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, 16), 0)


def test_distances():
    a, b = numbers(4, 5), numbers(4, 5)
    for p in (1, 2, 3):
        far = [spatial.distance.minkowski(u + 1e-6, v, p) for u, v in zip(a.numpy(), b.numpy())]
        close(nn.PairwiseDistance(p)(a, b), far)
        close(nn.functional.pdist(a, p), spatial.distance.pdist(a.numpy(), "minkowski", p=p))
    cosine = [1 - spatial.distance.cosine(u, v) for u, v in zip(a.numpy(), b.numpy())]
    close(nn.CosineSimilarity()(a, b), cosine)
    close(torch.pdist(a, float("inf")), spatial.distance.pdist(a.numpy(), "chebyshev"))
    close(torch.pdist(a, 0), spatial.distance.pdist(a.numpy(), "hamming") * 5)


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer, shape", [
    (nn.Conv2d(2, 2, 2, stride=2, padding=1, padding_mode="circular"), (1, 2, 3, 3)),
    (nn.ConvTranspose1d(2, 2, 3, stride=2, output_padding=1), (1, 2, 3)),
    (nn.BatchNorm1d(2), (4, 2)), (nn.BatchNorm1d(2).eval(), (4, 2)), (nn.InstanceNorm1d(2, affine=True), (2, 2, 3)),
    (nn.GroupNorm(2, 4), (2, 4, 2)), (nn.LayerNorm((2, 3)), (2, 2, 3)), (nn.RMSNorm(3), (2, 3)),
    (nn.CrossMapLRN2d(3, alpha=0.5), (1, 4, 1, 2)), (nn.LocalResponseNorm(2, alpha=0.5), (1, 3, 2)),
    (nn.LPPool1d(3, 2), (1, 2, 4)), (nn.AdaptiveAvgPool2d((2, 1)), (1, 3, 3)), (nn.MaxPool2d(2, 1), (1, 1, 3, 3)),
    (nn.FractionalMaxPool2d(2, 2, _random_samples=torch.full((1, 1, 2), 0.5)), (1, 1, 4, 4)),
    (nn.ReflectionPad1d(1), (1, 3)), (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 1, 2, 2)),
], ids=str)
def test_derivatives(layer, shape):
    """For the input and the parameters, against differences."""
    layer, x = layer.double(), numbers(*shape).abs().requires_grad_()
    held = dict(layer.named_parameters())

    def call(x, *params):
        layer._parameters.update(zip(held, params, strict=True))
        return layer(x)
    assert gradcheck(call, (x, *held.values()))


def test_derivative_of_distances():
    rows = numbers(4, 3).requires_grad_()
    for p in (1.5, 2.0, 3.0):
        assert gradcheck(lambda x, p=p: torch.pdist(x, p), (rows,))
