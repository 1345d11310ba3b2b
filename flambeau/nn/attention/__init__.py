"""PyTorch's choice between kernels for `scaled_dot_product_attention`. Here there is one, and every choice means it."""
from contextlib import contextmanager
from enum import Enum

__all__ = ["SDPBackend", "sdpa_kernel", "WARN_FOR_UNFUSED_KERNELS"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(Enum):
    """The kernels that PyTorch chooses from."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self):
        return self.value


@contextmanager
def sdpa_kernel(backends, set_priority=False):
    """A context, or a decorator, in which PyTorch would use one of `backends`. It changes nothing here.

    >>> from flambeau.nn.attention import SDPBackend, sdpa_kernel
    >>> q = torch.randn(2, 4, 8)
    >>> with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
    ...     out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    yield


from . import bias
