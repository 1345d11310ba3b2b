"""Tables of vectors that are looked up by number."""
from ...autograd.modes import no_grad
from ...tensor.functions import empty
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What both tables share: their weight, and the row that stays zero."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                 weight, frozen, device, dtype):
        super().__init__()
        if sparse:
            raise NotImplementedError(f"{type(self).__name__}(sparse=True): there are no sparse gradients here; leave "
                                      "it out, the gradient is then dense")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < max(num_embeddings, 1):
                raise AssertionError(f"padding_idx must be within num_embeddings: Padding_idx is {padding_idx}, "
                                     f"num_embeddings {num_embeddings}")
            padding_idx %= max(num_embeddings, 1)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if weight is None:
            weight = empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not frozen)
            self.reset_parameters()
        else:
            if weight.shape != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim: "
                                     f"{tuple(weight.shape)} and {(num_embeddings, embedding_dim)}")
            self.weight = Parameter(weight, requires_grad=not frozen)

    def reset_parameters(self):
        """Draw the table anew from the normal distribution."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _shown(self, *names):
        """The arguments that are not what they are by default, for printing."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        return [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) != usual[name]]


class Embedding(_Table):
    """A table of `num_embeddings` vectors; the input says which.

    The row `padding_idx` starts as zeros and gets no gradient; rows longer than `max_norm` are shortened when they are
    looked up.

    >>> torch.nn.Embedding(10, 3)(torch.tensor([[1, 2], [4, 9]])).shape
    torch.Size([2, 2, 3])
    """

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0,
                 scale_grad_by_freq=False, sparse=False, _weight=None, _freeze=False, device=None, dtype=None):
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                         _weight, _freeze, device, dtype)

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
                         self.sparse)

    def extra_repr(self):
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}",
                          *self._shown("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq")])

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None, max_norm=None, norm_type=2.0,
                        scale_grad_by_freq=False, sparse=False):
        """A table that holds `embeddings`; with `freeze` it is not trained."""
        rows, cols = _matrix(embeddings)
        return cls(rows, cols, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
                   scale_grad_by_freq=scale_grad_by_freq, sparse=sparse, _weight=embeddings, _freeze=freeze)


class EmbeddingBag(_Table):
    """A table of vectors that gives, for each bag of numbers, the sum, mean or maximum of their vectors.

    >>> bags = torch.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bags(torch.tensor([1, 2, 4, 5, 4]), offsets=torch.tensor([0, 3])).shape
    torch.Size([2, 3])
    """

    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                 mode="mean", sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None,
                 dtype=None):
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                         _weight, False, device, dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
                             self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self):
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}",
                          *self._shown("max_norm", "norm_type", "scale_grad_by_freq"), f"mode={self.mode!r}",
                          *self._shown("padding_idx")])

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                        mode="mean", sparse=False, include_last_offset=False, padding_idx=None):
        """A table that holds `embeddings`; with `freeze` it is not trained."""
        rows, cols = _matrix(embeddings)
        made = cls(rows, cols, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
                   padding_idx)
        made.weight.requires_grad = not freeze
        return made


def _matrix(embeddings):
    if embeddings.dim() != 2:
        raise AssertionError(f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()} dimensions")
    return embeddings.shape
