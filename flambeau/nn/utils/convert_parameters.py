"""Parameters as one long vector, and back."""
from ...tensor.functions import cat
from ...tensor.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def one_device(parameters):
    """The parameters as a list; refuses any that are on different devices."""
    parameters = list(parameters)
    if len({p.device for p in parameters}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported: "
                        f"{sorted({str(p.device) for p in parameters})}")
    return parameters


def parameters_to_vector(parameters):
    """All parameters, one after the other, as one vector."""
    return cat([p.view(-1) for p in one_device(parameters)])


def vector_to_parameters(vec, parameters):
    """Make the parameters look at the slices of `vec`, in the order in which `parameters_to_vector` lays them."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for p in one_device(parameters):
        p.data = vec[start:start + p.numel()].view_as(p).data
        start += p.numel()
