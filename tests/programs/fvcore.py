"""fvcore: parameters, operations and activations counted by module, losses for detection, statistics taken anew."""
import torch
import torchvision
from fvcore.nn import (
    ActivationCountAnalysis,
    FlopCountAnalysis,
    flop_count_table,
    giou_loss,
    parameter_count,
    parameter_count_table,
    sigmoid_focal_loss,
    smooth_l1_loss,
)
from fvcore.nn.precise_bn import update_bn_stats

from tests.programs import array, fill

PACKAGES = ["fvcore", "torchvision"]


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


def operations():
    """Floating point operations and activations, by operator and by module."""
    found = {}
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0)
    for name, net, x in (("small", _Net(), array(2, 3, 8, 8)), ("transformer", layer, array(5, 2, 16)),
                         ("resnet18", torchvision.models.resnet18(), array(1, 3, 64, 64))):
        flops = FlopCountAnalysis(net.eval(), x).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        activations = ActivationCountAnalysis(net, x).unsupported_ops_warnings(False)
        operators, modules = ({key: int(n) for key, n in counts if n}
                              for counts in (sorted(flops.by_operator().items()), flops.by_module().items()))
        found[name] = {"total": flops.total(), "operators": operators, "modules": modules,
                       "activations": int(activations.total())}
    return found | {"table": flop_count_table(FlopCountAnalysis(_Net().eval(), array(2, 3, 8, 8)))}


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
