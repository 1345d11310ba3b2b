"""deform_conv2d against the convolution it becomes, and against its definition."""
import itertools
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision.deform import _deform_conv2d_backward, deform_conv2d


def arguments(rng, groups=2, offset_groups=3, use_mask=True, stride=(2, 1), padding=(1, 0), dilation=(1, 2)):
    """Random arguments of a call on [2, 6, 7, 9] with a kernel of 3 by 2."""
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1
           for n, p, d, k, s in zip((7, 9), padding, dilation, (3, 2), stride)]
    x, weight, bias = (rng.standard_normal(shape) for shape in ((2, 6, 7, 9), (4, 6 // groups, 3, 2), (4,)))
    offset = rng.uniform(-3, 3, (2, 2 * offset_groups * 6, *out))
    mask = rng.uniform(0, 1, (2, offset_groups * 6, *out)) if use_mask else np.zeros((2, 1))
    tensors = [torch.tensor(t).requires_grad_() for t in (x, weight, offset, mask, bias)]
    return tensors, (*stride, *padding, *dilation, groups, offset_groups, use_mask)


def pixel(plane, y, x):
    """The plane between its pixels, zero around it."""
    total = 0.0
    for i, j in itertools.product((math.floor(y), math.floor(y) + 1), (math.floor(x), math.floor(x) + 1)):
        if 0 <= i < plane.shape[0] and 0 <= j < plane.shape[1]:
            total += (1 - abs(y - i)) * (1 - abs(x - j)) * plane[i, j]
    return total


def defined(tensors, options):
    x, weight, offset, mask, bias = (t.detach().numpy() for t in tensors)
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask = options
    out = np.zeros((2, 4, *offset.shape[2:])) + bias[:, None, None]
    for n, o, p, q in np.ndindex(out.shape):
        group = o // (4 // groups)
        for c, i, j in np.ndindex(weight.shape[1:]):
            channel = group * weight.shape[1] + c
            tap = (channel // (6 // offset_groups)) * 6 + i * 2 + j
            y = p * stride_h - pad_h + i * dilation_h + offset[n, 2 * tap, p, q]
            at = q * stride_w - pad_w + j * dilation_w + offset[n, 2 * tap + 1, p, q]
            out[n, o, p, q] += weight[o, c, i, j] * pixel(x[n, channel], y, at) * (mask[n, tap, p,
                                                                                        q] if use_mask else 1)
    return out


@pytest.mark.parametrize("groups, offset_groups, use_mask", [(1, 1, False), (2, 3, True), (2, 1, True), (1, 6, False)])
def test_the_definition(rng, groups, offset_groups, use_mask):
    tensors, options = arguments(rng, groups, offset_groups, use_mask)
    np.testing.assert_allclose(deform_conv2d(*tensors, *options).detach().numpy(), defined(tensors, options),
                               atol=1e-10)


def test_without_offsets_it_is_a_convolution(rng):
    (x, weight, offset, mask, bias), options = arguments(rng, offset_groups=1, use_mask=False, stride=(1, 1),
                                                         dilation=(2, 1))
    out = deform_conv2d(x, weight, torch.zeros_like(offset), mask, bias, *options)
    want = torch.nn.functional.conv2d(x, weight, bias, padding=(1, 0), dilation=(2, 1), groups=2)
    torch.testing.assert_close(out, want)


@pytest.mark.parametrize("use_mask", [False, True])
def test_gradients(rng, use_mask):
    tensors, options = arguments(rng, use_mask=use_mask)
    out = deform_conv2d(*tensors, *options)
    g = torch.rand_like(out)
    given = torch.autograd.grad(out, tensors, g, allow_unused=True)
    for at, gradient in enumerate(given):                    # along a line in each argument: differences
        if gradient is None:
            continue
        way = torch.from_numpy(rng.standard_normal(tuple(gradient.shape))) * 1e-6
        ends = [deform_conv2d(*[t.detach() + sign * way if i == at else t.detach() for i, t in enumerate(tensors)],
                              *options) for sign in (1, -1)]
        slope = ((ends[0] - ends[1]) * g).sum() / 2
        torch.testing.assert_close((gradient * way).sum(), slope, rtol=1e-5, atol=1e-11)
    for name, one, other, t in zip("input weight offset mask bias".split(), given,
                                   _deform_conv2d_backward(g, *tensors, *options), tensors):
        torch.testing.assert_close(torch.zeros_like(t) if one is None else one, other, msg=name)


def test_places_far_outside_and_nan_read_nothing(rng):
    (x, weight, offset, mask, bias), options = arguments(rng, use_mask=False)
    for far in (1e30, -1e30, float("inf")):
        out = deform_conv2d(x, weight, torch.full_like(offset, far), mask, torch.zeros_like(bias), *options)
        assert not out.any()


def test_refusals(rng):
    (x, weight, offset, mask, bias), options = arguments(rng)
    with pytest.raises(RuntimeError, match=r"offset.shape\[1\] is not valid: got: 34 expected: 36"):
        deform_conv2d(x, weight, offset[:, 2:], mask, bias, *options)
    with pytest.raises(RuntimeError, match="offset output dims"):
        deform_conv2d(x, weight, offset[..., 1:], mask, bias, *options)
    with pytest.raises(RuntimeError, match="input has 5 channels"):
        deform_conv2d(x[:, 1:], weight, offset, mask, bias, *options)
    with pytest.raises(RuntimeError, match="invalid batch size of mask: 1 for 2 images"):
        deform_conv2d(x, weight, offset, mask[:1], bias, *options)
