"""The transformer of "Attention is all you need": encoder, decoder, their layers, and both together."""
import copy
import math

from ...autograd.modes import modes
from ...base import dtypes
from ...base.errors import warn
from ...tensor.functions import full
from .. import functional as F, init
from .activation import GELU, ReLU
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = ["Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer",
           "TransformerDecoderLayer"]


def _generate_square_subsequent_mask(sz, device=None, dtype=None):
    """A mask that hides what comes later: minus infinity above the diagonal, zero elsewhere."""
    return full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)


def _get_clones(module, N):
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def _get_activation_fn(activation):
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


def as_numbers(mask, name, other, dtype):
    """A mask as one that is added. Masks of two kinds, bool and float, are deprecated together."""
    if mask is None:
        return None
    if other is not None and other.dtype is not mask.dtype:
        warn("Support for mismatched {} and {} is deprecated. Use same type for both instead.".format(*name))
    if mask.dtype is not dtypes.bool:
        if not mask.is_floating_point():
            raise AssertionError(f"only bool and floating types of {name[0]} are supported, got {mask.dtype}")
        return mask
    return mask.new_zeros(mask.shape, dtype=dtype).masked_fill_(mask, -math.inf)


class _Layer(Module):
    """What both kinds of layers share: the feed-forward block, norms before or after each block, dropout."""

    def __init__(self, blocks, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                 norm_first, bias, device, dtype):
        super().__init__()
        made = dict(device=device, dtype=dtype)
        for name in blocks:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first,
                                                   **made))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        count = len(blocks) + 1
        for number in range(1, count + 1):
            setattr(self, f"norm{number}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        for number in range(1, count + 1):
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    def _block(self, number, x, inner, *args):
        """`x` plus what block `number` makes of it, with the norm before or after."""
        norm = getattr(self, f"norm{number}")
        return x + inner(norm(x), *args) if self.norm_first else norm(x + inner(x, *args))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        x = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal,
                           need_weights=False)[0]
        return self.dropout1(x)

    def _feed(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual path and a norm.

    >>> layer = torch.nn.TransformerEncoderLayer(d_model=16, nhead=4, batch_first=True)
    >>> layer(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    __constants__ = ["norm_first"]
    _added = {"activation": F.relu}

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__(("self_attn",), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, device, dtype)
        fused_activations = ((1, F.relu, ReLU), (2, F.gelu, GELU))
        self.activation_relu_or_gelu = next((number for number, function, module in fused_activations
                                             if self.activation is function or isinstance(self.activation, module)), 0)

    def _ff_block(self, x):
        return self.dropout2(self._feed(x))

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        src_key_padding_mask = as_numbers(src_key_padding_mask, ("src_key_padding_mask", "src_mask"), src_mask,
                                          src.dtype)
        src_mask = as_numbers(src_mask, ("src_mask", ""), None, src.dtype)
        x = self._block(1, src, self._sa_block, src_mask, src_key_padding_mask, is_causal)
        return self._block(2, x, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's output, and a feed-forward network.

    >>> layer = torch.nn.TransformerDecoderLayer(d_model=16, nhead=4, batch_first=True)
    >>> layer(torch.randn(2, 3, 16), torch.randn(2, 5, 16)).shape
    torch.Size([2, 3, 16])
    """

    __constants__ = ["norm_first"]
    _added = {"activation": F.relu}

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__(("self_attn", "multihead_attn"), d_model, nhead, dim_feedforward, dropout, activation,
                         layer_norm_eps, batch_first, norm_first, bias, device, dtype)

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        x = self.multihead_attn(x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                                is_causal=is_causal, need_weights=False)[0]
        return self.dropout2(x)

    def _ff_block(self, x):
        return self.dropout3(self._feed(x))

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
        x = self._block(1, tgt, self._sa_block, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._block(2, x, self._mha_block, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self._block(3, x, self._ff_block)


def why_not_nested(layer):
    """Why PyTorch would not run a stack of this layer over nested tensors; "" if it would."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    reasons = {
        "encoder_layer.norm_first was True": layer.norm_first,
        "encoder_layer.self_attn.batch_first was not True(use batch_first for better inference performance)":
            not attention.batch_first,
        "encoder_layer.self_attn._qkv_same_embed_dim was not True": not attention._qkv_same_embed_dim,
        "encoder_layer.self_attn was passed bias=False": attention.in_proj_bias is None,
        "encoder_layer.activation_relu_or_gelu was not True": not layer.activation_relu_or_gelu,
        "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps": layer.norm1.eps != layer.norm2.eps,
        "encoder_layer.self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((words for words, holds in reasons.items() if holds), "")


class TransformerEncoder(Module):
    """A stack of `num_layers` copies of an encoder layer, and a norm at its end if one is given.

    There are no nested tensors here. Where PyTorch uses them (in evaluation without gradients, for a padding mask whose
    padding comes last), it leaves zeros at the padded places, and so does this.
    """

    __constants__ = ["norm"]

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor = self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        reason = why_not_nested(encoder_layer)
        if enable_nested_tensor and reason:
            warn(f"enable_nested_tensor is True, but self.use_nested_tensor is False because {reason}")
            self.use_nested_tensor = False

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        padding = src_key_padding_mask
        src_key_padding_mask = as_numbers(padding, ("src_key_padding_mask", "mask"), mask, src.dtype)
        mask = as_numbers(mask, ("mask", ""), None, src.dtype)
        out = src
        for layer in self.layers:
            # PyTorch looks whether a mask is the causal one, to leave it out then; the result is the same with it.
            out = layer(out, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=src_key_padding_mask)
        if padding is not None and mask is None and src.dim() == 3 and self._nests(src):
            out = self._blanked(out, padding if padding.dtype is dtypes.bool else padding == -math.inf)
        return out if self.norm is None else self.norm(out)

    def _nests(self, src):
        """Whether PyTorch would run this call over nested tensors, as far as can be said without the mask."""
        if not self.use_nested_tensor or self.layers[0].training or modes.autocast is not None:
            return False
        return not modes.grad or not (src.requires_grad or any(p.requires_grad for p in self.layers[0].parameters()))

    def _blanked(self, out, padding):
        """`out` with zeros at the padded places; not where the padding does not come last (unless that is promised)."""
        if self.mask_check:
            padding = padding & (padding[:, 1:] >= padding[:, :-1]).all()
        return out.masked_fill(padding.unsqueeze(-1), 0.0)


class TransformerDecoder(Module):
    """A stack of `num_layers` copies of a decoder layer, and a norm at its end if one is given."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
        out = tgt
        for layer in self.layers:
            out = layer(out, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                        tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                        tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal)
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """An encoder and a decoder that attends to its output.

    >>> model = torch.nn.Transformer(d_model=16, nhead=4, num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
    >>> model(torch.randn(2, 5, 16), torch.randn(2, 3, 16)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048,
                 dropout=0.1, activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        given = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                 device, dtype)
        norm = lambda: LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*given), num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*given), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self):
        """Draw all matrices anew, by Xavier's rule."""
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)

    generate_square_subsequent_mask = staticmethod(_generate_square_subsequent_mask)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        if src.dim() == 3:
            samples_at = 0 if self.batch_first else 1
            if src.dim() != tgt.dim() or src.size(samples_at) != tgt.size(samples_at):
                raise RuntimeError(f"the batch number of src and tgt must be equal, got {list(src.shape)} and "
                                   f"{list(tgt.shape)}")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError(f"the feature number of src and tgt must be equal to d_model, {self.d_model}, got "
                               f"{src.size(-1)} and {tgt.size(-1)}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                            tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
                            memory_is_causal=memory_is_causal)
