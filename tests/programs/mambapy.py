"""mambapy: a language model of state spaces: the parallel scan, training, and the recurrence step by step."""
import torch
from mambapy.mamba import Mamba, MambaConfig
from mambapy.pscan import pscan

from tests.programs import array, fill, gradients, tokens

PACKAGES = ["mambapy"]


def scanned():
    """The scan in parallel, its gradients, and the same one after the other."""
    a, x = array(2, 16, 3, 4).sigmoid().requires_grad_(), array(2, 16, 3, 4, seed=1).requires_grad_()
    out = pscan(a, x)
    out.square().sum().backward()
    return {"out": out, "a": a.grad, "x": x.grad}


def stepped():
    """A net over a whole sequence, and over one position at a time with what it keeps."""
    config = MambaConfig(d_model=8, n_layers=2, d_state=4, expand_factor=2)
    net, x = fill(Mamba(config)), array(2, 6, 8)
    out = net(x)
    out.square().mean().backward()
    caches = [(None, torch.zeros(2, config.d_inner, config.d_conv - 1)) for _ in range(2)]
    each = []
    with torch.no_grad():
        for n in range(6):
            y, caches = net.step(x[:, n], caches)
            each.append(y)
    return {"out": out, "same": bool(torch.allclose(torch.stack(each, 1), out, atol=1e-4)), "gradients": gradients(net)}


def language():
    """A small model of tokens learns."""
    torch.manual_seed(3)
    embed, net = fill(torch.nn.Embedding(16, 8)), fill(Mamba(MambaConfig(d_model=8, n_layers=2, d_state=4)))
    head = fill(torch.nn.Linear(8, 16), 1)
    adam = torch.optim.Adam([*embed.parameters(), *net.parameters(), *head.parameters()], 1e-2)
    x, losses = tokens(2, 12, below=16), []
    for _ in range(4):
        logits = head(net(embed(x[:, :-1])))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss)
    return {"losses": losses}
