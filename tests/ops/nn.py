"""Convolutions, pools, resampling, activations, attention, normalisation, against loops that follow the definitions."""
import itertools

import numpy as np

import flambeau as torch

from .rows import numbers, row

F = torch.nn.functional


def tup(n, k):
    return (n,) * k if np.isscalar(n) else tuple(n)


# --- convolutions ---------------------------------------------------------------------------------------------------------


def conv(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    """out[n, o, i] = b[o] + sum over c, k of x[n, c, i·stride - padding + k·dilation] w[o, c, k]."""
    nd = x.ndim - 2
    stride, padding, dilation = tup(stride, nd), tup(padding, nd), tup(dilation, nd)
    x = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    size = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation)]
    out = np.zeros((len(x), len(w), *size))
    per_in, per_out = w.shape[1], len(w) // groups
    for g in range(groups):
        xs, ws = x[:, g * per_in:(g + 1) * per_in], w[g * per_out:(g + 1) * per_out]
        for at in np.ndindex(*size):
            window = xs[(slice(None), slice(None), *[slice(i * s, i * s + d * (k - 1) + 1, d) for i, s, d, k in
                                                    zip(at, stride, dilation, w.shape[2:])])]
            out[(slice(None), slice(g * per_out, (g + 1) * per_out), *at)] = np.tensordot(window, ws, (range(1, nd + 2), range(1, nd + 2)))
    return out if b is None else out + b.reshape(1, -1, *[1] * nd)


def conv_transpose(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Each x[n, c, i] is spread over the places i·stride - padding + k·dilation with the weights w[c, o, k]."""
    nd = x.ndim - 2
    stride, padding, extra, dilation = (tup(v, nd) for v in (stride, padding, output_padding, dilation))
    kernel = w.shape[2:]
    full = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(x.shape[2:], stride, dilation, kernel, extra)]
    out = np.zeros((len(x), w.shape[1] * groups, *full))
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    for g in range(groups):
        for at in np.ndindex(*x.shape[2:]):
            values = x[(slice(None), slice(g * per_in, (g + 1) * per_in), *at)]
            window = tuple(slice(i * s, i * s + d * (k - 1) + 1, d) for i, s, d, k in zip(at, stride, dilation, kernel))
            out[(slice(None), slice(g * per_out, (g + 1) * per_out), *window)] += np.tensordot(values, w[g * per_in:(g + 1) * per_in], 1)
    out = out[(slice(None), slice(None), *[slice(p, n - p) for p, n in zip(padding, full)])]
    return out if b is None else out + b.reshape(1, -1, *[1] * nd)


S1, S2, S3 = numbers((2, 2, 6)), numbers((1, 2, 4, 5), seed=1), numbers((1, 2, 3, 3, 3), seed=2)
W1, W2, W3 = numbers((4, 2, 3), seed=3), numbers((2, 2, 2, 3), seed=4), numbers((2, 2, 2, 2, 2), seed=5)
G2, BIAS = numbers((4, 1, 2, 2), seed=6), numbers((2,), seed=7)

row("conv1d", lambda x, w: F.conv1d(x, w), conv, S1, W1, grad="first")
row("conv1d second order", lambda x, w: F.conv1d(x, w, stride=2, padding=1), lambda x, w: conv(x, w, None, 2, 1), S1[:1, :, :4], W1[:1])
row("conv1d dilated", lambda x, w: F.conv1d(x, w, dilation=2, padding=1), lambda x, w: conv(x, w, None, 1, 1, 2), S1, W1, grad="first")
row("conv1d same", lambda x, w: F.conv1d(x, w, padding="same"), lambda x, w: conv(x, w, padding=1), S1, W1, grad="first")
row("conv2d", lambda x, w, b: F.conv2d(x, w, b), conv, S2, W2, BIAS, grad="first")
row("conv2d strided", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2)), lambda x, w, b: conv(x, w, b, (2, 1), (1, 2)), S2, W2, BIAS, grad="first")
row("conv2d grouped", lambda x, w: F.conv2d(x, w, groups=2), lambda x, w: conv(x, w, groups=2), S2, G2, grad="first")
row("conv2d second order", lambda x, w: F.conv2d(x, w), conv, S2[:, :, :2, :3], W2[:1, :, :, :2])
row("conv2d unbatched", lambda x, w: F.conv2d(x[0], w), lambda x, w: conv(x, w)[0], S2, W2, grad="first")
row("conv3d", lambda x, w: F.conv3d(x, w, padding=1, stride=2), lambda x, w: conv(x, w, None, 2, 1), S3, W3, grad="first")
row("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
    lambda x, w: conv_transpose(x, w, None, 2, 1, 1), S1, numbers((2, 3, 3), seed=8), grad="first")
row("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=(1, 2)), lambda x, w, b: conv_transpose(x, w, b, (1, 2)),
    S2, W2, BIAS, grad="first")
row("conv_transpose2d grouped", lambda x, w: F.conv_transpose2d(x, w, groups=2, dilation=2),
    lambda x, w: conv_transpose(x, w, groups=2, dilation=2), S2, G2[:2], grad="first")
row("conv_transpose2d second order", lambda x, w: F.conv_transpose2d(x, w), conv_transpose, S2[:, :, :2, :2], W2[:, :1, :, :2])
row("conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w, padding=1), lambda x, w: conv_transpose(x, w, padding=1), S3, W3, grad="first")
row("convolution", lambda x, w, b: torch.convolution(x, w, b, (1, 1), (0, 0), (1, 1), False, (0, 0), 1), conv, S2, W2, BIAS, grad="first")


def im2col(x, kernel):
    n, c, h, w = x.shape
    kh, kw = kernel
    return np.stack([x[:, :, i:i + kh, j:j + kw].reshape(n, -1) for i in range(h - kh + 1) for j in range(w - kw + 1)], -1)


def col2im(cols, size, kernel):
    n, (h, w), (kh, kw) = len(cols), size, kernel
    out, at = np.zeros((n, cols.shape[1] // (kh * kw), h, w)), 0
    for i in range(h - kh + 1):
        for j in range(w - kw + 1):
            out[:, :, i:i + kh, j:j + kw] += cols[:, :, at].reshape(n, -1, kh, kw)
            at += 1
    return out


row("unfold", lambda x: F.unfold(x, (2, 3)), lambda x: im2col(x, (2, 3)), S2)
row("fold", lambda c: F.fold(c, (3, 4), (2, 2)), lambda c: col2im(c, (3, 4), (2, 2)), numbers((1, 4, 6), seed=9))


# --- pools ----------------------------------------------------------------------------------------------------------------


def pool(x, kernel, how, stride=None, padding=0, fill=0.0):
    nd = x.ndim - 2
    kernel, padding = tup(kernel, nd), tup(padding, nd)
    stride = kernel if stride is None else tup(stride, nd)
    padded = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]], constant_values=fill)
    size = [(n - k) // s + 1 for n, k, s in zip(padded.shape[2:], kernel, stride)]
    out = np.zeros((*x.shape[:2], *size))
    for at in np.ndindex(*size):
        window = padded[(slice(None), slice(None), *[slice(i * s, i * s + k) for i, s, k in zip(at, stride, kernel)])]
        out[(slice(None), slice(None), *at)] = how(window.reshape(*x.shape[:2], -1))
    return out


def adaptive(x, size, how):
    nd = x.ndim - 2
    size = tup(size, nd)
    out = np.zeros((*x.shape[:2], *size))
    for at in np.ndindex(*size):
        cut = [slice(i * n // s, -(-(i + 1) * n // s)) for i, n, s in zip(at, x.shape[2:], size)]
        out[(slice(None), slice(None), *at)] = how(x[(slice(None), slice(None), *cut)].reshape(*x.shape[:2], -1))
    return out


def places(x, kernel):
    """The flat place of the largest element of each window."""
    best = pool(x, kernel, lambda w: w.max(-1))
    flat = x.reshape(*x.shape[:2], -1)
    return np.argmax(flat[:, :, None] == best.reshape(*x.shape[:2], -1, 1), -1).reshape(best.shape)


mean, largest = lambda w: w.mean(-1), lambda w: w.max(-1)
for _nd, _x in ((1, S1), (2, S2), (3, S3)):
    row(f"avg_pool{_nd}d", lambda x, nd=_nd: getattr(F, f"avg_pool{nd}d")(x, 2), lambda x: pool(x, 2, mean), _x)
    row(f"avg_pool{_nd}d padded", lambda x, nd=_nd: getattr(F, f"avg_pool{nd}d")(x, 2, 1, 1), lambda x: pool(x, 2, mean, 1, 1), _x, grad="first")
    row(f"max_pool{_nd}d", lambda x, nd=_nd: getattr(F, f"max_pool{nd}d")(x, 2), lambda x: pool(x, 2, largest), _x)
    row(f"max_pool{_nd}d padded", lambda x, nd=_nd: getattr(F, f"max_pool{nd}d")(x, 2, 1, 1), lambda x: pool(x, 2, largest, 1, 1, -np.inf), _x,
        grad="first")
    row(f"max_pool{_nd}d_with_indices", lambda x, nd=_nd: getattr(F, f"max_pool{nd}d_with_indices")(x, 2),
        lambda x: (pool(x, 2, largest), places(x, 2)), _x, grad="first")
    row(f"adaptive_avg_pool{_nd}d", lambda x, nd=_nd: getattr(F, f"adaptive_avg_pool{nd}d")(x, 2), lambda x: adaptive(x, 2, mean), _x)
    row(f"adaptive_max_pool{_nd}d", lambda x, nd=_nd: getattr(F, f"adaptive_max_pool{nd}d")(x, 2), lambda x: adaptive(x, 2, largest), _x)
    row(f"adaptive_max_pool{_nd}d_with_indices", lambda x, nd=_nd: getattr(F, f"adaptive_max_pool{nd}d_with_indices")(x, 1)[0],
        lambda x: adaptive(x, 1, largest), _x, grad="first")
    row(f"lp_pool{_nd}d", lambda x, nd=_nd: getattr(F, f"lp_pool{nd}d")(x, 2, 2),
        lambda x: np.sqrt(pool(x, 2, lambda w: (w * w).sum(-1))), numbers(_x.shape, 0.3, 2), grad="first")
    row(f"max_unpool{_nd}d", lambda x, nd=_nd: getattr(F, f"max_unpool{nd}d")(*getattr(F, f"max_pool{nd}d_with_indices")(x, 2), 2,
                                                                          output_size=list(x.shape)),
        lambda x: np.where(np.isin(x, pool(x, 2, largest)), x, 0), _x, grad="first")
row("max_pool2d ceil", lambda x: torch.max_pool2d(x, 2, ceil_mode=True),
    lambda x: pool(np.pad(x, [(0, 0)] * 3 + [(0, 1)], constant_values=-np.inf), 2, largest), S2, grad="first")


# --- resampling -------------------------------------------------------------------------------------------------------------


def positions(n, size, corners):
    if corners:
        return np.arange(size) * ((n - 1) / (size - 1) if size > 1 else 0)
    return (np.arange(size) + 0.5) * n / size - 0.5


def linear(x, axis, size, corners):
    at = np.clip(positions(x.shape[axis], size, corners), 0, None)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    w = (at - low).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return np.take(x, low, axis) * (1 - w) + np.take(x, high, axis) * w


def cubic(x, axis, size, corners, a=-0.75):
    at = positions(x.shape[axis], size, corners)
    low, out = np.floor(at).astype(int), 0
    for k in range(-1, 3):
        d = np.abs(at - (low + k))
        w = np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4))
        out = out + np.take(x, np.clip(low + k, 0, x.shape[axis] - 1), axis) * w.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return out


def each_axis(how, x, sizes, corners=False):
    for axis, size in enumerate(sizes, 2):
        x = how(x, axis, size, corners)
    return x


def nearest(x, axis, size, corners):
    return np.take(x, np.arange(size) * x.shape[axis] // size, axis)


def exact(x, axis, size, corners):
    return np.take(x, np.floor((np.arange(size) + 0.5) * x.shape[axis] / size).astype(int), axis)


def keys(d, a=-0.5):
    """The cubic convolution kernel of Keys."""
    return np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, np.where(d < 2, a * (d**3 - 5 * d**2 + 8 * d - 4), 0))


def filtered(x, axis, size, corners, kernel, reach):
    """Each new element is a weighted mean over a window that widens as the image shrinks."""
    n = x.shape[axis]
    scale = n / size
    wide = max(scale, 1.0)
    rows = []
    for i in range(size):
        centre = scale * (i + 0.5)
        low, high = max(int(centre - reach * wide + 0.5), 0), min(int(centre + reach * wide + 0.5), n)
        w = np.zeros(n)
        w[low:high] = kernel(np.abs((np.arange(low, high) + 0.5 - centre) / wide))
        rows.append(w / w.sum())
    return np.moveaxis(np.tensordot(np.array(rows), x, (1, axis)), 0, axis)


def sample(x, grid):
    """Bilinear, zeros outside, corners aligned."""
    n, c, h, w = x.shape
    out = np.zeros((n, c, *grid.shape[1:3]))
    for b, i, j in np.ndindex(grid.shape[:3]):
        u, v = (grid[b, i, j, 0] + 1) / 2 * (w - 1), (grid[b, i, j, 1] + 1) / 2 * (h - 1)
        for y, z in itertools.product((int(np.floor(v)), int(np.floor(v)) + 1), (int(np.floor(u)), int(np.floor(u)) + 1)):
            if 0 <= y < h and 0 <= z < w:
                out[b, :, i, j] += x[b, :, y, z] * (1 - abs(v - y)) * (1 - abs(u - z))
    return out


row("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), lambda x: np.pad(x, [(0, 0), (0, 0), (0, 1), (1, 2)], constant_values=3.0), S2)
row("pad crops", lambda x: F.pad(x, (-1, 1)), lambda x: np.pad(x[..., 1:], [(0, 0)] * 3 + [(0, 1)]), S2)
for _mode, _theirs in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
    row(f"pad {_mode}", lambda x, m=_mode: F.pad(x, (1, 2, 2, 1), m), lambda x, m=_theirs: np.pad(x, [(0, 0), (0, 0), (2, 1), (1, 2)], m), S2)
for _mode, _theirs in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
    row(f"pad {_mode} lines", lambda x, m=_mode: F.pad(x, (1, 2), m), lambda x, m=_theirs: np.pad(x, [(0, 0), (0, 0), (1, 2)], m), S1)
    row(f"pad {_mode} volumes", lambda x, m=_mode: F.pad(x, (1, 0, 0, 1, 1, 1), m),
        lambda x, m=_theirs: np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 1), (1, 0)], m), S3, grad="first")
row("constant_pad_nd", lambda x: torch.constant_pad_nd(x, (1, 1), 2.0), lambda x: np.pad(x, [(0, 0), (0, 0), (1, 1)], constant_values=2.0), S1)
row("interpolate", lambda x: F.interpolate(x, (6, 3)), lambda x: each_axis(nearest, x, (6, 3)), S2)
row("interpolate lines", lambda x: F.interpolate(x, 9), lambda x: each_axis(nearest, x, (9,)), S1)
row("interpolate volumes", lambda x: F.interpolate(x, (4, 2, 5)), lambda x: each_axis(nearest, x, (4, 2, 5)), S3)
for _nd, _x, _size in ((1, S1, (9,)), (2, S2, (6, 3)), (3, S3, (4, 2, 5))):
    row(f"interpolate exact {_nd}", lambda x, size=_size: F.interpolate(x, size, mode="nearest-exact"),
        lambda x, size=_size: each_axis(exact, x, size), _x, grad="first")
row("interpolate smaller", lambda x: F.interpolate(x, (2, 3), mode="bilinear", antialias=True),
    lambda x: each_axis(lambda *a: filtered(*a, lambda d: np.maximum(0, 1 - d), 1), x, (2, 3)), S2)
row("interpolate smaller cubic", lambda x: F.interpolate(x, (2, 3), mode="bicubic", antialias=True),
    lambda x: each_axis(lambda *a: filtered(*a, keys, 2), x, (2, 3)), S2)
row("interpolate linear", lambda x: F.interpolate(x, 9, mode="linear"), lambda x: each_axis(linear, x, (9,)), S1)
row("interpolate bilinear", lambda x: F.interpolate(x, (6, 3), mode="bilinear"), lambda x: each_axis(linear, x, (6, 3)), S2)
row("interpolate corners", lambda x: F.interpolate(x, (6, 3), mode="bilinear", align_corners=True),
    lambda x: each_axis(linear, x, (6, 3), True), S2)
row("interpolate trilinear", lambda x: F.interpolate(x, 4, mode="trilinear"), lambda x: each_axis(linear, x, (4, 4, 4)), S3, grad="first")
row("interpolate bicubic", lambda x: F.interpolate(x, (6, 3), mode="bicubic"), lambda x: each_axis(cubic, x, (6, 3)), S2, grad="first")
row("interpolate area", lambda x: F.interpolate(x, (2, 3), mode="area"), lambda x: adaptive(x, (2, 3), mean), S2)
row("interpolate scale", lambda x: F.interpolate(x, scale_factor=2), lambda x: x.repeat(2, 2).repeat(2, 3), S2)
row("upsample", lambda x: F.upsample(x, scale_factor=2), lambda x: x.repeat(2, 2).repeat(2, 3), S2)
row("upsample_nearest", lambda x: F.upsample_nearest(x, scale_factor=2), lambda x: x.repeat(2, 2).repeat(2, 3), S2)
row("upsample_bilinear", lambda x: F.upsample_bilinear(x, (6, 3)), lambda x: each_axis(linear, x, (6, 3), True), S2)
row("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=True), sample, S2, numbers((1, 3, 2, 2), -1.3, 1.3, seed=10), grad="first")
row("grid_sampler", lambda x, g: torch.grid_sampler(x, g, 0, 0, True), sample, S2, numbers((1, 3, 2, 2), -1.3, 1.3, seed=10), grad="first")
row("grid_sampler_2d", lambda x, g: torch.grid_sampler_2d(x, g, 0, 0, True), sample, S2, numbers((1, 3, 2, 2), -1.3, 1.3, seed=10), grad="first")
row("grid_sampler_3d", lambda x, g: torch.grid_sampler_3d(x, g, 0, 0, True), lambda x, g: x[:, :, [2, 0], [1, 2], [0, 1]][:, :, None, None],
    S3, np.array([[-1.0, 0, 1], [0, 1, -1]]).reshape(1, 1, 1, 2, 3), grad=False)
row("grid_sampler_3d between", lambda x, g: torch.grid_sampler_3d(x, g, 0, 0, True), lambda x, g: x[:, :, :2, :2, :2].mean((2, 3, 4)).reshape(1, 2, 1, 1, 1),
    S3, np.full((1, 1, 1, 1, 3), -0.5), grad="first")
row("affine_grid", lambda t: F.affine_grid(t, (1, 1, 3, 2), align_corners=True),
    lambda t: np.stack([[t[0] @ [u, v, 1] for u in (-1, 1)] for v in (-1, 0, 1)])[None], numbers((1, 2, 3), seed=11))
row("affine_grid_generator", lambda t: torch.affine_grid_generator(t, (1, 1, 3, 2), True),
    lambda t: np.stack([[t[0] @ [u, v, 1] for u in (-1, 1)] for v in (-1, 0, 1)])[None], numbers((1, 2, 3), seed=11))
C8 = numbers((1, 8, 2, 3), seed=12)
row("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6), C8)
row("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), lambda x: x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 2),
    numbers((1, 2, 4, 4), seed=13))
row("channel_shuffle", lambda x: F.channel_shuffle(x, 2), lambda x: x.reshape(1, 2, 4, 2, 3).swapaxes(1, 2).reshape(1, 8, 2, 3), C8)


# --- activations ------------------------------------------------------------------------------------------------------------


X = numbers((3, 4)) * 2
softplus = lambda x: np.log1p(np.exp(x))
sigmoid = lambda x: 1 / (1 + np.exp(-x))
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
for _name, _oracle in {
        "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.clip(x, 0, 6), "hardtanh": lambda x: np.clip(x, -1, 1),
        "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x), "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
        "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "selu": lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x)), "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "silu": lambda x: x * sigmoid(x), "mish": lambda x: x * np.tanh(softplus(x)), "softsign": lambda x: x / (1 + abs(x)),
        "tanhshrink": lambda x: x - np.tanh(x), "sigmoid": sigmoid, "tanh": np.tanh,
        "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
        "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0), "rrelu": lambda x: np.where(x > 0, x, x * (1 / 8 + 1 / 3) / 2),
        }.items():
    row(_name, lambda x, name=_name: getattr(F, name)(x), _oracle, X)
row("gelu tanh", lambda x: F.gelu(x, approximate="tanh"),
    lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), X)
row("threshold", lambda x: F.threshold(x, 0.1, 20.0), lambda x: np.where(x > 0.1, x, 20.0), X)
row("prelu", lambda x, w: F.prelu(x, w), lambda x, w: np.where(x > 0, x, w * x), X, numbers((4,), 0.1, 0.5))
row("glu", lambda x: F.glu(x, 1), lambda x: x[:, :2] * sigmoid(x[:, 2:]), X)
row("leaky_relu inplace", lambda x: F.leaky_relu(x * 1, 0.2, inplace=True), lambda x: np.where(x > 0, x, 0.2 * x), X)


# --- attention, dropout -------------------------------------------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, bias=0.0):
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias) @ v


Q, K, V = numbers((1, 2, 3, 2), seed=20), numbers((1, 2, 4, 2), seed=21), numbers((1, 2, 4, 3), seed=22)
CAUSAL = np.where(np.tril(np.ones((3, 4), bool)), 0.0, -np.inf)
row("scaled_dot_product_attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), attend, Q, K, V, grad="first")
row("scaled_dot_product_attention causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    lambda q, k, v: attend(q, k, v, CAUSAL), Q, K, V, grad="first")
row("scaled_dot_product_attention mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
    lambda q, k, v, m: attend(q, k, v, np.where(m, 0.0, -np.inf)), Q, K, V, np.tril(np.ones((3, 4), bool), 1), grad="first")


def heads(x, wi, bi, wo, bo):
    """Two heads over (length 3, batch 1, width 4), averaged weights."""
    q, k, v = np.split(x[:, 0] @ wi.T + bi, 3, -1)
    parts = lambda t: t.reshape(3, 2, 2).swapaxes(0, 1)
    weights = softmax(parts(q) @ parts(k).swapaxes(1, 2) / np.sqrt(2))
    out = (weights @ parts(v)).swapaxes(0, 1).reshape(3, 4) @ wo.T + bo
    return out[:, None], weights.mean(0)[None]


row("multi_head_attention_forward", lambda x, wi, bi, wo, bo: F.multi_head_attention_forward(
    x, x, x, 4, 2, wi, bi, None, None, False, 0.0, wo, bo, training=False), heads,
    numbers((3, 1, 4), seed=23), numbers((12, 4), seed=24), numbers((12,), seed=25), numbers((4, 4), seed=26), numbers((4,), seed=27), grad=False)
ONES = np.ones((2, 3, 4))


def kept_or_dropped(p, whole=None):
    """Each element (or channel, or all of a row) is zero or divided by what is kept, and about the right share is kept."""
    def holds(result, x):
        y = result.numpy()
        assert set(np.unique(np.round(y, 12))) <= {0.0, round(1 / (1 - p), 12)}
        if whole is not None:
            flat = y.reshape(*y.shape[:whole], -1)
            assert (flat == flat[..., :1]).all()
    return holds


row("dropout", lambda x: F.dropout(x, 0.25), None, ONES, grad=False, holds=kept_or_dropped(0.25))
row("dropout top", lambda x: torch.dropout(x, 0.25, True), None, ONES, grad=False, holds=kept_or_dropped(0.25))
row("dropout off", lambda x: F.dropout(x, 0.25, training=False), lambda x: x, X)
row("dropout all", lambda x: F.dropout(x, 1.0), lambda x: 0 * x, X)
row("dropout1d", lambda x: F.dropout1d(x, 0.5), None, ONES, grad=False, holds=kept_or_dropped(0.5, 2))
row("dropout2d", lambda x: F.dropout2d(x[:, :, None], 0.5), None, ONES, grad=False, holds=kept_or_dropped(0.5, 2))
row("dropout3d", lambda x: F.dropout3d(x[:, :, None, None], 0.5), None, ONES, grad=False, holds=kept_or_dropped(0.5, 2))
row("alpha_dropout off", lambda x: F.alpha_dropout(x, 0.5), lambda x: x, X)
row("feature_alpha_dropout off", lambda x: F.feature_alpha_dropout(x[..., None], 0.5), lambda x: x[..., None], X)


def one_hot_rows(result, x):
    y = result.numpy()
    assert ((y == 0) | (np.abs(y - 1) < 1e-12)).all() and np.allclose(y.sum(-1), 1)


row("gumbel_softmax", lambda x: F.gumbel_softmax(x, hard=True), None, X, grad=False, holds=one_hot_rows)
row("gumbel_softmax soft", lambda x: F.gumbel_softmax(x).sum(-1), lambda x: np.ones(3), X, grad=False)


# --- normalisation ------------------------------------------------------------------------------------------------------------


def standard(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def neighbours(x, size, alpha, beta, k):
    squares = np.pad(x * x, [(0, 0), (size // 2, (size - 1) // 2), *[(0, 0)] * (x.ndim - 2)])
    return x / (k + alpha / size * sum(squares[:, i:i + x.shape[1]] for i in range(size))) ** beta


W, B = numbers((4,), 0.5, 2), numbers((4,), seed=30)
IMAGE = numbers((3, 4, 2), seed=31)
channel = lambda w: w[:, None]
row("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), lambda x, w, b: standard(x, (1,)) * w + b, X, W, B, grad="first")
row("layer_norm plain", lambda x: F.layer_norm(x, (4, 2)), lambda x: standard(x, (1, 2)), IMAGE[:2])
row("rms_norm", lambda x, w: F.rms_norm(x, (4,), w, 1e-5), lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w, X, W)
row("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    lambda x, w, b: standard(x, (0, 2)) * channel(w) + channel(b), IMAGE, W, B, grad="first")
row("batch_norm frozen", lambda x, m, v: F.batch_norm(x, m, v),
    lambda x, m, v: (x - channel(m)) / np.sqrt(channel(v) + 1e-5), IMAGE, B, W, grad="first", still=(1, 2))
row("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    lambda x, w, b: standard(x, (2,)) * channel(w) + channel(b), IMAGE, W, B, grad="first")
row("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b),
    lambda x, w, b: standard(x.reshape(3, 2, 4), (2,)).reshape(3, 4, 2) * channel(w) + channel(b), IMAGE, W, B, grad="first")
row("local_response_norm", lambda x: F.local_response_norm(x, 3, 0.1, 0.75, 2.0), lambda x: neighbours(x, 3, 0.1, 0.75, 2.0), IMAGE, grad="first")
row("normalize", lambda x: F.normalize(x, 3.0, 1), lambda x: x / (np.abs(x) ** 3).sum(1, keepdims=True) ** (1 / 3), X)
row("fake_quantize_per_tensor_affine", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.25, 1, -3, 4),
    lambda x: 0.25 * (np.clip(np.rint(x / 0.25) + 1, -3, 4) - 1), X, grad=False)
row("fake_quantize_per_channel_affine",
    lambda x: torch.fake_quantize_per_channel_affine(x, 0.25 + torch.arange(4, dtype=torch.float32, device=x.device),
                                                     torch.ones(4, dtype=torch.int32, device=x.device), 1, -3, 4),
    lambda x: (np.clip(np.rint(x / (0.25 + np.arange(4))) + 1, -3, 4) - 1) * (0.25 + np.arange(4)), X, grad=False)
