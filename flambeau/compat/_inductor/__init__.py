"""`torch._inductor`, PyTorch's compiler: not here. diffusers tells it that a step begins."""
from ...compiler import cudagraph_mark_step_begin
from ..missing import rest_of

__getattr__ = rest_of("torch._inductor")
__all__ = ["cudagraph_mark_step_begin"]
