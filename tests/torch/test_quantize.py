"""Simulated quantisation: values, gradients and refusals as PyTorch's."""
import numpy as np
import pytest
import torch

import flambeau

X = np.concatenate([np.random.default_rng(0).normal(size=100) * 3,
                    [0.0, -0.0, np.nan, np.inf, -np.inf, 1e30, 0.05, 0.15, 0.25, -0.01, 9, -9]])
RANGES = [(0.1, 3, 0, 15), (0.07, -2, -128, 127), (0.013, 100, 0, 255), (0.0, 3, 0, 15), (-1.0, 0, -8, 7),
          (1e-6, 5, -2 ** 31, 2 ** 31 - 1)]


def by_number(m, x, scale, zero, *limits):
    return m.fake_quantize_per_tensor_affine(x, scale, zero, *limits)


def by_tensors(m, x, scale, zero, *limits):
    return m.fake_quantize_per_tensor_affine(x, m.tensor([scale]), m.tensor(zero), *limits)


def by_channels(m, x, scale, zero, *limits):
    scales = m.tensor([scale, 2 * scale, 3 * scale, scale])
    return m.fake_quantize_per_channel_affine(x, scales, m.tensor([zero] * 4, dtype=m.int32), 0, *limits)


def by_columns(m, x, scale, zero, *limits):
    scales = m.tensor([scale * (i + 1) for i in range(28)])
    return m.fake_quantize_per_channel_affine(x, scales, m.tensor([zero + 0.5] * 28), 1, *limits)


@pytest.mark.parametrize("how", [by_number, by_tensors, by_channels, by_columns])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_values_and_gradients(how, dtype):
    for limits in RANGES[:-1] if how is by_columns else RANGES:
        made = []
        for m in (torch, flambeau):
            x = m.tensor(X.reshape(4, 28).tolist(), dtype=m.float64).to(getattr(m, dtype)).requires_grad_()
            y = how(m, x, *limits)
            y.backward(m.full_like(y, 2.0))
            made.append([t.detach().to(m.float64).numpy() for t in (y, x.grad)] + [str(y.dtype), y.grad_fn.name()])
        (values, grads, *names), (our_values, our_grads, *our_names) = made
        np.testing.assert_array_equal(our_values, values, err_msg=str(limits))
        np.testing.assert_array_equal(our_grads, grads, err_msg=str(limits))
        assert our_names == names


REFUSED = [
    lambda m, x, s, z: m.fake_quantize_per_tensor_affine(x.to(m.int32), 0.1, 3, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_tensor_affine(x, 0.1, 3, 15, 0),
    lambda m, x, s, z: m.fake_quantize_per_tensor_affine(x, 0.1, 30, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_tensor_affine(x, 0.1, 3.0, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_tensor_affine(x, s, z, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_tensor_affine(x, m.ones(1, requires_grad=True), z[:1], 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s.requires_grad_(), z, 0, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s, z.to(m.int64), 0, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s.double(), z, 0, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s[:1], z, 0, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s, z, 1, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s, z, 2, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s, z, -2, 0, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s, z, 0, 5, 15),
    lambda m, x, s, z: m.fake_quantize_per_channel_affine(x, s[None], z[None], 0, 0, 15),
]


@pytest.mark.parametrize("call", REFUSED, ids=range(len(REFUSED)))
def test_refusals(call):
    kinds = []
    for m in (torch, flambeau):
        with pytest.raises(Exception) as caught:
            call(m, m.zeros(2, 3), m.ones(2), m.zeros(2, dtype=m.int32))
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]
