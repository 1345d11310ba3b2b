"""einops: rearrange, reduce, repeat, einsum, pack and its layers inside a trained net."""
import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

from tests.programs import array, fill, gradients

PACKAGES = ["einops"]
QUICK = True


def shapes():
    """Axes are split, merged, moved, reduced and repeated."""
    x = array(2, 3, 4, 8)
    packed, sizes = pack([array(2, 5), array(2, 3, 4, seed=1)], "b *")
    return {"patches": rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=4),
            "mean": reduce(x, "b c (h 2) (w 2) -> b c h w", "mean"), "max": reduce(x, "b c h w -> b c", "max"),
            "repeat": repeat(x, "b c h w -> b c (h 2) w"), "einsum": einsum(x, x, "b c h w, b d h w -> b c d"),
            "packed": packed, "unpacked": [list(part.shape) for part in unpack(packed, sizes, "b *")]}


def layers():
    """A net of Rearrange, Reduce and EinMix learns by Adam."""
    net = torch.nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
                              EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=48, d=16), torch.nn.GELU(),
                              EinMix("b t d -> b s d", weight_shape="t s", t=4, s=3), Reduce("b t d -> b d", "mean"),
                              torch.nn.Linear(16, 5))
    fill(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    x, y = array(6, 3, 8, 8), torch.arange(6) % 5
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "gradients": gradients(net)}
