"""Sparse tensors, as far as they go: elements listed by their places, which can be summed, looked at and made dense.

`torch.sparse_coo_tensor` is how programs count pairs (torchmetrics' scores of clusters do): list places, and have
`to_dense()` add up what falls on the same one. That is here, with its gradient. What it gives is not a `torch.Tensor`:
no operation takes it, and whatever else PyTorch's can do raises NotImplementedError, which names `to_dense()`.
"""
from .base import dtypes, layout as layouts
from .base.errors import here, line_of, need
from .base.spec import Size
from .missing import rest_of
from .tensor.create import as_tensor, tensor
from .tensor.tensor import Tensor

__getattr__ = rest_of("torch.sparse")


class SparseCooTensor:
    """`values[k]` stands at the place `indices[:, k]` of `shape`; several at one place count as their sum."""

    is_sparse, layout, ndim = True, layouts.others[0], property(lambda self: len(self.shape))

    def __init__(self, indices, values, shape, coalesced):
        self._held_indices, self._held_values, self.shape, self._coalesced = indices, values, Size(shape), coalesced

    dtype = property(lambda self: self._held_values.dtype)
    device = property(lambda self: self._held_values.device)
    requires_grad = property(lambda self: self._held_values.requires_grad)

    def __getattr__(self, name):
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"'SparseCooTensor' object has no attribute '{name}'", name=name)
        raise NotImplementedError(f"a sparse tensor has no {name} in Flambeau (used at {line_of(here())}): call "
                                  f"to_dense(), and {name} on the result")

    def __repr__(self):
        inside = []
        for name, held in (("indices", self._indices()), ("values", self._values())):
            shown = repr(held.detach()) if held.numel() else f"tensor([], size={tuple(held.shape)})"
            shown = shown.replace(f", dtype={held.dtype}", "")
            inside.append(f"{name}={shown}".replace("\n", "\n" + " " * (len(name) + 8)))
        kind = "" if self.dtype in (dtypes.default, dtypes.int64, dtypes.bool) else f"dtype={self.dtype}, "
        more = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({inside[0]},\n       {inside[1]},\n       size={tuple(self.shape)}, nnz={self._nnz()}, " \
               f"{kind}layout={self.layout}{more})"

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
        """How many dimensions the places have."""
        return self._held_indices.shape[0]

    def dense_dim(self):
        """How many dimensions each value has."""
        return self._held_values.ndim - 1

    def _nnz(self):
        return self._held_indices.shape[1]

    def _indices(self):
        return self._held_indices

    def _values(self):
        return self._held_values

    def is_coalesced(self):
        """Whether every place is listed once, in order."""
        return self._coalesced

    def indices(self):
        """The places, one a column."""
        return self._when_coalesced("indices", self._held_indices)

    def values(self):
        """What stands at each place."""
        return self._when_coalesced("values", self._held_values)

    def _when_coalesced(self, what, held):
        if not self._coalesced:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")
        return held

    def coalesce(self):
        """The same with every place listed once, in order, and the values there summed."""
        if self._coalesced:
            return self
        places, at = self._held_indices.unique(dim=1, return_inverse=True)
        values = self._held_values.new_zeros(places.shape[1], *self._held_values.shape[1:])
        return SparseCooTensor(places, values.index_put((at,), self._held_values, accumulate=True), self.shape, True)

    def to_dense(self, dtype=None, *, masked_grad=None):
        """An ordinary tensor: the sum of what stands at each place, zero where nothing does."""
        made = self._held_values.new_zeros(self.shape).index_put(
            tuple(self._held_indices), self._held_values, accumulate=True)
        return made if dtype is None else made.to(dtype)


def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, device=None, pin_memory=False,
                      requires_grad=False, check_invariants=None, is_coalesced=None):
    """A sparse tensor with `values[k]` at the place `indices[:, k]`. Alone, `indices` is the size of an empty one.

    >>> torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [9., 0., 0.]])
    """
    if values is None:
        size, indices, values = indices, tensor([]).reshape(len(indices), 0), tensor([])
    places = as_tensor(indices).to(int)
    held = as_tensor(values, dtype=dtype) if dtype is not None or isinstance(values, Tensor) else tensor(values)
    need(places.ndim == 2, f"indices must be sparse_dim x nnz, that is, of two dimensions, but it has {places.ndim}")
    need(held.ndim > 0 and held.shape[0] == places.shape[1], "indices and values must have same nnz, but got nnz from "
         f"indices: {places.shape[1]}, nnz from values: {held.shape[0] if held.ndim else 0}")
    most = (places.amax(1) + 1).tolist() if places.numel() else [0] * places.shape[0]
    size = (*most, *held.shape[1:]) if size is None else tuple(size)
    need(len(size) == places.shape[0] + held.ndim - 1, "'len(size) == sparse_dim + dense_dim' is not satisfied: "
         f"len(size) = {len(size)}, sparse_dim = {places.shape[0]}, dense_dim = {held.ndim - 1}")
    for dim, (reached, there) in enumerate(zip(most, size, strict=False)):
        need(reached <= there, f"size is inconsistent with indices: for dim {dim}, size is {there} but found index "
                               f"{reached - 1}")
    need(not places.numel() or places.amin().item() >= 0, "found negative index in indices")
    if requires_grad:
        held = held.detach().requires_grad_()
    return SparseCooTensor(places, held, size, bool(is_coalesced) or places.shape[1] < 2)
