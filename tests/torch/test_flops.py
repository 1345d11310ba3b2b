"""FlopCounterMode: the same nets count the same, by module and by operator, as in PyTorch."""
import pytest
import torch

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore")


def programs(m):
    nn = m.nn
    image, x, q = m.randn(2, 3, 16, 16), m.randn(4, 8, requires_grad=True), m.randn(2, 2, 5, 4, requires_grad=True)
    mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4,
                                                                                               stride=2),
                        nn.Flatten(), nn.Linear(8 * 49, 2))
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def twice():
        mlp(x).sum().backward()
        mlp(x).sum().backward()
    return {
        "forward": lambda: mlp(x), "backward": lambda: mlp(x).sum().backward(), "twice": twice,
        "no grad": lambda: m.no_grad()(mlp)(x),
        "of three dimensions": lambda: nn.Linear(8, 5)(m.randn(2, 3, 8)).sum().backward(),
        "no bias": lambda: nn.Linear(8, 5, bias=False)(m.randn(2, 3, 8, requires_grad=True)).sum().backward(),
        "convolutions": lambda: cnn(image), "convolutions backward": lambda: cnn(image).sum().backward(),
        "transposed": lambda: nn.ConvTranspose2d(3, 4, 3, stride=2)(image.clone().requires_grad_()).sum().backward(),
        "conv1d": lambda: nn.Conv1d(3, 4, 3)(m.randn(2, 3, 9, requires_grad=True)).sum().backward(),
        "bmm": lambda: m.bmm(m.randn(2, 3, 4), m.randn(2, 4, 5)),
        "baddbmm": lambda: m.baddbmm(m.randn(2, 3, 5), m.randn(2, 3, 4), m.randn(2, 4, 5)),
        "addmm": lambda: m.addmm(m.randn(5), m.randn(3, 4), m.randn(4, 5)),
        "matmul": lambda: m.randn(2, 3, 4) @ m.randn(4, 5), "mv": lambda: m.randn(3, 4) @ m.randn(4),
        "einsum": lambda: m.einsum("bij,bjk->bik", m.randn(2, 3, 4), m.randn(2, 4, 5)),
        "transformer": lambda: layer(m.randn(2, 3, 8)).sum().backward(),
        "attention": lambda: m.nn.functional.scaled_dot_product_attention(q, q, q),
    }


def counted(m, name):
    counter = __import__(f"{m.__name__}.utils.flop_counter", fromlist="x").FlopCounterMode(display=False)
    with counter:
        programs_of[m][name]()
    return counter


programs_of = {m: programs(m) for m in (flambeau, torch)}


@pytest.mark.parametrize("name", programs_of[torch])
def test_counts(name):
    ours, theirs = counted(flambeau, name), counted(torch, name)
    if name == "attention":                              # PyTorch has no formula for its kernel on the CPU
        from torch.utils.flop_counter import sdpa_flop_count
        assert ours.get_total_flops() == sdpa_flop_count(*[(2, 2, 5, 4)] * 3)
        return
    assert ours.get_total_flops() == theirs.get_total_flops()
    mine, other = ({module: {str(op): n for op, n in counts.items()} for module, counts in c.get_flop_counts().items()}
                   for c in (ours, theirs))
    if name == "transformer":                            # addmm or mm depends on the layout of a view
        mine, other = ({module: sum(counts.values()) for module, counts in c.items()} for c in (mine, other))
    assert {k: v for k, v in mine.items() if v} == {k: v for k, v in other.items() if v}


def test_formulas_of_the_programs_own():
    def program(m):
        FlopCounterMode = __import__(f"{m.__name__}.utils.flop_counter", fromlist="x").FlopCounterMode
        counter = FlopCounterMode(display=False, custom_mapping={m.ops.aten.mm: lambda a, b, out_shape=None, **k: 7})
        with counter:
            m.mm(m.ones(2, 3), m.ones(3, 4))
        return counter.get_total_flops()
    assert program(flambeau) == program(torch) == 7
