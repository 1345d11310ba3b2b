"""Neural networks: for now the functions (`nn.functional`); modules come on top of them."""
from . import functional

__all__ = ["functional"]
