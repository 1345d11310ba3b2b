"""Where accelerate and diffusers look for the class of a compiled module."""
from ...compiler.module import OptimizedModule
from ..missing import rest_of

__getattr__ = rest_of("torch._dynamo.eval_frame")
__all__ = ["OptimizedModule"]
