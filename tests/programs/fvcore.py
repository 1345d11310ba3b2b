"""fvcore: parameters counted by module, losses for detection, statistics of batch norms taken anew."""
import torch
import torchvision
from fvcore.nn import giou_loss, parameter_count, parameter_count_table, sigmoid_focal_loss, smooth_l1_loss
from fvcore.nn.precise_bn import update_bn_stats

from tests.programs import array, fill

PACKAGES = ["fvcore", "torchvision"]
LACKS = ["FlopCountAnalysis and ActivationCountAnalysis, which count in graphs of TorchScript: "
         "torch.utils.flop_counter.FlopCounterMode counts the calls of a program"]


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).relu().mean((2, 3)))


def counted():
    """Parameters by module, and their table."""
    nets = {"small": _Net(), "resnet18": torchvision.models.resnet18()}
    found = {name: parameter_count(net) for name, net in nets.items()}
    return {"small": dict(found["small"]), "resnet18": found["resnet18"][""],
            "table": parameter_count_table(_Net(), max_depth=2)}


def losses():
    """Focal, smooth and overlap losses with their gradients."""
    found = {}
    positive = (array(6, 4) > 0).float()
    for name, loss, target in (("focal", lambda x, y: sigmoid_focal_loss(x, y, 0.25, 2, "sum"), positive),
                               ("smooth", lambda x, y: smooth_l1_loss(x, y, 0.5, "mean"), array(6, 4, seed=1))):
        x = array(6, 4, seed=2).requires_grad_()
        value = loss(x, target)
        value.backward()
        found[name] = {"value": value, "gradient": x.grad}
    boxes = array(5, 4).abs() + torch.tensor([0.0, 0.0, 3.0, 3.0])
    return found | {"giou": giou_loss(boxes, boxes + 0.4, reduction="sum")}


def normed():
    """Statistics of batch norms taken anew over data."""
    net = fill(_Net()).train()
    update_bn_stats(net, [array(4, 3, 8, 8, seed=n) for n in range(3)], 3)
    return {"mean": net.norm.running_mean, "var": net.norm.running_var}
