"""`torch._utils`: what pickles of PyTorch's tensors name, and the packing of tensors into one."""
from .base.spec import spec
from .nn.parameter import Parameter
from .tensor.dispatch import wrap
from .tensor.forms import namespace

cat = namespace[""]["cat"]


def _rebuild_tensor(storage, storage_offset, size, stride):
    """A tensor over a storage out of a pickle."""
    cell = storage._storage
    return wrap(cell, spec(storage.dtype, tuple(size), tuple(stride), cell.device), storage_offset)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    """A tensor over a storage out of a pickle, with its wish for a gradient."""
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    return made.requires_grad_() if requires_grad else made


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """A parameter out of a pickle."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    """A parameter out of a pickle, with attributes of its own."""
    made = Parameter(data, requires_grad)
    vars(made).update(state[0] if isinstance(state, tuple) else state)
    return made


def _flatten_dense_tensors(tensors):
    """The elements of all tensors in one row."""
    return cat([t.reshape(-1) for t in tensors]) if len(tensors) != 1 else tensors[0].reshape(-1)


def _unflatten_dense_tensors(flat, tensors):
    """Views of a row as `_flatten_dense_tensors` makes it, with the shapes of `tensors`."""
    made, start = [], 0
    for t in tensors:
        made.append(flat.narrow(0, start, t.numel()).view(t.shape))
        start += t.numel()
    return tuple(made)
