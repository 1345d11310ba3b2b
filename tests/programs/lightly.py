"""lightly: learning without labels: losses of every kind, two views of each picture, nets that follow another one."""
import torch
from lightly import loss as losses_of
from lightly.data import LightlyDataset
from lightly.models import modules
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.transforms import SimCLRTransform
from lightly.utils.scheduler import CosineWarmupScheduler, cosine_schedule

from tests.programs import array, fill

PACKAGES = ["lightly"]


def compared():
    """Losses over two views, with the gradients."""
    found = {}
    cases = {"ntxent": losses_of.NTXentLoss(), "remembered": losses_of.NTXentLoss(memory_bank_size=(16, 8)),
             "barlow": losses_of.BarlowTwinsLoss(), "vicreg": losses_of.VICRegLoss(), "dcl": losses_of.DCLLoss(),
             "cosine": losses_of.NegativeCosineSimilarity(), "swav": losses_of.SwaVLoss()}
    for name, loss_of in cases.items():
        torch.manual_seed(1)
        one, other = array(6, 8).requires_grad_(), array(6, 8, seed=1)
        value = loss_of([one, other], [other]) if name == "swav" else loss_of(one, other)
        value.backward()
        found[name] = {"loss": value, "gradient": one.grad}
    dino = losses_of.DINOLoss(output_dim=8, warmup_teacher_temp_epochs=2)
    found["dino"] = [dino([array(4, 8), array(4, 8, seed=1)], [array(4, 8, seed=2)] * 3, epoch=epoch)
                     for epoch in range(3)]
    return found


def followed():
    """BYOL: one net learns to foretell what another one says, which follows it slowly."""
    import copy
    net = fill(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2),
                                   torch.nn.Flatten(), modules.BYOLProjectionHead(16, 12, 6)))
    head, slow = fill(modules.BYOLPredictionHead(6, 12, 6)), copy.deepcopy(net)
    deactivate_requires_grad(slow)
    sgd = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.1)
    schedule, losses = CosineWarmupScheduler(sgd, warmup_epochs=2, max_epochs=5), []
    for step in range(5):
        one, other = array(6, 3, 16, 16, seed=step), array(6, 3, 16, 16, seed=step + 9)
        update_momentum(net, slow, m=cosine_schedule(step, 5, 0.9, 1))
        loss = losses_of.NegativeCosineSimilarity()(head(net(one)), slow(other).detach())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        schedule.step()
        losses.append(loss)
    return {"losses": losses, "slow": slow[0].weight, "rate": sgd.param_groups[0]["lr"]}


def viewed():
    """Two views of pictures from a folder, in batches."""
    from pathlib import Path

    import numpy as np
    from PIL import Image
    Path("pictures").mkdir()
    for n in range(4):
        pixels = (array(20, 20, 3, seed=n).sigmoid().numpy() * 255).astype(np.uint8)
        Image.fromarray(pixels).save(f"pictures/{n}.png")
    data = LightlyDataset("pictures", transform=SimCLRTransform(input_size=16, gaussian_blur=0.0, cj_prob=0.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    return {"batches": [[view.mean((2, 3)) for view in views] for views, _, _ in loader],
            "names": [name for _, _, names in loader for name in names]}
