"""Modules call the functions of `nn.functional` by their names there, as in PyTorch: what a program puts in the place
of one is called, which is how programs count the operations of a network."""
import pytest

import flambeau as torch

nn, F = torch.nn, torch.nn.functional
line, image, volume = torch.ones(1, 2, 8), torch.ones(1, 2, 8, 8), torch.ones(1, 2, 8, 8, 8)
words = torch.tensor([[1, 0]])

CALLS = {
    "linear": (nn.Linear(8, 3), line), "bilinear": (nn.Bilinear(8, 8, 3), line, line),
    "embedding": (nn.Embedding(4, 2), words), "embedding_bag": (nn.EmbeddingBag(4, 2), words),
    "conv1d": (nn.Conv1d(2, 2, 3), line), "conv2d": (nn.Conv2d(2, 2, 3), image), "conv3d": (nn.Conv3d(2, 2, 3), volume),
    "conv_transpose1d": (nn.ConvTranspose1d(2, 2, 3), line), "conv_transpose2d": (nn.ConvTranspose2d(2, 2, 3), image),
    "conv_transpose3d": (nn.ConvTranspose3d(2, 2, 3), volume),
    "max_pool1d": (nn.MaxPool1d(2), line), "max_pool2d": (nn.MaxPool2d(2), image),
    "max_pool3d": (nn.MaxPool3d(2), volume), "avg_pool1d": (nn.AvgPool1d(2), line),
    "avg_pool2d": (nn.AvgPool2d(2), image), "avg_pool3d": (nn.AvgPool3d(2), volume),
    "adaptive_avg_pool1d": (nn.AdaptiveAvgPool1d(2), line), "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(2), image),
    "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d(2), volume), "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d(2), image),
    "lp_pool2d": (nn.LPPool2d(2, 2), image), "fractional_max_pool2d": (nn.FractionalMaxPool2d(2, 3), image),
    "batch_norm": (nn.BatchNorm2d(2), image), "instance_norm": (nn.InstanceNorm2d(2), image),
    "layer_norm": (nn.LayerNorm(8), line), "group_norm": (nn.GroupNorm(1, 2), image),
    "relu": (nn.ReLU(), line), "leaky_relu": (nn.LeakyReLU(), line), "gelu": (nn.GELU(), line),
    "silu": (nn.SiLU(), line),
    "softmax": (nn.Softmax(1), line), "dropout": (nn.Dropout(), line), "dropout2d": (nn.Dropout2d(), image),
    "interpolate": (nn.Upsample(scale_factor=2), image), "pad": (nn.ZeroPad2d(1), image),
    "multi_head_attention_forward": (nn.MultiheadAttention(8, 2), line, line, line),
    "cross_entropy": (nn.CrossEntropyLoss(), torch.ones(2, 3), torch.tensor([0, 1])),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_that_was_exchanged_is_called(name, monkeypatch):
    module, *inputs = CALLS[name]
    called, plain = [], getattr(F, name)

    def counting(*args, **kwargs):
        called.append(name)
        return plain(*args, **kwargs)
    torch.manual_seed(0)
    expected = module(*inputs)
    monkeypatch.setattr(F, name, counting)
    torch.manual_seed(0)
    result = module(*inputs)
    assert called == [name]
    for mine, plainly in zip(result, expected, strict=True) if isinstance(result, tuple) else [(result, expected)]:
        torch.testing.assert_close(mine, plainly)


def test_operators_that_were_exchanged_are_called(monkeypatch):
    called = []

    def count(owner, name):
        plain = getattr(owner, name)

        def counting(*args, **kwargs):
            called.append(name)
            return plain(*args, **kwargs)
        monkeypatch.setattr(owner, name, counting)
    count(torch, "matmul")
    for name in ("matmul", "__matmul__", "add"):
        count(torch.Tensor, name)
    x = torch.ones(2, 2)
    torch.matmul(x, x)
    x.matmul(x)
    _ = x @ x
    x.add(1)
    assert called == ["matmul", "matmul", "__matmul__", "add"]


def test_a_compiled_module_notices_the_exchange(monkeypatch):
    net = nn.Sequential(nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    compiled = torch.compile(net)
    for _ in range(3):
        torch.testing.assert_close(compiled(image), net(image))
    linear = F.linear
    monkeypatch.setattr(F, "linear", lambda *args: linear(*args) + 1)
    pool = F.max_pool2d
    monkeypatch.setattr(F, "max_pool2d", lambda *args, **kwargs: pool(*args, **kwargs) * 2)
    for _ in range(3):
        torch.testing.assert_close(compiled(image), net(image))
