"""ptflops: multiplications and parameters of nets, counted through modules and functions."""
import torch
import torchvision
from ptflops import get_model_complexity_info
from torch.nn import functional as F

PACKAGES = ["ptflops", "torchvision"]
LACKS = ["`backend=\"aten\"`, which counts ATen's operators: `backend=\"pytorch\"` counts the calls of a program"]


class _Net(torch.nn.Module):
    """Of modules, functions of nn.functional, operators and methods of tensors."""
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.pool, self.last = torch.nn.AdaptiveAvgPool2d(2), torch.nn.Linear(32, 10)
        self.more = torch.nn.Parameter(torch.ones(10, 5))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = F.gelu(self.last(self.pool(x).flatten(1)))
        return F.softmax((x @ self.more) * 2.0 + torch.matmul(x, self.more), -1)


def _counted(net, size):
    macs, parameters = get_model_complexity_info(net.eval(), size, as_strings=False, print_per_layer_stat=False,
                                                 backend="pytorch")
    return [int(macs), int(parameters)]


def counted():
    """Of a small net, of resnet18, of a transformer, and of a recurrent net; after it nn.functional is as before."""
    before, layer = F.relu, torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return {"small": _counted(_Net(), (3, 16, 16)), "resnet18": _counted(torchvision.models.resnet18(), (3, 64, 64)),
            "transformer": _counted(layer, (5, 16)), "lstm": _counted(torch.nn.LSTM(6, 8, 2, batch_first=True), (4, 6)),
            "text": list(get_model_complexity_info(_Net(), (3, 16, 16), print_per_layer_stat=False, backend="pytorch")),
            "restored": F.relu is before}
