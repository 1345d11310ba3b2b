"""Attention and transformers: values from NumPy, what masks and dropout do, what is kept, and refusals."""
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.attention import SDPBackend, sdpa_kernel
from flambeau.nn.attention.bias import causal_lower_right, causal_upper_left
from flambeau.trace.recording.record import current

F = nn.functional
attend = F.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def close(ours, theirs, tol=1e-5):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tol, atol=tol)


def softmax(x):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def plain(q, k, v, add=0.0, scale=None):
    """softmax(q kᵀ / √d + add) v"""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return softmax(q @ k.swapaxes(-1, -2) * scale + add) @ v


@pytest.mark.parametrize("shape", [(4, 8), (3, 4, 8), (2, 3, 4, 8)])
def test_attention(shape):
    q, k, v = [torch.randn(shape) for _ in range(3)]
    a = [t.numpy() for t in (q, k, v)]
    add = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    later = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    close(attend(q, k, v), plain(*a))
    close(attend(q, k, v, scale=0.7), plain(*a, scale=0.7))
    close(attend(q, k, v, torch.tensor(add)), plain(*a, add))
    close(attend(q, k, v, torch.tensor(later == 0)), plain(*a, later))
    close(attend(q, k, v, is_causal=True), plain(*a, later))


def test_grouped_heads():
    """Every third of six heads shares a key."""
    q, k, v = torch.randn(2, 6, 4, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 3)
    mask = torch.rand(2, 6, 4, 5) > 0.3
    mask[..., 0] = True
    wide = [t.repeat_interleave(3, 1) for t in (k, v)]
    for given in (dict(), dict(attn_mask=mask), dict(is_causal=True)):
        close(attend(q, k, v, enable_gqa=True, **given), attend(q, *wide, **given))


def test_a_query_that_sees_nothing_gets_zeros():
    q, k = torch.randn(3, 8, requires_grad=True), torch.randn(5, 8)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    out = attend(q, k, k, mask)
    out.sum().backward()
    assert not out[1].any() and out[0].all() and not q.grad[1].any() and q.grad.isfinite().all()


def test_dropout():
    q, k = torch.zeros(1, 1000), torch.zeros(400, 1000)
    v = torch.ones(400, 1)
    kept = attend(q, k, v, dropout_p=0.25).item()          # 400 weights of 1/400, each kept with 3/4 and scaled by 4/3
    assert kept != 1 and abs(kept - 1) < 0.2 and abs(kept * 300 - round(kept * 300)) < 1e-3
    assert not attend(q, k, v, dropout_p=1.0).any()


@pytest.mark.parametrize("given", [dict(), dict(is_causal=True), dict(dropout_p=0.4)])
def test_derivatives(given):
    q, k, v = [torch.randn(3, n, dtype=torch.float64, requires_grad=True) for n in (2, 2, 3)]
    bias = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)

    def run(q, k, v, bias):
        torch.manual_seed(5)                               # the same mask each time
        return attend(q, k, v, **(given if given.get("is_causal") else dict(attn_mask=bias, **given)))
    assert torch.autograd.gradcheck(run, (q, k, v, bias))
    assert torch.autograd.gradgradcheck(run, (q, k, v, bias))


def test_what_is_kept():
    """Of the size of the weights, backward keeps the weights alone, in the dtype of the query."""
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = [torch.randn(2, 64, 4, dtype=dtype, requires_grad=True) for _ in range(3)]
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            attend(q, k, v, is_causal=True)
        large = [t for t in seen if t.numel() >= 64 * 64]
        assert len(large) == 1 and large[0].dtype is dtype and all(t.dtype is dtype for t in seen)


def test_half_is_computed_in_float32():
    q, k, v = [(3 * torch.randn(4, 32, 16)).bfloat16() for _ in range(3)]
    exact = plain(*[t.double().numpy() for t in (q, k, v)])
    made = attend(q, k, v).float().numpy()
    assert np.abs(made - exact).max() <= np.abs(exact).max() / 128          # a rounding or two


def test_backends_and_biases():
    q, k = torch.randn(2, 8), torch.randn(4, 8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        close(attend(q, k, k), plain(*[t.numpy() for t in (q, k, k)]))
    assert int(SDPBackend.MATH) == 0 and SDPBackend(2) is SDPBackend.EFFICIENT_ATTENTION
    lower, upper = causal_lower_right(2, 4), causal_upper_left(2, 4)
    assert lower.tolist() == [[True, True, True, False], [True] * 4]
    assert upper.tolist() == [[True, False, False, False], [True, True, False, False]]
    close(attend(q, k, k, lower)[1], attend(q, k, k)[1])
    assert type(attend(q, k, k, lower)) is torch.Tensor
    with pytest.warns(UserWarning, match="NaN"):
        causal_lower_right(4, 2)


# --- heads ------------------------------------------------------------------------------------------------------------


def by_hand(module, q, k, v, add=0.0):
    """Multi-head attention over [steps, features] in NumPy: (output, weights of each head)."""
    own = {name: p.detach().numpy() for name, p in module.named_parameters()}
    width, heads = module.embed_dim, module.num_heads
    split = lambda x: x.reshape(len(x), heads, width // heads).swapaxes(0, 1)
    weights = np.split(own["in_proj_weight"], 3)
    biases = np.split(own["in_proj_bias"], 3)
    q, k, v = [split(x.numpy() @ w.T + b) for x, w, b in zip((q, k, v), weights, biases)]
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(width // heads) + add)
    out = (weights @ v).swapaxes(0, 1).reshape(-1, width)
    return out @ own["out_proj.weight"].T + own["out_proj.bias"], weights


def test_heads():
    module = nn.MultiheadAttention(8, 2)
    with torch.no_grad():
        module.in_proj_bias.normal_()
    q, k, v = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5, 8)
    out, weights = module(q, k, v, average_attn_weights=False)
    theirs, each = by_hand(module, q, k, v)
    close(out, theirs)
    close(weights, each)
    close(module(q, k, v)[1], each.mean(0))
    hidden = torch.rand(3, 5) > 0.7
    close(module(q, k, v, attn_mask=hidden)[0], by_hand(module, q, k, v, np.where(hidden.numpy(), -np.inf, 0))[0])


def test_heads_need_no_weights():
    module, x = nn.MultiheadAttention(8, 4, batch_first=True), torch.randn(2, 5, 8)
    out, none = module(x, x, x, need_weights=False)
    assert none is None
    close(out, module(x, x, x)[0])


def test_padding_has_no_influence():
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    before = module(x, x, x, key_padding_mask=padding)[0]
    changed = x.clone()
    changed[0, 3:] = 100.0
    after = module(x, changed, changed, key_padding_mask=padding)[0]
    close(before, after)
    close(before[0], module(x[0], x[0, :3], x[0, :3])[0])


def test_extra_keys():
    module = nn.MultiheadAttention(8, 2, add_zero_attn=True, add_bias_kv=True)
    x = torch.randn(3, 1, 8)
    assert module(x, x, x)[1].shape == (1, 3, 5)
    assert list(module.state_dict())[:4] == ["in_proj_weight", "in_proj_bias", "bias_k", "bias_v"]


def test_self_attention_is_few_products():
    """One for the three projections, two inside, one for the output."""
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    torch.cpu.synchronize()
    module(x, x, x, need_weights=False)
    text = str(current())
    assert text.count("affine") == 2 and text.count("bmm") == 2


# --- transformers -----------------------------------------------------------------------------------------------------


def test_causality():
    """What comes later does not change what came before; hint and mask are the same."""
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2,
                                  enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    x = torch.randn(1, 6, 8)
    changed = x.clone()
    changed[:, 4:] += 1
    close(layer(x, mask)[:, :4], layer(changed, mask)[:, :4])
    assert not torch.allclose(layer(x, mask)[:, 4:], layer(changed, mask)[:, 4:])
    close(layer(x, mask, is_causal=True), layer(x, mask))
    assert mask[0].tolist() == [0] + [-math.inf] * 5


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_is_its_parts(norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu", norm_first=norm_first, batch_first=True)
    x = torch.randn(2, 5, 8)
    attention = lambda x: layer.self_attn(x, x, x)[0]
    feed = lambda x: layer.linear2(F.gelu(layer.linear1(x)))
    if norm_first:
        y = x + attention(layer.norm1(x))
        theirs = y + feed(layer.norm2(y))
    else:
        y = layer.norm1(x + attention(x))
        theirs = layer.norm2(y + feed(y))
    close(layer(x), theirs)


def test_nothing_runs_before_somebody_looks():
    model = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)
    src, tgt = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    mask = model.generate_square_subsequent_mask(4)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    torch.cpu.synchronize()
    model(src, tgt, tgt_mask=mask, src_key_padding_mask=padding).sum().backward()
    assert all(p.grad._storage.value.trace is not None for p in model.parameters())


def test_padded_places_without_gradients():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    x, padding = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    with torch.no_grad():
        quiet = encoder(x, src_key_padding_mask=padding)
    assert not quiet[0, 2:].any() and quiet[1].all()
    close(quiet[0, :2], encoder(x, src_key_padding_mask=padding)[0, :2])


def test_layers_are_copies():
    layer = nn.TransformerDecoderLayer(8, 2, 16)
    stack = nn.TransformerDecoder(layer, 2)
    assert stack.layers[0].linear1.weight is not stack.layers[1].linear1.weight is not layer.linear1.weight
    close(stack.layers[0].linear1.weight, layer.linear1.weight)


@pytest.mark.parametrize("call, kind, words", [
    (lambda: attend(*[torch.zeros(2, 3)] * 3, torch.zeros(2, 2), is_causal=True), RuntimeError, "Explicit attn_mask"),
    (lambda: attend(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, 4)), RuntimeError, r"\[2, 3\] and \[2, 4\]"),
    (lambda: attend(torch.zeros(2, 3), torch.zeros(5, 3), torch.zeros(4, 3)), RuntimeError, "equally many rows"),
    (lambda: attend(*[torch.zeros(2, 3).double()] * 2, torch.zeros(2, 3)), RuntimeError, "same dtype"),
    (lambda: attend(torch.zeros(4, 2, 3), *[torch.zeros(3, 2, 3)] * 2, enable_gqa=True), RuntimeError, "4, 3 and 3"),
    (lambda: nn.MultiheadAttention(9, 2), AssertionError, "embed_dim=9 and num_heads=2"),
    (lambda: nn.MultiheadAttention(8, 2)(*[torch.zeros(3, 2, 8)] * 3, is_causal=True), RuntimeError, "Need attn_mask"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation="sine"), RuntimeError, "relu/gelu, not sine"),
    (lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True)(torch.zeros(3, 2, 8), torch.zeros(1, 2, 8)), RuntimeError,
     "batch number"),
    (lambda: nn.parallel.DistributedDataParallel(nn.Linear(1, 1)), ValueError, "init_process_group"),
])
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_data_parallel():
    inner = nn.Linear(2, 3)
    net, x = nn.DataParallel(inner), torch.randn(4, 2)
    close(net(x), inner(x))
    close(nn.parallel.data_parallel(inner, x), inner(x))
    assert net.module is inner and list(net.state_dict()) == ["module.weight", "module.bias"] and net.device_ids == []
    assert not isinstance(net, nn.parallel.DistributedDataParallel)
