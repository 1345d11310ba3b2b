"""`torch._utils`: what pickles of PyTorch's tensors name, and the packing of tensors into one."""
from importlib import import_module

from ..backends.devices import accelerator
from ..base.lazy import import_when_asked, names_there
from ..base.names import attribute_error
from ..base.spec import device as device_type, spec
from ..nn import Parameter
from ..tensor.forms import namespace
from ..tensor.tensor import wrap

cat = namespace[""]["cat"]
# How exceptions travel between processes: torchdata, accelerate.
__getattr__ = import_when_asked(__name__, {name: f"utils.data._utils.worker:{name}"
                                           for name in ("ExceptionWrapper", "KeyErrorMessage")},
                                lambda name: attribute_error("torch._utils", name, lambda: names_there(__name__)))


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


def _take_tensors(tensors, size_limit):
    """Lists of tensors of one type each, in their order, that have `size_limit` bytes together where more than one is
    in a list. mmengine and mmcv send parameters to other processes so.
    """
    lists: dict = {}                     # type → (bytes so far, tensors)
    for t in tensors:
        nbytes, chosen = lists.get(t.type(), (0, []))
        if nbytes and nbytes + t.nbytes > size_limit:
            yield chosen
            nbytes, chosen = 0, []
        chosen.append(t)
        lists[t.type()] = nbytes + t.nbytes, chosen
    for _, chosen in lists.values():
        yield chosen


def _reorder_tensors_as(tensors, ordered_tensors):
    """`tensors`, whose order is right among those of a type, in the order of types of `ordered_tensors`."""
    lists: dict = {}
    for t in tensors:
        lists.setdefault(t.type(), []).append(t)
    nexts = {name: iter(alike) for name, alike in lists.items()}
    return tuple(next(nexts[t.type()]) for t in ordered_tensors)


def _element_size(dtype):
    """Bytes per element of a dtype. lightning."""
    return dtype.itemsize


def _get_device_index(device, optional=False, allow_cpu=False):
    """The index of a device; of the CPU, -1 where that is allowed. lightning."""
    if isinstance(device, int):
        return device
    device = device_type(device) if device is not None else None
    if device is not None and device.type == "cpu" and not allow_cpu:
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    if device is None or device.index is None:
        if device is not None and device.type == "cpu":
            return -1
        if optional:
            raise AssertionError("there is no current device besides the CPU")
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return device.index


def _get_available_device_type():
    """The type of device besides the CPU that there is, or None. tensordict."""
    return accelerator()


def _get_device_module(device_type):
    """The module for a type of device: `torch.cpu` for "cpu". tensordict."""
    return import_module(f"..{device_type}", __package__)
