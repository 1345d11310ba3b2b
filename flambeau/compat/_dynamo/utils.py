"""What torchvision asks before it compiles its transforms."""
from ..missing import rest_of

__getattr__ = rest_of("torch._dynamo.utils")


def is_compile_supported(device_type):
    """Whether PyTorch's compiler can be used: it is not here."""
    return False
