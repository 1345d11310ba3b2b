"""Memory formats and layouts: the names for how a tensor's elements lie in memory."""
from . import shapes
from .errors import need
from .named import Named


class memory_format(Named):
    """An order of the elements in memory, for example `flambeau.channels_last`."""

    __slots__ = ("name", "ndim")

    def __init__(self, name, ndim=None):
        self.name = name
        self.ndim = ndim              # the only number of dimensions it fits; None: any

    def strides(self, shape):
        """The strides of a fresh tensor of `shape` in this format."""
        if self.ndim is None:
            need(self is not preserve_format, "preserve_format has no strides of its own: it keeps those of another "
                                              "tensor")
            return shapes.contiguous_strides(shape)
        need(len(shape) == self.ndim, f"required rank {self.ndim} tensor to use {self.name} format, but the tensor has "
                                      f"{len(shape)} dimensions: {list(shape)}")
        return shapes.channels_last_strides(shape)

    def __reduce__(self):
        return (named, (self.name,))


class layout(Named):
    """How a tensor is stored. Flambeau's are `flambeau.strided`; the others can be named and compared with."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return (named, (self.name,))


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last", 4)
channels_last_3d = memory_format("channels_last_3d", 5)
preserve_format = memory_format("preserve_format")
strided = layout("strided")
# Those that no tensor here has: a program asks `x.layout == torch.sparse_coo`.
others = tuple(map(layout, ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")))
LAYOUTS_AND_FORMATS: tuple[memory_format | layout, ...] = (contiguous_format, channels_last, channels_last_3d,
                                                           preserve_format, strided, *others)
_by_name = {found.name: found for found in LAYOUTS_AND_FORMATS}


def suggested(shape, strides):
    """The memory format that a tensor with this shape and these strides passes on."""
    if not shapes.suggests_channels_last(shape, strides):
        return contiguous_format
    return channels_last if len(shape) == 4 else channels_last_3d


def named(name):
    """The memory format or layout called `name`."""
    return _by_name[name]
