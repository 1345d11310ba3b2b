"""`torch.fx.experimental.proxy_tensor`: tracing by tensors below autograd, which is not here."""
from ...compat.missing import rest_of

__all__ = ["get_proxy_mode"]
__getattr__ = rest_of("torch.fx.experimental.proxy_tensor",
                      make_fx="only symbolic tracing is here, torch.fx.symbolic_trace")


def get_proxy_mode():
    """The mode that traces by tensors: there is none."""
