"""Attention in several heads. PyTorch keeps it in `activation`, which hands it on."""
from ...base import dtypes
from ...tensor.functions import empty
from .. import functional as F, init
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention from each query to all keys, in `num_heads` parts of the features side by side.

    Gives (output, weights): weights are None with `need_weights=False`, which is faster.

    >>> attention = torch.nn.MultiheadAttention(8, num_heads=2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    """

    __constants__ = ["batch_first"]
    _added = {"_qkv_same_embed_dim": True}

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
                 vdim=None, batch_first=False, device=None, dtype=None):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                             f"num_heads={num_heads} instead")
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads, got "
                                 f"embed_dim={embed_dim} and num_heads={num_heads}")
        make = lambda *shape: Parameter(empty(shape, device=device, dtype=dtype))
        if self._qkv_same_embed_dim:
            self.in_proj_weight = make(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight, self.k_proj_weight = make(embed_dim, embed_dim), make(embed_dim, self.kdim)
            self.v_proj_weight = make(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", make(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            self.bias_k, self.bias_v = make(1, 1, embed_dim), make(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        """Draw the weights anew."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        turned = self.batch_first and query.dim() == 3
        if turned:                                         # what is one tensor stays one: it is multiplied once
            same_key, same_value = key is query, value is key
            query = query.transpose(0, 1)
            key = query if same_key else key.transpose(0, 1)
            value = key if same_value else value.transpose(0, 1)
        out, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal)
        return out.transpose(0, 1) if turned else out, weights

    def merge_masks(self, attn_mask, key_padding_mask, query):
        """(one mask for both, 0 for attention only, 1 for padding only, 2 for both; None, None without any)"""
        if key_padding_mask is not None and attn_mask is None:
            return key_padding_mask, 1
        if attn_mask is None:
            return None, None
        samples, steps, _ = query.shape
        if attn_mask.dim() == 3:
            attn_mask = attn_mask.view(samples, -1, steps, steps)
        else:
            attn_mask = attn_mask.view(1, 1, steps, steps).expand(samples, self.num_heads, -1, -1)
        if key_padding_mask is None:
            return attn_mask, 2
        padding = key_padding_mask.view(samples, 1, 1, steps).expand(-1, self.num_heads, -1, -1)
        both = attn_mask.logical_or(padding) if attn_mask.dtype is dtypes.bool else attn_mask + padding
        return both, 2
