"""Sparse tensors, as far as they go: elements listed by their positions, which can be summed, looked at and made dense.

`torch.sparse_coo_tensor` is how programs count pairs (torchmetrics' scores of clusters do): list positions, and have
`to_dense()` add up what falls on the same one. That is here, with its gradient. What it gives is not a `torch.Tensor`:
no operation takes it, and whatever else PyTorch's can do raises NotImplementedError, which names `to_dense()`.
"""
from .base import dtypes, layout as layouts
from .base.errors import here, line_of, need
from .base.spec import Size
from .compat.missing import rest_of
from .tensor.create import as_tensor, tensor
from .tensor.tensor import Tensor

__getattr__ = rest_of("torch.sparse")


class SparseCooTensor:
    """`values[k]` stands at the position `indices[:, k]` of `shape`; several at one position count as their sum."""

    is_sparse, layout, ndim = True, layouts.others[0], property(lambda self: len(self.shape))

    def __init__(self, indices, values, shape, coalesced):
        self._stored_indices, self._stored_values, self.shape, self._coalesced = indices, values, Size(shape), coalesced

    dtype = property(lambda self: self._stored_values.dtype)
    device = property(lambda self: self._stored_values.device)
    requires_grad = property(lambda self: self._stored_values.requires_grad)

    def __getattr__(self, name):
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"'SparseCooTensor' object has no attribute '{name}'", name=name)
        raise NotImplementedError(f"a sparse tensor has no {name} in Flambeau (used at {line_of(here())}): call "
                                  f"to_dense(), and {name} on the result")

    def __repr__(self):
        inside = []
        for name, part in (("indices", self._indices()), ("values", self._values())):
            shown = repr(part.detach()) if part.numel() else f"tensor([], size={tuple(part.shape)})"
            shown = shown.replace(f", dtype={part.dtype}", "")
            inside.append(f"{name}={shown}".replace("\n", "\n" + " " * (len(name) + 8)))
        dtype_shown = "" if self.dtype in (dtypes.default, dtypes.int64, dtypes.bool) else f"dtype={self.dtype}, "
        more = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({inside[0]},\n       {inside[1]},\n       size={tuple(self.shape)}, nnz={self._nnz()}, " \
               f"{dtype_shown}layout={self.layout}{more})"

    def size(self, dim=None):
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        """How many dimensions it has."""
        return len(self.shape)

    def numel(self):
        """How many elements it has, those that are not listed counted too."""
        return self.shape.numel()

    def sparse_dim(self):
        """How many dimensions the positions have."""
        return self._stored_indices.shape[0]

    def dense_dim(self):
        """How many dimensions each value has."""
        return self._stored_values.ndim - 1

    def _nnz(self):
        return self._stored_indices.shape[1]

    def _indices(self):
        return self._stored_indices

    def _values(self):
        return self._stored_values

    def is_coalesced(self):
        """Whether every position is listed once, in order."""
        return self._coalesced

    def indices(self):
        """The positions, one a column."""
        return self._when_coalesced("indices", self._stored_indices)

    def values(self):
        """What stands at each position."""
        return self._when_coalesced("values", self._stored_values)

    def _when_coalesced(self, what, part):
        if not self._coalesced:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")
        return part

    def coalesce(self):
        """The same with every position listed once, in order, and the values there summed."""
        if self._coalesced:
            return self
        positions, at = self._stored_indices.unique(dim=1, return_inverse=True)
        values = self._stored_values.new_zeros(positions.shape[1], *self._stored_values.shape[1:])
        summed = values.index_put((at,), self._stored_values, accumulate=True)
        return SparseCooTensor(positions, summed, self.shape, True)

    def to_dense(self, dtype=None, *, masked_grad=None):
        """An ordinary tensor: the sum of what stands at each position, zero where nothing does."""
        made = self._stored_values.new_zeros(self.shape).index_put(
            tuple(self._stored_indices), self._stored_values, accumulate=True)
        return made if dtype is None else made.to(dtype)


def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, device=None, pin_memory=False,
                      requires_grad=False, check_invariants=None, is_coalesced=None):
    """A sparse tensor with `values[k]` at the position `indices[:, k]`. Alone, `indices` is the size of an empty one.

    >>> torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [9., 0., 0.]])
    """
    if values is None:
        size, indices, values = indices, tensor([]).reshape(len(indices), 0), tensor([])
    positions = as_tensor(indices).to(int)
    elements = as_tensor(values, dtype=dtype) if dtype is not None or isinstance(values, Tensor) else tensor(values)
    need(positions.ndim == 2,
         f"indices must be sparse_dim x nnz, that is, of two dimensions, but it has {positions.ndim}")
    need(elements.ndim > 0 and elements.shape[0] == positions.shape[1], "indices and values must have same nnz, but "
         f"got nnz from indices: {positions.shape[1]}, nnz from values: "
         f"{elements.shape[0] if elements.ndim else 0}")
    most = (positions.amax(1) + 1).tolist() if positions.numel() else [0] * positions.shape[0]
    size = (*most, *elements.shape[1:]) if size is None else tuple(size)
    need(len(size) == positions.shape[0] + elements.ndim - 1, "'len(size) == sparse_dim + dense_dim' is not satisfied: "
         f"len(size) = {len(size)}, sparse_dim = {positions.shape[0]}, dense_dim = {elements.ndim - 1}")
    for dim, (reached, there) in enumerate(zip(most, size, strict=False)):
        need(reached <= there, f"size is inconsistent with indices: for dim {dim}, size is {there} but found index "
                               f"{reached - 1}")
    need(not positions.numel() or positions.amin().item() >= 0, "found negative index in indices")
    if requires_grad:
        elements = elements.detach().requires_grad_()
    return SparseCooTensor(positions, elements, size, bool(is_coalesced) or positions.shape[1] < 2)
