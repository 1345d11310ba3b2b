"""opacus: private training: per-sample gradients of each layer, clipping, noise, and what it has cost."""
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPLSTM, DPMultiheadAttention
from opacus.validators import ModuleValidator
from torch.utils.data import DataLoader, TensorDataset

from tests.programs import array, fill, tokens

PACKAGES = ["opacus"]


def per_sample_gradients():
    """The gradient of each sample by itself, for each kind of layer."""
    nets = {"linear": (torch.nn.Linear(6, 4), array(5, 6)), "norm": (torch.nn.LayerNorm(6), array(5, 3, 6)),
            "conv": (torch.nn.Conv2d(2, 3, 3, padding=1), array(4, 2, 6, 6)),
            "conv1d": (torch.nn.Conv1d(2, 3, 3, stride=2), array(4, 2, 9)),
            "groups": (torch.nn.GroupNorm(2, 4), array(3, 4, 5)),
            "embedding": (torch.nn.Embedding(9, 4), tokens(4, 3, below=9)), "lstm": (DPLSTM(4, 3), array(5, 2, 4)),
            "attention": (DPMultiheadAttention(8, 2), array(4, 3, 8))}
    out = {}
    for name, (net, x) in nets.items():
        module = GradSampleModule(fill(net), batch_first=name not in ("lstm", "attention"))
        given = module(x, x, x) if name == "attention" else module(x)
        (given[0] if isinstance(given, tuple) else given).square().mean().backward()
        out[name] = {key: p.grad_sample for key, p in module._module.named_parameters()
                     if key != "klinear.bias"}                # which is zero, but for rounding
    return out


def validated():
    """A net with batch norm is refused, one with group norm is taken."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    mended = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(4, 8), torch.nn.ReLU())
    return {"errors": [type(error).__name__ for error in ModuleValidator.validate(net)],
            "after": len(ModuleValidator.validate(mended))}


def trained():
    """A private loop: batches drawn at random, clipped gradients, noise, and the budget spent."""
    net = fill(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)))
    x = array(32, 6)
    data = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8)
    engine = PrivacyEngine()
    generator = torch.Generator().manual_seed(9)
    net, optimizer, data = engine.make_private(module=net, optimizer=torch.optim.SGD(net.parameters(), 0.2),
                                               data_loader=data, noise_multiplier=1.1, max_grad_norm=1.0,
                                               noise_generator=generator)
    losses, sizes = [], []
    for _ in range(3):
        for inputs, goals in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(inputs), goals)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            sizes.append(len(inputs))
    return {"losses": losses, "sizes": sizes, "epsilon": float(engine.get_epsilon(1e-5)),
            "weights": net._module[0].weight}


def accounted():
    """What a schedule of steps costs, and the noise that a budget asks for."""
    accountant = RDPAccountant()
    for _ in range(100):
        accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    noise = get_noise_multiplier(target_epsilon=3.0, target_delta=1e-5, sample_rate=0.05, epochs=2, accountant="rdp")
    return {"epsilon": float(accountant.get_epsilon(1e-5)), "noise": float(noise)}
