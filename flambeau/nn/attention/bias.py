"""Causal masks for queries and keys of different numbers."""
from enum import IntEnum

from ...base.errors import warn
from ...tensor.functions import ones
from ...tensor.subclass import opted_out
from ...tensor.tensor import Tensor

__all__ = ["causal_upper_left", "causal_lower_right", "CausalVariant", "CausalBias"]


class CausalVariant(IntEnum):
    """Which corners of the mask are tied: the first query to the first key, or the last to the last."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask, as `attn_mask` of `scaled_dot_product_attention`: an ordinary one, true where keys count."""

    __torch_function__ = opted_out

    def __new__(cls, variant, seq_len_q, seq_len_kv):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        lower = variant is CausalVariant.LOWER_RIGHT
        if lower and seq_len_q > seq_len_kv:
            warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!")
        mask = ones((seq_len_q, seq_len_kv), dtype=bool).tril(seq_len_kv - seq_len_q if lower else 0)
        made = mask.as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, variant, seq_len_q, seq_len_kv):
        pass

    def __repr__(self):
        return repr(self._materialize())

    def _materialize(self, device=None):
        """The mask as a plain tensor."""
        return self.as_subclass(Tensor).to(device) if device is not None else self.as_subclass(Tensor)


def sizes(size, name):
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors, got {len(size)} sizes")
    return size


def causal_upper_left(*size):
    """The mask in which query i sees the keys up to i, for (queries, keys)."""
    return CausalBias(CausalVariant.UPPER_LEFT, *sizes(size, "causal_upper_left"))


def causal_lower_right(*size):
    """The mask in which the last query sees all keys, the one before all but one, ….

    >>> torch.nn.attention.bias.causal_lower_right(2, 4)
    tensor([[ True,  True,  True, False],
            [ True,  True,  True,  True]])
    """
    return CausalBias(CausalVariant.LOWER_RIGHT, *sizes(size, "causal_lower_right"))
