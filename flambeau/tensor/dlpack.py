"""DLPack both ways: tensors of other libraries as ours and ours as theirs, over the same memory."""
from ..autograd.edges import requires
from ..backends.dlpack import CPU_DEVICE, CUDA_DEVICE, packed, unpacked
from ..base.spec import CPU, META, as_device
from .interop import check_array, exported, held, shared, shared_foreign, who
from .tensor import Tensor

PUBLIC = ("from_dlpack",)


# --- out --------------------------------------------------


def dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A DLPack capsule over the tensor's memory (of a copy, with `copy=True`)."""
    if requires(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()" + who(self))
    if self._spec.device is META:
        raise BufferError("Cannot pack tensors on meta" + who(self))
    if self._spec.device is not CPU:
        return _from_device(self, stream, max_version, dl_device, copy)
    if stream not in (None, -1):
        raise AssertionError(f"stream should be None on cpu, got {stream}")
    if dl_device is not None and tuple(map(int, dl_device)) != CPU_DEVICE:
        raise BufferError(f"the tensor is on the CPU, and there is no device {tuple(dl_device)} to copy it to")
    source = self.clone() if copy else self
    return packed(exported(source), source._spec.dtype, max_version)


def _from_device(self, stream, max_version, dl_device, copy):
    """A capsule over memory of another device than the CPU."""
    if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
        if tuple(map(int, dl_device)) != CPU_DEVICE or copy is False:
            raise BufferError(f"the tensor is on {self.device}, and goes to DLPack's device {tuple(dl_device)} only by "
                              f"{'a copy' if copy is False else '.to()'}" + who(self))
        return dlpack(self.cpu(), max_version=max_version)
    source = self.clone() if copy else self
    return source._spec.device.backend.dlpack(held(source), source._spec, source._offset, stream, max_version)


def dlpack_device(self):
    """The device as DLPack counts: (1, 0), the CPU; (2, 0), the first GPU."""
    where = self._spec.device
    if where is META:
        raise ValueError("Unknown device type meta for Dlpack")
    return CPU_DEVICE if where is CPU else where.backend.dlpack_device()


def to_dlpack(tensor):
    """A DLPack capsule over the tensor's memory, in the old form that carries no version."""
    return dlpack(tensor)


# --- in --------------------------------------------------


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor over the memory of another library's tensor (or of a DLPack capsule); read-only if that is.

    >>> import numpy as np
    >>> torch.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(ext_tensor, Tensor):
        out = ext_tensor.detach()
    elif hasattr(ext_tensor, "__dlpack_device__") and int(ext_tensor.__dlpack_device__()[0]) == CUDA_DEVICE:
        from ..backends.cuda.exchange import from_dlpack as from_gpu
        out = shared_foreign(from_gpu(ext_tensor))
    else:
        out = shared(array_over(ext_tensor))
    if device is not None and as_device(device) is not out.device:
        if copy is False:
            raise ValueError(f"cannot move a tensor from {out.device} to {device} without copying it")
        out = out.to(device=device)
    return out.clone() if copy else out


def array_over(thing):
    """The array that shows the memory of an object with `__dlpack__`, or of a capsule."""
    capsule = thing
    if hasattr(thing, "__dlpack__"):
        where = tuple(map(int, thing.__dlpack_device__()))
        if where[0] != CPU_DEVICE[0]:
            raise BufferError(f"the other tensor is on DLPack device {where}, and there is only the CPU here: copy it "
                              "to the CPU first")
        try:
            capsule = thing.__dlpack__(max_version=(1, 0))
        except TypeError:                                  # from before versions
            capsule = thing.__dlpack__()
    elif type(thing).__name__ != "PyCapsule":
        raise RuntimeError(f"from_dlpack received an invalid capsule: {type(thing).__name__} has no __dlpack__, and is "
                           "none")
    array = unpacked(capsule)
    check_array(array)
    return array


Tensor.__dlpack__, Tensor.__dlpack_device__ = dlpack, dlpack_device
