"""Small modules for the tests of this folder."""
import flambeau as torch
from flambeau import nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("cache", torch.ones(1), persistent=False)

    def forward(self, x):
        return x * self.weight + self.mean


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.second = Inner()
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.register_parameter("bias", None)

    def forward(self, x, shift=0.0):
        return self.second(self.first(x)) * self.scale + shift


def values(tensor):
    return tensor.detach().tolist()
