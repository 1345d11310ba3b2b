"""Graphs of calls beside PyTorch's traces: the operators in their order, and the shapes of what they take and give."""
import warnings

import pytest

torch = pytest.importorskip("torch")

import flambeau

OF_SIZES = {"aten::size", "aten::Int"}        # sizes are no tensors here


def images(t):
    nn, F = t.nn, t.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
            self.last = nn.Linear(8, 5)
            self.pool, self.drop, self.act = nn.MaxPool2d(2), nn.Dropout(0.1), nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.pool(self.act(self.norm(self.conv(x))))
            y = F.gelu(y) + y * 2 - y.abs() / 3
            return F.log_softmax(self.last(self.drop(y.mean((2, 3)))), dim=1)
    return Net(), (t.ones(2, 3, 16, 16),)


def words(t):
    nn, F = t.nn, t.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.pairs, self.norm = nn.Embedding(11, 8), nn.Linear(8, 24), nn.LayerNorm(8)
            self.wide = nn.ConvTranspose1d(8, 4, 3)

        def forward(self, x):
            q, k, v = self.pairs(self.norm(self.embed(x))).chunk(3, -1)
            y = F.scaled_dot_product_attention(q, k, v)
            y = t.matmul(y, y.transpose(1, 2)).softmax(-1)
            z = t.einsum("bij,bjc->bic", y, v)
            return (self.wide(z.transpose(1, 2)).flatten(1), t.cat([z, z], 1).sum(),
                    t.bmm(y, v).pow(2).sqrt().clamp(min=0))
    return Net(), (t.arange(10).view(2, 5),)


def maps(t):
    nn, F = t.nn, t.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.group, self.instance = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
            self.act, self.leak = nn.Hardswish(), nn.PReLU()

        def forward(self, x):
            y = F.interpolate(self.act(self.group(x)), scale_factor=2, mode="bilinear", align_corners=False)
            y = F.adaptive_avg_pool2d(self.leak(self.instance(y)), 2)
            return (F.avg_pool2d(y, 2).view(2, -1), F.pad(x, (1, 1)).unsqueeze(0).squeeze(0).permute(0, 2, 3, 1),
                    t.addmm(t.ones(2, 2), x.new_ones(2, 3), t.ones(3, 2)))
    return Net(), (t.ones(2, 4, 6, 6),)


def listed(t, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph, _ = t.jit._get_trace_graph(*make(t))

    def shapes(values):
        return [tuple(value.type().sizes()) for value in values if value.isCompleteTensor()]
    calls = [(node.kind(), shapes(node.inputs()), shapes(node.outputs())) for node in graph.nodes()
             if node.kind().startswith("aten::") and node.kind() not in OF_SIZES]
    return shapes(graph.inputs()), calls


@pytest.mark.parametrize("make", [images, words, maps], ids=lambda make: make.__name__)
def test_the_same_calls(make):
    assert listed(flambeau, make) == listed(torch, make)
