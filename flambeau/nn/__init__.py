"""Neural networks: for now the functions (`nn.functional`); modules come on top of them."""
from . import functional, parameter
from .parameter import Parameter

__all__ = ["Parameter", "functional", "parameter"]
