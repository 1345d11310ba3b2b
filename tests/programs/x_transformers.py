"""x-transformers: decoders, encoders and both together, with its many kinds of attention and position; generation."""
import torch
from x_transformers import (
    AutoregressiveWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

from tests.programs import array, fill, gradients, tokens

PACKAGES = ["x-transformers"]

KINDS = {"plain": {}, "rotary": {"rotary_pos_emb": True}, "alibi": {"alibi_pos_bias": True},
         "relative": {"rel_pos_bias": True},
         "rms": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True}, "one head": {"attn_one_kv_head": True},
         "groups": {"attn_kv_heads": 2}, "memory": {"attn_num_mem_kv": 3}, "sparse": {"attn_sparse_topk": 4},
         "normed": {"attn_qk_norm": True}, "sandwich": {"sandwich_norm": True},
         "flash": {"attn_flash": True}, "shift": {"shift_tokens": 1}}


def decoders():
    """A small language model with each kind of attention: loss and gradients."""
    out, words = {}, tokens(2, 12, below=40)
    for name, extra in KINDS.items():
        model = TransformerWrapper(num_tokens=40, max_seq_len=32,
                                   attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **extra))
        model = AutoregressiveWrapper(fill(model))
        loss = model(words)
        loss.backward()
        out[name] = {"loss": loss, "norm": torch.stack([p.grad.norm() for p in model.parameters()
                                                        if p.grad is not None]).norm()}
    return out


def generated():
    """Greedy and sampled generation, with the cache."""
    model = AutoregressiveWrapper(fill(TransformerWrapper(
        num_tokens=40, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8)))).eval()
    start = tokens(2, 4, below=40)
    greedy = model.generate(start, 10, temperature=0.0)
    torch.manual_seed(2)
    return {"greedy": greedy.tolist(), "sampled": model.generate(start, 10, temperature=0.9).tolist()}


def both():
    """From one sequence to another, and an encoder of pictures; masks."""
    model = fill(XTransformer(dim=32, enc_num_tokens=40, enc_depth=1, enc_heads=4, enc_max_seq_len=16,
                              dec_num_tokens=40, dec_depth=1, dec_heads=4, dec_max_seq_len=16))
    loss = model(tokens(2, 8, below=40), tokens(2, 6, below=40, seed=1), mask=torch.arange(8).expand(2, 8) < 6)
    loss.backward()
    pictures = fill(ViTransformerWrapper(image_size=16, patch_size=4, num_classes=5,
                                         attn_layers=Encoder(dim=32, depth=2, heads=4)))
    return {"loss": loss, "gradients": gradients(model), "classes": pictures(array(2, 3, 16, 16))}
