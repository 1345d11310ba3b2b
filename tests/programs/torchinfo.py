"""torchinfo: the tables of nets: shapes, parameters, multiplications, what is frozen."""
import torch
from torchinfo import summary

PACKAGES = ["torchinfo"]
QUICK = True


def _conv():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                               torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(8 * 64, 10))


def tables():
    """The whole text, for nets of each kind of layer."""
    columns = ("input_size", "output_size", "num_params", "kernel_size", "mult_adds", "trainable")
    nets = {"conv": (_conv(), {"input_size": (2, 3, 16, 16)}),
            "transformer": (torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), {"input_size": (2, 5, 16)}),
            "recurrent": (torch.nn.LSTM(6, 8, 2, batch_first=True), {"input_size": (2, 5, 6)}),
            "embedding": (torch.nn.Embedding(20, 8), {"input_size": (2, 5), "dtypes": [torch.long]}),
            "without data": (_conv(), {})}
    return {name: str(summary(net, col_names=columns if given else ("num_params",), verbose=0, depth=3, **given))
            for name, (net, given) in nets.items()}


def counts():
    """The numbers behind the table; frozen parameters."""
    net = _conv()
    net[0].requires_grad_(False)
    found = summary(net, input_data=torch.zeros(1, 3, 16, 16), verbose=0)
    return {"parameters": found.total_params, "trainable": found.trainable_params, "operations": found.total_mult_adds,
            "bytes": found.total_output_bytes}
