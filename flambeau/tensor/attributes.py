"""What changes or shows the tensor object itself: the transposing properties, and the in-place forms that give
a tensor another geometry (`t_`, `squeeze_`) or other memory (`resize_`, `set_`) instead of other contents."""


from ..autograd.edges import requires
from ..autograd.function import RefusingNode
from ..autograd.modes import modes
from ..base import layout, shapes
from ..base.errors import need, warn
from ..base.op import door
from ..base.spec import META, spec
from ..trace.value import Storage, Value
from . import forms
from .call import call
from .messages import said
from .storage import resize
from .tensor import Tensor
from .write import before_write, hide_write

# --- properties ---------------------------------------------------------------------------------------------


def _T(self):
    """The tensor with its dimensions in reverse order."""
    ndim = self._spec.ndim
    if ndim != 2:
        words = "Tensor.T is deprecated on 0-D tensors, where it is the identity." if ndim == 0 else \
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated " \
            "and it will throw an error in a future release. Consider `x.mT` to transpose batches of " \
            "matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        warn(words)
    return self.permute(tuple(range(ndim - 1, -1, -1)))


def _mT(self):
    """Each matrix of the last two dimensions transposed."""
    if self._spec.ndim == 0:
        warn("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
        return self
    _matrices(self, "mT")
    return self.transpose(-2, -1)


def _H(self):
    """The matrix transposed and conjugated."""
    if self._spec.ndim not in (0, 2):
        more = " For batches of matrices, consider using tensor.mH" if self._spec.ndim > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self._spec.ndim}-D "
                           f"tensor.{more}" + said(self))
    return _mH(self)


def _mH(self):
    """Each matrix of the last two dimensions transposed and conjugated."""
    _matrices(self, "mH")
    return self.adjoint()


def _matrices(self, name):
    if self._spec.ndim == 1:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
                           + said(self))


Tensor.T, Tensor.mT, Tensor.H, Tensor.mH = property(_T), property(_mT), property(_H), property(_mH)
Tensor.layout = property(lambda self: layout.strided)


# --- another geometry in place ------------------------------------------------------------------------------


def in_place_view(name, number):
    """The in-place form of a view: the tensor itself takes on the view's geometry and history.

    PyTorch numbers the nodes of in-place forms after those of the others: TBackward1 is that of `t_`.
    """
    op = forms.declared[name]

    def form(self, *args, **kwargs):
        before_write(self, name + "_", bytes=False)
        seen = call(op, (self, *args), kwargs)
        self._storage.version += 1
        if self._data_version is not None:
            hide_write(self)
        self._spec, self._offset = seen._spec, seen._offset
        if seen._node is not None:
            self._seen = self._storage.version        # else a view takes its history anew, in its new geometry
            said = seen._node.name()
            seen._node.name = lambda: said[:-1] + str(int(said[-1]) + number)
            self._node, self._nr = seen._node, seen._nr
            if self._retains:
                self.retain_grad()
        return self
    words = f"In-place form of `{name}`: the tensor itself is seen so from now on; its memory stays."
    return forms.with_metadata(form, op, name + "_", words)


for _name, _number in {"t": 1, "transpose": 1, "swapaxes": 1, "swapdims": 1, "unsqueeze": 1, "squeeze": 3,
                       "as_strided": 1}.items():
    setattr(Tensor, _name + "_", in_place_view(_name, _number))


# --- other memory in place ----------------------------------------------------------------------------------


def resize_(self, *sizes, memory_format=None):
    """Give the tensor another size. Memory is kept as far as it goes; what is new is not initialised."""
    size = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    size = tuple([int(n) for n in size])
    if requires(self) and not modes.inference:
        raise RuntimeError("cannot resize variables that require grad" + said(self))
    for n in size:
        need(n >= 0, f"Trying to create tensor with negative dimension {n}: {list(size)}")
    spec = self._spec
    strides = shapes.contiguous_strides(size)
    if memory_format is not None:
        if memory_format is layout.preserve_format:
            raise RuntimeError("Unsupported memory format Preserve")
        strides = memory_format.strides(size)
    elif size == spec.shape:
        return self
    resized(self, size, strides)
    self._storage.version += 1
    if self._data_version is not None:
        hide_write(self)
    return self


def resized(self, size, strides):
    """Give the tensor that size and those strides, and its storage the memory for them."""
    own = self._spec
    wanted = spec(own.dtype, size, strides, own.device)
    if wanted.numel:
        _reserve(self._storage, (self._offset + shapes.extent(size, strides)) * own.dtype.itemsize)
    self._spec = wanted


door.resize = resized


def _reserve(storage, nbytes):
    """Make `storage` at least that large; the bytes it has stay."""
    if nbytes <= storage.nbytes:
        return
    if storage.exported and storage.still_exported():
        raise RuntimeError("Trying to resize storage that is not resizable: its memory is shared with a NumPy array "
                           "(or its address is known). clone() the tensor first.")
    if storage.value is not None:
        storage.value = storage.value.ready().with_length(nbytes)
    storage.nbytes = nbytes


def resize_as_(self, the_template, *, memory_format=None):
    """Give the tensor the size of `the_template`, and with `preserve_format` its memory format too."""
    if memory_format is layout.preserve_format:
        memory_format = layout.suggested(the_template._spec.shape, the_template._spec.strides)
    return resize_(self, the_template.shape, memory_format=memory_format)


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Make the tensor look at the memory of `source`, a tensor or a storage; at none without one."""
    before_write(self, "set_", bytes=False)
    if source is None:
        wanted = spec(self._spec.dtype, (0,), None, self._spec.device)
        value = Value.of(wanted.device.backend.allocate(wanted), wanted) if wanted.device is not META else None
        storage, start = Storage.of(value, 0, wanted.device), 0
    elif isinstance(source, Tensor):
        if source._spec.dtype is not self._spec.dtype:
            raise RuntimeError(f"Could not set tensor of type {source._spec.dtype.name} to a tensor of type "
                               f"{self._spec.dtype.name}" + said(source))
        storage, wanted, start = source._storage, source._spec, source._offset
    else:
        storage, start = getattr(source, "_storage", source), storage_offset
        if not isinstance(storage, Storage):
            raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
        dtype = getattr(source, "dtype", None)
        if dtype is not None and dtype is not self._spec.dtype:
            raise RuntimeError(f"Expected a Storage of type {self._spec.dtype.name} or an UntypedStorage, but got type "
                               f"{dtype.cname} for argument 1 'storage'" + said(self))
        n = storage.nbytes // self._spec.dtype.itemsize - start
        wanted = spec(self._spec.dtype, (n,), None, storage.device)
    if size is not None:
        size = (size,) if isinstance(size, int) else tuple(size)
        stride = (stride,) if isinstance(stride, int) else stride
        strides = shapes.contiguous_strides(size) if stride is None else tuple(stride)
        start, itemsize = storage_offset, wanted.dtype.itemsize
        extent = (start + shapes.extent(size, strides)) * itemsize
        if extent > storage.nbytes and shapes.numel(size) and not isinstance(source, Tensor):
            resize(storage, extent)                  # as in PyTorch: a storage that is given by itself grows
        if extent > storage.nbytes and shapes.numel(size):
            raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(strides)}, storage offset {start}, and "
                               f"itemsize {itemsize} requiring a storage size of {extent} are out of bounds for "
                               f"storage of size {storage.nbytes}" + said(self))
        wanted = spec(wanted.dtype, size, strides, wanted.device)
    self._storage.version += 1                    # what autograd has kept of it is gone
    self._storage, self._spec, self._offset = storage, wanted, start
    self._seen = storage.version
    if self._node is not None:
        self._node, self._nr = RefusingNode((), "NotImplemented", "derivative for set_ is not implemented"), 0
    return self


def is_set_to(self, tensor):
    """Whether both look at the same memory in the same way."""
    return self._storage is tensor._storage and self._spec is tensor._spec and self._offset == tensor._offset


Tensor.resize_, Tensor.resize_as_, Tensor.set_, Tensor.is_set_to = resize_, resize_as_, set_, is_set_to
for _name in ("as_strided_", "resize_as_", "fill_", "zero_", "detach", "detach_"):
    forms.namespace[""][_name] = getattr(Tensor, _name)
