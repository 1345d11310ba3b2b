"""Run as a module: relative imports work, and `__main__` is a module of the package."""
import sys

import torch

from .part import doubled

print(__name__, __package__, __spec__.name, sys.argv[1:], doubled(torch.tensor(2.0)).item())
